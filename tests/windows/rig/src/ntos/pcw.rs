//! Performance counters: the sets that are registered, and a consumer that collects them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::irql::{self, PASSIVE};
use super::{INSUFFICIENT_RESOURCES, Pointer, SUCCESS, UnicodeString, pool};

type Callback = unsafe extern "win64" fn(kind: i32, mask: *const Mask, context: Pointer) -> i32;

/// `PCW_COUNTER_DESCRIPTOR`: ID, block, offset, size.
type Descriptor = [u16; 4];

/// `PCW_REGISTRATION_INFORMATION`.
#[derive(Debug)]
#[repr(C)]
pub struct Information {
    version: u32,
    name: *const UnicodeString,
    count: u32,
    counters: *const Descriptor,
    callback: Callback,
    context: Pointer,
}

/// `PCW_MASK_INFORMATION`.
#[derive(Debug)]
#[repr(C)]
pub struct Mask {
    counters: u64,
    instances: *const UnicodeString,
    instance: u32,
    multiple: u8,
    buffer: Pointer,
    cancel: Pointer,
}

/// `PCW_DATA`.
#[derive(Debug)]
#[repr(C)]
pub struct Data {
    address: *const u8,
    len: u32,
}

struct Set {
    name: String,
    counters: Vec<Descriptor>,
    callback: Callback,
    context: usize,
}

/// What a set says of one thing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Instance {
    pub name: String,
    pub id: u32,
    /// By the counters' IDs.
    pub values: Vec<u64>,
}

/// What a callback writes into: the counters of its set, and what it has added.
#[derive(Debug)]
pub struct Buffer {
    counters: Vec<Descriptor>,
    instances: Vec<Instance>,
}

const ANY_INSTANCE: u32 = u32::MAX;
const COLLECT: i32 = 3;

static SETS: Mutex<BTreeMap<usize, Set>> = Mutex::new(BTreeMap::new());

fn sets() -> std::sync::MutexGuard<'static, BTreeMap<usize, Set>> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

exports! { "ntoskrnl.exe":
    fn PcwRegister(registration: *mut usize, information: *const Information) -> i32 {
        irql::at_most(PASSIVE, "PcwRegister");
        if pool::refuses("PcwRegister") { return INSUFFICIENT_RESOURCES; }
        let information = &*information;
        let name = (*information.name).text();
        let counters = std::slice::from_raw_parts(information.counters, information.count as usize);
        if information.version != 0x100 || name.is_empty() || counters.is_empty() {
            breach!("PcwRegister: version {:#x}, name {name:?}", information.version);
        }
        if counters.iter().enumerate().any(|(at, counter)| usize::from(counter[0]) != at || at >= 64) {
            breach!("PcwRegister: {name}: IDs are not 0 to 63: {counters:?}");
        }
        let mut sets = sets();
        let fresh = sets.keys().next_back().map_or(0x9C30, |last| last + 1);
        let set = Set {
            name,
            counters: counters.to_vec(),
            callback: information.callback,
            context: information.context.addr(),
        };
        sets.insert(fresh, set);
        registration.write(fresh);
        SUCCESS
    }
    fn PcwUnregister(registration: usize) {
        irql::at_most(PASSIVE, "PcwUnregister");
        if sets().remove(&registration).is_none() {
            breach!("PcwUnregister: {registration:#x} is not registered");
        }
    }
    fn PcwAddInstance(
        buffer: *mut Buffer,
        name: *const UnicodeString,
        id: u32,
        count: u32,
        data: *const Data,
    ) -> i32 {
        irql::at_most(PASSIVE, "PcwAddInstance");
        let (buffer, name) = (&mut *buffer, (*name).text());
        let blocks = std::slice::from_raw_parts(data, count as usize);
        if buffer.instances.iter().any(|other| other.name == name) {
            breach!("PcwAddInstance: two are called {name:?}");
        }
        let values = buffer.counters.iter().map(|&[_, block, offset, size]| {
            let block = &blocks[usize::from(block)];
            if size != 8 || u32::from(offset) + 8 > block.len {
                breach!("PcwAddInstance: {size} bytes at {offset} of {}", block.len);
                return 0;
            }
            block.address.add(offset.into()).cast::<u64>().read_unaligned()
        });
        let values = values.collect();
        buffer.instances.push(Instance { name, id, values });
        SUCCESS
    }
}

/// Name of each set that is registered, and how many counters it has.
pub fn registered() -> Vec<(String, usize)> {
    sets().values().map(|set| (set.name.clone(), set.counters.len())).collect()
}

/// What a set says now, as a consumer gets it.
pub fn collect(name: &str) -> Vec<Instance> {
    let (callback, context, counters) = {
        let sets = sets();
        let set = sets.values().find(|set| set.name == name).expect("a registered set");
        (set.callback, set.context, set.counters.clone())
    };
    let mut buffer = Buffer { counters, instances: Vec::new() };
    let mask = Mask {
        counters: u64::MAX,
        instances: UnicodeString::star(),
        instance: ANY_INSTANCE,
        multiple: 1,
        buffer: (&raw mut buffer).cast(),
        cancel: std::ptr::null_mut(),
    };
    let context = std::ptr::without_provenance_mut(context);
    let status = irql::run_at(PASSIVE, "a PCW callback", || {
        // SAFETY: the image is loaded as long as its sets are registered.
        unsafe { callback(COLLECT, &mask, context) }
    });
    assert_eq!(status, SUCCESS, "{name} is collected");
    buffer.instances
}

/// What is registered when the image is gone.
pub fn report_leaks() {
    for (_, set) in std::mem::take(&mut *sets()) {
        breach!("the performance counter set {} is still registered", set.name);
    }
}
