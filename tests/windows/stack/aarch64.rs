//! What ARM64 says of the stack: unwind codes, instructions that take of it, and those that lead elsewhere.
//!
//! Formats: "ARM64 exception handling" of Microsoft's documentation; Arm's "A64 instruction set", section "Branches,
//! exception generating and system instructions", of which the image may have those that are read here and no others,
//! and "Loads and stores".

use super::chains::{Flow, Slots};
use super::frames::{At, Frame, words};

/// The return address is in a register.
pub(super) const LEAF_LEN: u32 = 0;

/// The frames that a table of functions describes.
pub(super) fn frames(table: &[u8], bytes: &impl At) -> impl Iterator<Item = Frame> {
    table.chunks_exact(8).map(|entry| {
        let [function, unwind] = words(entry);
        let (code_len, unwound) = match unwind & 3 {
            0 => record(bytes, unwind),
            1 | 2 => packed(unwind),
            kind => panic!("unwind data of kind {kind} at {function:#x}"),
        };
        // Unwinding by a frame pointer gives back what is taken after that was set, and has no code for it.
        let code = bytes.at(function, code_len as usize);
        let len = code.chunks_exact(4).map(words).map(|[word]| taken(word)).sum();
        assert!(len >= unwound, "of {unwound} bytes at {function:#x} the code takes {len}");
        Frame { function, end: function + code_len, len }
    })
}

/// What an instruction takes of the stack; a branch past it does not count.
fn taken(word: u32) -> u32 {
    let is = |mask: u32, value: u32| word & mask == value;
    let negative =
        |shift: u32, bits: u32, unit: u32| unit * field(word >> shift, bits).min(0).unsigned_abs();
    let has_sp_for_base = word >> 5 & 31 == 31;
    assert!(!is(0xffe0_03ff, 0xcb20_03ff), "a frame of a size that the code computes");
    if is(0xff80_03ff, 0xd100_03ff) {
        // SUB of SP, of a number or of so many pages.
        (word >> 10 & 0xfff) << if word >> 22 & 1 != 0 { 12 } else { 0 }
    } else if has_sp_for_base && (is(0xffc0_0000, 0xa980_0000) || is(0xffc0_0000, 0x6d80_0000)) {
        // STP that moves the base first, of X and D.
        negative(15, 7, 8)
    } else if has_sp_for_base && is(0xffc0_0000, 0xad80_0000) {
        // The same of Q.
        negative(15, 7, 16)
    } else if has_sp_for_base
        && [0xf800_0c00, 0xfc00_0c00, 0x3c80_0c00].iter().any(|store| is(0xffe0_0c00, *store))
    {
        // STR that does, of X, D and Q.
        negative(12, 9, 1)
    } else {
        0
    }
}

/// The lengths of the code and of the frame by packed unwind data, which counts in fours and in sixteens.
fn packed(unwind: u32) -> (u32, u32) {
    (4 * (unwind >> 2 & 0x7ff), 16 * (unwind >> 23))
}

/// The same by a record of `.xdata`.
fn record(bytes: &impl At, at: u32) -> (u32, u32) {
    let [head] = words(bytes.at(at, 4));
    let code_len = 4 * (head & 0x3_ffff);
    assert_eq!(head >> 18 & 3, 0, "the version of the record at {at:#x}");
    let is_single_epilogue = head >> 21 & 1 != 0;
    let (mut epilogues, mut code_words, mut codes) = (head >> 22 & 31, head >> 27, at + 4);
    if epilogues == 0 && code_words == 0 {
        let [extension] = words(bytes.at(codes, 4));
        (epilogues, code_words) = (extension & 0xffff, extension >> 16 & 0xff);
        codes += 4;
    }
    // Its number is then the index of its first code.
    if !is_single_epilogue {
        codes += 4 * epilogues;
    }
    (code_len, stack_of(bytes.at(codes, 4 * code_words as usize)))
}

/// The stack that a prologue's unwind codes give back, up to the code that ends them.
fn stack_of(codes: &[u8]) -> u32 {
    let (mut rest, mut len) = (codes, 0);
    while let Some((taken, count)) = code(rest) {
        len += taken;
        rest = &rest[count..];
    }
    len
}

/// The stack that the first unwind code gives back, and its own bytes; `None` at the end of all.
fn code(codes: &[u8]) -> Option<(u32, usize)> {
    let byte = |at: usize| u32::from(codes[at]);
    // A register or a pair that is stored where the stack pointer goes: eighths, less one.
    let pushed = |bits: u32| 8 * ((byte(0) << 8 | byte(1)) & ((1 << bits) - 1)) + 8;
    Some(match codes[0] {
        0x00..=0x1f => (16 * (byte(0) & 0x1f), 1),    // alloc_s
        0x20..=0x3f => (8 * (byte(0) & 0x1f), 1),     // save_r19r20_x
        0x40..=0x7f => (0, 1),                        // save_fplr
        0x80..=0xbf => (8 * (byte(0) & 0x3f) + 8, 1), // save_fplr_x
        0xc0..=0xc7 => (16 * ((byte(0) & 7) << 8 | byte(1)), 2), // alloc_m
        0xc8..=0xcb => (0, 2),                        // save_regp
        0xcc..=0xcf => (pushed(6), 2),                // save_regp_x
        0xd0..=0xd3 => (0, 2),                        // save_reg
        0xd4..=0xd5 => (pushed(5), 2),                // save_reg_x
        0xd6..=0xd9 => (0, 2),                        // save_lrpair, save_fregp
        0xda..=0xdb => (pushed(6), 2),                // save_fregp_x
        0xdc..=0xdd => (0, 2),                        // save_freg
        0xde => (pushed(5), 2),                       // save_freg_x
        0xe0 => (16 * (byte(1) << 16 | byte(2) << 8 | byte(3)), 4), // alloc_l
        0xe1 | 0xe3 | 0xe5 | 0xe6 | 0xfc => (0, 1),   // set_fp, nop, end_c, save_next, pac_sign_lr
        0xe2 => (0, 2),                               // add_fp
        0xe4 => return None,                          // end
        other => panic!("unwind code {other:#x}"),
    })
}

/// The instructions of code that begins at an address: the end of each, and where it leads.
///
/// A pointer is judged by the guard's check before it is called: a function calls through pointers if it reads the slot
/// of that. The other indirect calls are imports, the other jumps tables of a `match`.
pub(super) fn flows<'a>(
    code: &'a [u8],
    begin: u32,
    slots: &'a Slots,
) -> impl Iterator<Item = (u32, Flow)> + 'a {
    let mut registers = Registers::default();
    (begin..).step_by(4).zip(code.chunks_exact(4)).map(move |(at, bytes)| {
        let [word] = words(bytes);
        let read = registers.reads(at, word);
        let guarded = read.is_some_and(|slot| slots.guard.contains(&slot));
        let imported = read.is_some_and(|slot| slots.imports.contains(&slot));
        registers.has_callee |= guarded || imported;
        let flow = if guarded { Flow::ByPointer } else { flow(at, word) };
        assert!(
            word & 0xffff_fc1f != BLR || registers.has_callee,
            "a call by an unknown pointer at {at:#x}"
        );
        (at + 4, flow)
    })
}

/// The places that registers point at, as far as one function's code tells.
#[derive(Default)]
struct Registers {
    places: [Option<u32>; 32],
    /// An import or the guard's check was read before.
    has_callee: bool,
}

impl Registers {
    /// The address that an instruction reads, if it is known.
    fn reads(&mut self, at: u32, word: u32) -> Option<u32> {
        let [to, from] = [word & 31, word >> 5 & 31].map(|register| register as usize);
        // ADRP
        if word & 0x9f00_0000 == 0x9000_0000 {
            let pages = field(word >> 5, 19) << 2 | (word >> 29 & 3).cast_signed();
            self.places[to] = Some((at & !0xfff).wrapping_add_signed(pages << 12));
            return None;
        }
        // ADD of a number or of so many pages.
        if word & 0xff80_0000 == 0x9100_0000 {
            let number = (word >> 10 & 0xfff) << if word >> 22 & 1 != 0 { 12 } else { 0 };
            self.places[to] = self.places[from].map(|place| place.wrapping_add(number));
            return None;
        }
        // LDR of eight bytes, with an offset in eights.
        if word & 0xffc0_0000 != 0xf940_0000 {
            return None;
        }
        let place = self.places[from].map(|place| place.wrapping_add(8 * (word >> 10 & 0xfff)));
        // What it has read is no place that is known.
        self.places[to] = None;
        place
    }
}

const BLR: u32 = 0xd63f_0000;

fn flow(at: u32, word: u32) -> Flow {
    let to = |shift: u32, bits: u32| at.wrapping_add_signed(4 * field(word >> shift, bits));
    let is = |mask: u32, value: u32| word & mask == value;
    if is(0xfc00_0000, 0x9400_0000) {
        Flow::Call(to(0, 26))
    } else if is(0xfc00_0000, 0x1400_0000) {
        Flow::Branch { to: to(0, 26), always: true }
    } else if is(0xff00_0010, 0x5400_0000) || is(0x7e00_0000, 0x3400_0000) {
        // B.cond, CBZ, CBNZ
        Flow::Branch { to: to(5, 19), always: false }
    } else if is(0x7e00_0000, 0x3600_0000) {
        // TBZ, TBNZ
        Flow::Branch { to: to(5, 14), always: false }
    } else if is(0xffff_fc1f, BLR) {
        Flow::On
    } else if is(0xffff_fc1f, 0xd61f_0000) || is(0xffff_fc1f, 0xd65f_0000) {
        // BR, RET
        Flow::End
    } else if is(0xffe0_001f, 0xd420_0000) || is(0xffff_0000, 0) {
        // BRK, UDF
        Flow::End
    } else {
        assert!(!is(0xfe00_0000, 0xd600_0000), "an unknown branch at {at:#x}: {word:#x}");
        Flow::On
    }
}

/// The lowest bits as a signed number.
fn field(word: u32, bits: u32) -> i32 {
    (word << (32 - bits)).cast_signed() >> (32 - bits)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use object::Architecture;

    use super::super::chains::{Chains, Graph, Isa, Join};
    use super::*;

    const SLOTS: Slots = Slots { imports: 0x9000..0x9100, guard: [0x8000, 0x8008] };

    /// Goal: the reader finds a frame of 3 KiB that a compiler's codes describe, in each of their sizes.
    #[test]
    fn a_seeded_frame_is_found() {
        // sub sp, #3072; stp x29, x30, [sp, #-16]!; what follows the end is an epilogue's.
        assert_eq!(stack_of(&[0xc0, 0xc0, 0x81, 0xe4, 0x1f]), 3072 + 16);
        assert_eq!(stack_of(&[0xe0, 0x00, 0x10, 0x00, 0xe4]), 0x1_0000, "sub sp by pages");
        // stp x29, x30, [sp, #16]; stp x21, x22; stp x19, x20, [sp, #-48]!
        assert_eq!(stack_of(&[0x42, 0xc8, 0x82, 0x26, 0xe1, 0xe4]), 48);
        assert_eq!(
            stack_of(&[0xcc, 0x05, 0xd4, 0x03, 0xda, 0x01, 0xde, 0x01, 0xe4]),
            48 + 32 + 16 + 16
        );
        // 64 bytes of code with a frame of 3 KiB.
        assert_eq!(packed(1 | 16 << 2 | 192 << 23), (64, 3072));
    }

    #[test]
    fn instructions_take_what_the_processor_does() {
        for (word, len) in [
            (0xd11b_03ff, 0x6c0),  // sub sp, sp, #0x6c0
            (0xd140_07ff, 0x1000), // sub sp, sp, #1, lsl #12
            (0xa9b9_53f3, 0x70),   // stp x19, x20, [sp, #-0x70]!
            (0x6dbf_27e8, 0x10),   // stp d8, d9, [sp, #-0x10]!
            (0xf81f_0ffe, 0x10),   // str x30, [sp, #-0x10]!
            (0xa901_5bf5, 0),      // stp x21, x22, [sp, #0x10]
            (0xa8c7_53f3, 0),      // ldp x19, x20, [sp], #0x70
            (0x911b_03ff, 0),      // add sp, sp, #0x6c0
            (0xa9b9_5013, 0),      // stp x19, x20, [x0, #-0x70]!
        ] {
            assert_eq!(taken(word), len, "{word:#x}");
        }
    }

    struct Record([u8; 16]);

    impl At for Record {
        fn at(&self, rva: u32, len: usize) -> &[u8] {
            &self.0[rva as usize..][..len]
        }
    }

    #[test]
    fn a_record_is_read_past_its_epilogues() {
        let record_of = |words: [u32; 4]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            record(&Record(bytes.try_into().expect("sixteen")), 0)
        };
        let codes = u32::from_le_bytes([0xc0, 0xc0, 0xe4, 0xe3]);
        assert_eq!(record_of([16 | 1 << 22 | 1 << 27, 0, codes, 0]), (64, 3072), "a scope");
        assert_eq!(record_of([16 | 1 << 21 | 1 << 22 | 1 << 27, codes, 0, 0]), (64, 3072));
        assert_eq!(record_of([16, 1 | 1 << 16, 0, codes]), (64, 3072), "an extension");
    }

    #[test]
    fn branches_lead_where_the_processor_goes() {
        for (word, leads) in [
            (0x9400_0004, Flow::Call(0x1010)),                         // bl +16
            (0x97ff_fffc, Flow::Call(0x0ff0)),                         // bl -16
            (0x17ff_fffc, Flow::Branch { to: 0x0ff0, always: true }),  // b -16
            (0x5400_0080, Flow::Branch { to: 0x1010, always: false }), // b.eq +16
            (0xb400_0080, Flow::Branch { to: 0x1010, always: false }), // cbz x0, +16
            (0x3707_ff80, Flow::Branch { to: 0x0ff0, always: false }), // tbnz w0, #0, -16
            (0xd63f_0100, Flow::On),                                   // blr x8
            (0xd61f_0100, Flow::End),                                  // br x8
            (0xd65f_03c0, Flow::End),                                  // ret
            (0xd420_0020, Flow::End),                                  // brk #1
            (0x9102_3be1, Flow::On),                                   // add
        ] {
            assert_eq!(flow(0x1000, word), leads, "{word:#x}");
        }
    }

    #[test]
    fn a_place_behind_a_slot_is_not_the_slot() {
        // adrp x9, 0x8000; add x9, x9, N; ldr x8, [x9]
        let guarded = |second: u32| {
            let code = [0xf000_0029, second, 0xf940_0128].map(u32::to_le_bytes);
            flows(code.as_flattened(), 0x1000, &SLOTS).any(|(_, flow)| flow == Flow::ByPointer)
        };
        assert!(guarded(0x9100_0129), "N = 0");
        assert!(!guarded(0x9100_4129), "N = 16");
        assert!(!guarded(0xf940_0929), "ldr x9, [x9, 16], as of a list");
    }

    /// Goal: a chain of 9 KiB is found, over a call, a call through a pointer, and a call of an import, which ends it.
    #[test]
    fn a_seeded_chain_is_found() {
        let functions: [(u32, [u32; 4]); 3] = [
            (4096, [0x9400_0004, 0xd65f_03c0, 0, 0]), // bl to the second; ret
            // adrp x9, 0x8000; ldr x9, [x9]; blr x9; ret
            (4096, [0xf000_0029, 0xf940_0129, 0xd63f_0120, 0xd65f_03c0]),
            // adrp x9, 0x9000; ldr x9, [x9]; blr x9; ret
            (1024, [0x9000_0049, 0xf940_0129, 0xd63f_0120, 0xd65f_03c0]),
        ];
        let (mut code, mut frames) = (Vec::new(), Vec::new());
        for (place, (len, body)) in (0..).zip(functions) {
            let function = 0x1000 + 16 * place;
            frames.push(Frame { function, end: function + 16, len });
            code.extend(body.iter().flat_map(|word| word.to_le_bytes()));
        }
        let isa = Isa { architecture: Architecture::Aarch64, slots: &SLOTS };
        let graph = Graph::read(&code, 0x1000, &frames, &BTreeSet::new(), &isa);
        let names: BTreeMap<_, _> =
            (0..).zip(graph.0.keys()).map(|(at, function)| (*function, format!("f{at}"))).collect();
        let pointed = graph.0.keys().copied().collect();
        let joins = [Join { from: "f1", to: &["f2"], through: &[] }];
        assert_eq!(Chains::new(&graph, &names, &pointed, &[], &[]).unjoined(), ["f1"]);
        let chains = Chains::new(&graph, &names, &pointed, &joins, &[]);
        assert_eq!(chains.from(0x1000).expect("no circle").len, 9216);
    }
}
