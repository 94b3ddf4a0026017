//! Prints the processor by what it can do, for the bench that runs this under valgrind.

fn main() {
    println!("{}", messages::processor());
}
