//! The tool that installs the driver, where the workspace has it.

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Arch;
use crate::origin::run;
use crate::sbom::Program;
use crate::sign::Missing;

/// Its file in the zip.
pub const NAME: &str = "ndkrocev2ctl.exe";
const PACKAGE: &str = "ndkrocev2ctl";
const LINKER: &str = "x86_64-w64-mingw32-gcc";

/// A target for programs that there is a linker and a C runtime for, and the linker.
struct Toolchain {
    target: &'static str,
    linker: Option<PathBuf>,
}

impl Toolchain {
    /// The one for `arch`: Debian's mingw-w64 for x86-64, which has to be there; PyPI's zig for ARM64, without which there is none.
    fn find(root: &Path, arch: Arch) -> Result<Option<Self>> {
        if arch == Arch::X86_64 {
            if !runs(Command::new(LINKER).arg("--version")) {
                bail!(Missing::new("missing: apt install gcc-mingw-w64-x86-64-win32".to_owned()));
            }
            return Ok(Some(Self { target: "x86_64-pc-windows-gnu", linker: None }));
        }
        let target = "aarch64-pc-windows-gnullvm";
        let mut libdir = Command::new("rustc");
        let libdir = run(libdir.args(["--print", "target-libdir", "--target", target]))?;
        let has_std = Path::new(libdir.trim()).is_dir();
        if !has_std || !runs(Command::new("python3").args(["-m", "ziglang", "version"])) {
            return Ok(None);
        }
        let linker = root.join("inf/release/aarch64-linker").canonicalize()?;
        Ok(Some(Self { target, linker: Some(linker) }))
    }
}

fn runs(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Builds it; `None` where this machine cannot.
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
    if packages.iter().all(|package| package["name"] != PACKAGE) {
        return Ok(None);
    }
    let Some(Toolchain { target, linker }) = Toolchain::find(root, arch)? else { return Ok(None) };
    let mut cargo =
        cargo(&["build", "--quiet", "--release", "--package", PACKAGE, "--target", target]);
    // As the image: it does not tell where it was built, nor when.
    cargo.current_dir(root).env_remove("RUSTFLAGS").env("IMAGE_TREE", root.canonicalize()?);
    cargo.env("RUSTC_WRAPPER", root.join("tests/windows/rustc").canonicalize()?);
    let mut flags = vec!["-Cstrip=symbols".to_owned()];
    flags.push(match &linker {
        Some(linker) => format!("-Clinker={}", linker.display()),
        None => "-Clink-arg=-Wl,--no-insert-timestamp".to_owned(),
    });
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    run(cargo.arg("--target-dir").arg(root.join("target")))?;
    let built = root.join("target").join(target).join("release").join(NAME);
    if linker.is_some() {
        let timeless = built.with_extension("timeless.exe");
        fs::write(&timeless, without_time(fs::read(&built)?)?)?;
        return Ok(Some((Program { package: PACKAGE, target }, timeless)));
    }
    Ok(Some((Program { package: PACKAGE, target }, built)))
}

/// The program without the time at which it was linked (PE format, COFF file header, `TimeDateStamp`), which zig's linker always
/// writes.
fn without_time(mut program: Vec<u8>) -> Result<Vec<u8>> {
    let header = program.get(0x3c..0x40).context("no program")?;
    let header = u32::from_le_bytes(header.try_into()?) as usize;
    let time = program.get_mut(header + 8..header + 12).context("no file header")?;
    time.fill(0);
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_time_of_linking_goes() {
        let mut program = vec![0xff; 0x60];
        program[0x3c..0x40].copy_from_slice(&0x40_u32.to_le_bytes());
        let timeless = without_time(program.clone()).unwrap();
        program[0x48..0x4c].fill(0);
        assert_eq!(timeless, program);
        assert!(without_time(vec![0xff; 0x60]).is_err());
    }
}
