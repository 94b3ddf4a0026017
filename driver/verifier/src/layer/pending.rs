//! Calls that may pend: their completions on the way in, and their ends on the way out.

use super::front::{Origin, Record, put_before};
use super::upcall::{Carried, Event};
use super::{Call, End, Then, Upcall, lock};
use crate::explorer::Way;
use driver::abi::*;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// The consumer's completion callback.
#[derive(Clone, Copy)]
pub(super) enum Completion {
    Request(Option<NDK_FN_REQUEST_COMPLETION>),
    Create(Option<NDK_FN_CREATE_COMPLETION>),
    Close(Option<NDK_FN_CLOSE_COMPLETION>),
}

impl Completion {
    pub(super) const fn is_none(self) -> bool {
        match self {
            Self::Request(callback) => callback.is_none(),
            Self::Create(callback) => callback.is_none(),
            Self::Close(callback) => callback.is_none(),
        }
    }
}

/// A thread of the consumer that waits inside a call for its end.
enum Meeting {
    Nobody,
    Waits,
    Came(End),
}

/// A call that has not ended.
pub(crate) struct Pending {
    pub(crate) call: Call,
    completion: Completion,
    context: Carried<c_void>,
    then: Mutex<Then>,
    /// For the object that is made.
    event: Option<Arc<Event>>,
    made: Mutex<Option<Arc<Record>>>,
    /// Where the provider puts an object that it makes inline.
    place: AtomicPtr<NDK_OBJECT_HEADER>,
    /// The consumer takes an object that is made inline.
    takes: bool,
    meeting: Mutex<Meeting>,
    met: Condvar,
    /// The explorer's choice.
    way: OnceLock<Way>,
}

impl Pending {
    /// The explorer chooses, before the call is made.
    pub(crate) fn set_way(&self, way: Way) {
        // Each call is conducted once.
        let _ = self.way.set(way);
    }

    /// The explorer's choice.
    pub(crate) fn way(&self) -> Option<Way> {
        self.way.get().copied()
    }

    /// Whether its end can be the answer of the call.
    pub(crate) const fn may_end_inline(&self) -> bool {
        self.takes || !matches!(self.completion, Completion::Create(_))
    }

    /// Whether its end can be told by a callback.
    pub(crate) const fn may_call_back(&self) -> bool {
        !self.completion.is_none()
    }

    /// It closes an object.
    pub(crate) const fn is_close(&self) -> bool {
        matches!(self.completion, Completion::Close(_))
    }

    /// It makes an object.
    pub(crate) const fn is_creation(&self) -> bool {
        matches!(self.completion, Completion::Create(_))
    }

    /// The callback that tells the consumer of the end.
    pub(crate) fn upcall(&self, end: &End) -> Option<Upcall> {
        let (completion, context) = (self.completion, Carried(self.context.get()));
        let status = end.status;
        let made = Carried(end.made.as_ref().map_or(null_mut(), |made| made.as_ptr()));
        if completion.is_none() {
            return None;
        }
        let object = Some(Arc::clone(&self.call.object));
        Some(Upcall::new(self.call.function, object, move || {
            let (context, made) = (context.get(), made.get());
            match completion {
                // SAFETY: the consumer's callback, once, with its context.
                Completion::Request(Some(callback)) => unsafe { callback(context, status) },
                // SAFETY: as above, with the object that is the consumer's from now on.
                Completion::Create(Some(callback)) => unsafe { callback(context, status, made) },
                // SAFETY: as above.
                Completion::Close(Some(callback)) => unsafe { callback(context) },
                Completion::Request(None) | Completion::Create(None) | Completion::Close(None) => {}
            }
        }))
    }

    /// The provider has ended the call.
    fn end(&self, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER) -> End {
        let mut made = None;
        if self.is_creation() && status.is_success() {
            let (layer, parent) = (Arc::downgrade(&self.call.layer), &self.call.object);
            // SAFETY: the contract of a creation: the object is new, and the consumer's.
            let record = unsafe { put_before(object, layer, Origin::MadeBy(parent)) };
            if let Some(event) = &self.event {
                // The event has one owner, and this is the only end.
                let _ = event.owner.set(Arc::downgrade(&record));
                record.keep([Arc::clone(event)]);
            }
            made = Some(record);
        }
        if self.is_close() {
            // A provider that refuses a close, as one without a completion, leaves the object as it was.
            if status.is_success() { self.call.object.closed() } else { self.call.object.reopen() }
        }
        (*lock(&self.made)).clone_from(&made);
        let end = End { status, made };
        if let Some(then) = lock(&self.then).take() {
            then(&end);
        }
        end
    }

    /// The consumer's thread is going to wait.
    pub(crate) fn meet(&self) {
        *lock(&self.meeting) = Meeting::Waits;
    }

    /// Gives the end to the thread that waits for it; back where none does.
    pub(crate) fn hand_over(&self, end: End) -> Option<End> {
        let mut meeting = lock(&self.meeting);
        if !matches!(*meeting, Meeting::Waits) {
            return Some(end);
        }
        *meeting = Meeting::Came(end);
        self.met.notify_all();
        None
    }

    /// Whether the end has come.
    pub(crate) fn has_come(&self) -> bool {
        matches!(*lock(&self.meeting), Meeting::Came(_))
    }

    /// Waits for the end, at most for `patience`. After `None` it comes by the callback.
    pub(crate) fn wait(&self, patience: Duration) -> Option<End> {
        let deadline = Instant::now() + patience;
        let mut meeting = lock(&self.meeting);
        while let Meeting::Waits = *meeting {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let woken = self.met.wait_timeout(meeting, left);
            meeting = woken.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        match std::mem::replace(&mut *meeting, Meeting::Nobody) {
            Meeting::Came(end) => Some(end),
            Meeting::Waits | Meeting::Nobody => None,
        }
    }
}

/// The parts of a call that may pend.
pub(super) struct Going {
    pub(super) call: Call,
    pub(super) then: Then,
    pub(super) completion: Completion,
    pub(super) context: PVOID,
    pub(super) event: Option<Arc<Event>>,
    /// Where the consumer takes an object that is made inline; null if nowhere.
    pub(super) out: *mut *mut NDK_OBJECT_HEADER,
}

impl Going {
    /// Makes the call. `start` asks the provider, with a context for one of the completions below, and with the place of
    /// an object.
    pub(super) fn go(
        self,
        start: impl FnOnce(PVOID, *mut *mut NDK_OBJECT_HEADER) -> NTSTATUS,
    ) -> NTSTATUS {
        let out = self.out;
        let pending = Arc::new(Pending {
            call: self.call,
            completion: self.completion,
            context: Carried(self.context),
            then: Mutex::new(self.then),
            event: self.event,
            made: Mutex::default(),
            place: AtomicPtr::new(null_mut()),
            takes: !out.is_null(),
            meeting: Mutex::new(Meeting::Nobody),
            met: Condvar::new(),
            way: OnceLock::new(),
        });
        let mut start = Some(start);
        let mut begin = || {
            let Some(start) = start.take() else { return STATUS_INTERNAL_ERROR };
            let context = Arc::into_raw(Arc::clone(&pending));
            let status = start(context.cast_mut().cast(), pending.place.as_ptr());
            if status != STATUS_PENDING {
                // SAFETY: without PENDING no callback comes, so its reference is ours again.
                drop(unsafe { Arc::from_raw(context) });
                pending.end(status, pending.place.load(Ordering::Acquire));
            }
            status
        };
        let status = pending.call.layer.conduct(&pending, &mut begin);
        if status != STATUS_PENDING
            && !out.is_null()
            && let Some(made) = &*lock(&pending.made)
        {
            // SAFETY: the consumer's place for the object of a creation that succeeds inline.
            unsafe { out.write(made.as_ptr()) };
        }
        status
    }
}

/// # Safety
/// `context` is that of a call that returned `STATUS_PENDING`; this is its only end.
unsafe fn complete(context: PVOID, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER) {
    // SAFETY: as this function.
    let pending = unsafe { Arc::from_raw(context.cast_const().cast::<Pending>()) };
    let end = pending.end(status, object);
    if let Some(end) = pending.call.layer.finished(&pending, end)
        && let Some(upcall) = pending.upcall(&end)
    {
        pending.call.layer.deliver(upcall);
    }
}

/// # Safety
/// As [`complete`].
pub(super) unsafe extern "system" fn requested(context: PVOID, status: NTSTATUS) {
    // SAFETY: as this function.
    unsafe { complete(context, status, null_mut()) };
}

/// # Safety
/// As [`complete`]; on success the object is new.
pub(super) unsafe extern "system" fn created(
    context: PVOID,
    status: NTSTATUS,
    object: *mut NDK_OBJECT_HEADER,
) {
    // SAFETY: as this function.
    unsafe { complete(context, status, object) };
}

/// # Safety
/// As [`complete`].
pub(super) unsafe extern "system" fn closed(context: PVOID) {
    // SAFETY: as this function.
    unsafe { complete(context, STATUS_SUCCESS, null_mut()) };
}
