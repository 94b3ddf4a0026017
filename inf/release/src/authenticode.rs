//! The hash by which Windows knows an image, signed or not.
//!
//! By "Windows Authenticode Portable Executable Signature Format", Microsoft, 2008: all of the file but for the
//! checksum, the entry that tells where the signature lies, and the signature, which is the end of the file.

use anyhow::{Context as _, Result, ensure};
use object::LittleEndian as LE;
use object::pe::{IMAGE_DIRECTORY_ENTRY_SECURITY, ImageFileHeader};
use object::read::pe::PeFile64;
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

/// Of `IMAGE_OPTIONAL_HEADER64`.
const CHECK_SUM: usize = 64;
/// Of `IMAGE_OPTIONAL_HEADER64`, whose last member they are.
const DATA_DIRECTORIES: usize = 112;
/// Of `IMAGE_DATA_DIRECTORY`.
const DIRECTORY_LEN: usize = 8;
/// A signature begins at a multiple of it, behind zeros.
const SIGNATURE_ALIGN: usize = 8;

/// Both hashes of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hashes {
    /// 20 bytes.
    pub sha1: [u8; 20],
    /// 32 bytes.
    pub sha256: [u8; 32],
}

impl Hashes {
    /// Of a file that is no image: all of it.
    pub fn of_file(bytes: &[u8]) -> Self {
        Self { sha1: Sha1::digest(bytes).into(), sha256: Sha256::digest(bytes).into() }
    }

    /// Of an image.
    pub fn of_image(image: &[u8]) -> Result<Self> {
        Ok(Self::of_file(&signed_part(image)?))
    }
}

/// The bytes of a 64-bit image that a signature is about. They do not depend on whether it is signed.
pub fn signed_part(image: &[u8]) -> Result<Vec<u8>> {
    let pe = PeFile64::parse(image).context("no image for a 64-bit Windows")?;
    // Behind "PE" and the file header.
    let optional = pe.dos_header().e_lfanew.get(LE) as usize + 4 + size_of::<ImageFileHeader>();
    let (checksum, directory) = (
        optional + CHECK_SUM,
        optional + DATA_DIRECTORIES + IMAGE_DIRECTORY_ENTRY_SECURITY * DIRECTORY_LEN,
    );
    let security = pe.data_directories().get(IMAGE_DIRECTORY_ENTRY_SECURITY);
    let end = match security.map(|table| table.virtual_address.get(LE) as usize) {
        // Of this one directory it is an offset in the file.
        Some(begin) if begin != 0 => begin,
        _ => image.len(),
    };
    ensure!((directory..=image.len()).contains(&end), "a signature at {end:#x}");
    let mut part = image[..checksum].to_vec();
    part.extend(&image[checksum + 4..directory]);
    part.extend(&image[directory + DIRECTORY_LEN..end]);
    part.resize(part.len() + end.next_multiple_of(SIGNATURE_ALIGN) - end, 0);
    Ok(part)
}
