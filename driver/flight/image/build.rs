//! The arguments of the linker for the image.

#[path = "../../image/link.rs"]
mod link;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../../image/link.rs");
    if link::is_for_windows() {
        for argument in link::arguments("ndkflight") {
            println!("cargo::rustc-cdylib-link-arg={argument}");
        }
    }
}
