//! `cargo run -p release`: one zip for a Windows machine, made on Linux. See the README beside this crate.

use anyhow::{Result, bail};
use clap::Parser;
use release::archive::{differences, hex, read};
use release::{Arch, CANNOT, Request, sign};
use std::path::PathBuf;
use std::process::ExitCode;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Builds, signs and zips the Windows driver.
#[derive(Parser)]
struct Arguments {
    /// The processor of the Windows machine
    #[arg(long, value_enum, default_value = "x86_64")]
    arch: Arch,
    /// An image that was built elsewhere, by Microsoft's linker for example, with its symbols (.pdb) beside it
    #[arg(long, value_name = "SYS")]
    image: Option<PathBuf>,
    /// The folder that gets the zip
    #[arg(long, default_value = "target/release-zip")]
    out: PathBuf,
    /// A PFX file that signs, instead of a certificate that is made here for test signing
    #[arg(long, value_name = "PFX")]
    certificate: Option<PathBuf>,
    /// A file with the password of the PFX
    #[arg(long, requires = "certificate", value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Compares the zip that was made with another, but for the signatures
    #[arg(long, value_name = "ZIP")]
    compare: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<sign::Missing>() => {
            eprintln!("{error}");
            ExitCode::from(CANNOT as u8)
        }
        Err(error) => {
            eprintln!("release: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<()> {
    let made = release::release(&Request {
        root: ROOT.into(),
        arch: arguments.arch,
        image: arguments.image,
        out: arguments.out,
        certificate: arguments.certificate,
        password: arguments.password_file,
    })?;
    for (name, bytes) in &made.files {
        println!("{:>9} {} {name}", bytes.len(), hex(bytes));
    }
    println!("signed by {}", made.signer);
    println!("{}", made.zip.display());
    let Some(other) = arguments.compare else { return Ok(()) };
    let different = differences(&made.files, &read(&other)?)?;
    if !different.is_empty() {
        bail!("not as in {}: {}", other.display(), different.join(", "));
    }
    println!("as in {}, but for the signatures", other.display());
    Ok(())
}
