//! Event tracing. A session listens to every provider from the moment it registers, and puts the
//! name of each event into the report.
//!
//! Written from the page of TraceLogging's encoding: among an event's data are one blob of the
//! provider's metadata and one of the event's, each of them its length, tags, and a name that ends
//! with zero.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::sync::{Mutex, PoisonError};

use super::irql::{self, DISPATCH, PASSIVE};
use super::{Pointer, SUCCESS};

type Enable = unsafe extern "win64" fn(
    source: *const [u8; 16],
    code: u32,
    level: u8,
    any: u64,
    all: u64,
    filter: Pointer,
    context: Pointer,
);

/// `EVENT_DATA_DESCRIPTOR`.
#[derive(Debug)]
#[repr(C)]
pub struct Data {
    address: *const u8,
    len: u32,
    kind: u32,
}

const EVENT_METADATA: u32 = 1;
const PROVIDER_METADATA: u32 = 2;
const INVALID_HANDLE: i32 = 0xC000_0008_u32.cast_signed();

/// The registered providers by handle: the GUID of each.
static PROVIDERS: Mutex<BTreeMap<u64, String>> = Mutex::new(BTreeMap::new());

exports! { "ntoskrnl.exe":
    fn EtwRegister(provider: *const [u8; 16], enable: Option<Enable>, context: Pointer, handle: *mut u64) -> i32 {
        irql::at_most(irql::PASSIVE, "EtwRegister");
        let fresh = {
            let mut providers = PROVIDERS.lock().unwrap_or_else(PoisonError::into_inner);
            let fresh = providers.keys().next_back().map_or(0xE73, |last| last + 1);
            providers.insert(fresh, text_of(&*provider));
            fresh
        };
        handle.write(fresh);
        if let Some(enable) = enable {
            // EVENT_CONTROL_CODE_ENABLE_PROVIDER at level Verbose, for every keyword.
            let none = [0; 16];
            irql::run_at(PASSIVE, "EtwEnableCallback", || {
                enable(&none, 1, 5, u64::MAX, 0, std::ptr::null_mut(), context)
            });
        }
        SUCCESS
    }
    fn EtwUnregister(handle: u64) -> i32 {
        irql::at_most(irql::PASSIVE, "EtwUnregister");
        let known = PROVIDERS.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle);
        if known.is_some() { SUCCESS } else { unknown("EtwUnregister", handle) }
    }
    fn EtwSetInformation(handle: u64, class: i32, information: *const u8, len: u32) -> i32 {
        irql::at_most(DISPATCH, "EtwSetInformation");
        let Some(guid) = guid_of(handle) else { return unknown("EtwSetInformation", handle) };
        // EventProviderSetTraits: the provider's metadata.
        if class == 2 {
            let blob = std::slice::from_raw_parts(information, len as usize);
            say!("trace provider {} is {guid}", name_in(blob, 2));
        }
        SUCCESS
    }
    fn EtwActivityIdControl(_code: u32, _activity: *mut [u8; 16]) -> i32 { SUCCESS }
    fn EtwWriteTransfer(
        handle: u64,
        _event: Pointer,
        _activity: Pointer,
        _related: Pointer,
        count: u32,
        data: *const Data,
    ) -> i32 {
        irql::at_most(DISPATCH, "EtwWriteTransfer");
        if guid_of(handle).is_none() { return unknown("EtwWriteTransfer", handle); }
        let data = std::slice::from_raw_parts(data, count as usize);
        let blob = |kind| {
            let found = data.iter().find(|data| data.kind & 0xff == kind);
            found.map(|data| std::slice::from_raw_parts(data.address, data.len as usize))
        };
        let (Some(provider), Some(event)) = (blob(PROVIDER_METADATA), blob(EVENT_METADATA)) else {
            breach!("EtwWriteTransfer: an event without metadata");
            return SUCCESS;
        };
        // The event's tags: as many bytes as have the highest bit, and one.
        let tags = 1 + event[2..].iter().take_while(|&&byte| byte & 0x80 != 0).count();
        say!("trace {}: {}", name_in(provider, 2), name_in(event, 2 + tags));
        SUCCESS
    }
}

pub fn report_leaks() {
    let left = std::mem::take(&mut *PROVIDERS.lock().unwrap_or_else(PoisonError::into_inner));
    if !left.is_empty() {
        breach!("{} trace providers are still registered", left.len());
    }
}

fn guid_of(handle: u64) -> Option<String> {
    PROVIDERS.lock().unwrap_or_else(PoisonError::into_inner).get(&handle).cloned()
}

fn unknown(function: &str, handle: u64) -> i32 {
    breach!("{function}: no provider is registered as {handle:#x}");
    INVALID_HANDLE
}

/// The name in metadata whose first two bytes are its length.
fn name_in(blob: &[u8], at: usize) -> String {
    let len = usize::from(u16::from_le_bytes([blob[0], blob[1]]));
    if len != blob.len() {
        breach!("metadata of {} bytes says that it has {len}", blob.len());
    }
    match CStr::from_bytes_until_nul(&blob[at.min(blob.len())..]) {
        Ok(name) => name.to_string_lossy().into_owned(),
        Err(_) => {
            breach!("a name in metadata does not end");
            String::new()
        }
    }
}

/// As people write a GUID, whose first three members lie in memory in reverse.
fn text_of(guid: &[u8; 16]) -> String {
    let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let mut text = String::from("{");
    for (place, index) in order.into_iter().enumerate() {
        if [4, 6, 8, 10].contains(&place) {
            text.push('-');
        }
        text.push_str(&format!("{:02X}", guid[index]));
    }
    text + "}"
}
