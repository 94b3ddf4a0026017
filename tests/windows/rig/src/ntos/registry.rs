//! The registry: keys in memory that outlive the image, and what of them is on the disk.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

use super::irql::{self, PASSIVE};
use super::{INSUFFICIENT_RESOURCES, Pointer, SUCCESS, UnicodeString, pool};

/// `OBJECT_ATTRIBUTES`.
#[derive(Debug)]
#[repr(C)]
pub struct Attributes {
    len: u32,
    root: usize,
    name: *const UnicodeString,
    flags: u32,
    descriptor: usize,
    quality: usize,
}
const _: () = assert!(size_of::<Attributes>() == 0x30);

const KERNEL_HANDLE: u32 = 0x200;
const QUERY: u32 = 1;
const SET: u32 = 2;
const TEXT: u32 = 1;
const PARTIAL_INFORMATION: i32 = 2;
const NOT_FOUND: i32 = 0xC000_0034_u32.cast_signed();
const INVALID_HANDLE: i32 = 0xC000_0008_u32.cast_signed();
const BUFFER_OVERFLOW: i32 = 0x8000_0005_u32.cast_signed();

/// The services whose keys have one for parameters, and what stands before the names of its values here.
const SERVICES: [(&str, &str); 2] = [("ndkrocev2", ""), ("ndkflight", "ndkflight\\")];

/// A handle, with the rights that it was opened for, and what stands before the names of the key's values.
struct Handle {
    number: usize,
    access: u32,
    prefix: &'static str,
}

struct Registry {
    handles: Vec<Handle>,
    /// Texts by their names.
    values: BTreeMap<String, String>,
    /// As they would be after a bug check.
    on_disk: BTreeMap<String, String>,
    /// What each flush brought to the disk as the last stage.
    stages: Vec<String>,
    /// What was on the disk when the image made a call that it notes a stage before.
    witnessed: Vec<(&'static str, String)>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    handles: Vec::new(),
    values: BTreeMap::new(),
    on_disk: BTreeMap::new(),
    stages: Vec::new(),
    witnessed: Vec::new(),
});
/// Numbers that no other handle has.
static NEXT: AtomicUsize = AtomicUsize::new(0x8000_0000);
/// Calls until the one that fails; negative: none does.
static LEFT: AtomicIsize = AtomicIsize::new(-1);

fn registry() -> std::sync::MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Sets a value, as an administrator does. Before the names of the flight's values stands its service.
pub fn set(name: &str, text: &str) {
    registry().values.insert(name.to_owned(), text.to_owned());
}

/// A value as it is now.
pub fn get(name: &str) -> Option<String> {
    registry().values.get(name).cloned()
}

/// What is on the disk.
pub fn on_disk(name: &str) -> Option<String> {
    registry().on_disk.get(name).cloned()
}

/// The stages that came to the disk since the last time.
pub fn take_stages() -> Vec<String> {
    std::mem::take(&mut registry().stages)
}

/// The calls that the image made since the last time, with the stage that was on the disk then.
pub fn take_witnessed() -> Vec<(&'static str, String)> {
    std::mem::take(&mut registry().witnessed)
}

/// Notes the stage that a bug check in this call would leave behind.
pub fn witness(call: &'static str) {
    let mut registry = registry();
    let stage = registry.on_disk.get("LastStage").cloned().unwrap_or_default();
    registry.witnessed.push((call, stage));
}

/// Lets the call with this number fail, counted from now.
pub fn fail_at(call: Option<usize>) {
    LEFT.store(call.map_or(-1, |call| call as isize), Ordering::SeqCst);
}

/// Whether the call that was to fail has come.
pub fn has_failed() -> bool {
    LEFT.load(Ordering::SeqCst) < 0
}

fn fails(call: &str) -> bool {
    irql::at_most(PASSIVE, call);
    LEFT.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| (left >= 0).then_some(left - 1))
        == Ok(0)
        || pool::refuses(call)
}

/// Closes a handle, if it is one of a key.
pub fn close(number: usize) -> bool {
    let mut registry = registry();
    let before = registry.handles.len();
    registry.handles.retain(|handle| handle.number != number);
    registry.handles.len() < before
}

pub fn report_leaks() {
    for handle in std::mem::take(&mut registry().handles) {
        breach!("the key {:#x} is left open", handle.number);
    }
}

/// What stands before the names of the key's values, where the handle may be used for this.
fn may(registry: &Registry, number: usize, access: u32, call: &str) -> Option<&'static str> {
    let handle = registry.handles.iter().find(|handle| handle.number == number);
    match handle {
        None => breach!("{call}: {number:#x} is no open key"),
        Some(handle) if handle.access & access != access => {
            breach!("{call}: {number:#x} was not opened for it")
        }
        Some(handle) => return Some(handle.prefix),
    }
    None
}

unsafe fn text_of(data: *const u16, len: u32) -> String {
    let units = std::slice::from_raw_parts(data, len as usize / 2);
    match units.split_last() {
        Some((0, text)) if !text.contains(&0) && len.is_multiple_of(2) => {
            String::from_utf16_lossy(text)
        }
        _ => {
            breach!("a text of {len} bytes does not end with its one zero: {units:x?}");
            String::new()
        }
    }
}

exports! { "ntoskrnl.exe":
    fn ZwOpenKey(handle: *mut usize, access: u32, attributes: &Attributes) -> i32 {
        let name = (*attributes.name).text();
        if attributes.len != 0x30 || attributes.root != 0 { breach!("ZwOpenKey: {attributes:x?}"); }
        if attributes.flags & KERNEL_HANDLE == 0 { breach!("{name}: a process could use the handle of the key"); }
        if access & !(QUERY | SET) != 0 { breach!("{name} is opened for {access:#x}"); }
        if fails("ZwOpenKey") { return INSUFFICIENT_RESOURCES; }
        let is_of = |service: &str| name.to_lowercase().ends_with(&format!("\\services\\{service}\\parameters"));
        let Some((_, prefix)) = SERVICES.into_iter().find(|(service, _)| is_of(service)) else {
            breach!("the key {name} is not the driver's");
            return NOT_FOUND;
        };
        let number = NEXT.fetch_add(4, Ordering::Relaxed);
        registry().handles.push(Handle { number, access, prefix });
        handle.write(number);
        SUCCESS
    }
    fn ZwQueryValueKey(handle: usize, name: &UnicodeString, class: i32, information: Pointer, len: u32, needed: *mut u32) -> i32 {
        let registry = registry();
        let Some(prefix) = may(&registry, handle, QUERY, "ZwQueryValueKey") else { return INVALID_HANDLE };
        if class != PARTIAL_INFORMATION { breach!("ZwQueryValueKey: class {class}"); }
        if fails("ZwQueryValueKey") { return INSUFFICIENT_RESOURCES; }
        let Some(text) = registry.values.get(&format!("{prefix}{}", name.text())) else { return NOT_FOUND };
        let units: Vec<u16> = text.encode_utf16().chain([0]).collect();
        let bytes = size_of_val(&*units);
        needed.write(12 + bytes as u32);
        if (len as usize) < 12 { return BUFFER_OVERFLOW; }
        information.cast::<[u32; 3]>().write([0, TEXT, bytes as u32]);
        let room = (len as usize - 12).min(bytes);
        information.add(12).copy_from(units.as_ptr().cast(), room);
        if room < bytes { BUFFER_OVERFLOW } else { SUCCESS }
    }
    fn ZwSetValueKey(handle: usize, name: &UnicodeString, _title: u32, kind: u32, data: *const u16, len: u32) -> i32 {
        let mut registry = registry();
        let Some(prefix) = may(&registry, handle, SET, "ZwSetValueKey") else { return INVALID_HANDLE };
        if kind != TEXT { breach!("ZwSetValueKey: {} is of type {kind}", name.text()); }
        if fails("ZwSetValueKey") { return INSUFFICIENT_RESOURCES; }
        registry.values.insert(format!("{prefix}{}", name.text()), text_of(data, len));
        SUCCESS
    }
    fn ZwFlushKey(handle: usize) -> i32 {
        let mut registry = registry();
        if may(&registry, handle, 0, "ZwFlushKey").is_none() { return INVALID_HANDLE; }
        if fails("ZwFlushKey") { return INSUFFICIENT_RESOURCES; }
        registry.on_disk = registry.values.clone();
        let stage = registry.values.get("LastStage").cloned().unwrap_or_default();
        registry.stages.push(stage);
        SUCCESS
    }
}
