//! A step creates objects, takes memory and makes calls, and in the end gives all of it back.
#![allow(unsafe_code, reason = "calls the dispatch tables of C objects")]

use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::ptr::{NonNull, null_mut};

use ndk_abi::*;

use crate::Failure;
use crate::call::{Call, Ending, Events, close_ended, creation_ended, request_ended};
use crate::connection::Backlog;
use crate::flight::{Block, Flight};
use crate::kinds::{Kind, Object, call};
use crate::region::Memory;

/// Mappings of a step, at most.
const MAPPINGS: usize = 4;

/// Where a step is tried.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    /// On one adapter, by its number.
    Adapter(usize),
    /// Over connections from the first of these adapters to the second.
    Path { ends: [usize; 2], family: Family },
}

/// Of the addresses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Adapter(0) => f.write_str("client"),
            Self::Adapter(_) => f.write_str("server"),
            Self::Path { ends: [client, server], family } => {
                f.write_str(if client == server { "loopback " } else { "pair " })?;
                f.write_str(match family {
                    Family::V4 => "ipv4",
                    Family::V6 => "ipv6",
                })
            }
        }
    }
}

/// An object of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    header: *mut NDK_OBJECT_HEADER,
    close: NDK_FN_CLOSE_OBJECT,
    name: &'static str,
    is_open: bool,
    /// Its close, where the end of the step has begun it.
    closing: Option<Call>,
}

/// A step that runs.
pub(crate) struct Step<'f> {
    pub(crate) flight: &'f mut Flight,
    place: Place,
    /// That of its listener.
    pub(crate) backlog: Option<&'f Backlog>,
    mappings: [*mut NDK_LOGICAL_ADDRESS_MAPPING; MAPPINGS],
}

impl<'f> Step<'f> {
    pub(crate) const fn new(flight: &'f mut Flight, place: Place) -> Self {
        Self { flight, place, backlog: None, mappings: [null_mut(); MAPPINGS] }
    }

    /// Whether each end has an address for it.
    pub(crate) fn can_be_tried(&self) -> bool {
        match self.place {
            Place::Adapter(_) => true,
            Place::Path { .. } => self.address(0).is_some() && self.address(1).is_some(),
        }
    }

    /// The number of the adapter at an end: 0 for the client's, 1 for the server's.
    fn side(&self, end: usize) -> usize {
        match self.place {
            Place::Adapter(side) => side,
            Place::Path { ends, .. } => ends[end],
        }
    }

    pub(crate) fn adapter(&self, end: usize) -> Adapter {
        Adapter(self.flight.sides[self.side(end)].adapter)
    }

    /// The address of an end, port 0.
    pub(crate) fn address(&self, end: usize) -> Option<SocketAddr> {
        let side = self.flight.sides[self.side(end)];
        let ip = match self.place {
            Place::Adapter(_) => side.v4.map(IpAddr::V4).or(side.v6.map(IpAddr::V6)),
            Place::Path { family: Family::V4, .. } => side.v4.map(IpAddr::V4),
            Place::Path { family: Family::V6, .. } => side.v6.map(IpAddr::V6),
        };
        ip.map(|ip| SocketAddr::new(ip, 0))
    }

    /// Waits for what a callback brings about.
    ///
    /// # Errors
    /// [`Failure::Late`]
    pub(crate) fn wait(
        &self,
        what: &'static str,
        mut done: impl FnMut() -> bool,
    ) -> Result<(), Failure> {
        let late = Failure::Late { call: what, after_s: self.flight.config.patience_s };
        if self.flight.wait_until(&mut done) { Ok(()) } else { Err(late) }
    }

    /// The status of a call, and its object, once it has ended.
    fn end_of(&mut self, call: Call) -> Result<(NTSTATUS, *mut NDK_OBJECT_HEADER), Failure> {
        let slots = &self.flight.slots;
        if !self.flight.wait_until(&mut || slots.has_ended(call)) {
            let after_s = self.flight.config.patience_s;
            self.flight.is_stuck |= self.flight.late.push(call).is_err();
            return Err(Failure::Late { call: call.name, after_s });
        }
        Ok(self.flight.slots.end(call))
    }

    /// Begins a request; `start` calls the function.
    pub(crate) fn begin(
        &mut self,
        name: &'static str,
        start: impl FnOnce(Option<NDK_FN_REQUEST_COMPLETION>, PVOID) -> NTSTATUS,
    ) -> Result<Call, Failure> {
        self.flight.slots.begin(name, |ending| start(Some(request_ended), ending.context))
    }

    /// The status of a request, once it has ended.
    ///
    /// # Errors
    /// [`Failure::Late`]
    pub(crate) fn status(&mut self, call: Call) -> Result<NTSTATUS, Failure> {
        Ok(self.end_of(call)?.0)
    }

    /// Waits for a request that has to succeed.
    ///
    /// # Errors
    /// Its status; [`Failure::Late`].
    pub(crate) fn succeed(&mut self, call: Call) -> Result<(), Failure> {
        let status = self.status(call)?;
        Failure::unless_status(call.name, status, STATUS_SUCCESS)
    }

    /// Creates an object; the step closes it.
    ///
    /// # Errors
    /// The status of the creation; [`Failure::Late`].
    pub(crate) fn create<T: Kind>(
        &mut self,
        name: &'static str,
        start: impl FnOnce(Option<NDK_FN_CREATE_COMPLETION>, PVOID, *mut *mut T) -> NTSTATUS,
    ) -> Result<Object<T>, Failure> {
        let call = self.flight.slots.begin(name, |Ending { context, object }| {
            start(Some(creation_ended), context, object.cast())
        })?;
        let (status, object) = self.end_of(call)?;
        Failure::unless_status(name, status, STATUS_SUCCESS)?;
        self.adopt(object.cast())
    }

    /// Takes an object over that the provider has created.
    pub(crate) fn adopt<T: Kind>(&mut self, object: *mut T) -> Result<Object<T>, Failure> {
        let none = Failure::Wrong { what: "an object's address", found: 0, expected: 1 };
        let object = Object::new(NonNull::new(object).ok_or(none)?, self.flight.objects.len());
        let (header, close) = (object.header(), object.close());
        let entry = Entry { header, close, name: T::CLOSE, is_open: true, closing: None };
        self.flight.objects.push(entry)?;
        Ok(object)
    }

    /// Begins to close an object, which is not used any more.
    pub(crate) fn begin_close<T: Kind>(&mut self, object: Object<T>) -> Result<Call, Failure> {
        self.begin_close_at(object.place)
    }

    pub(crate) fn begin_close_at(&mut self, place: usize) -> Result<Call, Failure> {
        let closed = Failure::Wrong { what: "an open object", found: 0, expected: 1 };
        let entry = self.flight.objects.get_mut(place).filter(|entry| entry.is_open);
        let entry = entry.ok_or(closed)?;
        entry.is_open = false;
        let Entry { header, close, name, .. } = *entry;
        self.flight.slots.begin(name, |ending| {
            // SAFETY: the object is open, and marked as closed now.
            unsafe { close(header, Some(close_ended), ending.context) }
        })
    }

    /// Closes an object, and waits for it.
    ///
    /// # Errors
    /// [`Failure::Late`]
    pub(crate) fn close<T: Kind>(&mut self, object: Object<T>) -> Result<(), Failure> {
        let call = self.begin_close(object)?;
        self.succeed(call)
    }

    /// Closes what is open, the newest first, and frees all memory. The step may then begin anew.
    ///
    /// # Errors
    /// [`Failure::Late`]: the flight is stuck.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        let mut result = self.begin_closes();
        // The listener takes no more. Connections that nobody has taken hold up its close.
        while let Some(connector) = self.backlog.and_then(Backlog::take) {
            result = result.and(self.adopt(connector).map(drop));
        }
        result = result.and(self.begin_closes());
        if result.is_ok() {
            result = self.end_closes(0);
        }
        if result.is_err() {
            self.flight.is_stuck = true;
            return result;
        }
        // A call that was late has ended by now, or never will; one with an object of its own has nobody who closes it.
        while let Some(call) = self.flight.late.pop() {
            let ended = self.end_of(call);
            if ended.map(|(_, object)| object.is_null()) != Ok(true) {
                self.flight.is_stuck = true;
                return Err(Failure::Late {
                    call: call.name,
                    after_s: self.flight.config.patience_s,
                });
            }
        }
        self.backlog = None;
        self.release_mappings();
        self.flight.free_blocks();
        Ok(())
    }

    /// Closes the objects from this number on, all at once, and waits for them.
    ///
    /// # Errors
    /// [`Failure::Late`]
    pub(crate) fn close_from(&mut self, first: usize, oldest_first: bool) -> Result<(), Failure> {
        let count = self.flight.objects.len().saturating_sub(first);
        for turn in 0..count {
            let place = first + if oldest_first { turn } else { count - 1 - turn };
            self.begin_close_of(place)?;
        }
        self.end_closes(first)
    }

    /// Waits for the closes that have begun, and forgets the objects from this number on.
    fn end_closes(&mut self, first: usize) -> Result<(), Failure> {
        for place in first..self.flight.objects.len() {
            let entry = self.flight.objects.get_mut(place);
            // The first that is late ends it: where a machine has thousands of them, all would take hours.
            if let Some(call) = entry.and_then(|entry| entry.closing.take()) {
                self.succeed(call)?;
            }
        }
        self.forget_from(first);
        Ok(())
    }

    /// Forgets the objects from this number on, which are closed.
    pub(crate) fn forget_from(&mut self, first: usize) {
        while self.flight.objects.len() > first {
            self.flight.objects.pop();
        }
    }

    /// Begins the close of an object that is still open.
    fn begin_close_of(&mut self, place: usize) -> Result<(), Failure> {
        if !self.flight.objects.get_mut(place).is_some_and(|entry| entry.is_open) {
            return Ok(());
        }
        let call = self.begin_close_at(place)?;
        if let Some(entry) = self.flight.objects.get_mut(place) {
            entry.closing = Some(call);
        }
        Ok(())
    }

    /// An object may be closed before those that were made of it, whose closes it then waits for; the newest goes first all
    /// the same, as in most consumers.
    fn begin_closes(&mut self) -> Result<(), Failure> {
        for place in (0..self.flight.objects.len()).rev() {
            self.begin_close_of(place)?;
        }
        Ok(())
    }

    /// Has the logical addresses of a mapping of the server's adapter given back at the end of the step.
    ///
    /// # Errors
    /// [`Failure::Memory`]
    pub(crate) fn mapped(
        &mut self,
        mapping: *mut NDK_LOGICAL_ADDRESS_MAPPING,
    ) -> Result<(), Failure> {
        let place = self.mappings.iter_mut().find(|place| place.is_null());
        let none = Failure::Memory { bytes: size_of_val(&mapping) };
        *place.ok_or(none)? = mapping;
        Ok(())
    }

    fn release_mappings(&mut self) {
        let adapter = self.adapter(1);
        for place in &mut self.mappings {
            let mapping = core::mem::replace(place, null_mut());
            if !mapping.is_null() {
                call!(adapter, NdkReleaseLAM(mapping));
            }
        }
    }

    /// Memory of the step, zeroed.
    ///
    /// # Errors
    /// [`Failure::Memory`]
    pub(crate) fn allocate(&mut self, bytes: usize) -> Result<*mut u8, Failure> {
        let start = self.flight.machine.allocate(bytes);
        if start.is_null() {
            return Err(Failure::Memory { bytes });
        }
        let block = Block { start, bytes, mdl: null_mut() };
        if let Err(failure) = self.flight.blocks.push(block) {
            // SAFETY: just allocated, and nobody uses it.
            unsafe { self.flight.machine.free(start, bytes) };
            return Err(failure);
        }
        Ok(start)
    }

    /// Memory with an MDL.
    ///
    /// # Errors
    /// [`Failure::Memory`]
    pub(crate) fn memory(&mut self, len: usize) -> Result<Memory, Failure> {
        let start = self.allocate(len)?;
        let mdl = self.flight.machine.describe(start, len as u32);
        if mdl.is_null() {
            return Err(Failure::Memory { bytes: size_of::<MDL>() });
        }
        let last = self.flight.blocks.len() - 1;
        if let Some(block) = self.flight.blocks.get_mut(last) {
            block.mdl = mdl;
        }
        Ok(Memory { start, len, mdl })
    }

    /// Events of an object, for its callbacks: they live until the end of the step.
    ///
    /// # Errors
    /// [`Failure::Memory`]
    pub(crate) fn events(&mut self) -> Result<&'f Events, Failure> {
        let place = self.allocate(size_of::<Events>())?.cast::<Events>();
        // SAFETY: the memory has room for it, and is aligned.
        unsafe { place.write(Events::new(self.flight.machine)) };
        // SAFETY: just written; freed when each object of the step is closed, behind which no step uses it.
        Ok(unsafe { &*place })
    }
}

/// An open adapter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adapter(*mut NDK_ADAPTER);

impl Adapter {
    pub(crate) const fn as_ptr(self) -> *mut NDK_ADAPTER {
        self.0
    }

    pub(crate) fn table(self) -> &'static NDK_ADAPTER_DISPATCH {
        // SAFETY: the adapter is open for as long as the flight.
        let adapter = unsafe { &*self.0 };
        // SAFETY: as above; nobody writes the place meanwhile.
        let table = unsafe { adapter.Dispatch.get().read() };
        // SAFETY: the table of an open adapter.
        unsafe { &*table }
    }
}
