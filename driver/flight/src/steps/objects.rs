//! The adapter, and one object of each kind.
#![allow(unsafe_code, reason = "calls the dispatch tables of C objects")]

use core::ptr::null_mut;

use ndk_abi::*;

use crate::Failure;
use crate::kinds::call;
use crate::step::Step;

/// The adapter tells what it can, in a buffer that is large enough.
pub(super) fn adapter(step: &mut Step<'_>) -> Result<(), Failure> {
    let adapter = step.adapter(0);
    let mut len = 0;
    let asked = call!(adapter, NdkQueryAdapterInfo(null_mut(), &raw mut len));
    Failure::unless_status("NdkQueryAdapterInfo", asked, STATUS_BUFFER_TOO_SMALL)?;
    let mut info = NDK_ADAPTER_INFO::default();
    Failure::unless_same("the bytes of its answer", len.into(), size_of_val(&info) as u64)?;
    let told = call!(adapter, NdkQueryAdapterInfo(&raw mut info, &raw mut len));
    Failure::unless_status("NdkQueryAdapterInfo", told, STATUS_SUCCESS)?;
    Failure::unless_same("the technology", info.RdmaTechnology.0 as u64, NdkRoCEv2.0 as u64)?;
    let loopback = info.AdapterFlags & NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED;
    Failure::unless_same("the flag of loopback", (loopback != 0).into(), 1)?;
    for (what, found, least) in [
        ("MaxRegistrationSize", info.MaxRegistrationSize as u64, 1 << 20),
        ("FRMRPageCount", info.FRMRPageCount.into(), 16),
        ("MaxInitiatorRequestSge", info.MaxInitiatorRequestSge.into(), 4),
        ("MaxReceiveRequestSge", info.MaxReceiveRequestSge.into(), 4),
        ("MaxInitiatorQueueDepth", info.MaxInitiatorQueueDepth.into(), 64),
        ("MaxCqDepth", info.MaxCqDepth.into(), 256),
        ("MaxInboundReadLimit", info.MaxInboundReadLimit.into(), 1),
        ("MaxCallerData", info.MaxCallerData.into(), 16),
    ] {
        // A consumer such as SMB Direct needs as much.
        if found < least {
            return Err(Failure::Wrong { what, found, expected: least });
        }
    }
    Ok(())
}

/// One object of each kind is created and closed, twice: each before those that were made before it, then each behind them.
pub(super) fn objects(step: &mut Step<'_>) -> Result<(), Failure> {
    for oldest_first in [false, true] {
        let events = step.events()?;
        let first = step.flight.objects.len();
        let pd = step.pd(0)?;
        let cq = step.cq(0, 16, events)?;
        let memory = step.memory(PAGE_SIZE)?;
        step.register(pd, memory)?;
        let fast = step.mr(pd, TRUE)?;
        let call = step.begin("NdkInitializeFastRegisterMr", |completion, context| {
            call!(fast, NdkInitializeFastRegisterMr(4, TRUE, completion, context))
        })?;
        step.succeed(call)?;
        step.mw(pd)?;
        step.qp(pd, cq, 8)?;
        step.connector(0)?;
        let srq = step.srq(pd, events, 8, 0)?;
        step.qp_with_srq(pd, cq, srq, 0)?;
        step.shared_endpoint(0)?;
        let modified = call!(cq, NdkControlCqInterruptModeration(0, 1));
        Failure::unless_status("NdkControlCqInterruptModeration", modified, STATUS_SUCCESS)?;
        let resized = step.begin("NdkResizeCq", |completion, context| {
            call!(cq, NdkResizeCq(64, completion, context))
        })?;
        step.succeed(resized)?;
        step.close_from(first, oldest_first)?;
    }
    Ok(())
}
