//! The image, and the program that loads it into a Linux process, built for the tests of this package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The exit status by which a script says that this machine lacks something.
pub const CANNOT: i32 = 77;

/// The root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A copy of the image in `folder`, built as `tests/windows/build` is told.
///
/// # Errors
/// What this machine lacks to build it.
///
/// # Panics
/// The build fails, or the folder is not writable.
pub fn image(build: &[&str], folder: &Path) -> Result<PathBuf, String> {
    let built =
        Command::new(root().join("tests/windows/build")).args(build).output().expect("bash");
    let said = String::from_utf8_lossy(&built.stderr);
    if built.status.code() == Some(CANNOT) {
        return Err(said.trim().to_owned());
    }
    assert!(built.status.success(), "tests/windows/build:\n{said}");
    let image = root().join(String::from_utf8_lossy(&built.stdout).trim());
    // The next build may replace it while we run.
    let name = build.last().map_or("ndkrocev2.sys".into(), |of| format!("ndkrocev2-{of}.sys"));
    let copy = folder.join(name);
    fs::copy(image, &copy).expect("target/tmp is writable");
    Ok(copy)
}

/// The program that loads the image, built as the test whose `CARGO_TARGET_TMPDIR` is `folder`.
///
/// # Panics
/// The build fails.
#[must_use]
pub fn rig(folder: &Path) -> PathBuf {
    let target = folder.parent().expect("target/tmp has a parent");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--package", "rig", "--bin", "rig", "--target-dir"]).arg(target);
    let built = cargo.current_dir(root()).output().expect("cargo starts");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    target.join("debug/rig")
}
