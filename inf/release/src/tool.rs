//! The tool that installs the driver, where the workspace has it.

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Arch;
use crate::origin::run;
use crate::sbom::Program;
use crate::sign::Missing;

/// Its file in the zip.
pub const NAME: &str = "ndkrocev2ctl.exe";
const PACKAGE: &str = "ndkrocev2ctl";
/// The only target for programs that Debian has a linker and a C runtime for.
const TARGET: &str = "x86_64-pc-windows-gnu";
const LINKER: &str = "x86_64-w64-mingw32-gcc";

/// Builds it for x86-64.
pub fn build(root: &Path, arch: Arch) -> Result<Option<(Program, PathBuf)>> {
    let manifest = root.join("Cargo.toml");
    let cargo = |arguments: &[&str]| {
        let mut cargo = Command::new("cargo");
        cargo.args(arguments).arg("--locked").arg("--manifest-path").arg(&manifest);
        cargo
    };
    let metadata = run(&mut cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo's metadata")?;
    let packages = metadata["packages"].as_array().context("cargo's packages")?;
    if arch != Arch::X86_64 || packages.iter().all(|package| package["name"] != PACKAGE) {
        return Ok(None);
    }
    if Command::new(LINKER).arg("--version").output().is_err() {
        bail!(Missing::new("missing: apt install gcc-mingw-w64-x86-64-win32".to_owned()));
    }
    let mut cargo =
        cargo(&["build", "--quiet", "--release", "--package", PACKAGE, "--target", TARGET]);
    // As the image: it does not tell where it was built, nor when.
    cargo.current_dir(root).env_remove("RUSTFLAGS").env("IMAGE_TREE", root.canonicalize()?);
    cargo.env("RUSTC_WRAPPER", root.join("tests/windows/rustc").canonicalize()?);
    let flags = ["-Cstrip=symbols", "-Clink-arg=-Wl,--no-insert-timestamp"];
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    run(cargo.arg("--target-dir").arg(root.join("target")))?;
    let built = root.join("target").join(TARGET).join("release").join(NAME);
    Ok(Some((Program { package: PACKAGE, target: TARGET }, built)))
}
