//! A receive queue of several queue pairs.
#![allow(unsafe_code, reason = "calls the dispatch tables of C objects")]

use core::sync::atomic::Ordering;

use ndk_abi::*;

use crate::Failure;
use crate::completion::{Expected, request};
use crate::connection::DEPTH;
use crate::kinds::call;
use crate::step::Step;

/// Connections that share it.
const USERS: usize = 4;
/// Receives, and how few of them are told.
const RECEIVES: usize = 8;
const LOW: usize = 3;

/// Messages of several connections take receives of one queue, in its order; it tells once that few are left.
pub(super) fn srq(step: &mut Step<'_>) -> Result<(), Failure> {
    let listener = step.listen()?;
    let (client, server) = (step.end(0)?, step.end(1)?);
    let low = step.events()?;
    let srq = step.srq(server.pd, low, RECEIVES as u32, LOW as u32)?;
    let mut senders = [client.qp; USERS];
    for (number, sender) in senders.iter_mut().enumerate() {
        *sender = step.qp(client.pd, client.queue.cq, DEPTH)?;
        let user = step.qp_with_srq(server.pd, server.queue.cq, srq, number + 1)?;
        step.join(listener, (*sender, client.events), (user, server.events))?;
    }
    for number in 0..RECEIVES {
        let sge = server.region.sge(100 * number..100 * number + 100);
        let posted = call!(srq, NdkSrqReceive(request(number), &raw const sge, 1));
        Failure::unless_status("NdkSrqReceive", posted, STATUS_SUCCESS)?;
    }
    for number in 0..RECEIVES {
        let user = number * 3 % USERS;
        client.region.memory.fill(0..100, number as u8);
        senders[user].send(number, &[client.region.sge(0..100)], 0)?;
        let got = step.next(server.queue, "NdkSrqReceive")?;
        Failure::unless_status("NdkSrqReceive", got.Status, STATUS_SUCCESS)?;
        let context = |context: PVOID| context.addr() as u64;
        let [taken, by] = [got.RequestContext, got.QPContext].map(context);
        Failure::unless_same("the receive that was taken", taken, number as u64)?;
        Failure::unless_same("the queue pair that took it", by, user as u64 + 1)?;
        server.region.memory.expect(100 * number..100 * number + 100, number as u8)?;
        step.expect(client.queue, Expected::done(number, NdkOperationTypeSend))?;
    }
    let told = || low.notifications.load(Ordering::Acquire);
    step.wait("the notification of an SRQ", || told() > 0)?;
    Failure::unless_same("notifications of an SRQ", told().into(), 1)
}
