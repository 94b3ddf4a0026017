//! The stack frames of the image, by its unwind data: what each function takes of a kernel's stack. A frame is what the
//! prologue pushes and subtracts, with the return address.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use object::pe::*;
use object::read::pe::PeFile64;
use object::{Architecture, LittleEndian as LE, Object as _};

use super::{aarch64, x86_64};

/// A function's own share of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) function: u32,
    pub(crate) end: u32,
    pub(crate) len: u32,
}

/// The bytes at an RVA.
pub(crate) trait At {
    fn at(&self, rva: u32, len: usize) -> &[u8];
}

/// The frames of all functions that have one, largest first.
pub(crate) fn frames(pe: &PeFile64<'_>, bytes: &impl At) -> Vec<Frame> {
    let table = pe.data_directories().get(IMAGE_DIRECTORY_ENTRY_EXCEPTION).expect("unwind data");
    let table = bytes.at(table.virtual_address.get(LE), table.size.get(LE) as usize);
    let mut all: Vec<Frame> = match pe.architecture() {
        Architecture::Aarch64 => aarch64::frames(table, bytes).collect(),
        _ => x86_64::frames(table, bytes).collect(),
    };
    all.sort_by_key(|frame| (std::cmp::Reverse(frame.len), frame.function));
    all
}

/// The frames of more than `limit` bytes.
pub(crate) fn over(frames: &[Frame], limit: u32) -> &[Frame] {
    &frames[..frames.partition_point(|frame| frame.len > limit)]
}

pub(super) fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let mut words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
    std::array::from_fn(|_| words.next().expect("as many bytes"))
}

/// The names of functions by the `.pdb` beside the image; `None` where nothing here reads that.
pub(crate) fn names(
    image: &Path,
    functions: impl Iterator<Item = u32>,
) -> Option<BTreeMap<u32, String>> {
    let functions: Vec<u32> = functions.collect();
    let names = symbols(image, "--no-inlines", &functions)?;
    let names = names.iter().map(|part| part.lines().next().unwrap_or_default().to_owned());
    let names: BTreeMap<_, _> = functions.into_iter().zip(names).collect();
    names.values().any(|name| name != "??").then_some(names)
}

/// What the symbols say of each address: a function's name and its place, a line each. With `--inlines` those of the functions
/// that were inlined there come first. `None` where nothing here reads symbols.
pub(super) fn symbols(image: &Path, inlines: &str, addresses: &[u32]) -> Option<Vec<String>> {
    let mut symbolizer = Command::new("llvm-symbolizer")
        .args(["--relative-address", "--functions", inlines])
        .arg(format!("--obj={}", image.display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let mut asked = symbolizer.stdin.take()?;
    let lines: String = addresses.iter().map(|address| format!("{address:#x}\n")).collect();
    let writer = std::thread::spawn(move || asked.write_all(lines.as_bytes()));
    let said = symbolizer.wait_with_output().ok()?.stdout;
    writer.join().ok()?.ok()?;
    let said = String::from_utf8_lossy(&said);
    // An empty line ends each.
    let parts = said.split("\n\n").filter(|part| !part.trim().is_empty()).map(str::to_owned);
    let parts: Vec<String> = parts.collect();
    (parts.len() == addresses.len()).then_some(parts)
}

#[test]
fn frames_over_a_limit_come_first() {
    let frames = [3080, 2048, 48].map(|len| Frame { function: len, end: len, len });
    assert_eq!(over(&frames, 2048), &frames[..1]);
}
