//! The stand-in for WppRecorder.sys: what a driver traces, as numbers, since the texts are in its symbols.

use crate::ntos::Pointer;

/// The level of an error; others are not told.
const ERROR: u8 = 1;

pub(crate) fn find(function: &str) -> Option<usize> {
    Some(match function {
        "WppAutoLogTrace" => trace as *const () as usize,
        "WppAutoLogStart" | "WppAutoLogStop" | "imp_WppRecorderReplay" => {
            nothing as *const () as usize
        }
        _ => return None,
    })
}

unsafe extern "win64" fn nothing() -> i32 {
    0
}

/// Of the arguments, pairs of address and length that a zero ends, the first is told.
unsafe extern "win64" fn trace(
    _log: Pointer,
    level: u8,
    _flags: u32,
    _guid: Pointer,
    number: u16,
    value: *const u32,
    len: usize,
) -> i32 {
    crate::stack::outside(|| {
        if level == ERROR {
            let value =
                if value.is_null() || len != 4 { 0 } else { unsafe { value.read_unaligned() } };
            say!("the consumer traces error {number}: {value:#x}");
        }
        0
    })
}
