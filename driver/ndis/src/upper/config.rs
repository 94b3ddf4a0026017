//! The keywords of an adapter, from NDIS.
#![allow(unsafe_code, reason = "calls NDIS, which lends its memory")]

use crate::abi::imports::{
    NdisCloseConfiguration, NdisOpenConfigurationEx, NdisReadConfiguration, NdisReadNetworkAddress,
    NdisWriteConfiguration,
};
use crate::abi::*;
use crate::keywords::{self, Config, Keywords, LOWER_ADDRESS};
use crate::log::report;
use crate::os::processor;
use crate::os::text::{counted, utf16};
use crate::problems::Problem;
use alloc::vec::Vec;
use core::ptr::null_mut;

/// Reads the values of the adapter with this interface. PASSIVE_LEVEL.
pub(super) fn read(adapter: NDIS_HANDLE, interface: NET_IFINDEX) -> Result<Config, NDIS_STATUS> {
    let open = Open::new(adapter)?;
    if open.network_address().is_some_and(|address| !keywords::is_station(address)) {
        report(interface, Problem::BadNetworkAddress, 0, 0);
    }
    Ok(Config::of(&open, processor::count() as usize))
}

/// Whether `*NetworkDirect` allows NDK now. PASSIVE_LEVEL.
pub(super) fn network_direct(adapter: NDIS_HANDLE) -> Result<bool, NDIS_STATUS> {
    Ok(keywords::network_direct(&Open::new(adapter)?))
}

/// Keeps the Ethernet address of the NIC for a start at which nobody tells it yet. PASSIVE_LEVEL.
pub(super) fn keep_lower_address(adapter: NDIS_HANDLE, address: [u8; 6]) {
    let Ok(open) = Open::new(adapter) else { return };
    let text = keywords::hex_of(address);
    let name = utf16::<{ LOWER_ADDRESS.len() }>(LOWER_ADDRESS);
    let mut name = counted(&name);
    let mut parameter = NDIS_CONFIGURATION_PARAMETER {
        ParameterType: NdisParameterString,
        ParameterData: NDIS_PARAMETER_DATA { StringData: counted(&text) },
    };
    let mut status = NDIS_STATUS_FAILURE;
    // SAFETY: all of it lives during the call. Where the registry refuses, a later bind writes it.
    unsafe { NdisWriteConfiguration(&mut status, open.0, &mut name, &mut parameter) };
}

/// An open configuration.
struct Open(NDIS_HANDLE);

impl Open {
    fn new(adapter: NDIS_HANDLE) -> Result<Self, NDIS_STATUS> {
        let size = NDIS_SIZEOF_CONFIGURATION_OBJECT_REVISION_1;
        let mut object = NDIS_CONFIGURATION_OBJECT {
            Header: header(NDIS_OBJECT_TYPE_CONFIGURATION_OBJECT, 1, size),
            NdisHandle: adapter,
            Flags: 0,
        };
        let mut handle = null_mut();
        // SAFETY: both live during the call.
        unsafe { NdisOpenConfigurationEx(&mut object, &mut handle) }.ok()?;
        Ok(Self(handle))
    }

    /// The parameter stays valid until the configuration is closed.
    fn parameter(&self, keyword: &str, kind: i32) -> Option<&NDIS_CONFIGURATION_PARAMETER> {
        let name: Vec<u16> = keyword.encode_utf16().collect();
        let mut name = counted(&name);
        let (mut status, mut parameter) = (NDIS_STATUS_FAILURE, null_mut());
        // SAFETY: the places and the name live during the call.
        unsafe { NdisReadConfiguration(&mut status, &mut parameter, self.0, &mut name, kind) };
        if !status.is_success() {
            return None;
        }
        // SAFETY: NDIS keeps it until the configuration is closed.
        unsafe { parameter.as_ref() }.filter(|parameter| parameter.ParameterType == kind)
    }
}

impl Keywords for Open {
    fn integer(&self, keyword: &str) -> Option<u32> {
        let parameter = self.parameter(keyword, NdisParameterInteger)?;
        // SAFETY: the type says that it is an integer.
        Some(unsafe { parameter.ParameterData.IntegerData })
    }

    fn string(&self, keyword: &str) -> Vec<u16> {
        let Some(parameter) = self.parameter(keyword, NdisParameterString) else {
            return Vec::new();
        };
        // SAFETY: the type says that it is a string.
        let text = unsafe { parameter.ParameterData.StringData };
        // SAFETY: the string lives as long as the parameter.
        unsafe { text_of(&text) }.to_vec()
    }

    fn network_address(&self) -> Option<[u8; 6]> {
        let (mut status, mut address, mut len) = (NDIS_STATUS_FAILURE, null_mut(), 0);
        // SAFETY: the places live during the call.
        unsafe { NdisReadNetworkAddress(&mut status, &mut address, &mut len, self.0) };
        if !status.is_success() || address.is_null() || len != 6 {
            return None;
        }
        // SAFETY: six bytes, valid until the configuration is closed.
        Some(unsafe { address.cast::<[u8; 6]>().read() })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: opened by `new`; nothing lent outlives it.
        unsafe { NdisCloseConfiguration(self.0) };
    }
}

/// The characters of a counted string.
///
/// # Safety
/// The string's buffer is valid for `'a`.
pub(crate) unsafe fn text_of<'a>(string: &UNICODE_STRING) -> &'a [u16] {
    // SAFETY: the caller's promise.
    unsafe { slice(string.Buffer.cast_const(), ULONG::from(string.Length / 2)) }
}
