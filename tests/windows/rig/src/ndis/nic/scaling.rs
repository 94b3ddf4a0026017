//! Receive-side scaling of a NIC, and what it judges of who sets it.

use std::collections::BTreeMap;

use super::Nic;
use crate::ndis::{Header, SUCCESS, member, set_member};
use crate::ntos::Pointer;

/// Received frames by the processors that they come to, as the table says; none where nobody has set it.
pub type Table = BTreeMap<(u16, u8), usize>;

const QUEUES: u32 = 4;
/// TCP and UDP over both versions of IP, by the bits of what a NIC can and of what it is asked for.
const CAN: u32 = 0x100 | 0x200 | 0x800 | 0x1000;
const ALL: u32 = 0x100 | 0x200 | 0x400 | 0x1000 | 0x4000 | 0x8000;
const TOEPLITZ: u32 = 1;
const DISABLE: u16 = 0x10;
const INVALID_PARAMETER: i32 = 0xC000_000D_u32.cast_signed();

/// `NDIS_RECEIVE_SCALE_CAPABILITIES` of revision 2, which is never freed.
pub fn capabilities() -> Pointer {
    let start = Box::leak(Box::new([0_u32; 6])).as_mut_ptr().cast::<u8>();
    unsafe {
        set_member(start, 0, Header::new(0x88, 2, 0x14));
        set_member(start, 4, CAN);
        set_member(start, 8, QUEUES);
        set_member(start, 0xC, QUEUES);
        set_member(start, 0x10, 128_u16);
    }
    start
}

impl Nic {
    /// `OID_GEN_RECEIVE_SCALE_PARAMETERS`, by its page.
    pub(super) unsafe fn set_scaling(&self, start: Pointer, len: usize) -> i32 {
        member::<Header>(start, 0).check(
            "NDIS_RECEIVE_SCALE_PARAMETERS",
            0x89,
            &[(2, 0x28), (3, 0x2C)],
        );
        let mut table = self.scaling.lock().unwrap();
        if member::<u16>(start, 4) & DISABLE != 0 {
            table.clear();
            return SUCCESS;
        }
        let hash = member::<u32>(start, 8);
        let place = |size, offset| {
            (member::<u32>(start, offset) as usize, usize::from(member::<u16>(start, size)))
        };
        let ((table_at, table_len), (key_at, key_len)) = (place(0xC, 0x10), place(0x14, 0x18));
        let sound = hash & 0xFF == TOEPLITZ
            && hash & !0xFF & !ALL == 0
            && table_len.is_multiple_of(4)
            && (table_len / 4).is_power_of_two()
            && table_len / 4 <= 128
            && table_at >= 0x28
            && table_at + table_len <= len
            && key_len == 40
            && key_at + key_len <= len;
        if !sound {
            breach!(
                "scaling by {hash:#x}, a table of {table_len} bytes at {table_at}, a key of {key_len} at {key_at}, of {len}"
            );
            return INVALID_PARAMETER;
        }
        let key = std::slice::from_raw_parts(start.add(key_at), key_len);
        if key.iter().all(|byte| *byte == 0) {
            breach!("scaling by a key of zeros");
        }
        table.clear();
        for entry in 0..table_len / 4 {
            let number = start.add(table_at + 4 * entry);
            *table.entry((member(number, 0), member(number, 2))).or_insert(0) += 1;
        }
        if table.len() > QUEUES as usize {
            breach!("a table of {} processors for {QUEUES} queues", table.len());
        }
        SUCCESS
    }
}
