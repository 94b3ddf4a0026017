//! The functions that a C program calls: each converts, calls, and maps the answer.
//!
//! The comments here are those of `ndkrocev2.h`.
#![allow(unsafe_code, reason = "the C side of the library")]
#![allow(non_camel_case_types, reason = "C names")]

use crate::error::{self, Error};
use crate::host::{self, Host, Settings};
use driver::abi::{
    NDK_ADAPTER, NDK_VERSION, NTSTATUS, SOCKADDR_INET, STATUS_DEVICE_BUSY,
    STATUS_INVALID_PARAMETER, STATUS_SUCCESS, ULONG,
};
use std::ffi::{CStr, c_char, c_void};
use std::net::SocketAddr;

/// A running provider: one adapter on one edge.
pub struct ndkrocev2_provider {
    host: Host,
}

/// The configuration of a provider. A member of zero has its default; `size`, `edge` and `addresses` have none.
#[repr(C)]
pub struct ndkrocev2_config {
    /// `sizeof(ndkrocev2_config)`.
    pub size: usize,
    /// The edge: `memory:NAME` (the two providers of the process that name it are joined),
    /// `tap:NAME`, `af-packet:IFACE`, `udp:ADDRESS`, `qemu-dgram:OWN:PEER`, `qemu-stream:listen:PATH` or
    /// `qemu-stream:connect:PATH`. Options stand behind commas: `mtu=BYTES`, `mac=MAC`, `vlan=ID`,
    /// `offload`, `cores=N` (of `af-packet`), `probe=off`.
    pub edge: *const c_char,
    /// The addresses of the adapter, with commas between them: "10.0.0.1,fd00::1".
    pub addresses: *const c_char,
    /// The file that gets the frames, in the format of pcap: those that are sent, before any fault, and those that arrive.
    /// It is whole after `ndkrocev2_stop`. By default none.
    pub pcap: *const c_char,
    /// Percent of the transmitted frames that vanish.
    pub loss: f64,
    /// Percent that are sent twice.
    pub duplicate: f64,
    /// Percent that later ones pass.
    pub reorder: f64,
    /// Percent with a flipped bit.
    pub corrupt: f64,
    /// The seed of the faults and of the provider; two that are joined may have the same. By default a random one.
    pub seed: u64,
    /// Layers over the tables of adapters that are opened, words with commas between them. By default none.
    ///
    /// `verify` reports the consumer's mistakes, a line each on the standard error that begins with the first of
    /// `addresses`; `ndkrocev2_mistakes` counts them.
    ///
    /// `explore=SEED` ends its calls in every way that the contract allows, as the number SEED chooses. Behind it:
    /// `limits=small`, `limits=connectx3` or `limits=maximal`, what the adapter tells; `versions=serving`,
    /// `versions=any`, `versions=1.2`, `versions=2.0` or `versions=2.1`, its highest version; `refuse=PERCENT`, the
    /// creations that end with `STATUS_INSUFFICIENT_RESOURCES`; `late=MILLISECONDS`, the longest delay of a callback,
    /// 0 to 255.
    pub layers: *const c_char,
}

/// Starts a provider. Returns NULL where that fails; `ndkrocev2_last_error` says why.
///
/// # Safety
/// `config` is null or valid, and so are the strings that it names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ndkrocev2_start(
    config: *const ndkrocev2_config,
) -> *mut ndkrocev2_provider {
    // SAFETY: the caller's promise.
    let started = unsafe { settings(config) }.and_then(|settings| Host::start(&settings));
    match error::noted(started) {
        Some(host) => Box::into_raw(Box::new(ndkrocev2_provider { host })),
        None => std::ptr::null_mut(),
    }
}

/// Stops a provider and frees it. `STATUS_DEVICE_BUSY`, and nothing is stopped: an adapter instance is open.
///
/// # Safety
/// `provider` came from `ndkrocev2_start`, and is not used after it was stopped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ndkrocev2_stop(provider: *mut ndkrocev2_provider) -> NTSTATUS {
    // SAFETY: the caller's promise.
    let adapters = unsafe { ndkrocev2_open_adapters(provider) };
    if adapters > 0 {
        error::note(&Error::Busy(adapters));
        return STATUS_DEVICE_BUSY;
    }
    // SAFETY: made by `Box::into_raw`, and the caller lets go of it.
    drop(unsafe { Box::from_raw(provider) });
    STATUS_SUCCESS
}

/// Opens an adapter instance, as NDIS does for WSK; any number may be open. `version` is the lowest
/// minor version that the consumer supports of a major one, 1 or 2; `Header.Version` of the adapter
/// says which one it has. `NDIS_STATUS_BAD_VERSION`, `NDIS_STATUS_RESOURCES`.
///
/// # Safety
/// `provider` is running; `adapter` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ndkrocev2_open(
    provider: *mut ndkrocev2_provider,
    version: NDK_VERSION,
    adapter: *mut *mut NDK_ADAPTER,
) -> NTSTATUS {
    // SAFETY: the caller's promise.
    match unsafe { host(provider) }.open(version) {
        Ok(opened) => {
            // SAFETY: the caller's promise.
            unsafe { adapter.write(opened) };
            STATUS_SUCCESS
        }
        Err(status) => {
            error::note(&Error::Open(status));
            status
        }
    }
}

/// Closes an adapter instance. Returns once the consumer has closed every object under it and every
/// callback has returned, and so never where an object is forgotten: `ndkrocev2_open_objects` tells.
///
/// # Safety
/// `provider` is running, and `adapter` one of its open instances.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ndkrocev2_close(
    provider: *mut ndkrocev2_provider,
    adapter: *mut NDK_ADAPTER,
) {
    // SAFETY: the caller's promise.
    let host = unsafe { host(provider) };
    // SAFETY: the caller's promise.
    unsafe { host.close(adapter) };
}

/// The objects that exist: open adapter instances, and everything under them.
///
/// # Safety
/// `provider` is running.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ndkrocev2_open_objects(provider: *const ndkrocev2_provider) -> usize {
    // SAFETY: the caller's promise.
    unsafe { host(provider) }.objects()
}

/// The adapter instances among them.
///
/// # Safety
/// `provider` is running.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ndkrocev2_open_adapters(provider: *const ndkrocev2_provider) -> usize {
    // SAFETY: the caller's promise.
    unsafe { host(provider) }.adapters()
}

/// The mistakes of the consumer that the layer `verify` has reported, each rule once for a function and an object;
/// 0 without that layer. To be asked when the adapters are closed, as their close may still find some, and
/// before `ndkrocev2_stop`.
///
/// # Safety
/// `provider` is running.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ndkrocev2_mistakes(provider: *const ndkrocev2_provider) -> usize {
    // SAFETY: the caller's promise.
    unsafe { host(provider) }.mistakes()
}

/// Tells the layer `verify` of every provider that the consumer frees this memory, or gives it another use: bytes, an
/// MDL, the structure of a logical address mapping. It reports what a request or a registration still uses.
/// To be called before the memory is freed, from any thread, in a callback, too. The kernel stand-in does it.
#[unsafe(no_mangle)]
pub extern "C" fn ndkrocev2_freed(memory: *const c_void, length: usize) {
    host::freed(memory.cast(), length);
}

/// Gives the adapter these addresses, with commas between them, in place of those that it had.
/// Connections from one that is gone end at once. `STATUS_INVALID_PARAMETER`: one is no address.
///
/// # Safety
/// `provider` is running; `addresses` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ndkrocev2_set_addresses(
    provider: *mut ndkrocev2_provider,
    addresses: *const c_char,
) -> NTSTATUS {
    // SAFETY: the caller's promise.
    let text = unsafe { text(addresses, "addresses") };
    // SAFETY: the caller's promise.
    let host = unsafe { host(provider) };
    let set = text.and_then(|text| host.set_addresses(text.ok_or(Error::Missing("addresses"))?));
    error::noted(set).map_or(STATUS_INVALID_PARAMETER, |()| STATUS_SUCCESS)
}

/// Reads an address with its port, `"10.0.0.1:7174"` or `"[fd00::1]:7174"`. Returns its length in bytes,
/// and 0 where the text is no such thing.
///
/// # Safety
/// `text` is a string; `address` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ndkrocev2_address(
    text: *const c_char,
    address: *mut SOCKADDR_INET,
) -> ULONG {
    // SAFETY: the caller's promise.
    let text = unsafe { self::text(text, "the address") };
    let parsed = text.and_then(|text| {
        let text = text.ok_or(Error::Missing("the address"))?;
        text.parse::<SocketAddr>().map_err(|_| Error::SocketAddress(text.into()))
    });
    let Some(parsed) = error::noted(parsed) else { return 0 };
    let inet = SOCKADDR_INET::from(parsed);
    // SAFETY: the caller's promise.
    unsafe { address.write(inet) };
    inet.len()
}

/// The reason, in words, why a function of this header last failed on this thread; "" if none did. Valid until the next
/// failure. The functions of the NDK's tables have no words, but their status, which `ndkrocev2_status_name` names.
#[unsafe(no_mangle)]
pub extern "C" fn ndkrocev2_last_error() -> *const c_char {
    error::last()
}

/// The name of a status code of `ndkbase.h`, as "STATUS_PENDING"; NULL for another one. Valid for good.
#[unsafe(no_mangle)]
pub extern "C" fn ndkrocev2_status_name(status: NTSTATUS) -> *const c_char {
    error::name(status)
}

/// The version of the library, as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn ndkrocev2_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no zero"),
        };
    VERSION.as_ptr()
}

/// The host of a provider.
///
/// # Safety
/// `provider` is running, for `'a`.
unsafe fn host<'a>(provider: *const ndkrocev2_provider) -> &'a Host {
    // SAFETY: the caller's promise.
    unsafe { &(*provider).host }
}

/// A configuration in Rust's terms.
///
/// # Safety
/// `config` is null or valid for `'a`, and so are the strings that it names.
unsafe fn settings<'a>(config: *const ndkrocev2_config) -> Result<Settings<'a>, Error> {
    // SAFETY: the size is the first member of every version of the structure.
    if config.is_null() || unsafe { (*config).size } != size_of::<ndkrocev2_config>() {
        return Err(Error::Config);
    }
    // SAFETY: the size says that it is whole.
    let config = unsafe { &*config };
    // SAFETY: the caller's promise, as for those below.
    let edge = unsafe { text(config.edge, "edge") }?;
    // SAFETY: as above.
    let addresses = unsafe { text(config.addresses, "addresses") }?;
    // SAFETY: as above.
    let pcap = unsafe { text(config.pcap, "pcap") }?;
    // SAFETY: as above.
    let layers = unsafe { text(config.layers, "layers") }?;
    Ok(Settings {
        edge: edge.ok_or(Error::Missing("edge"))?,
        addresses: addresses.ok_or(Error::Missing("addresses"))?,
        pcap,
        loss: config.loss,
        duplicate: config.duplicate,
        reorder: config.reorder,
        corrupt: config.corrupt,
        seed: (config.seed != 0).then_some(config.seed),
        layers: layers.unwrap_or_default(),
    })
}

/// A string of C; `None` if it is null.
///
/// # Safety
/// `string` is null or valid for `'a`.
unsafe fn text<'a>(string: *const c_char, what: &'static str) -> Result<Option<&'a str>, Error> {
    if string.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let string = unsafe { CStr::from_ptr(string) };
    string.to_str().map(Some).map_err(|_| Error::NotText(what))
}
