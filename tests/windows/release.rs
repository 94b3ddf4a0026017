//! The zip that `cargo run -p release` makes, opened and judged by programs that know nothing of its maker.
//!
//! Goal: a Windows machine gets all it needs, signed, and anybody who builds the same sources gets the same.
//! Method: one release for each processor. Python's zip, `sha256sum`, osslsigncode and openssl read it; a second one
//! is made from a copy of the sources in another folder, with another certificate.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use release::archive::{SUMS, differences, read};
use release::authenticode::Hashes;
use release::inf::PACKAGES;
use release::origin::Origin;
use release::sbom::{Program, bill};
use release::{Arch, IMAGE, Release, Request, sign};
use serde_json::Value;

/// The folder of the workspace.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A release and its files in a folder.
struct Unpacked {
    release: Release,
    folder: PathBuf,
    /// As openssl and osslsigncode want it.
    certificate: PathBuf,
}

impl Unpacked {
    /// Of both processors; without those that this machine cannot make, which is said.
    fn all() -> impl Iterator<Item = &'static Self> {
        static X86_64: LazyLock<Option<Unpacked>> = LazyLock::new(|| Unpacked::make(Arch::X86_64));
        static AARCH64: LazyLock<Option<Unpacked>> =
            LazyLock::new(|| Unpacked::make(Arch::Aarch64));
        [&X86_64, &AARCH64].into_iter().filter_map(|release| release.as_ref())
    }

    fn make(arch: Arch) -> Option<Self> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("release-{arch:?}"));
        // Of the run before.
        let _ = fs::remove_dir_all(&folder);
        let release = make(Path::new(ROOT), arch, &folder)?;
        let mut unzip = Command::new("python3");
        unzip.args(["-m", "zipfile", "-e"]).arg(&release.zip).arg(&folder);
        assert_success(&mut unzip);
        let made = Self { certificate: folder.join("certificate.pem"), release, folder };
        let mut openssl = Command::new("openssl");
        openssl.args(["x509", "-inform", "DER", "-in"]).arg(made.path("ndkrocev2.cer"));
        assert_success(openssl.arg("-out").arg(&made.certificate));
        Some(made)
    }

    fn path(&self, file: &str) -> PathBuf {
        let zip = self.release.zip.file_stem().expect("the zip's name");
        self.folder.join(zip).join(file)
    }

    fn verify(&self, file: &Path, catalog: Option<&Path>) -> Output {
        let mut verify = Command::new("osslsigncode");
        verify.args(["verify", "-CAfile"]).arg(&self.certificate);
        if let Some(catalog) = catalog {
            verify.arg("-catalog").arg(catalog);
        }
        verify.arg("-in").arg(file).output().expect("the release found it")
    }
}

fn make(root: &Path, arch: Arch, out: &Path) -> Option<Release> {
    make_of(root, arch, None, out)
}

/// With an image that was built elsewhere, or the one that is built here.
fn make_of(root: &Path, arch: Arch, image: Option<PathBuf>, out: &Path) -> Option<Release> {
    let (root, out) = (root.to_owned(), out.to_owned());
    match release::release(&Request { root, arch, image, out, certificate: None, password: None }) {
        Err(error) if error.is::<sign::Missing>() => {
            skip(&format!("the release for {arch:?}: {error}"));
            None
        }
        made => Some(made.unwrap_or_else(|error| panic!("{error:#}"))),
    }
}

/// Past the test harness, which shows the output of failed tests only.
fn skip(reason: &str) {
    let _ = writeln!(io::stderr(), "skipped: {reason}");
}

fn assert_success(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    said
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Goal: everything is there, nothing else is, such as a key, and the hashes are those of the files.
#[test]
fn it_is_complete() {
    for made in Unpacked::all() {
        let names: BTreeSet<&str> = made.release.files.keys().map(String::as_str).collect();
        // Where this machine has a linker for it.
        let tool = names.contains(release::tool::NAME).then_some(release::tool::NAME);
        let wanted = [
            "LICENSE-APACHE",
            "LICENSE-MIT",
            "Ndkrocev2.psm1",
            "README.md",
            "SHA256SUMS",
            "ndkflight.pdb",
            "ndkflight.sys",
            "ndkrocev2-lower.cat",
            "ndkrocev2-lower.inf",
            "ndkrocev2.cat",
            "ndkrocev2.cdx.json",
            "ndkrocev2.cer",
            "ndkrocev2.inf",
            "ndkrocev2.man",
            "ndkrocev2.pdb",
            "ndkrocev2.sys",
            "ndkrocev2ctl.schema.json",
        ];
        let wanted: BTreeSet<&str> = wanted.into_iter().chain(tool).collect();
        assert_eq!(names, wanted);
        let unpacked = fs::read_dir(made.path("")).expect("a folder").count();
        assert_eq!(unpacked, names.len(), "all files lie in one folder");
        let mut check = Command::new("sha256sum");
        let listed = assert_success(check.args(["--check", SUMS]).current_dir(made.path("")));
        assert_eq!(listed.matches(": OK").count(), names.len() - 1);
        for (name, bytes) in &made.release.files {
            let key = b"PRIVATE KEY";
            assert!(!bytes.windows(key.len()).any(|window| window == key), "a key in {name}");
            println!("{} bytes: {name}", bytes.len());
        }
    }
}

/// Goal: the tool is a program for the zip's processor, and does not tell when it was linked, as nothing else in the zip does.
/// Method: PE format, COFF file header: Machine, and TimeDateStamp.
#[test]
fn the_tool_is_for_its_processor() {
    for made in Unpacked::all() {
        let machine: u16 = match made.release.zip.to_string_lossy().contains("aarch64") {
            true => 0xaa64,
            false => 0x8664,
        };
        let Some(tool) = made.release.files.get(release::tool::NAME) else {
            skip(
                "the tool for ARM64: pip install ziglang, rustup target add aarch64-pc-windows-gnullvm",
            );
            continue;
        };
        let header = u32::from_le_bytes(tool[0x3c..0x40].try_into().expect("four bytes")) as usize;
        assert_eq!(tool[header..header + 4], *b"PE\0\0");
        assert_eq!(tool[header + 4..header + 6], machine.to_le_bytes());
        assert_eq!(tool[header + 8..header + 12], [0; 4], "the time of linking");
    }
}

/// Goal: an image that was built elsewhere, as by Microsoft's linker, is packed as the one of this build, with its symbols.
#[test]
fn another_image_is_packed() {
    let Some(made) =
        Unpacked::all().find(|made| made.release.files.contains_key(release::tool::NAME))
    else {
        return;
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("release-given");
    fs::create_dir_all(&folder).expect("a folder");
    // Signed already: it is signed anew. No symbols of it are those of this build.
    let image = folder.join(IMAGE);
    fs::write(&image, &made.release.files[IMAGE]).expect("a file");
    fs::write(folder.join("ndkrocev2.pdb"), "symbols").expect("a file");
    let packed = make_of(Path::new(ROOT), Arch::X86_64, Some(image), &folder.join("out"));
    let packed = packed.expect("it has been made before");
    let hashes = |bytes: &[u8]| Hashes::of_image(bytes).expect("an image").sha256;
    assert_eq!(hashes(&packed.files[IMAGE]), hashes(&made.release.files[IMAGE]));
    assert_eq!(packed.files["ndkrocev2.pdb"], b"symbols");
}

/// Goal: the image is signed, also page by page; it is still an image whose checksum is right; and a changed one does
/// not verify.
#[test]
fn the_image_is_signed() {
    for made in Unpacked::all() {
        let sound = made.verify(&made.path(IMAGE), None);
        let said = text(&sound.stdout);
        assert!(sound.status.success(), "{said}");
        // SPC_PE_IMAGE_PAGE_HASHES_V2, as osslsigncode calls it.
        assert!(said.contains("Page hash algorithm  : SHA256"), "no hashes of pages:\n{said}");
        // The hash by which the catalog knows the image.
        let hashes = Hashes::of_image(&made.release.files[IMAGE]).expect("an image");
        let hex: String = hashes.sha256.iter().map(|byte| format!("{byte:02X}")).collect();
        assert!(said.contains(&format!("Calculated message digest : {hex}")), "not {hex}:\n{said}");
        let checksum = said.lines().filter(|line| line.contains("PE checksum"));
        let sums: BTreeSet<_> =
            checksum.filter_map(|line| line.split_whitespace().last()).collect();
        assert_eq!(sums.len(), 1, "the checksum is wrong:\n{said}");
        let mut bytes = made.release.files[IMAGE].clone();
        bytes[0x1000] ^= 1;
        let changed = made.folder.join("changed.sys");
        fs::write(&changed, bytes).expect("the folder is writable");
        assert!(!made.verify(&changed, None).status.success(), "a changed image verifies");
    }
}

/// Goal: each catalog is signed and vouches for its INF and for the image, and for nothing else.
/// Method: osslsigncode looks for the image; it reads no INF, whose hashes are among what openssl shows.
#[test]
fn the_catalogs_vouch_for_their_files() {
    for made in Unpacked::all() {
        for package in PACKAGES {
            let catalog = made.path(&format!("{}.cat", package.name));
            let sound = made.verify(&catalog, None);
            assert!(sound.status.success(), "{}", text(&sound.stdout));
            let sound = made.verify(&made.path(IMAGE), Some(&catalog));
            assert!(sound.status.success(), "{}", text(&sound.stdout));
            let mut bytes = made.release.files[IMAGE].clone();
            bytes[0x1000] ^= 1;
            let changed = made.folder.join("not-vouched-for.sys");
            fs::write(&changed, bytes).expect("the folder is writable");
            let unsound = made.verify(&changed, Some(&catalog));
            assert!(!unsound.status.success(), "a changed image is vouched for");
            let mut openssl = Command::new("openssl");
            openssl.args(["asn1parse", "-inform", "DER", "-in"]).arg(&catalog);
            let parts = assert_success(&mut openssl);
            let inf = made.path(&format!("{}.inf", package.name));
            for program in ["sha1sum", "sha256sum"] {
                let hash = assert_success(Command::new(program).arg(&inf)).to_uppercase();
                let hash = hash.split(' ').next().expect("a hash");
                assert!(parts.contains(&format!("[HEX DUMP]:{hash}")), "{hash}: {parts}");
            }
            // Two members by SHA-1 and two by SHA-256, with their information.
            assert_eq!(parts.matches(":1.3.6.1.4.1.311.12.2.3").count(), 4, "{parts}");
            assert_eq!(parts.matches(":1.3.6.1.4.1.311.2.1.4").count(), 2, "{parts}");
        }
    }
}

/// Goal: but for what is stamped, the INFs are the INXs that `inf.rs` lints.
#[test]
fn the_infs_are_the_linted_ones() {
    for made in Unpacked::all() {
        for package in PACKAGES {
            let inf = text(&made.release.files[&format!("{}.inf", package.name)]);
            let inx = Path::new(ROOT).join("inf").join(format!("{}.inx", package.name));
            let inx = fs::read_to_string(inx).expect("an INX");
            assert_eq!(inf.matches("\r\n").count(), inf.lines().count(), "Windows' ends of lines");
            assert!(inf.is_ascii());
            for (stamped, line) in inf.lines().zip(inx.lines()) {
                let arch = line.replace("$ARCH$", "amd64") == stamped
                    || line.replace("$ARCH$", "arm64") == stamped;
                let date = line == "DriverVer   =" && is_driver_ver(stamped);
                assert!(arch || date, "{line:?} became {stamped:?}");
            }
            assert_eq!(inf.lines().count(), inx.lines().count());
        }
    }
}

/// `DriverVer = 11/25/2026,0.1.0.1064`
fn is_driver_ver(line: &str) -> bool {
    let shape: String = line.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape.trim_end_matches('0') == "DriverVer   = 00/00/0000,0.0.0."
}

/// Goal: a second opinion on the INFs, of <https://github.com/NullYing/infverif-golang>, which does in Go some of what
/// InfVerif does: `/h` (for a signature of Microsoft), `/u` and `/k`. It finds less than the lint of `inf.rs`.
#[test]
fn another_infverif_has_no_complaint() {
    if Command::new("infverif").output().is_err() {
        return skip("another InfVerif: no program infverif, of NullYing/infverif-golang");
    }
    let infverif = |rules: &str, inf: &Path| {
        let output = Command::new("infverif").args(["/v", rules]).arg(inf).output();
        let output = output.expect("infverif runs");
        (output.status.success(), text(&output.stdout))
    };
    for made in Unpacked::all() {
        for package in PACKAGES {
            for rules in ["/h", "/u", "/k"] {
                let (passed, said) = infverif(rules, &made.path(&format!("{}.inf", package.name)));
                assert!(passed && said.contains("INF is VALID"), "{rules}: {said}");
            }
        }
        let inf = text(&made.release.files["ndkrocev2.inf"]).replace("{4d36e972-", "{4d36e973-");
        let changed = made.folder.join("another-class.inf");
        fs::write(&changed, inf).expect("the folder is writable");
        assert!(!infverif("/h", &changed).0, "the GUID of another class passes");
    }
}

/// Goal: the bill of materials names each crate whose code is in the image, as the symbols know them, with the licence
/// and the hash of its archive.
#[test]
fn the_bill_names_what_is_in_the_image() {
    for made in Unpacked::all() {
        let bill: Value =
            serde_json::from_slice(&made.release.files["ndkrocev2.cdx.json"]).expect("JSON");
        let components = bill["components"].as_array().expect("components");
        let billed: BTreeSet<_> = components
            .iter()
            .map(|of| format!("{}-{}", string(&of["name"]), string(&of["version"])))
            .collect();
        let found = crates_in(&made.release.files["ndkrocev2.pdb"]);
        assert!(found.len() > 8, "{found:?}");
        let unbilled: Vec<_> = found.difference(&billed).collect();
        assert!(unbilled.is_empty(), "in the image, but not billed: {unbilled:?}");
        for component in components {
            assert!(component["licenses"][0]["expression"].is_string(), "{component}");
            let is_foreign = component["purl"].is_string();
            assert_eq!(component["hashes"][0]["content"].is_string(), is_foreign, "{component}");
        }
        let references: BTreeSet<_> = components.iter().map(|of| string(&of["bom-ref"])).collect();
        for of in bill["dependencies"].as_array().expect("dependencies") {
            for on in of["dependsOn"].as_array().expect("references") {
                assert!(references.contains(string(on)), "{on} is depended on and unknown");
            }
        }
        println!("{} components, of which the symbols name {}", components.len(), found.len());
    }
}

/// Goal: SECURITY.md tells of each crate of others in the image what was looked at, in the version that is in it.
#[test]
fn each_crate_of_the_image_was_looked_at() {
    let image = Program { package: "ndkrocev2", target: "x86_64-pc-windows-msvc" };
    let origin = Origin::read(Path::new(ROOT)).expect("the origin");
    let of_image = bill(Path::new(ROOT), &[image], &origin).expect("the bill");
    let foreign = of_image["components"].as_array().expect("components").iter();
    let foreign = foreign.filter(|component| component["purl"].is_string());
    let named = |of: &Value| (string(&of["name"]).to_owned(), string(&of["version"]).to_owned());
    let billed: BTreeSet<(String, String)> = foreign.map(named).collect();
    let security = fs::read_to_string(Path::new(ROOT).join("SECURITY.md")).expect("it is there");
    let (_, table) = security.split_once("## The crates of the kernel image").expect("the section");
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        Some((cells.next()?.replace('\\', ""), cells.next()?.to_owned()))
    };
    let rows = table.lines().filter_map(row).filter(|(name, _)| name != "Crate" && name != "---");
    assert_eq!(rows.collect::<BTreeSet<_>>(), billed);
}

fn string(value: &Value) -> &str {
    value.as_str().expect("a string")
}

/// The folders of cargo's registry that the symbols name: `cargo/registry/src/index/heapless-0.9.3/src/...`.
fn crates_in(symbols: &[u8]) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(symbols).replace('\\', "/");
    let folders = text.split("cargo/registry/src/").skip(1);
    folders.filter_map(|rest| rest.split('/').nth(1)).map(str::to_owned).collect()
}

/// Goal: the bill is CycloneDX, as the schema's own makers' library says.
#[test]
fn the_bill_is_cyclonedx() {
    const VALIDATE: &str = "
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
error = JsonStrictValidator(SchemaVersion.V1_5).validate_str(open(sys.argv[1]).read())
sys.exit(str(error) if error else 0)";
    let has_library = Command::new("python3")
        .args(["-c", "import cyclonedx.validation.json, jsonschema"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !has_library {
        skip("the schema of the bill: pip install cyclonedx-python-lib[json-validation]");
        return;
    }
    for made in Unpacked::all() {
        let validate = |path: &Path| {
            Command::new("python3").args(["-c", VALIDATE]).arg(path).output().expect("python3")
        };
        let sound = validate(&made.path("ndkrocev2.cdx.json"));
        assert!(sound.status.success(), "{}", text(&sound.stderr));
        let bill = text(&made.release.files["ndkrocev2.cdx.json"]).replace("\"library\"", "\"x\"");
        let changed = made.folder.join("changed.json");
        fs::write(&changed, bill).expect("the folder is writable");
        assert!(!validate(&changed).status.success(), "a bill with unknown types is accepted");
    }
}

/// Goal: the same sources in another folder, signed by another, make the same zip but for the signatures.
#[test]
fn another_clone_makes_the_same() {
    let Some(made) = Unpacked::all().next() else { return };
    if !Path::new(ROOT).join(".git").exists() {
        return skip("another clone: this is none");
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let root = folder.path().join("a clone by another name");
    clone_sources(&root);
    let Some(other) = make(&root, Arch::X86_64, &root) else { return };
    assert_ne!(made.release.signer, other.signer, "both have the same certificate");
    let (one, mut two) =
        (read(&made.release.zip).expect("a zip"), read(&other.zip).expect("a zip"));
    assert!(one == made.release.files, "the zip holds other files than were put in");
    assert_eq!(differences(&one, &two).expect("comparable files"), [""; 0]);
    // A bit of code is no signature.
    two.get_mut(IMAGE).expect("an image")[0x1000] ^= 1;
    assert_eq!(differences(&one, &two).expect("comparable files"), [IMAGE]);
}

/// A clone with the files as they are now, committed or not. Nothing that was built is among them.
fn clone_sources(to: &Path) {
    let mut git = Command::new("git");
    assert_success(git.args(["clone", "--quiet", "--shared", ROOT]).arg(to));
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"]);
    for file in assert_success(git.current_dir(ROOT)).lines() {
        let (source, copy) = (Path::new(ROOT).join(file), to.join(file));
        if source.exists() {
            fs::create_dir_all(copy.parent().expect("a folder")).expect("the clone is writable");
            fs::copy(source, copy).expect("a copy");
        } else {
            // It was deleted, which is not committed yet.
            fs::remove_file(copy).expect("a file of the clone");
        }
    }
}
