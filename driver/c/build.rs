//! The name that programs remember the shared library by.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The number rises when a program that was linked with an older library could not run with this one.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libndkrocev2.so.0");
}
