//! Completions: taken, waited for by arm and notification, and compared.
#![allow(unsafe_code, reason = "calls the dispatch tables of C objects")]
#![allow(non_upper_case_globals, reason = "C names in patterns")]

use core::ptr::without_provenance_mut;
use core::sync::atomic::Ordering;

use ndk_abi::*;

use crate::Failure;
use crate::call::Events;
use crate::kinds::{Object, call};
use crate::step::Step;

/// A completion queue with the record of its notifications.
#[derive(Clone, Copy)]
pub(crate) struct Queue<'f> {
    pub(crate) cq: Object<NDK_CQ>,
    pub(crate) events: &'f Events,
}

/// The completion that has to come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// The context of its request.
    pub(crate) request: usize,
    pub(crate) kind: NDK_OPERATION_TYPE,
    pub(crate) status: NTSTATUS,
    /// Of a receive that succeeds.
    pub(crate) bytes: usize,
}

impl Expected {
    /// That of an initiator request which succeeds.
    pub(crate) const fn done(request: usize, kind: NDK_OPERATION_TYPE) -> Self {
        Self { request, kind, status: STATUS_SUCCESS, bytes: 0 }
    }

    /// That of a receive.
    pub(crate) const fn received(request: usize, bytes: usize) -> Self {
        Self { request, kind: NdkOperationTypeReceive, status: STATUS_SUCCESS, bytes }
    }

    /// That of a request which ends in another way.
    pub(crate) const fn ended(request: usize, kind: NDK_OPERATION_TYPE, status: NTSTATUS) -> Self {
        Self { request, kind, status, bytes: 0 }
    }

    pub(crate) fn judge(self, result: &NDK_RESULT_EX) -> Result<(), Failure> {
        let name = name_of(self.kind);
        Failure::unless_status(name, result.Status, self.status)?;
        let kind = |kind: NDK_OPERATION_TYPE| kind.0 as u64;
        Failure::unless_same("a completion's type", kind(result.Type), kind(self.kind))?;
        let context = result.RequestContext.addr() as u64;
        Failure::unless_same("a completion's request", context, self.request as u64)?;
        if self.kind.is_receive() && self.status == STATUS_SUCCESS {
            let bytes = result.BytesTransferred.into();
            Failure::unless_same("a receive's bytes", bytes, self.bytes as u64)?;
        }
        Ok(())
    }
}

/// The function that posts it.
const fn name_of(kind: NDK_OPERATION_TYPE) -> &'static str {
    match kind {
        NdkOperationTypeReceive | NdkOperationTypeReceiveAndInvalidate => "NdkReceive",
        NdkOperationTypeSend => "NdkSend",
        NdkOperationTypeFastRegister => "NdkFastRegister",
        NdkOperationTypeBind => "NdkBind",
        NdkOperationTypeInvalidate => "NdkInvalidate",
        NdkOperationTypeRead => "NdkRead",
        NdkOperationTypeWrite => "NdkWrite",
        // A provider may give any number.
        _ => "a request",
    }
}

/// The context of a request by its number.
pub(crate) const fn request(number: usize) -> PVOID {
    without_provenance_mut(number)
}

impl Queue<'_> {
    fn take(self) -> Option<NDK_RESULT_EX> {
        let mut result = NDK_RESULT_EX::EMPTY;
        let taken = call!(self.cq, NdkGetCqResultsEx(&raw mut result, 1));
        (taken > 0).then_some(result)
    }

    fn notifications(self) -> u32 {
        self.events.notifications.load(Ordering::Acquire)
    }
}

impl Step<'_> {
    /// The next completion: polled for; else armed for, polled for once more, and waited for by the notification.
    ///
    /// # Errors
    /// [`Failure::Late`], also where a completion came without its notification.
    pub(crate) fn next(
        &mut self,
        queue: Queue<'_>,
        name: &'static str,
    ) -> Result<NDK_RESULT_EX, Failure> {
        loop {
            if let Some(result) = queue.take() {
                return Ok(result);
            }
            let seen = queue.notifications();
            call!(queue.cq, NdkArmCq(NDK_CQ_NOTIFY_ANY));
            if let Some(result) = queue.take() {
                return Ok(result);
            }
            let notified = self.wait(name, || queue.notifications() != seen);
            let fault = NTSTATUS(queue.events.fault.load(Ordering::Relaxed));
            Failure::unless_status("a notification", fault, STATUS_SUCCESS)?;
            if notified.is_err() && queue.take().is_some() {
                let after_s = self.flight.config.patience_s;
                return Err(Failure::Late { call: "the notification of a completion", after_s });
            }
            notified?;
        }
    }

    /// Waits for a completion, which has to be this one.
    ///
    /// # Errors
    /// [`Failure`]
    pub(crate) fn expect(&mut self, queue: Queue<'_>, expected: Expected) -> Result<(), Failure> {
        let result = self.next(queue, name_of(expected.kind))?;
        expected.judge(&result)
    }

    /// Nothing more has completed.
    pub(crate) fn expect_nothing(&self, queue: Queue<'_>) -> Result<(), Failure> {
        let more = queue.take().is_some();
        Failure::unless_same("completions beyond the last", more.into(), 0)
    }
}
