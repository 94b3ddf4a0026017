//! Calls that may pend. A completion callback touches its slot alone, whose memory lives until nothing calls back any more.
#![allow(unsafe_code, reason = "callbacks of a C interface")]

use core::cell::Cell;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};

use ndk_abi::*;

use crate::{Failure, Machine};

/// A call's place: its completion callbacks write it.
struct Slot {
    has_ended: AtomicBool,
    status: AtomicI32,
    object: AtomicPtr<NDK_OBJECT_HEADER>,
    machine: &'static dyn Machine,
    /// The next free one. The flight's thread alone uses it.
    next: Cell<u32>,
}

/// The places of all calls of a flight.
pub(crate) struct Slots {
    start: NonNull<Slot>,
    len: usize,
    free: u32,
    machine: &'static dyn Machine,
}

/// No slot.
const NONE: u32 = u32::MAX;

/// A call that has begun. It is given to [`Slots::end`] once it has ended.
#[derive(Clone, Copy, Debug)]
#[must_use = "its slot is taken until its end"]
pub(crate) struct Call {
    slot: u32,
    pub(crate) name: &'static str,
}

/// The arguments of a call for its end: the callback is one of those below.
pub(crate) struct Ending {
    pub(crate) context: PVOID,
    /// The room for an object that is created at once.
    pub(crate) object: *mut *mut NDK_OBJECT_HEADER,
}

impl Slots {
    pub(crate) fn new(machine: &'static dyn Machine, len: usize) -> Result<Self, Failure> {
        let bytes = Self::bytes(len);
        let start = NonNull::new(machine.allocate(bytes).cast::<Slot>());
        let start = start.ok_or(Failure::Memory { bytes })?;
        for index in 0..len {
            let next = if index + 1 < len { index as u32 + 1 } else { NONE };
            let slot = Slot {
                has_ended: AtomicBool::new(false),
                status: AtomicI32::new(0),
                object: AtomicPtr::new(null_mut()),
                machine,
                next: Cell::new(next),
            };
            // SAFETY: the memory has room for `len` of them.
            unsafe { start.as_ptr().wrapping_add(index).write(slot) };
        }
        let free = if len == 0 { NONE } else { 0 };
        Ok(Self { start, len, free, machine })
    }

    const fn bytes(len: usize) -> usize {
        len * size_of::<Slot>()
    }

    /// Gives the memory back, when no call of it pends.
    pub(crate) fn free(self) {
        // SAFETY: from `new`; each call has ended, so no callback uses it.
        unsafe { self.machine.free(self.start.as_ptr().cast(), Self::bytes(self.len)) };
    }

    fn slot(&self, index: u32) -> &Slot {
        let index = index as usize;
        assert!(index < self.len, "a slot of the flight");
        // SAFETY: written by `new`, and within the memory.
        unsafe { &*self.start.as_ptr().wrapping_add(index) }
    }

    /// Begins a call: `start` passes the ending on to the provider and returns the status of the function.
    ///
    /// # Errors
    /// [`Failure::Memory`] where all slots are taken.
    pub(crate) fn begin(
        &mut self,
        name: &'static str,
        start: impl FnOnce(Ending) -> NTSTATUS,
    ) -> Result<Call, Failure> {
        let index = self.free;
        if index == NONE {
            return Err(Failure::Memory { bytes: size_of::<Slot>() });
        }
        let slot = self.slot(index);
        let next = slot.next.get();
        slot.has_ended.store(false, Ordering::Relaxed);
        slot.object.store(null_mut(), Ordering::Relaxed);
        let context = core::ptr::from_ref(slot).cast_mut().cast();
        let status = start(Ending { context, object: slot.object.as_ptr() });
        if status != STATUS_PENDING {
            slot.status.store(status.0, Ordering::Relaxed);
            slot.has_ended.store(true, Ordering::Release);
        }
        self.free = next;
        Ok(Call { slot: index, name })
    }

    pub(crate) fn has_ended(&self, call: Call) -> bool {
        self.slot(call.slot).has_ended.load(Ordering::Acquire)
    }

    /// The status of a call that has ended, and the object that it created. Its slot is free again.
    pub(crate) fn end(&mut self, call: Call) -> (NTSTATUS, *mut NDK_OBJECT_HEADER) {
        let slot = self.slot(call.slot);
        let ended =
            (NTSTATUS(slot.status.load(Ordering::Relaxed)), slot.object.load(Ordering::Relaxed));
        slot.next.set(self.free);
        self.free = call.slot;
        ended
    }
}

/// # Safety
/// `context` is a slot whose call pends; called once.
unsafe fn ended(context: PVOID, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER) {
    // SAFETY: slots live until no call pends, and this one does until `has_ended` is stored.
    let slot = unsafe { &*context.cast_const().cast::<Slot>() };
    let machine = slot.machine;
    slot.status.store(status.0, Ordering::Relaxed);
    slot.object.store(object, Ordering::Relaxed);
    slot.has_ended.store(true, Ordering::Release);
    machine.ring();
}

/// [`NDK_FN_REQUEST_COMPLETION`]. IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// `context` is the slot of a call that pends; called once.
pub(crate) unsafe extern "system" fn request_ended(context: PVOID, status: NTSTATUS) {
    // SAFETY: as this function.
    unsafe { ended(context, status, null_mut()) };
}

/// [`NDK_FN_CREATE_COMPLETION`]. IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// As [`request_ended`].
pub(crate) unsafe extern "system" fn creation_ended(
    context: PVOID,
    status: NTSTATUS,
    object: *mut NDK_OBJECT_HEADER,
) {
    // SAFETY: as this function.
    unsafe { ended(context, status, object) };
}

/// [`NDK_FN_CLOSE_COMPLETION`]. IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// As [`request_ended`].
pub(crate) unsafe extern "system" fn close_ended(context: PVOID) {
    // SAFETY: as this function.
    unsafe { ended(context, STATUS_SUCCESS, null_mut()) };
}

/// Events that an object tells of by callbacks of its own.
pub(crate) struct Events {
    pub(crate) notifications: AtomicU32,
    pub(crate) disconnects: AtomicU32,
    /// The status of a notification that told of a fault; 0: none has.
    pub(crate) fault: AtomicI32,
    machine: &'static dyn Machine,
}

impl Events {
    pub(crate) const fn new(machine: &'static dyn Machine) -> Self {
        Self {
            notifications: AtomicU32::new(0),
            disconnects: AtomicU32::new(0),
            fault: AtomicI32::new(0),
            machine,
        }
    }

    pub(crate) const fn context(&self) -> PVOID {
        core::ptr::from_ref(self).cast_mut().cast()
    }
}

/// [`NDK_FN_CQ_NOTIFICATION_CALLBACK`], and that of an SRQ. IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// `context` is the [`Events`] of an open object.
pub(crate) unsafe extern "system" fn notified(context: PVOID, status: NTSTATUS) {
    // SAFETY: the events live until their object is closed.
    let events = unsafe { &*context.cast_const().cast::<Events>() };
    if !status.is_success() {
        events.fault.store(status.0, Ordering::Relaxed);
    }
    events.notifications.fetch_add(1, Ordering::Release);
    events.machine.ring();
}

/// [`NDK_FN_DISCONNECT_EVENT_CALLBACK`]. IRQL <= DISPATCH_LEVEL.
///
/// # Safety
/// As [`notified`].
pub(crate) unsafe extern "system" fn disconnected(context: PVOID) {
    // SAFETY: as there.
    let events = unsafe { &*context.cast_const().cast::<Events>() };
    events.disconnects.fetch_add(1, Ordering::Release);
    events.machine.ring();
}
