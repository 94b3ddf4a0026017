//! The registry's keywords of an adapter, and those of the service.

use std::collections::HashMap;
use std::sync::Mutex;

use super::{FAILURE, Header, RESOURCES, SUCCESS, member, vnic::Vnic};
use crate::ntos::{Pointer, UnicodeString, irql, pool};

/// An open configuration: what was read lives until it is closed.
struct Open {
    /// Whose they are; none for the service's.
    adapter: Pointer,
    keywords: HashMap<String, String>,
    read: Vec<Pointer>,
}

static OPEN: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// `NDIS_CONFIGURATION_PARAMETER`.
#[repr(C)]
pub struct Parameter {
    kind: i32,
    data: Data,
}
#[repr(C)]
pub union Data {
    number: u32,
    text: UnicodeString,
}

pub fn report_leaks() {
    let open = std::mem::take(&mut *OPEN.lock().unwrap());
    if !open.is_empty() {
        breach!("{} configurations are left open", open.len());
    }
}

unsafe fn open_of<'a>(handle: Pointer) -> Option<&'a mut Open> {
    if !OPEN.lock().unwrap().contains(&(handle as usize)) {
        breach!("a configuration handle that is not open");
        return None;
    }
    Some(&mut *handle.cast::<Open>())
}

const INTEGER: i32 = 0;
const HEX_INTEGER: i32 = 1;
const STRING: i32 = 2;

exports! { "ndis.sys":
    fn NdisOpenConfigurationEx(object: Pointer, handle: *mut Pointer) -> i32 {
        irql::at_most(irql::PASSIVE, "NdisOpenConfigurationEx");
        member::<Header>(object, 0).check("NDIS_CONFIGURATION_OBJECT", 0xA9, &[(1, 24), (1, 20)]);
        if pool::refuses("configuration") { return RESOURCES; }
        // A driver's handle opens the service's parameters, an adapter's those of the adapter.
        let adapter = member(object, 8);
        let keywords = Vnic::find(adapter).map(|vnic| vnic.keywords.lock().unwrap().clone());
        let open = Box::new(Open { adapter, keywords: keywords.unwrap_or_default(), read: Vec::new() });
        let open = Box::into_raw(open);
        OPEN.lock().unwrap().push(open as usize);
        handle.write(open.cast());
        SUCCESS
    }
    fn NdisReadConfiguration(status: *mut i32, value: *mut *mut Parameter, handle: Pointer, keyword: &UnicodeString, kind: i32) {
        irql::at_most(irql::PASSIVE, "NdisReadConfiguration");
        status.write(FAILURE);
        let Some(open) = open_of(handle) else { return };
        let name = keyword.text();
        let Some(text) = open.keywords.get(&name) else { return };
        // A keyword of the INF is a string in the registry, whatever it means.
        let data = match kind {
            INTEGER => Data { number: text.parse().unwrap_or(0) },
            HEX_INTEGER => Data { number: u32::from_str_radix(text, 16).unwrap_or(0) },
            STRING => Data { text: UnicodeString::leak(text) },
            kind => {
                breach!("{name} is read as parameter type {kind}");
                return;
            }
        };
        let kind = if kind == HEX_INTEGER { INTEGER } else { kind };
        let parameter = Box::into_raw(Box::new(Parameter { kind, data }));
        open.read.push(parameter.cast());
        value.write(parameter);
        status.write(SUCCESS);
    }
    fn NdisWriteConfiguration(status: *mut i32, handle: Pointer, keyword: &UnicodeString, value: &Parameter) {
        irql::at_most(irql::PASSIVE, "NdisWriteConfiguration");
        status.write(FAILURE);
        let Some(open) = open_of(handle) else { return };
        if pool::refuses("NdisWriteConfiguration") { return; }
        let Some(vnic) = Vnic::find(open.adapter) else { return };
        let text = if value.kind == STRING { value.data.text.text() } else { value.data.number.to_string() };
        vnic.keywords.lock().unwrap().insert(keyword.text(), text);
        status.write(SUCCESS);
    }
    fn NdisReadNetworkAddress(status: *mut i32, address: *mut Pointer, len: *mut u32, handle: Pointer) {
        irql::at_most(irql::PASSIVE, "NdisReadNetworkAddress");
        status.write(FAILURE);
        let Some(open) = open_of(handle) else { return };
        let Some(text) = open.keywords.get("NetworkAddress") else { return };
        let bytes: Vec<u8> = (0..text.len() / 2).filter_map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()).collect();
        len.write(bytes.len() as u32);
        address.write(Vec::leak(bytes).as_mut_ptr());
        status.write(SUCCESS);
    }
    fn NdisCloseConfiguration(handle: Pointer) {
        irql::at_most(irql::PASSIVE, "NdisCloseConfiguration");
        if open_of(handle).is_none() { return; }
        OPEN.lock().unwrap().retain(|&open| open != handle as usize);
        let open = Box::from_raw(handle.cast::<Open>());
        for parameter in open.read { drop(Box::from_raw(parameter.cast::<Parameter>())); }
    }
}
