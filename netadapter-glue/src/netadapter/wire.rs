//! The wire between the packet queues of a client driver and the poll core: bounded rings of buffers.
//!
//! It stands where a NIC has its descriptor rings. Each direction has `depth` buffers, all from the start. One
//! ring carries frames forth, a second one the empty buffers back, so a ring always has room for a buffer.

use crate::sleeper::Sleeper;
use alloc::boxed::Box;
use alloc::vec;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use rtrb::{Consumer, Producer, RingBuffer};

/// A frame in its buffer.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) bytes: Box<[u8]>,
    pub(super) len: usize,
}

impl Frame {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The end of a direction at which frames enter.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) frames: Producer<Frame>,
    pub(super) spare: Consumer<Box<[u8]>>,
}

/// The end of a direction at which frames leave.
#[derive(Debug)]
pub(super) struct Exit {
    pub(super) frames: Consumer<Frame>,
    pub(super) spare: Producer<Box<[u8]>>,
}

impl Exit {
    /// Returns a buffer.
    pub(super) fn reuse(&mut self, bytes: Box<[u8]>) {
        // There is a place for each buffer. Where the other end is gone, the buffer goes too.
        let _ = self.spare.push(bytes);
    }
}

/// One direction, with all of its buffers empty.
pub(super) fn direction(depth: usize, unit_len: usize) -> (Entry, Exit) {
    let (frames, arriving) = RingBuffer::new(depth);
    let (mut spare, returning) = RingBuffer::new(depth);
    for _ in 0..depth {
        let placed = spare.push(vec![0; unit_len].into());
        debug_assert!(placed.is_ok(), "there is a place for each buffer");
    }
    (Entry { frames, spare: returning }, Exit { frames: arriving, spare })
}

/// The state that the queues and the poll core share beside the rings.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The poll core's sleep.
    pub(super) sleeper: Sleeper,
    /// Frames that the poll core has taken out of the transmit queue, modulo 2^32.
    pub(super) taken: AtomicU32,
    /// Wakes the system's polling of the transmit queue.
    pub(super) transmit: Notification,
    /// Wakes the system's polling of the receive queue.
    pub(super) receive: Notification,
    /// Frames of the transmit queue that the poll core never saw.
    pub(super) transmit_lost: AtomicU64,
    /// Frames of the poll core that the receive queue dropped.
    pub(super) receive_lost: AtomicU64,
}

/// The packet queue to notify, and its function: `NetTxQueueNotifyMoreCompletedPacketsAvailable` or
/// `NetRxQueueNotifyMoreReceivedPacketsAvailable`. Any IRQL.
pub type Notify = unsafe extern "system" fn(queue: *mut core::ffi::c_void);

/// The system's permission to notify it, which is used up by one notification.
///
/// NetAdapterCx stops to poll a queue when it gives the permission, and polls again when it is notified. Without
/// the permission the queue must not be notified, nor when it may be gone
/// ([transmit and receive queues](https://learn.microsoft.com/windows-hardware/drivers/netcx/transmit-and-receive-queues)).
#[derive(Debug, Default)]
pub(super) struct Notification {
    enabled: AtomicBool,
    /// Calls of [`fire`](Self::fire) in progress.
    firing: AtomicU32,
    queue: AtomicPtr<core::ffi::c_void>,
    notify: AtomicPtr<()>,
}

impl Notification {
    /// Names the queue. Its permission is not given yet.
    pub(super) fn attach(&self, queue: *mut core::ffi::c_void, notify: Notify) {
        self.queue.store(queue, Ordering::Relaxed);
        self.notify.store(notify as *mut (), Ordering::Release);
    }

    /// Gives the permission, or takes it back. When it was taken back, no call is in progress either: a notifier is
    /// waited for, whose call is a few instructions long.
    pub(super) fn enable(&self, enabled: bool) {
        // A total order with `fire`: either this sees a call in progress, or that one sees no permission.
        self.enabled.swap(enabled, Ordering::SeqCst);
        // Pairs with the fence in `fire`: the caller looks at its ring next, and sees what came without a call.
        fence(Ordering::SeqCst);
        if !enabled {
            while self.firing.load(Ordering::SeqCst) != 0 {
                core::hint::spin_loop();
            }
        }
    }

    /// Notifies the system if it asked for that. Called after a ring was written. Any IRQL.
    pub(super) fn fire(&self) {
        fence(Ordering::SeqCst);
        if !self.enabled.load(Ordering::SeqCst) {
            return;
        }
        self.firing.fetch_add(1, Ordering::SeqCst);
        if self.enabled.swap(false, Ordering::SeqCst) {
            let notify = self.notify.load(Ordering::Acquire);
            let queue = self.queue.load(Ordering::Relaxed);
            // SAFETY: `attach` stored a function of this type.
            let notify = unsafe { core::mem::transmute::<*mut (), Notify>(notify) };
            // SAFETY: permission is given for a queue that lives, and it lives until the permission is back.
            unsafe { notify(queue) };
        }
        self.firing.fetch_sub(1, Ordering::SeqCst);
    }
}
