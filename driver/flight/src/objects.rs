//! The objects that steps create.
#![allow(unsafe_code, reason = "calls the dispatch tables of C objects")]

use core::ptr::{null, null_mut, without_provenance_mut};

use ndk_abi::*;

use crate::Failure;
use crate::call::{Events, notified};
use crate::kinds::{Object, call};
use crate::region::{Memory, Region};
use crate::step::Step;

/// Bytes that a request may bring with it.
pub(crate) const INLINE_LEN: u32 = 64;
/// Elements of a request.
const SGES: u32 = 4;

impl Step<'_> {
    pub(crate) fn pd(&mut self, end: usize) -> Result<Object<NDK_PD>, Failure> {
        let adapter = self.adapter(end);
        self.create("NdkCreatePd", |completion, context, out| {
            call!(adapter, NdkCreatePd(completion, context, out))
        })
    }

    pub(crate) fn cq(
        &mut self,
        end: usize,
        depth: usize,
        events: &Events,
    ) -> Result<Object<NDK_CQ>, Failure> {
        let (adapter, depth) = (self.adapter(end), depth as u32);
        let notified = Some(notified as NDK_FN_CQ_NOTIFICATION_CALLBACK);
        self.create("NdkCreateCq", |completion, context, out| {
            let events = events.context();
            call!(adapter, NdkCreateCq(depth, notified, events, null(), completion, context, out))
        })
    }

    /// Registers memory for all that a peer and this end may do.
    pub(crate) fn register(
        &mut self,
        pd: Object<NDK_PD>,
        memory: Memory,
    ) -> Result<Region, Failure> {
        let mr = self.mr(pd, FALSE)?;
        let rights = NDK_MR_FLAG_ALLOW_REMOTE_WRITE | NDK_MR_FLAG_ALLOW_REMOTE_READ;
        let call = self.begin("NdkRegisterMr", |completion, context| {
            call!(mr, NdkRegisterMr(memory.mdl, memory.len, rights, completion, context))
        })?;
        self.succeed(call)?;
        Ok(Region { memory, mr })
    }

    /// A region without memory, for fast registration or not.
    pub(crate) fn mr(
        &mut self,
        pd: Object<NDK_PD>,
        fast: BOOLEAN,
    ) -> Result<Object<NDK_MR>, Failure> {
        self.create("NdkCreateMr", |completion, context, out| {
            call!(pd, NdkCreateMr(fast, completion, context, out))
        })
    }

    pub(crate) fn mw(&mut self, pd: Object<NDK_PD>) -> Result<Object<NDK_MW>, Failure> {
        self.create("NdkCreateMw", |completion, context, out| {
            call!(pd, NdkCreateMw(completion, context, out))
        })
    }

    pub(crate) fn qp(
        &mut self,
        pd: Object<NDK_PD>,
        cq: Object<NDK_CQ>,
        depth: u32,
    ) -> Result<Object<NDK_QP>, Failure> {
        let (cq, none) = (cq.as_ptr(), null_mut());
        self.create("NdkCreateQp", |completion, context, out| {
            call!(
                pd,
                NdkCreateQp(
                    cq, cq, none, depth, depth, SGES, SGES, INLINE_LEN, completion, context, out
                )
            )
        })
    }

    pub(crate) fn connector(&mut self, end: usize) -> Result<Object<NDK_CONNECTOR>, Failure> {
        let adapter = self.adapter(end);
        self.create("NdkCreateConnector", |completion, context, out| {
            call!(adapter, NdkCreateConnector(completion, context, out))
        })
    }

    /// A shared receive queue that tells when fewer than `low` receives are left; 0: never.
    pub(crate) fn srq(
        &mut self,
        pd: Object<NDK_PD>,
        events: &Events,
        depth: u32,
        low: u32,
    ) -> Result<Object<NDK_SRQ>, Failure> {
        let events = events.context();
        let told = Some(notified as NDK_FN_SRQ_NOTIFICATION_CALLBACK);
        self.create("NdkCreateSrq", |completion, context, out| {
            call!(
                pd,
                NdkCreateSrq(depth, SGES, low, told, events, null(), completion, context, out)
            )
        })
    }

    /// A queue pair by this number, which takes the receives of a shared queue.
    pub(crate) fn qp_with_srq(
        &mut self,
        pd: Object<NDK_PD>,
        cq: Object<NDK_CQ>,
        srq: Object<NDK_SRQ>,
        number: usize,
    ) -> Result<Object<NDK_QP>, Failure> {
        let (cq, srq, number) = (cq.as_ptr(), srq.as_ptr(), without_provenance_mut(number));
        self.create("NdkCreateQpWithSrq", |completion, context, out| {
            call!(pd, NdkCreateQpWithSrq(cq, cq, srq, number, 8, SGES, 0, completion, context, out))
        })
    }

    pub(crate) fn shared_endpoint(
        &mut self,
        end: usize,
    ) -> Result<Object<NDK_SHARED_ENDPOINT>, Failure> {
        let adapter = self.adapter(end);
        let none = Failure::Wrong { what: "the addresses of an adapter", found: 0, expected: 1 };
        let address = SOCKADDR_INET::from(self.address(end).ok_or(none)?);
        let (address, len) = (address.as_ptr(), address.len());
        self.create("NdkCreateSharedEndpoint", |completion, context, out| {
            call!(adapter, NdkCreateSharedEndpoint(address, len, completion, context, out))
        })
    }
}
