//! The arguments of the linker for the image.

#[path = "../../driver/image/link.rs"]
mod link;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../../driver/image/link.rs");
    if link::is_for_windows() {
        for argument in link::arguments("netadapter-client") {
            println!("cargo::rustc-link-arg={argument}");
        }
    }
}
