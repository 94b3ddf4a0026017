//! The counters of the adapters and their connections, as performance counter sets of the system (PCW).
//!
//! A set is registered for the life of the image and collected on request. The driver also works without
//! it, if memory is short.
#![allow(unsafe_code, reason = "calls the kernel, which calls back")]
#![allow(non_upper_case_globals, reason = "C names in patterns")]

use crate::abi::imports::{PcwAddInstance, PcwRegister, PcwUnregister};
use crate::abi::*;
use crate::counter_sets::{CounterSet, Members, SETS, VALUES};
use crate::pairing::DRIVER;
use crate::upper::adapter::Adapter;
use alloc::sync::Arc;
use core::ffi::c_void;
use core::fmt::{self, Write};
use core::ptr::{null_mut, without_provenance_mut};
use core::sync::atomic::{AtomicPtr, Ordering};
use driver::Endpoint;
use netadapter_glue::Drops;
use rocev2::counters::{Counter, Snapshot};

/// The system's handles of the registered sets.
static REGISTERED: [AtomicPtr<c_void>; SETS.len()] =
    [const { AtomicPtr::new(null_mut()) }; SETS.len()];

/// The counters of each set; too many to be listed on a kernel's stack.
static MEMBERS: [Members; SETS.len()] = [SETS[0].members(), SETS[1].members(), SETS[2].members()];

/// The set whose instances are connections.
const CONNECTIONS: usize = 2;
/// UTF-16 units of the longest name: that of a connection over IPv6, and some more.
const NAME_MAX: usize = 192;

/// Registers the sets, at load. PASSIVE_LEVEL.
pub(crate) fn register() {
    for (number, set) in SETS.iter().enumerate() {
        REGISTERED[number]
            .store(register_set(number, set).unwrap_or(null_mut()), Ordering::Release);
    }
}

/// Unregisters the sets, before anything that the callbacks use is dropped. Returns when no callback runs
/// any more. PASSIVE_LEVEL.
pub(crate) fn unregister() {
    for place in &REGISTERED {
        let set = place.swap(null_mut(), Ordering::AcqRel);
        if !set.is_null() {
            // SAFETY: registered, and not unregistered yet.
            unsafe { PcwUnregister(set) };
        }
    }
}

#[inline(never)]
fn register_set(number: usize, set: &CounterSet) -> Result<PVOID, NTSTATUS> {
    let members = &MEMBERS[number];
    let mut counters = heapless::Vec::<PCW_COUNTER_DESCRIPTOR, 64>::new();
    for id in 0..members.count() {
        let place = members.get(id).value * size_of::<u64>();
        // There is room for the most counters of a set, and no instance has 64 KiB.
        let _ = counters.push(PCW_COUNTER_DESCRIPTOR {
            Id: id as USHORT,
            StructIndex: 0,
            Offset: place as USHORT,
            Size: size_of::<u64>() as USHORT,
        });
    }
    let mut name = Name::default();
    // The name is short.
    let _ = name.write_str(set.name);
    let name = name.string();
    let information = PCW_REGISTRATION_INFORMATION {
        Version: PCW_VERSION_1,
        Name: &name.0,
        CounterCount: counters.len() as ULONG,
        Counters: counters.as_ptr(),
        Callback: called_back,
        CallbackContext: without_provenance_mut(number),
    };
    let mut handle = null_mut();
    // SAFETY: everything lives during the call, the callback as long as the image.
    unsafe { PcwRegister(&mut handle, &information) }.ok()?;
    Ok(handle)
}

/// PASSIVE_LEVEL.
///
/// # Safety
/// Called by the system with the registered context.
unsafe extern "system" fn called_back(
    kind: i32,
    information: *const PCW_MASK_INFORMATION,
    context: PVOID,
) -> NTSTATUS {
    if !matches!(kind, PcwCallbackEnumerateInstances | PcwCallbackCollectData) {
        return STATUS_SUCCESS;
    }
    // SAFETY: of these kinds, the information is a mask's, and valid for the call.
    let buffer = unsafe { (*information).Buffer };
    collect(buffer, context.addr()).into()
}

fn collect(buffer: PVOID, set: usize) -> Result<(), NTSTATUS> {
    let add = |adapter: &Arc<Adapter>| match set {
        CONNECTIONS => add_connections(buffer, adapter),
        _ => add_adapter(buffer, adapter),
    };
    let mut index = 0;
    while let Some(added) = DRIVER.with_adapter(index, add) {
        added?;
        index += 1;
    }
    Ok(())
}

#[inline(never)]
fn add_adapter(buffer: PVOID, adapter: &Adapter) -> Result<(), NTSTATUS> {
    let counted = adapter.shard().counters();
    let index = adapter.interface;
    add(buffer, index, format_args!("ifIndex {index}"), &counted.transport, counted.edge)
}

#[inline(never)]
fn add_connections(buffer: PVOID, adapter: &Arc<Adapter>) -> Result<(), NTSTATUS> {
    // An adapter that is being halted, or has NDK off, has none.
    let Some(endpoints) = adapter.open_endpoints() else { return Ok(()) };
    for endpoint in &endpoints {
        if let Endpoint::Connection(connection) = endpoint {
            let (qpn, local, remote) = (connection.qpn.get(), connection.local, connection.remote);
            let name = format_args!("QPN {qpn:#08x} {local} {remote}");
            add(buffer, qpn, name, &connection.counters.snapshot(), Drops::default())?;
        }
    }
    Ok(())
}

/// Adds an instance with its values.
fn add(
    buffer: PVOID,
    id: ULONG,
    name: fmt::Arguments<'_>,
    transport: &Snapshot,
    edge: Drops,
) -> Result<(), NTSTATUS> {
    let mut values = [0; VALUES];
    let (counters, drops) = values.split_at_mut(Counter::COUNT);
    counters.iter_mut().zip(transport.iter()).for_each(|(value, (_, counted))| *value = counted);
    drops.copy_from_slice(&[edge.transmit, edge.receive, edge.refused]);
    let mut text = Name::default();
    // Every name is shorter than the room.
    let _ = text.write_fmt(name);
    let name = text.string();
    let data = PCW_DATA { Data: values.as_ptr().cast(), Size: size_of_val(&values) as ULONG };
    // SAFETY: name and data live during the call; the buffer is that of the callback.
    unsafe { PcwAddInstance(buffer, &name.0, id, 1, &data) }.ok()
}

/// A text in UTF-16, cut where it exceeds the room.
#[derive(Default)]
struct Name(heapless::Vec<u16, NAME_MAX>);

/// A counted string that borrows a [`Name`].
struct Counted<'a>(UNICODE_STRING, core::marker::PhantomData<&'a Name>);

impl Name {
    fn string(&self) -> Counted<'_> {
        let bytes = size_of_val(self.0.as_slice()) as USHORT;
        let string = UNICODE_STRING {
            Length: bytes,
            MaximumLength: bytes,
            Buffer: self.0.as_ptr().cast_mut(),
        };
        Counted(string, core::marker::PhantomData)
    }
}

impl Write for Name {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.encode_utf16().try_for_each(|unit| self.0.push(unit).map_err(|_| fmt::Error))
    }
}
