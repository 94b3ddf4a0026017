//! The values below the service's key by which the flight is told what to do, and tells what it has found.
#![allow(unsafe_code, reason = "calls the kernel")]

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use ndkflight::LINE_LEN;

use crate::abi::imports::*;
use crate::abi::*;
use crate::text::{counted, utf16};

/// The key, while the flight lasts.
static KEY: AtomicPtr<core::ffi::c_void> = AtomicPtr::new(null_mut());

/// There is no such value.
const STATUS_OBJECT_NAME_NOT_FOUND: NTSTATUS = NTSTATUS(0xC000_0034_u32.cast_signed());
const PARAMETERS: [u16; 11] = utf16("\\Parameters");
/// UTF-16 units of the path of the key, at most.
const PATH_MAX: usize = 256;
/// UTF-16 units of the name of a value, at most.
const NAME_MAX: usize = 16;
/// UTF-16 units of a number, and the zero behind it, at most.
const NUMBER_MAX: usize = 12;

/// Opens the key below that of the service. PASSIVE_LEVEL.
///
/// # Errors
/// That of the registry; `STATUS_INVALID_PARAMETER` where the path is too long.
pub(crate) fn open(service: &[u16]) -> Result<(), NTSTATUS> {
    let mut path = [0_u16; PATH_MAX];
    let len = service.len() + PARAMETERS.len();
    let path = path.get_mut(..len).ok_or(STATUS_INVALID_PARAMETER)?;
    for (place, unit) in path.iter_mut().zip(service.iter().chain(&PARAMETERS)) {
        *place = *unit;
    }
    let mut name = counted(path);
    let mut attributes = OBJECT_ATTRIBUTES::kernel(&mut name);
    let mut handle = null_mut();
    let access = KEY_QUERY_VALUE | KEY_SET_VALUE;
    // SAFETY: all of it lives during the call.
    unsafe { ZwOpenKey(&mut handle, access, &mut attributes) }.ok()?;
    KEY.store(handle, Ordering::Release);
    Ok(())
}

/// PASSIVE_LEVEL.
pub(crate) fn close() {
    let key = KEY.swap(null_mut(), Ordering::AcqRel);
    // SAFETY: opened by `open`, and not closed yet.
    let _ = unsafe { ZwClose(key) };
}

/// A decimal number; `None` where there is no such value. PASSIVE_LEVEL.
///
/// # Errors
/// The value is no number.
pub(crate) fn number(name: &str) -> Result<Option<u32>, ()> {
    /// `KEY_VALUE_PARTIAL_INFORMATION`: title index, type and length, and the data behind them.
    #[repr(C)]
    struct Value {
        head: [ULONG; 3],
        data: [u16; NUMBER_MAX],
    }
    let mut value = Value { head: [0; 3], data: [0; NUMBER_MAX] };
    let (units, len) = units::<NAME_MAX>(name);
    let (mut name, mut needed) = (counted(units.get(..len).unwrap_or_default()), 0);
    let room = size_of::<Value>() as ULONG;
    let place = (&raw mut value).cast();
    let key = KEY.load(Ordering::Acquire);
    let class = KeyValuePartialInformation;
    // SAFETY: the name and the places live during the call, and the room is as long as is said.
    let status = unsafe { ZwQueryValueKey(key, &mut name, class, place, room, &mut needed) };
    if status == STATUS_OBJECT_NAME_NOT_FOUND {
        return Ok(None);
    }
    status.ok().map_err(drop)?;
    let [_, kind, bytes] = value.head;
    let text = value.data.get(..bytes as usize / 2).filter(|_| kind == REG_SZ).ok_or(())?;
    let mut number = None;
    for unit in text.iter().take_while(|unit| **unit != 0) {
        let digit = char::from_u32((*unit).into()).and_then(|unit| unit.to_digit(10)).ok_or(())?;
        let tens = number.unwrap_or(0_u32).checked_mul(10).ok_or(())?;
        number = Some(tens.checked_add(digit).ok_or(())?);
    }
    number.map(Some).ok_or(())
}

/// Sets a text. PASSIVE_LEVEL. The registry may refuse it: then it is missing, and nothing else.
pub(crate) fn set(name: &str, text: &str) {
    let (units_of_name, len) = units::<NAME_MAX>(name);
    let mut name = counted(units_of_name.get(..len).unwrap_or_default());
    // A zero behind the text.
    let (mut text, len) = units::<{ LINE_LEN + 1 }>(text);
    let bytes = (size_of::<u16>() * (len + 1)) as ULONG;
    let key = KEY.load(Ordering::Acquire);
    // SAFETY: name and text live during the call, which reads them.
    let _ = unsafe { ZwSetValueKey(key, &mut name, 0, REG_SZ, text.as_mut_ptr().cast(), bytes) };
}

/// The units of an ASCII text, with at least one zero behind them, and how many they are. The rest of a longer one is cut off.
fn units<const N: usize>(text: &str) -> ([u16; N], usize) {
    let mut units = [0; N];
    let mut len = 0;
    for (place, byte) in units.iter_mut().zip(text.bytes()).take(N - 1) {
        *place = byte.into();
        len += 1;
    }
    (units, len)
}
