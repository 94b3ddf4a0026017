//! `ndkrocev2ctl.exe` for Windows, and under Wine.
//!
//! Goal: the program compiles for the compiler that ships it. What it installs it takes away again, whatever fails in
//! between.
//! Method: its command `trial` (`inf/ctl/src/trial.rs`), which only the feature `stand-in` has, runs it in Wine, a process for
//! each installation, and compares keys and files before and after. `inf/ctl/README.md` says which operations are Wine's
//! and which have a file for a network.
//!
//! A pass means "executed under Wine". It says nothing of Windows.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use release::authenticode::Hashes;
use release::catalog::{Catalog, Kind, Member};
use release::inf::{PACKAGES, Package, stamp};
use release::sign::Signer;

/// The target of a program that Wine runs.
const GNU: &str = "x86_64-pc-windows-gnu";
/// The target of a release.
const MSVC: &str = "x86_64-pc-windows-msvc";
/// As that, for a tool that is built on Windows.
const MSVC_ARM: &str = "aarch64-pc-windows-msvc";
/// Of a server with test signing. Wine makes at their first use the keys that each Windows has from its start: the class of
/// network adapters, a task scheduler that starts by itself.
const REGISTRY: &str = r#"REGEDIT4

[HKEY_LOCAL_MACHINE\Software\Microsoft\Windows NT\CurrentVersion]
"CurrentBuildNumber"="20348"

[HKEY_LOCAL_MACHINE\System\CurrentControlSet\Control]
"SystemStartOptions"=" TESTSIGNING"

[HKEY_LOCAL_MACHINE\System\CurrentControlSet\Control\ProductOptions]
"ProductType"="ServerNT"

[HKEY_LOCAL_MACHINE\System\CurrentControlSet\Control\Class\{4D36E972-E325-11CE-BFC1-08002BE10318}]

[HKEY_LOCAL_MACHINE\System\CurrentControlSet\Services\Schedule]
"Start"=dword:00000002
"#;
/// Seconds; a program that waits for a service of Wine's that has gone would wait for ever.
const HANGS_AFTER: &str = "1800";

#[test]
fn a_release_compiles() {
    for processor in [MSVC, MSVC_ARM] {
        if let Err(missing) = target(processor) {
            skip(&missing);
            continue;
        }
        succeed(cargo("check", processor).arg("--quiet"));
    }
}

/// Goal: the NIC keeps its address, and the adapter has one of its own.
#[test]
fn all_is_undone_in_own_mode() {
    trial("own");
}

/// Goal: the same where the adapter takes the NIC's place and its IP settings.
#[test]
fn all_is_undone_in_inherit_mode() {
    trial("inherit");
}

/// Goal: a stage of a flight makes NICs, and installs and uninstalls an adapter twice; one that this machine cannot show
/// is skipped, by its exit code. Both leave the machine as it was, and their lines say so.
#[test]
fn all_is_undone_in_a_flight() {
    if let Err(missing) = &*TOOL {
        return skip(missing);
    }
    let machine = Machine::prepare("flight");
    let package = format!("Z:{}", machine.package().display()).replace('/', r"\");
    for (stage, code, words) in
        [("uninstall", 0, "done"), ("consumer", 77, "the package has no ndkflight.sys")]
    {
        let mut flight = machine.wine("timeout");
        flight.args([HANGS_AFTER, "wine"]).arg(built()).args(["flight", "stage", stage]);
        let done = flight.args(["--package", &package, "--out", r"C:\flight"]).output();
        let done = done.expect("wine starts");
        let said = String::from_utf8_lossy(&done.stdout);
        assert_eq!(
            done.status.code(),
            Some(code),
            "{said}{}",
            String::from_utf8_lossy(&done.stderr)
        );
        let lines = format!("prefix/drive_c/flight/this-machine-declared-{stage}.jsonl");
        let lines = fs::read_to_string(machine.folder.join(lines)).expect("its lines");
        assert!(lines.contains(words) && lines.contains("things are as before"), "{lines}");
    }
    machine.is_clean();
}

static TOOL: LazyLock<Result<(), String>> = LazyLock::new(tool);

fn trial(mode: &str) {
    if let Err(missing) = &*TOOL {
        return skip(missing);
    }
    let machine = Machine::prepare(mode);
    let package = format!("Z:{}", machine.package().display()).replace('/', r"\");
    let mut trial = machine.wine("timeout");
    trial.args([HANGS_AFTER, "wine"]).arg(built()).args(["trial", "--", "--nic", "Ethernet"]);
    trial.args(["--mode", mode, "--package", &package]);
    let said = succeed(&mut trial);
    assert!(said.contains("two adapters, removed in either order"), "{said}");
    assert!(said.contains("died of, all undone"), "{said}");
    machine.is_clean();
    for line in said.lines().filter(|line| line.starts_with("trial: ")) {
        println!("{mode}: {line}");
    }
}

/// The tool with its trial, for Wine; what is missing for that.
fn tool() -> Result<(), String> {
    target(GNU)?;
    // The shim's.
    target(MSVC)?;
    for (program, package) in [
        ("wine", "wine wine64"),
        ("x86_64-w64-mingw32-gcc", "gcc-mingw-w64-x86-64-win32"),
        ("openssl", "openssl"),
        ("osslsigncode", "osslsigncode"),
    ] {
        if Command::new(program).arg("--version").output().is_err() {
            return Err(format!("no {program}: apt install {package}"));
        }
    }
    let mut cargo = cargo("rustc", GNU);
    // Each installation copies the program.
    succeed(cargo.args(["--quiet", "--features", "stand-in", "--", "-Cstrip=symbols"]));
    let mut shim = Command::new("tests/windows/shim/build");
    shim.args(["bcryptprimitives", "/ENTRY:DllMain"]).current_dir(root());
    succeed(&mut shim);
    // Wine looks for it beside the program.
    let dll = root().join("target/windows/bcryptprimitives.dll");
    fs::copy(dll, built().with_file_name("bcryptprimitives.dll")).expect("the shim was built");
    Ok(())
}

fn root() -> PathBuf {
    Path::new(tests::ROOT).canonicalize().expect("the workspace")
}

fn built() -> PathBuf {
    root().join("target").join(GNU).join("debug/ndkrocev2ctl.exe")
}

/// A Wine of its own: a prefix, and a package to install.
struct Machine {
    folder: PathBuf,
}

impl Machine {
    fn prepare(mode: &str) -> Self {
        let machine = Self { folder: root().join("target/windows/ctl").join(mode) };
        // The prefix of the run before, where that left it as it was.
        if fs::remove_file(machine.clean()).is_err() {
            machine.make_prefix();
        }
        machine.make_package();
        machine
    }

    fn make_prefix(&self) {
        // It does not exist in the first run.
        let _ = fs::remove_dir_all(&self.folder);
        fs::create_dir_all(&self.folder).expect("target is writable");
        succeed(self.wine("wineboot").arg("-i"));
        let registry = self.folder.join("machine.reg");
        fs::write(&registry, REGISTRY).expect("target is writable");
        succeed(self.wine("wine").args(["reg", "import"]).arg(registry));
    }

    fn make_package(&self) {
        // That of the run before.
        let _ = fs::remove_dir_all(self.package());
        fs::create_dir_all(self.package()).expect("target is writable");
        let signer = Signer::for_tests(&self.folder, &self.folder).expect("a signer");
        for package in PACKAGES {
            add_package(package, &signer, &self.package());
        }
        for file in ["ndkrocev2.sys", "ndkrocev2.man"] {
            // Nobody loads the image or reads the manifest here.
            fs::write(self.package().join(file), file).expect("target is writable");
        }
    }

    fn package(&self) -> PathBuf {
        self.folder.join("package")
    }

    /// A file that says so.
    fn clean(&self) -> PathBuf {
        self.folder.join("clean")
    }

    fn is_clean(&self) {
        fs::write(self.clean(), "").expect("target is writable");
    }

    fn wine(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("WINEPREFIX", self.folder.join("prefix")).env("WINEDEBUG", "-all");
        command.env("WINEDLLOVERRIDES", "mscoree,mshtml=").env_remove("DISPLAY");
        command.env("NDKROCEV2CTL_STATE", r"C:\network.json");
        command
    }
}

impl Drop for Machine {
    /// Nothing of it runs on, whatever failed.
    fn drop(&mut self) {
        let _ = self.wine("wineserver").arg("-k").output();
    }
}

/// The INF with its catalog, as a release has them, but for the versions of Windows in the names of sections: Wine's SetupAPI
/// knows none.
fn add_package(package: Package, signer: &Signer, folder: &Path) {
    let inx = root().join("inf").join(format!("{}.inx", package.name));
    let inx = fs::read_to_string(inx).expect("an INX");
    let inf = stamp(package, &inx, "amd64", "0.1.0", 0).expect("an INF");
    let unversioned = inf.replace(",NTamd64.10.0...25341", "").replace(".10.0...17763", "");
    assert_eq!(unversioned.matches("NTamd64.10.0").count(), 1, "the section that nobody names");
    let file = format!("{}.inf", package.name);
    fs::write(folder.join(&file), &unversioned).expect("target is writable");
    let hashes = Hashes::of_file(unversioned.as_bytes());
    let members = vec![Member { file, kind: Kind::File, hashes }];
    let catalog = Catalog { made_at_s: 0, members, attributes: Vec::new() };
    let unsigned = folder.join("unsigned.cat");
    fs::write(&unsigned, catalog.encode().expect("a catalog")).expect("target is writable");
    let signed = folder.join(format!("{}.cat", package.name));
    signer.sign(&unsigned, &signed).expect("osslsigncode signs");
}

fn cargo(verb: &str, target: &str) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    // Beside the image and the rig, whatever the target folder of this test is.
    cargo.args([verb, "--locked", "--package", "ndkrocev2ctl", "--target-dir", "target"]);
    cargo.args(["--target", target]).current_dir(root());
    cargo
}

fn target(name: &str) -> Result<(), String> {
    let sysroot = succeed(Command::new("rustc").args(["--print", "sysroot"]));
    if Path::new(sysroot.trim()).join("lib/rustlib").join(name).exists() {
        return Ok(());
    }
    Err(format!("no target: rustup target add {name}"))
}

/// Past the test harness, which shows the output of failed tests only.
fn skip(reason: &str) {
    let _ = writeln!(io::stderr(), "skipped: {reason}");
}

fn succeed(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let Output { status, stdout, stderr } = done;
    let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(status.success(), "{command:?}: {status}\n{stdout}{stderr}");
    stdout
}
