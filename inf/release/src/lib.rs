//! Makes a release of the Windows driver on Linux: one zip with all that a Windows machine is given.
//!
//! The steps: build the image (`tests/windows/build`), stamp both INX, sign the image, make and sign a catalog for each
//! INF, verify, write the bill of materials and the hashes, zip. But for the signatures, the same commit and compiler
//! make the same bytes, wherever the clone lies.

pub mod archive;
pub mod authenticode;
pub mod catalog;
pub mod inf;
pub mod origin;
pub mod sbom;
pub mod sign;
pub mod tool;

use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use archive::{CERTIFICATE, Files};
use authenticode::Hashes;
use catalog::{Catalog, Kind, Member};
use inf::{PACKAGES, Package};
use origin::Origin;
use sbom::Program;
use sign::Signer;

/// The image, by the name that both INFs give it.
pub const IMAGE: &str = "ndkrocev2.sys";
/// The flight consumer, by the name that `ndkrocev2ctl flight` looks for.
pub const CONSUMER: &str = "ndkflight.sys";
/// Files of the repository that go in as they are.
const DOCUMENTS: [&str; 6] = [
    "inf/README.md",
    "inf/ndkrocev2.man",
    "inf/ndkrocev2ctl.schema.json",
    "inf/Ndkrocev2.psm1",
    "LICENSE-APACHE",
    "LICENSE-MIT",
];
/// The exit status by which the build says that this machine lacks something.
pub const CANNOT: i32 = 77;

/// A processor that Windows runs on.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub enum Arch {
    /// x64, amd64
    #[value(name = "x86_64", alias = "x64")]
    X86_64,
    /// ARM64
    #[value(name = "aarch64", alias = "arm64")]
    Aarch64,
}

impl Arch {
    /// By Rust's name.
    fn rust(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    fn target(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-pc-windows-msvc",
            Self::Aarch64 => "aarch64-pc-windows-msvc",
        }
    }

    /// As an INF names it.
    fn inf(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// The versions of Windows that the INFs have sections for, as catalogs of Microsoft's name them: from 1809, which is
    /// Server 2019, on.
    fn systems(self) -> &'static str {
        match self {
            Self::X86_64 => {
                "_v100_X64_RS5,_v100_X64_19H1,_v100_X64_Vb,_v100_X64_21H2,_v100_X64_22H2"
            }
            Self::Aarch64 => "_v100_ARM64_19H1,_v100_ARM64_Vb,_v100_ARM64_21H2,_v100_ARM64_22H2",
        }
    }
}

/// The wishes of the caller.
#[derive(Clone, Debug)]
pub struct Request {
    /// The folder of the workspace.
    pub root: PathBuf,
    /// For which processor.
    pub arch: Arch,
    /// An image that was built elsewhere, with its symbols beside it; none for one that is built here.
    pub image: Option<PathBuf>,
    /// The folder that gets the zip.
    pub out: PathBuf,
    /// The signer; none for a certificate of its own.
    pub certificate: Option<PathBuf>,
    /// The file with the signer's password.
    pub password: Option<PathBuf>,
}

/// The zip and what is in it.
#[derive(Debug)]
pub struct Release {
    /// Where it lies.
    pub zip: PathBuf,
    /// Its files.
    pub files: Files,
    /// Who signed.
    pub signer: String,
}

/// Builds, signs, verifies and zips.
pub fn release(request: &Request) -> Result<Release> {
    let root = request.root.as_path();
    let origin = Origin::read(root)?;
    let work = tempfile::tempdir().context("a folder for files in the making")?;
    let signer = signer(request, work.path())?;
    let image = match &request.image {
        Some(image) => image.clone(),
        None => build(root, request.arch, None)?,
    };
    let mut files = Files::new();
    for name in DOCUMENTS {
        let bytes = fs::read(root.join(name)).with_context(|| name.to_owned())?;
        files.insert(name.rsplit('/').next().unwrap_or(name).to_owned(), bytes);
    }
    let consumer = build(root, request.arch, Some("flight"))?;
    for (built, name) in [(&image, IMAGE), (&consumer, CONSUMER)] {
        add_image(built, name, &signer, work.path(), &mut files)?;
    }
    for package in PACKAGES {
        let (inf, catalog) = package_files(package, request, &origin, &files[IMAGE])?;
        add_signed(package, inf, &catalog, &signer, work.path(), &mut files)?;
    }
    let certificate = work.path().join(CERTIFICATE);
    signer.certificate(&certificate)?;
    files.insert(CERTIFICATE.to_owned(), fs::read(certificate)?);
    let target = request.arch.target();
    let mut programs: Vec<_> =
        ["ndkrocev2", "ndkflight-image"].map(|package| Program { package, target }).into();
    if let Some((tool, unsigned)) = tool::build(root, request.arch)? {
        let signed = work.path().join(tool::NAME);
        signer.sign(&unsigned, &signed)?;
        signer.verify(&signed, None)?;
        files.insert(tool::NAME.to_owned(), fs::read(&signed)?);
        programs.push(tool);
    }
    let bill = serde_json::to_string_pretty(&sbom::bill(root, &programs, &origin)?)?;
    files.insert("ndkrocev2.cdx.json".to_owned(), format!("{bill}\n").into_bytes());
    archive::add_sums(&mut files);
    let name = format!("ndkrocev2-{}-{}", origin.version, request.arch.rust());
    fs::create_dir_all(&request.out).with_context(|| request.out.display().to_string())?;
    let zip = request.out.join(format!("{name}.zip"));
    archive::write(&zip, &name, &files, origin.at_s)?;
    Ok(Release { zip, files, signer: signer.name()? })
}

fn signer(request: &Request, work: &Path) -> Result<Signer> {
    match &request.certificate {
        Some(pfx) => Signer::open(pfx, request.password.as_deref(), work),
        None => Signer::for_tests(&request.root.join("target/windows/signed"), work),
    }
}

/// The path of an image, beside which its symbols lie: that of the driver, or of another variant of the script.
fn build(root: &Path, arch: Arch, variant: Option<&str>) -> Result<PathBuf> {
    let script = root.join("tests/windows/build");
    let built = Command::new(&script).arg(arch.rust()).args(variant).output();
    let built = built.with_context(|| script.display().to_string())?;
    let said = String::from_utf8_lossy(&built.stderr).trim().to_owned();
    if built.status.code() == Some(CANNOT) {
        bail!(sign::Missing::new(said));
    }
    if !built.status.success() {
        bail!("{}: {}\n{said}", script.display(), built.status);
    }
    Ok(root.join(String::from_utf8_lossy(&built.stdout).trim()))
}

/// Adds an image, signed, and its symbols.
fn add_image(
    built: &Path,
    name: &str,
    signer: &Signer,
    work: &Path,
    files: &mut Files,
) -> Result<()> {
    let symbols = Path::new(name).with_extension("pdb").display().to_string();
    files.insert(symbols, fs::read(built.with_extension("pdb"))?);
    let signed = work.join(name);
    signer.sign(built, &signed)?;
    signer.verify(&signed, None)?;
    files.insert(name.to_owned(), fs::read(&signed)?);
    Ok(())
}

/// The INF, and the catalog that vouches for it and the image.
fn package_files(
    package: Package,
    request: &Request,
    origin: &Origin,
    image: &[u8],
) -> Result<(Vec<u8>, Catalog)> {
    let inx = request.root.join("inf").join(format!("{}.inx", package.name));
    let inx = fs::read_to_string(&inx).with_context(|| inx.display().to_string())?;
    let arch = request.arch;
    let inf = inf::stamp(package, &inx, arch.inf(), origin.version, origin.at_s)?.into_bytes();
    let file = |file: String, kind, hashes| Member { file, kind, hashes };
    let members = vec![
        file(format!("{}.inf", package.name), Kind::File, Hashes::of_file(&inf)),
        file(IMAGE.to_owned(), Kind::Image, Hashes::of_image(image)?),
    ];
    let attributes = vec![
        ("OS".to_owned(), arch.systems().to_owned()),
        ("HWID1".to_owned(), package.id.to_lowercase()),
    ];
    Ok((inf, Catalog { made_at_s: origin.at_s, members, attributes }))
}

/// Signs the catalog, and sees that it vouches for the image. osslsigncode reads no INF.
fn add_signed(
    package: Package,
    inf: Vec<u8>,
    catalog: &Catalog,
    signer: &Signer,
    work: &Path,
    files: &mut Files,
) -> Result<()> {
    let name = format!("{}.cat", package.name);
    let (unsigned, signed) = (work.join("unsigned.cat"), work.join(&name));
    fs::write(&unsigned, catalog.encode()?)?;
    signer.sign(&unsigned, &signed)?;
    signer.verify(&signed, None)?;
    signer.verify(&work.join(IMAGE), Some(&signed))?;
    files.insert(format!("{}.inf", package.name), inf);
    files.insert(name, fs::read(&signed)?);
    Ok(())
}
