//! The arguments of the linker that make a kernel image. The build scripts of `netadapter-glue/client` and of `driver/flight/image`
//! take this file, too.

use std::env;

/// For link.exe and lld-link.
const LINK: [&str; 14] = [
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
    // The checksum, which Windows verifies.
    "/RELEASE",
    // A section without access rights of its own ends in a bug check.
    "/MERGE:.retplne=.rdata",
    "/MERGE:.00cfg=.rdata",
];
/// None of them is paged: all of it may run at DISPATCH_LEVEL.
const SECTIONS: [(&str, &str); 5] =
    [(".text", "RE"), (".rdata", "R"), (".data", "RW"), (".pdata", "R"), (".rsrc", "R")];

/// Whether the target is one that these arguments are for.
pub(crate) fn is_for_windows() -> bool {
    let target = |key| env::var(format!("CARGO_CFG_TARGET_{key}")).unwrap_or_default();
    target("OS") == "windows" && target("ENV") == "msvc"
}

/// All of them, for an image of this name: it names its symbols without a folder.
pub(crate) fn arguments(image: &str) -> impl Iterator<Item = String> {
    // "Not paged" is no "P" for link.exe, which a Windows host has, and "P" for lld-link.
    let not_paged = if cfg!(windows) { "!P" } else { "P" };
    let sections =
        SECTIONS.map(|(section, access)| format!("/SECTION:{section},{access}{not_paged}"));
    let symbols = format!("/PDBALTPATH:{image}.pdb");
    let x86_64 = env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64");
    // The code fits the processor's shadow stack; other processors have none.
    let shadow_stack = x86_64.then(|| "/CETCOMPAT".to_string());
    LINK.map(str::to_string).into_iter().chain(sections).chain([symbols]).chain(shadow_stack)
}
