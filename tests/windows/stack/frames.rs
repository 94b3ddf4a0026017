//! The stack frames of the image, by its unwind data: what each function takes of a kernel's stack.
//!
//! Format: "x64 exception handling" of Microsoft's documentation. A frame is what the prologue pushes and
//! subtracts, with the return address; the frames of chained entries add up.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use object::LittleEndian as LE;
use object::pe::*;
use object::read::pe::PeFile64;

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
    let mut all: Vec<_> = table
        .chunks_exact(size_of::<ImageRuntimeFunctionEntry>())
        .map(|entry| {
            let [function, end, unwind_info] = words(entry);
            Frame { function, end, len: 8 + prologue(bytes, unwind_info) }
        })
        .collect();
    all.sort_by_key(|frame| (std::cmp::Reverse(frame.len), frame.function));
    all
}

/// The frames of more than `limit` bytes.
pub(crate) fn over(frames: &[Frame], limit: u32) -> &[Frame] {
    &frames[..frames.partition_point(|frame| frame.len > limit)]
}

/// The stack that the prologue of an UNWIND_INFO takes.
fn prologue(bytes: &impl At, unwind_info: u32) -> u32 {
    let head = bytes.at(unwind_info, 4);
    let (version, flags, slots) = (head[0] & 7, head[0] >> 3, usize::from(head[2]));
    assert!(version <= 2, "UNWIND_INFO of version {version} at {unwind_info:#x}");
    let len = stack_of(bytes.at(unwind_info + 4, 2 * slots));
    if u32::from(flags) & u32::from(UNW_FLAG_CHAININFO) == 0 {
        return len;
    }
    // Codes are padded to an even number.
    let chained = unwind_info + 4 + 2 * (slots.next_multiple_of(2) as u32);
    let [_, _, unwind_info] = words(bytes.at(chained, 12));
    len + prologue(bytes, unwind_info)
}

/// The stack that a list of unwind codes gives back.
fn stack_of(codes: &[u8]) -> u32 {
    let slot =
        |index: usize| u32::from(u16::from_le_bytes([codes[2 * index], codes[2 * index + 1]]));
    let (mut at, mut len) = (0, 0);
    while at < codes.len() / 2 {
        let (operation, info) = (codes[2 * at + 1] & 15, u32::from(codes[2 * at + 1] >> 4));
        at += match (operation, info) {
            (PUSH_NONVOL, _) => {
                len += 8;
                1
            }
            (ALLOC_LARGE, 0) => {
                len += 8 * slot(at + 1);
                2
            }
            (ALLOC_LARGE, _) => {
                len += slot(at + 1) | slot(at + 2) << 16;
                3
            }
            (ALLOC_SMALL, info) => {
                len += 8 * info + 8;
                1
            }
            (SET_FPREG | EPILOG, _) => 1,
            (SAVE_NONVOL | SAVE_XMM128, _) => 2,
            (SAVE_NONVOL_FAR | SAVE_XMM128_FAR, _) => 3,
            _ => panic!("unwind operation {operation}"),
        };
    }
    len
}

const UNW_FLAG_CHAININFO: u8 = 4;
const PUSH_NONVOL: u8 = 0;
const ALLOC_LARGE: u8 = 1;
const ALLOC_SMALL: u8 = 2;
const SET_FPREG: u8 = 3;
const SAVE_NONVOL: u8 = 4;
const SAVE_NONVOL_FAR: u8 = 5;
/// Of version 2.
const EPILOG: u8 = 6;
const SAVE_XMM128: u8 = 8;
const SAVE_XMM128_FAR: u8 = 9;

fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let mut words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
    std::array::from_fn(|_| words.next().expect("as many bytes"))
}

/// The names of functions by the `.pdb` beside the image; `None` where nothing here reads that.
pub(crate) fn names(
    image: &Path,
    functions: impl Iterator<Item = u32>,
) -> Option<BTreeMap<u32, String>> {
    let functions: Vec<u32> = functions.collect();
    let mut symbolizer = Command::new("llvm-symbolizer")
        .args(["--relative-address", "--functions", "--no-inlines"])
        .arg(format!("--obj={}", image.display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let mut asked = symbolizer.stdin.take()?;
    let lines: String = functions.iter().map(|function| format!("{function:#x}\n")).collect();
    let writer = std::thread::spawn(move || asked.write_all(lines.as_bytes()));
    let said = symbolizer.wait_with_output().ok()?.stdout;
    writer.join().ok()?.ok()?;
    let said = String::from_utf8_lossy(&said);
    // A function's name, its place, and an empty line.
    let names: Vec<_> = said.split("\n\n").filter_map(|part| part.lines().next()).collect();
    let known = names.len() == functions.len() && names.iter().any(|name| *name != "??");
    known.then(|| functions.into_iter().zip(names.into_iter().map(str::to_owned)).collect())
}

/// Goal: the reader finds a frame of 3 KiB that a compiler's codes describe, in each of their sizes.
#[test]
fn a_seeded_frame_is_found() {
    // push rbx; sub rsp, 0xc00: by eighths in a slot. The prologue's offsets do not count.
    let seeded = stack_of(&[8, 0x01, 0x80, 0x01, 1, 0x30]);
    assert_eq!(seeded, 8 + 3072);
    // By bytes in two slots, as beyond 512 KiB.
    assert_eq!(stack_of(&[8, 0x11, 0x08, 0x00, 0x01, 0x00]), 0x1_0008);
    // sub rsp, 40; movaps of xmm6; mov of rbx; lea rbp.
    assert_eq!(stack_of(&[4, 0x42, 9, 0x68, 2, 0, 9, 0x34, 1, 0, 9, 0x53]), 40);
    let frames = [seeded, 2048, 48].map(|len| Frame { function: len, end: len, len });
    assert_eq!(over(&frames, 2048), &frames[..1]);
}
