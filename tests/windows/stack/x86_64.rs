//! What x86-64 says of the stack: unwind codes, and instructions that lead elsewhere.
//!
//! Format: "x64 exception handling" of Microsoft's documentation. The frames of chained entries add up.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};
use object::pe::ImageRuntimeFunctionEntry;

use super::chains::{Flow, Slots};
use super::frames::{At, Frame, words};

/// A return address is all that a function without unwind data takes.
pub(super) const LEAF_LEN: u32 = 8;

/// The frames that a table of functions describes.
pub(super) fn frames(table: &[u8], bytes: &impl At) -> impl Iterator<Item = Frame> {
    table.chunks_exact(size_of::<ImageRuntimeFunctionEntry>()).map(|entry| {
        let [function, end, unwind_info] = words(entry);
        Frame { function, end, len: LEAF_LEN + prologue(bytes, unwind_info) }
    })
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

/// The instructions of code that begins at an address: the end of each, and where it leads.
pub(super) fn flows<'a>(
    code: &'a [u8],
    begin: u32,
    slots: &'a Slots,
) -> impl Iterator<Item = (u32, Flow)> + 'a {
    let mut decoder = Decoder::with_ip(64, code, begin.into(), DecoderOptions::NONE);
    std::iter::from_fn(move || {
        let instruction = decoder.can_decode().then(|| decoder.decode())?;
        Some((instruction.next_ip() as u32, flow(&instruction, slots)))
    })
}

fn flow(instruction: &Instruction, slots: &Slots) -> Flow {
    let to = instruction.near_branch_target() as u32;
    match instruction.flow_control() {
        FlowControl::Next => Flow::On,
        FlowControl::Call => Flow::Call(to),
        FlowControl::ConditionalBranch => Flow::Branch { to, always: false },
        FlowControl::UnconditionalBranch => Flow::Branch { to, always: true },
        FlowControl::IndirectCall if goes_by_guard(instruction, slots) => Flow::ByPointer,
        FlowControl::IndirectCall => Flow::On,
        FlowControl::IndirectBranch if goes_by_guard(instruction, slots) => Flow::EndByPointer,
        _ => Flow::End,
    }
}

/// Whether an indirect call or jump is one by the guard's dispatch: the others are imports and tables of a `match`.
fn goes_by_guard(instruction: &Instruction, slots: &Slots) -> bool {
    if instruction.op0_kind() != OpKind::Memory {
        return false;
    }
    assert_eq!(instruction.memory_base(), Register::RIP, "a call past the guard: {instruction:?}");
    let slot = instruction.ip_rel_memory_address() as u32;
    assert!(
        slots.guard.contains(&slot) || slots.imports.contains(&slot),
        "a call by an unknown pointer: {instruction:?}"
    );
    slots.guard.contains(&slot)
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
}
