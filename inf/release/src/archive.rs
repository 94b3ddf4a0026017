//! The zip: one folder, sorted, dated by the sources; and whether two of them are the same but for who signed.

use anyhow::{Context as _, Result, ensure};
use der::DateTime;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Cursor, Read as _, Write as _};
use std::path::Path;
use std::time::Duration;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::{authenticode, catalog};

/// The list of the other files' hashes, for `sha256sum --check`.
pub const SUMS: &str = "SHA256SUMS";
/// The certificate of whoever signed.
pub const CERTIFICATE: &str = "ndkrocev2.cer";

/// Files by name, without a folder.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Adds the list of hashes.
pub fn add_sums(files: &mut Files) {
    let line = |(name, bytes): (&String, &Vec<u8>)| format!("{}  {name}\n", hex(bytes));
    let sums: String = files.iter().map(line).collect();
    files.insert(SUMS.to_owned(), sums.into_bytes());
}

/// The SHA-256 of a file, as `sha256sum` writes it.
pub fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes the files to a zip, in a folder.
pub fn write(path: &Path, folder: &str, files: &Files, at_s: u64) -> Result<()> {
    let at = DateTime::from_unix_duration(Duration::from_secs(at_s))?;
    let at = zip::DateTime::from_date_and_time(
        at.year(),
        at.month(),
        at.day(),
        at.hour(),
        at.minutes(),
        at.seconds(),
    );
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .last_modified_time(at.context("a zip has no date before 1980")?)
        .unix_permissions(0o644);
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in files {
        zip.start_file(format!("{folder}/{name}"), options)?;
        zip.write_all(bytes)?;
    }
    let bytes = zip.finish()?.into_inner();
    fs::write(path, bytes).with_context(|| path.display().to_string())
}

/// The files of a zip.
pub fn read(path: &Path) -> Result<Files> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let mut zip = ZipArchive::new(file)?;
    let mut files = Files::new();
    for index in 0..zip.len() {
        let mut entry = zip.by_index(index)?;
        let name = entry.name()?.rsplit('/').next().unwrap_or_default().to_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        ensure!(files.insert(name.clone(), bytes).is_none(), "{name} is there twice");
    }
    Ok(files)
}

/// The names of files that differ in more than who signed them, or that only one has.
pub fn differences(one: &Files, other: &Files) -> Result<Vec<String>> {
    let names: std::collections::BTreeSet<_> = one.keys().chain(other.keys()).collect();
    let mut different = Vec::new();
    for name in names {
        let same = match (one.get(name), other.get(name)) {
            (Some(one), Some(other)) => {
                one == other || unsigned(name, one)? == unsigned(name, other)?
            }
            _ => false,
        };
        if !same {
            different.push(name.clone());
        }
    }
    Ok(different)
}

/// The part of a file that does not depend on who signed.
fn unsigned(name: &str, bytes: &[u8]) -> Result<Vec<u8>> {
    let extension = name.rsplit('.').next().unwrap_or_default();
    Ok(match extension {
        "sys" | "exe" => authenticode::signed_part(bytes)?,
        "cat" => catalog::content(bytes)?,
        "cer" => Vec::new(),
        _ if name == SUMS => {
            let is_signed = |line: &&str| {
                ["sys", "exe", "cat", "cer"].iter().any(|of| line.ends_with(&format!(".{of}")))
            };
            let text = String::from_utf8_lossy(bytes);
            text.lines().filter(|line| !is_signed(line)).collect::<Vec<_>>().join("\n").into_bytes()
        }
        _ => bytes.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(certificate: &str, inf: &str) -> Files {
        let mut files = Files::new();
        files.insert(CERTIFICATE.into(), certificate.into());
        files.insert("a.inf".into(), inf.into());
        add_sums(&mut files);
        files
    }

    #[test]
    fn a_zip_gives_back_its_files_and_is_the_same_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, other) = (folder.path().join("1.zip"), folder.path().join("2.zip"));
        for path in [&one, &other] {
            write(path, "a", &files("x", "y"), 1_764_092_671).expect("a zip");
        }
        assert_eq!(read(&one).expect("its files"), files("x", "y"));
        assert_eq!(fs::read(one).expect("a zip"), fs::read(other).expect("a zip"));
    }

    #[test]
    fn the_certificate_may_differ_and_nothing_else() {
        let differ =
            |one: &Files, other: &Files| differences(one, other).expect("comparable files");
        let one = files("x", "y");
        assert!(differ(&one, &files("z", "y")).is_empty());
        assert_eq!(differ(&one, &files("x", "z")), ["SHA256SUMS", "a.inf"]);
        let mut fewer = files("x", "y");
        fewer.remove("a.inf");
        assert_eq!(differ(&one, &fewer), ["a.inf"]);
    }
}
