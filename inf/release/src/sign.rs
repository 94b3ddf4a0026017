//! Signatures, by openssl and osslsigncode: the keys stay theirs.

use anyhow::{Context as _, Result, bail};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Something that this machine lacks, and how to get it.
#[derive(Debug)]
pub struct Missing(String);

impl Missing {
    pub(crate) fn new(what: String) -> Self {
        Self(what)
    }
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// A key that signs, and the certificate that goes with it.
#[derive(Debug)]
pub struct Signer {
    pfx: PathBuf,
    /// The file that holds the password; none for an empty one.
    password: Option<PathBuf>,
    /// Its certificate as PEM.
    certificate: PathBuf,
    /// That, and those above it, if the PFX has them.
    chain: PathBuf,
}

impl Signer {
    /// Of a PFX file. Its certificates go to `folder`.
    pub fn open(pfx: &Path, password: Option<&Path>, folder: &Path) -> Result<Self> {
        let signer = Self {
            pfx: pfx.to_owned(),
            password: password.map(Path::to_owned),
            certificate: folder.join("signer.pem"),
            chain: folder.join("chain.pem"),
        };
        signer.extract("-clcerts", &signer.certificate)?;
        signer.extract("-nokeys", &signer.chain)?;
        Ok(signer)
    }

    fn extract(&self, which: &str, to: &Path) -> Result<()> {
        let mut openssl = program("openssl", ["pkcs12", "-nokeys", which, "-in"]);
        openssl.arg(&self.pfx).arg("-out").arg(to).arg("-passin").arg(match &self.password {
            Some(file) => format!("file:{}", file.display()),
            None => "pass:".to_owned(),
        });
        run(openssl, "openssl").map(drop)
    }

    /// Of a self-made certificate for test signing, kept in `kept`: a machine needs to trust it once for all builds.
    pub fn for_tests(kept: &Path, folder: &Path) -> Result<Self> {
        let pfx = kept.join("test.pfx");
        if !pfx.exists() {
            let made = make_certificate(folder)?;
            fs::create_dir_all(kept).with_context(|| kept.display().to_string())?;
            // By a name of its own, as that folder has.
            let new = kept.join(folder.file_name().context("a folder with a name")?);
            fs::copy(made, &new)?;
            // If another release has made one meanwhile, that is the certificate.
            let _ = fs::hard_link(&new, &pfx);
            fs::remove_file(new)?;
        }
        Self::open(&pfx, None, folder)
    }

    /// The signer's certificate as DER, which Windows calls `.cer`.
    pub fn certificate(&self, to: &Path) -> Result<()> {
        let mut openssl = program("openssl", ["x509", "-outform", "DER", "-in"]);
        openssl.arg(&self.certificate).arg("-out").arg(to);
        run(openssl, "openssl").map(drop)
    }

    /// The subject and the SHA-1 thumbprint, as Windows shows it.
    pub fn name(&self) -> Result<String> {
        let mut openssl =
            program("openssl", ["x509", "-noout", "-subject", "-fingerprint", "-sha1", "-in"]);
        openssl.arg(&self.certificate);
        Ok(run(openssl, "openssl")?.trim().replace('\n', ", "))
    }

    /// Signs an image or a catalog. Of an image also each page has its hash, by which one that is linked with
    /// `/INTEGRITYCHECK` is checked as it is paged in.
    pub fn sign(&self, unsigned: &Path, signed: &Path) -> Result<()> {
        let mut sign = program("osslsigncode", ["sign", "-h", "sha256", "-n", "ndkrocev2"]);
        if signed.extension() != Some(OsStr::new("cat")) {
            sign.arg("-ph");
        }
        sign.arg("-pkcs12").arg(&self.pfx);
        match &self.password {
            Some(file) => sign.arg("-readpass").arg(file),
            None => sign.args(["-pass", ""]),
        };
        sign.arg("-in").arg(unsigned).arg("-out").arg(signed);
        run(sign, "osslsigncode").map(drop)
    }

    /// Whether a signed file verifies, and of an image whether it is in the catalog.
    pub fn verify(&self, signed: &Path, catalog: Option<&Path>) -> Result<()> {
        let mut verify = program("osslsigncode", ["verify", "-CAfile"]);
        verify.arg(&self.chain);
        if let Some(catalog) = catalog {
            verify.arg("-catalog").arg(catalog);
        }
        verify.arg("-in").arg(signed);
        run(verify, "osslsigncode").map(drop)
    }
}

fn make_certificate(folder: &Path) -> Result<PathBuf> {
    let (key, certificate) = (folder.join("test.key"), folder.join("test.pem"));
    let mut request =
        program("openssl", ["req", "-x509", "-newkey", "rsa:3072", "-sha256", "-nodes"]);
    request.args(["-days", "1825", "-subj", "/CN=ndkrocev2 test signing"]);
    for extension in [
        "basicConstraints=critical,CA:false",
        "keyUsage=critical,digitalSignature",
        "extendedKeyUsage=critical,codeSigning",
    ] {
        request.args(["-addext", extension]);
    }
    request.arg("-keyout").arg(&key).arg("-out").arg(&certificate);
    run(request, "openssl")?;
    let pfx = folder.join("test.pfx");
    let mut export = program("openssl", ["pkcs12", "-export", "-passout", "pass:", "-inkey"]);
    export.arg(&key).arg("-in").arg(&certificate).arg("-out").arg(&pfx);
    run(export, "openssl")?;
    Ok(pfx)
}

fn program<const N: usize>(name: &str, arguments: [&str; N]) -> Command {
    let mut command = Command::new(name);
    command.args(arguments);
    command
}

/// The output of the program.
fn run(mut command: Command, package: &'static str) -> Result<String> {
    let output = match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!(Missing(format!("missing: apt install {package}")))
        }
        output => output.with_context(|| format!("{command:?}"))?,
    };
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("{command:?}: {}\n{said}{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(said.into_owned())
}
