//! The stand-in for Winsock Kernel, as far as consumers of NDK need it: by it they open adapters.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use driver::abi::{NDK_ADAPTER, NDK_VERSION};
use ndk_consumer::Opener;

use crate::ndis::vnic;
use crate::ntos::irql::{self, PASSIVE};
use crate::ntos::{Pointer, SUCCESS};
#[cfg(unix)]
use crate::outsider::{boundary, thunk::Convention};

const NOT_FOUND: i32 = 0xC000_0225_u32.cast_signed();
const INVALID_PARAMETER: i32 = 0xC000_000D_u32.cast_signed();
const NOT_SUPPORTED: i32 = 0xC000_00BB_u32.cast_signed();
/// `WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH`.
const NDK_DISPATCH: u32 = u32::from_be_bytes(*b"NDKD");

/// `WSK_PROVIDER_DISPATCH`, as far as it is called.
#[repr(C)]
struct Dispatch {
    version: u16,
    reserved: u16,
    sockets: [usize; 2],
    control: Control,
}

type Control = unsafe extern "win64" fn(
    usize,
    u32,
    usize,
    Pointer,
    usize,
    *mut [usize; 2],
    *mut usize,
    Pointer,
) -> i32;

/// `WSK_PROVIDER_NPI`.
#[repr(C)]
pub struct ProviderNpi {
    client: usize,
    dispatch: *const Dispatch,
}

/// MAKE_WSK_VERSION(1, 0). There are no sockets.
static DISPATCH: Dispatch = Dispatch { version: 0x100, reserved: 0, sockets: [0; 2], control };
/// All clients are one.
const CLIENT: usize = 0x57_534B;

/// Opens the adapters of an interface, and has a look at each before the consumer gets it.
#[derive(Clone)]
pub struct Interface {
    pub opener: Arc<dyn Opener>,
    pub opened: fn(*mut NDK_ADAPTER),
}

/// Interfaces that are no vNICs, by their indices.
static INTERFACES: Mutex<BTreeMap<u32, Interface>> = Mutex::new(BTreeMap::new());
/// The adapters that are open, by their addresses.
static OPEN: Mutex<BTreeMap<usize, Interface>> = Mutex::new(BTreeMap::new());

/// Consumers find this interface at `index` from now on.
pub fn add(index: u32, interface: Interface) {
    INTERFACES.lock().unwrap().insert(index, interface);
}

/// No interfaces but the vNICs.
pub fn clear() {
    INTERFACES.lock().unwrap().clear();
}

pub fn report_leaks() {
    let open = std::mem::take(&mut *OPEN.lock().unwrap()).len();
    if open > 0 {
        breach!("{open} NDK adapters are not closed");
    }
}

fn interface(index: u32) -> Option<Interface> {
    let other = INTERFACES.lock().unwrap().get(&index).cloned();
    other.or_else(|| {
        let vnic = vnic::all().into_iter().find(|vnic| vnic.index == index)?;
        Some(Interface { opener: Arc::new(vnic::Opener(vnic)), opened: vnic_opened })
    })
}

#[cfg(unix)]
fn vnic_opened(adapter: *mut NDK_ADAPTER) {
    unsafe { boundary::adopt(adapter as u64, Convention::Windows) };
}

#[cfg(windows)]
fn vnic_opened(_adapter: *mut NDK_ADAPTER) {}

unsafe extern "win64" fn open(
    _client: usize,
    version: u32,
    index: u32,
    adapter: *mut Pointer,
) -> i32 {
    crate::stack::outside(|| {
        irql::at_most(PASSIVE, "WskOpenNdkAdapter");
        let Some(interface) = interface(index) else { return NOT_FOUND };
        let version = NDK_VERSION { Major: version as u16, Minor: (version >> 16) as u16 };
        match interface.opener.open(version) {
            Ok(opened) => {
                (interface.opened)(opened);
                OPEN.lock().unwrap().insert(opened as usize, interface);
                unsafe { adapter.write(opened.cast()) };
                SUCCESS
            }
            Err(status) => status.0,
        }
    })
}

unsafe extern "win64" fn close(_client: usize, adapter: Pointer) {
    crate::stack::outside(|| {
        irql::at_most(PASSIVE, "WskCloseNdkAdapter");
        let interface = OPEN.lock().unwrap().remove(&(adapter as usize));
        match interface {
            Some(interface) => unsafe { interface.opener.close(adapter.cast()) },
            None => breach!("an NDK adapter is closed that is not open"),
        }
    });
}

unsafe extern "win64" fn control(
    _client: usize,
    code: u32,
    _input_len: usize,
    _input: Pointer,
    len: usize,
    output: *mut [usize; 2],
    _returned: *mut usize,
    irp: Pointer,
) -> i32 {
    crate::stack::outside(|| {
        irql::at_most(PASSIVE, "WskControlClient");
        if code != NDK_DISPATCH {
            return NOT_SUPPORTED;
        }
        // WSK_PROVIDER_NDK_DISPATCH has two pointers, and the call is synchronous.
        if len != 16 || !irp.is_null() {
            return INVALID_PARAMETER;
        }
        unsafe { output.write([open as *const () as usize, close as *const () as usize]) };
        SUCCESS
    })
}

exports! { "netio.sys":
    fn WskRegister(_client: Pointer, registration: *mut usize) -> i32 {
        irql::at_most(PASSIVE, "WskRegister");
        registration.write(CLIENT);
        SUCCESS
    }
    fn WskDeregister(_registration: Pointer) { irql::at_most(PASSIVE, "WskDeregister"); }
    fn WskCaptureProviderNPI(_registration: Pointer, _timeout: u32, npi: *mut ProviderNpi) -> i32 {
        irql::at_most(PASSIVE, "WskCaptureProviderNPI");
        npi.write(ProviderNpi { client: CLIENT, dispatch: &raw const DISPATCH });
        SUCCESS
    }
    fn WskReleaseProviderNPI(_registration: Pointer) { irql::at_most(PASSIVE, "WskReleaseProviderNPI"); }
    fn ConvertInterfaceIndexToLuid(index: u32, luid: *mut u64) -> i32 {
        if interface(index).is_none() { return NOT_FOUND; }
        let vnic = vnic::all().into_iter().find(|vnic| vnic.index == index);
        luid.write(vnic.map_or(index.into(), |vnic| vnic.luid()));
        SUCCESS
    }
    fn ConvertInterfaceLuidToAlias(luid: &u64, alias: *mut u16, len: usize) -> i32 {
        let text: Vec<u16> = format!("RoCEv2 {luid:x}").encode_utf16().chain([0]).collect();
        if text.len() > len { return INVALID_PARAMETER; }
        alias.copy_from(text.as_ptr(), text.len());
        SUCCESS
    }
}
