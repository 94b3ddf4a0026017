//! The breadcrumb: the last stage that the driver reached, in the registry and on the disk, where a bug check leaves it.
//!
//! `LastStage` stands under the service's key `Parameters`; `PreviousStage` is the one that the load before this one ended
//! with. Each call of the registry may fail: then a crumb is missing, and nothing else.
#![allow(unsafe_code, reason = "calls the kernel")]

use super::sync::Turn;
use super::text::{counted, utf16};
use crate::abi::imports::{ZwClose, ZwFlushKey, ZwOpenKey, ZwQueryValueKey, ZwSetValueKey};
use crate::abi::*;
use crate::stage::Stage;
use alloc::vec::Vec;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering};

const LAST: [u16; 9] = utf16("LastStage");
const PREVIOUS: [u16; 13] = utf16("PreviousStage");
const PARAMETERS: [u16; 11] = utf16("\\Parameters");

/// UTF-16 units of the longest name of a stage, and the zero behind it.
const NAME_MAX: usize = 16;

/// The place of the crumbs, from load to unload.
pub(crate) struct Breadcrumb {
    key: Option<Key>,
    /// Crumbs are written one after the other.
    turn: Turn,
    last: AtomicU32,
}

impl Breadcrumb {
    /// Opens the key below that of the service, and keeps what it says as the previous stage. PASSIVE_LEVEL.
    pub(crate) fn open(service: &[u16]) -> Self {
        let key = Key::open(service);
        if let Some(key) = &key
            && let Some(previous) = key.text(&LAST)
        {
            key.set(&PREVIOUS, previous.as_slice());
        }
        Self { key, turn: Turn::new(), last: AtomicU32::new(0) }
    }

    /// The number of the last stage; 0: none.
    pub(crate) fn last(&self) -> u32 {
        self.last.load(Ordering::Acquire)
    }

    /// Notes the stage whose work begins; it is on the disk when this returns. PASSIVE_LEVEL.
    pub(crate) fn note(&self, stage: Stage) {
        self.turn.run(|| {
            // Consumers open NDK again and again.
            if self.last.swap(stage as u32, Ordering::AcqRel) == stage as u32 {
                return;
            }
            let Some(key) = &self.key else { return };
            let mut name = heapless::Vec::<u16, NAME_MAX>::new();
            name.extend(stage.name().encode_utf16().chain([0]));
            key.set(&LAST, &name);
            key.flush();
        });
    }
}

/// A key of the registry that is open.
struct Key(PVOID);

// SAFETY: a handle of the kernel belongs to no thread.
unsafe impl Send for Key {}
// SAFETY: as above.
unsafe impl Sync for Key {}

impl Key {
    /// PASSIVE_LEVEL.
    fn open(service: &[u16]) -> Option<Self> {
        let path: Vec<u16> = service.iter().chain(&PARAMETERS).copied().collect();
        let mut name = counted(&path);
        let mut attributes = OBJECT_ATTRIBUTES::kernel(&mut name);
        let mut handle = null_mut();
        // SAFETY: all of it lives during the call.
        let status =
            unsafe { ZwOpenKey(&mut handle, KEY_QUERY_VALUE | KEY_SET_VALUE, &mut attributes) };
        status.is_success().then(|| Self(handle))
    }

    /// A text with its zero, if it is there and no longer than the name of a stage. PASSIVE_LEVEL.
    fn text(&self, name: &[u16]) -> Option<heapless::Vec<u16, NAME_MAX>> {
        /// `KEY_VALUE_PARTIAL_INFORMATION`: title index, type and length, and the data behind them.
        #[repr(C)]
        struct Value {
            head: [ULONG; 3],
            data: [u16; NAME_MAX],
        }
        let mut value = Value { head: [0; 3], data: [0; NAME_MAX] };
        let (mut name, mut len) = (counted(name), 0);
        // SAFETY: the name and the places live during the call, and the room is as long as is said.
        let status = unsafe {
            ZwQueryValueKey(
                self.0,
                &mut name,
                KeyValuePartialInformation,
                (&raw mut value).cast(),
                size_of::<Value>() as ULONG,
                &mut len,
            )
        };
        let [_, kind, bytes] = value.head;
        if !status.is_success() || kind != REG_SZ {
            return None;
        }
        let units = value.data.get(..bytes as usize / size_of::<u16>())?;
        heapless::Vec::from_slice(units).ok()
    }

    /// Sets a text, which ends with a zero. PASSIVE_LEVEL.
    fn set(&self, name: &[u16], text: &[u16]) {
        let mut name = counted(name);
        let (data, len) = (text.as_ptr().cast_mut().cast(), size_of_val(text) as ULONG);
        // SAFETY: name and text live during the call, which reads them.
        let _ = unsafe { ZwSetValueKey(self.0, &mut name, 0, REG_SZ, data, len) };
    }

    /// Writes the key to the disk. PASSIVE_LEVEL.
    fn flush(&self) {
        // SAFETY: an open key.
        let _ = unsafe { ZwFlushKey(self.0) };
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: opened by `open`, and not closed yet.
        let _ = unsafe { ZwClose(self.0) };
    }
}
