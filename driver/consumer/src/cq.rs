//! Completion queues: polled, or waited for by arm and notify.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use driver::abi::*;

use crate::bell::Bell;
use crate::object::Handle;
use crate::request::{REMOVED, Request, create};
use crate::{Adapter, NdkError, Opener, Result, Waited};

/// The completions that `NdkArmCq` waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Arm {
    /// Faults of the queue only.
    Errors,
    /// Any completion.
    Any,
    /// A receive of a solicited send, or any failure.
    Solicited,
}

/// A completion queue.
#[derive(Debug)]
pub struct Cq {
    object: Handle<NDK_CQ>,
    /// NDK leaves it to the consumer to serialize polling and arming.
    serial: Mutex<()>,
    notice: Arc<Notice>,
    _adapter: Arc<Adapter>,
}

/// The record of the notification callback.
#[derive(Debug, Default)]
pub(crate) struct Notice {
    count: AtomicU64,
    /// The status of the notification that told of a fault, or 0, a success.
    fault: AtomicI32,
    bell: Bell,
}

impl Cq {
    pub(crate) fn create(
        adapter: &Arc<Adapter>,
        depth: u32,
        near: Option<&GROUP_AFFINITY>,
    ) -> Result<Arc<Self>> {
        let notice = Arc::new(Notice::default());
        let context = Arc::as_ptr(&notice).cast_mut().cast();
        // SAFETY: the adapter is open; `notice` lives until the CQ is closed.
        let object = create(
            adapter.opener(),
            "NdkCreateCq",
            |completion, completion_context, out| unsafe {
                (adapter.table().NdkCreateCq)(
                    adapter.as_ptr(),
                    depth,
                    Some(notified),
                    context,
                    near.map_or(std::ptr::null(), std::ptr::from_ref),
                    completion,
                    completion_context,
                    out,
                )
            },
        )?;
        // SAFETY: just created for us.
        let object = unsafe { Handle::new(object, adapter.opener()) };
        let serial = Mutex::new(());
        Ok(Arc::new(Self { object, serial, notice, _adapter: Arc::clone(adapter) }))
    }

    /// Takes up to `results.len()` completions; returns how many. Never waits.
    pub fn results(&self, results: &mut [NDK_RESULT]) -> usize {
        let _serial = self.serialize();
        // SAFETY: the CQ is open, polling is serialized, and the array has that many elements.
        let taken = unsafe {
            (self.object.table().NdkGetCqResults)(
                self.as_ptr(),
                results.as_mut_ptr(),
                results.len() as ULONG,
            )
        };
        taken as usize
    }

    /// As [`Cq::results`], with operation types and invalidated tokens.
    pub fn results_ex(&self, results: &mut [NDK_RESULT_EX]) -> usize {
        let _serial = self.serialize();
        // SAFETY: the CQ is open, polling is serialized, and the array has that many elements.
        let taken = unsafe {
            (self.object.table().NdkGetCqResultsEx)(
                self.as_ptr(),
                results.as_mut_ptr(),
                results.len() as ULONG,
            )
        };
        taken as usize
    }

    /// Asks for one notification.
    pub fn arm(&self, arm: Arm) {
        let kind = match arm {
            Arm::Errors => NDK_CQ_NOTIFY_ERRORS,
            Arm::Any => NDK_CQ_NOTIFY_ANY,
            Arm::Solicited => NDK_CQ_NOTIFY_SOLICITED,
        };
        let _serial = self.serialize();
        // SAFETY: the CQ is open, and arming is serialized.
        unsafe { (self.object.table().NdkArmCq)(self.as_ptr(), kind) }
    }

    /// How many notifications have come so far.
    #[must_use]
    pub fn notifications(&self) -> u64 {
        self.notice.count()
    }

    /// Waits until more than `seen` notifications have come; false if `timeout` passes first. The thread runs the
    /// provider meanwhile, callbacks and all, where the opener can have it do so.
    ///
    /// # Errors
    /// The status of a notification that told of a fault: the queue and its QPs are dead. `STATUS_DEVICE_REMOVED`
    /// where the provider has ended.
    pub fn wait_notification(&self, seen: u64, timeout: Duration) -> Result<bool> {
        self.notice.wait(&**self.object.opener(), "CqNotification", seen, timeout)
    }

    /// Takes completions, and waits for the first one if there is none; 0 if `timeout` passes.
    ///
    /// # Errors
    /// As [`Cq::wait_notification`].
    pub fn wait_results_ex(
        &self,
        results: &mut [NDK_RESULT_EX],
        timeout: Duration,
    ) -> Result<usize> {
        self.wait_results_ex_or(results, timeout, &|| false)
    }

    /// As [`Cq::wait_results_ex`]; the wait also ends once `other`, which another callback brings about, is true, but
    /// not before `timeout` where this thread cannot run the provider.
    pub(crate) fn wait_results_ex_or(
        &self,
        results: &mut [NDK_RESULT_EX],
        timeout: Duration,
        other: &dyn Fn() -> bool,
    ) -> Result<usize> {
        let deadline = Instant::now() + timeout;
        loop {
            let taken = self.results_ex(results);
            if taken > 0 {
                return Ok(taken);
            }
            // Read before arming: a callback that comes in between must not be missed. Polling
            // once more covers what came before the arm took effect.
            let seen = self.notifications();
            self.arm(Arm::Any);
            let taken = self.results_ex(results);
            if taken > 0 {
                return Ok(taken);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let opener = &**self.object.opener();
            let notified = self.notice.wait_or(opener, "CqNotification", seen, left, other)?;
            if !notified || self.notifications() == seen {
                return Ok(self.results_ex(results));
            }
        }
    }

    /// Changes the depth, if the adapter can.
    ///
    /// # Errors
    /// Depth above the adapter's limit or below the present fill, no resources.
    pub fn resize(&self, depth: u32) -> Result<()> {
        // SAFETY: the CQ is open.
        let request =
            Request::start(self.object.opener(), "NdkResizeCq", |completion, context| unsafe {
                (self.object.table().NdkResizeCq)(self.as_ptr(), depth, completion, context)
            });
        request.wait()
    }

    /// Lets notifications wait for `count` completions or `interval_us` microseconds.
    ///
    /// # Errors
    /// Not supported by the adapter, or limits that exclude each other.
    pub fn moderate(&self, interval_us: u32, count: u32) -> Result<()> {
        // SAFETY: the CQ is open.
        let status = unsafe {
            (self.object.table().NdkControlCqInterruptModeration)(self.as_ptr(), interval_us, count)
        };
        NdkError::check("NdkControlCqInterruptModeration", status)
    }

    /// The C object, for calls that this wrapper does not make.
    #[must_use]
    pub fn as_ptr(&self) -> *mut NDK_CQ {
        self.object.as_ptr()
    }

    fn serialize(&self) -> MutexGuard<'_, ()> {
        self.serial.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Notice {
    /// How many notifications have come so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    fn fault(&self) -> NTSTATUS {
        NTSTATUS(self.fault.load(Ordering::Relaxed))
    }

    /// Waits until more than `seen` have come; false if `timeout` passes first, the status of one
    /// that told of a fault as the error of `call`.
    pub(crate) fn wait(
        &self,
        opener: &dyn Opener,
        call: &'static str,
        seen: u64,
        timeout: Duration,
    ) -> Result<bool> {
        self.wait_or(opener, call, seen, timeout, &|| false)
    }

    /// As [`Notice::wait`], or until `other` is true.
    fn wait_or(
        &self,
        opener: &dyn Opener,
        call: &'static str,
        seen: u64,
        timeout: Duration,
        other: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let mut done = || self.count() > seen || !self.fault().is_success() || other();
        let waited = self.bell.wait(opener, timeout, &mut done);
        NdkError::check(call, self.fault())?;
        match waited {
            Waited::Done => Ok(true),
            Waited::TimedOut => Ok(false),
            Waited::Ended => Err(NdkError { status: REMOVED, call }),
        }
    }

    /// Only one thread at a time calls back.
    fn notify(&self, status: NTSTATUS) {
        if !status.is_success() {
            self.fault.store(status.0, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Release);
        self.bell.ring();
    }
}

/// The notification callback of a CQ or SRQ.
///
/// # Safety
/// `context` is the `Notice` of an open object.
pub(crate) unsafe extern "system" fn notified(context: PVOID, status: NTSTATUS) {
    // SAFETY: the object keeps its notice until the close completion, the last callback of all.
    let notice = unsafe { &*context.cast_const().cast::<Notice>() };
    notice.notify(status);
}
