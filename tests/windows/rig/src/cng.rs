//! The stand-in for cng.sys.

use crate::ntos::misc::random;
use crate::ntos::{Pointer, SUCCESS, irql};

exports! { "cng.sys":
    fn BCryptGenRandom(_algorithm: Pointer, buffer: Pointer, len: u32, _flags: u32) -> i32 {
        irql::at_most(irql::DISPATCH, "BCryptGenRandom");
        random(std::slice::from_raw_parts_mut(buffer, len as usize));
        SUCCESS
    }
}
