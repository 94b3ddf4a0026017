//! What an image counts of its own lines, where it was built so (`tests/windows/build x86_64 coverage`).
//!
//! The counters are read where they are, each time the image is let go, and the sum is written as LLVM's raw profile, for
//! which the image has no code. Format: version 10 of LLVM's `InstrProfData.inc`, 16 words and the sections as they are.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

use object::LittleEndian as LE;
use object::pe::{ImageDosHeader, ImageNtHeaders64};
use object::read::pe::ImageNtHeaders as _;

/// The sections of counters, of records about functions, and of names.
const SECTIONS: [&[u8]; 3] = [b".lprfc", b".lprfd", b".lprfn"];
const RECORD_LEN: usize = 64;
const HEADERS_LEN: usize = 4096;

#[derive(Default)]
struct Profile {
    file: Option<PathBuf>,
    /// Where the image is loaded.
    base: Option<usize>,
    counters: Vec<u64>,
    /// From the records to the counters in the image.
    delta: u32,
    records: Vec<u8>,
    names: Vec<u8>,
}

static PROFILE: Mutex<Profile> = Mutex::new(Profile {
    file: None,
    base: None,
    counters: Vec::new(),
    delta: 0,
    records: Vec::new(),
    names: Vec::new(),
});

/// Writes the profile there, if there is one.
pub fn to_file(path: PathBuf) {
    PROFILE.lock().unwrap().file = Some(path);
}

/// An image, headers and all, is loaded at an address, until [`collect`].
pub fn begin(base: usize) {
    PROFILE.lock().unwrap().base = Some(base);
}

/// Adds what the image has counted, if it counts. It is still there.
pub fn collect() {
    PROFILE.lock().unwrap().collect();
}

/// Writes the sum of all images so far, one that is still loaded among them.
pub fn write() {
    let mut profile = PROFILE.lock().unwrap();
    profile.collect();
    let Some(file) = profile.file.as_ref().filter(|_| !profile.records.is_empty()) else { return };
    fs::write(file, profile.raw()).expect("the profile's folder is there");
}

impl Profile {
    fn collect(&mut self) {
        let Some(base) = self.base.take() else { return };
        let headers = unsafe { std::slice::from_raw_parts(base as *const u8, HEADERS_LEN) };
        let Some([counters, records, names]) = sections(headers) else { return };
        let bytes = |(start, len): (u32, u32)| unsafe {
            std::slice::from_raw_parts((base + start as usize) as *const u8, len as usize)
        };
        let words = bytes(counters).chunks_exact(8);
        let words = words.map(|word| u64::from_le_bytes(word.try_into().expect("eight")));
        self.counters.resize(words.len(), 0);
        self.counters.iter_mut().zip(words).for_each(|(sum, count)| *sum += count);
        self.delta = counters.0.wrapping_sub(records.0);
        self.records = bytes(records).to_vec();
        // A byte stands before them, as the other readers of an image expect.
        self.names = bytes(names)[1..].to_vec();
    }

    fn raw(&self) -> Vec<u8> {
        const MAGIC: u64 = u64::from_be_bytes(*b"\xfflprofr\x81");
        const VERSION: u64 = 10;
        // IPVK_VTableTarget
        const VALUE_KIND_LAST: u64 = 2;
        let (records, names) = (self.records.len() / RECORD_LEN, self.names.len());
        let header = [
            MAGIC,
            VERSION,
            0,
            records as u64,
            0,
            self.counters.len() as u64,
            0,
            0,
            0,
            names as u64,
            self.delta.into(),
            0,
            0,
            0,
            0,
            VALUE_KIND_LAST,
        ];
        let mut raw: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
        raw.extend(&self.records);
        raw.extend(self.counters.iter().flat_map(|count| count.to_le_bytes()));
        raw.extend(&self.names);
        raw.resize(raw.len().next_multiple_of(8), 0);
        raw
    }
}

/// Where these sections are and how long, by the headers of an image; `None` if it has none.
fn sections(headers: &[u8]) -> Option<[(u32, u32); 3]> {
    let mut at = ImageDosHeader::parse(headers).ok()?.nt_headers_offset().into();
    let (nt_headers, _) = ImageNtHeaders64::parse(headers, &mut at).ok()?;
    let table = nt_headers.sections(headers, at).ok()?;
    let mut found = SECTIONS.map(|name| {
        let section = table.iter().find(|section| section.raw_name() == name)?;
        Some((section.virtual_address.get(LE), section.virtual_size.get(LE)))
    });
    Some([found[0].take()?, found[1].take()?, found[2].take()?])
}
