//! `ndkrocev2ctl.exe`, executed under Wine.
//!
//! Goal: installing and removing work twice in a row, and a fault at any change leaves nothing behind.
//! Method: the program of `inf/ctl`, built for Windows with its feature `stand-in`, installs a package whose catalogs
//! are signed by a certificate of the test's own. Certificates, the driver store, the device, its keywords, the files
//! and the scheduled task are Wine's; the network is a file. `inf/ctl/README.md` says which is which.
//!
//! A pass means "built and executed under Wine". It says nothing of Windows.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

/// The target of a program that Wine runs.
const GNU: &str = "x86_64-pc-windows-gnu";
/// The target of a release.
const MSVC: &str = "x86_64-pc-windows-msvc";

/// A prefix of our own, with the program and its package in it.
struct Wine {
    prefix: PathBuf,
}

/// Made once. `Err` says what this machine lacks.
static WINE: LazyLock<Result<Wine, String>> = LazyLock::new(Wine::new);

impl Wine {
    fn new() -> Result<Self, String> {
        for (program, package) in [
            ("wine", "wine wine64"),
            ("x86_64-w64-mingw32-gcc", "gcc-mingw-w64-x86-64-win32"),
            ("openssl", "openssl"),
        ] {
            if Command::new(program).arg("--version").output().is_err() {
                return Err(format!("no {program}: apt install {package}"));
            }
        }
        has_target(GNU)?;
        let wine = Self { prefix: out().join("ctl-prefix") };
        let _ = fs::remove_dir_all(&wine.prefix);
        fs::create_dir_all(&wine.prefix).expect("a folder");
        done(&wine.command("wineboot").arg("-i").output().expect("runs"), "wineboot");
        cargo(&["build", "--features", "stand-in", "--target", GNU]);
        wine.package();
        // As a machine that is ready for a test-signed driver.
        let key = r"HKLM\System\CurrentControlSet\Control";
        let add = ["reg", "add", key, "/f", "/v", "SystemStartOptions", "/d", " TESTSIGNING"];
        done(&wine.run(&add), "reg add");
        Ok(wine)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("WINEPREFIX", &self.prefix)
            .env("WINEDEBUG", "-all")
            .env("WINEDLLOVERRIDES", "mscoree,mshtml=")
            .env("NDKROCEV2CTL_STATE", r"C:\network.json")
            .env_remove("DISPLAY");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command("wine").args(arguments).output().expect("wine runs")
    }

    fn ctl(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.run(&[&[r"C:\package\ndkrocev2ctl.exe"], arguments].concat());
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).replace('\r', ""))
    }

    /// All files of a release flat in one folder; the image is none that Wine could load.
    fn package(&self) {
        let folder = self.prefix.join("drive_c/package");
        fs::create_dir_all(&folder).expect("a folder");
        let built = out().parent().expect("the target").join(GNU).join("debug/ndkrocev2ctl.exe");
        fs::copy(built, folder.join("ndkrocev2ctl.exe")).expect("the program is built");
        fs::write(folder.join("ndkrocev2.sys"), "no image").expect("a file");
        fs::copy(root().join("inf/ndkrocev2.man"), folder.join("ndkrocev2.man")).expect("a copy");
        let (key, certificate) = (folder.join("key.pem"), folder.join("signer.pem"));
        let (key, certificate) =
            (key.to_str().expect("a path"), certificate.to_str().expect("one"));
        let subject = "/CN=ndkrocev2 test of installing";
        let make = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", subject];
        openssl(&[&make[..], &["-keyout", key, "-out", certificate]].concat());
        for name in ["ndkrocev2", "ndkrocev2-lower"] {
            let inx = fs::read_to_string(root().join(format!("inf/{name}.inx"))).expect("a text");
            let inf = inx.replace("$ARCH$", "amd64");
            let inf = inf.replace("DriverVer   =", "DriverVer   = 11/25/2026,0.1.0.0");
            let (inf_file, catalog) =
                (folder.join(format!("{name}.inf")), folder.join(format!("{name}.cat")));
            fs::write(&inf_file, inf.replace('\n', "\r\n")).expect("a file");
            let sign = ["smime", "-sign", "-binary", "-nodetach", "-outform", "DER"];
            let by = ["-signer", certificate, "-inkey", key];
            let files =
                ["-in", inf_file.to_str().expect("one"), "-out", catalog.to_str().expect("one")];
            openssl(&[&sign[..], &by[..], &files[..]].concat());
        }
    }
}

fn root() -> &'static Path {
    Path::new(tests::ROOT)
}

fn out() -> PathBuf {
    root().join("target/windows")
}

fn done(output: &Output, what: &str) {
    let said = [&output.stdout[..], &output.stderr].concat();
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&said));
}

fn openssl(arguments: &[&str]) {
    done(&Command::new("openssl").args(arguments).output().expect("openssl runs"), "openssl");
}

fn cargo(arguments: &[&str]) {
    let (command, rest) = arguments.split_first().expect("a command");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([command, "--quiet", "--locked", "--package", "ndkrocev2ctl"]).args(rest);
    // Beside the image and the rig, whatever the target folder of this test is.
    cargo.args(["--target-dir", "target"]).current_dir(root());
    done(&cargo.output().expect("cargo runs"), "cargo");
}

fn has_target(target: &str) -> Result<(), String> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().expect("rustc runs");
    let sysroot = String::from_utf8_lossy(&sysroot.stdout).trim().to_string();
    let has = Path::new(&sysroot).join("lib/rustlib").join(target).exists();
    if has { Ok(()) } else { Err(format!("no target: rustup target add {target}")) }
}

fn skip(why: &str) {
    println!("skipped: {why}");
}

/// Goal: install, status and uninstall do their work twice in a row; each of four faults at each change is undone: a
/// refusal, a change that was made all the same, and the program's death before and after.
/// Method: the program's own command `trial` compares keys and folders before and after; see `inf/ctl/src/trial.rs`.
#[test]
fn every_fault_is_undone() {
    let wine = match &*WINE {
        Ok(wine) => wine,
        Err(why) => return skip(why),
    };
    for mode in ["own", "inherit"] {
        let (code, text) = wine.ctl(&["trial", "--", "--nic", "Ethernet", "--mode", mode]);
        assert_eq!(code, Some(0), "{mode}:\n{text}");
        assert!(text.contains("all undone"), "{text}");
        print!("{mode}: {text}");
    }
}

/// Goal: a release compiles for the compiler that ships it, without the stand-in.
#[test]
fn a_release_compiles() {
    match has_target(MSVC) {
        Ok(()) => cargo(&["check", "--target", MSVC]),
        Err(why) => skip(&why),
    }
}
