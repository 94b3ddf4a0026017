//! What the linker of the Windows image is told.

use std::env;

/// For link.exe and lld-link.
const LINK: [&str; 15] = [
    "/DRIVER",
    "/SUBSYSTEM:NATIVE,10.0",
    "/ENTRY:DriverEntry",
    "/NODEFAULTLIB",
    "/MANIFEST:NO",
    "/NXCOMPAT",
    "/DYNAMICBASE",
    "/INTEGRITYCHECK",
    "/GUARD:CF",
    "/OPT:REF,ICF",
    // The same sources make the same image.
    "/BREPRO",
    "/PDBALTPATH:%_PDB%",
    // The checksum, which Windows verifies.
    "/RELEASE",
    // A section without access rights of its own ends in a bug check.
    "/MERGE:.retplne=.rdata",
    "/MERGE:.00cfg=.rdata",
];
/// None of them is paged: all of it may run at DISPATCH_LEVEL.
const SECTIONS: [(&str, &str); 4] =
    [(".text", "RE"), (".rdata", "R"), (".data", "RW"), (".pdata", "R")];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |key| env::var(format!("CARGO_CFG_TARGET_{key}")).unwrap_or_default();
    if target("OS") != "windows" || target("ENV") != "msvc" {
        return;
    }
    // The WDK's libraries and its own arguments; those below come last and so win.
    #[cfg(windows)]
    if env::var_os("CARGO_FEATURE_WDK").is_some() {
        wdk_build::configure_wdk_binary_build().expect("a WDK, and crt-static");
    }
    for argument in LINK {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    // "Not paged" is no "P" for link.exe, which a Windows host has, and "P" for lld-link.
    let not_paged = if cfg!(windows) { "!P" } else { "P" };
    for (section, access) in SECTIONS {
        println!("cargo::rustc-cdylib-link-arg=/SECTION:{section},{access}{not_paged}");
    }
}
