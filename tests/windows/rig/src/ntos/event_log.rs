//! The event log: entries of a driver, from their allocation to the log.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::irql::{self, DISPATCH};
use super::{Pointer, pool};

/// What the log has of an event: the identifier of its message, and its insertions from `%2` on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Event {
    pub id: u32,
    pub strings: Vec<String>,
}

/// `IO_ERROR_LOG_PACKET`, up to its raw data.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Packet {
    function: u8,
    retries: u8,
    data_len: u16,
    strings: u16,
    strings_at: u16,
    category: u16,
    id: u32,
    unique: u32,
    status: i32,
    sequence: u32,
    code: u32,
    offset: i64,
}
const _: () = assert!(size_of::<Packet>() == 0x28);

/// `ERROR_LOG_MAXIMUM_SIZE` of Windows 10.
const MAXIMUM: u8 = 224;

/// Entries that are not written yet, with their sizes.
static ENTRIES: Mutex<BTreeMap<usize, Box<[u64]>>> = Mutex::new(BTreeMap::new());
static LOG: Mutex<Vec<Event>> = Mutex::new(Vec::new());

/// What was logged since the last time.
pub fn take() -> Vec<Event> {
    std::mem::take(&mut LOG.lock().unwrap())
}

pub fn report_leaks() {
    for (_, entry) in std::mem::take(&mut *ENTRIES.lock().unwrap()) {
        breach!("an entry of the event log, {} bytes, is never written", size_of_val(&*entry));
    }
}

/// The texts behind the packet, each with its zero.
fn strings(entry: &[u64], packet: &Packet) -> Vec<String> {
    let bytes: Vec<u8> = entry.iter().flat_map(|word| word.to_le_bytes()).collect();
    let units = bytes.get(usize::from(packet.strings_at)..).unwrap_or_default();
    let units: Vec<u16> =
        units.chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]])).collect();
    let mut texts = units.split(|&unit| unit == 0);
    (0..packet.strings)
        .map(|_| String::from_utf16_lossy(texts.next().unwrap_or_default()))
        .collect()
}

exports! { "ntoskrnl.exe":
    fn IoAllocateErrorLogEntry(object: Pointer, len: u8) -> Pointer {
        irql::at_most(DISPATCH, "IoAllocateErrorLogEntry");
        if object.is_null() { breach!("IoAllocateErrorLogEntry without a driver object"); }
        if !(0x30..=MAXIMUM).contains(&len) { breach!("an entry of the event log of {len} bytes"); }
        if pool::refuses("IoAllocateErrorLogEntry") { return std::ptr::null_mut(); }
        let mut entry = vec![u64::MAX; usize::from(len).div_ceil(8)].into_boxed_slice();
        let start = entry.as_mut_ptr().cast();
        ENTRIES.lock().unwrap().insert(start as usize, entry);
        start
    }
    fn IoWriteErrorLogEntry(start: Pointer) {
        irql::at_most(DISPATCH, "IoWriteErrorLogEntry");
        let Some(entry) = ENTRIES.lock().unwrap().remove(&(start as usize)) else {
            breach!("IoWriteErrorLogEntry: {start:?} is no entry");
            return;
        };
        let packet = entry.as_ptr().cast::<Packet>().read();
        if packet.strings_at < 0x28 || packet.strings_at % 2 != 0 { breach!("the event log's strings: {packet:x?}"); }
        let event = Event { id: packet.id, strings: strings(&entry, &packet) };
        say!("event log: {event:x?}");
        LOG.lock().unwrap().push(event);
    }
}
