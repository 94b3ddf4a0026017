//! The end of a connection.
#![allow(unsafe_code, reason = "calls the dispatch tables of C objects")]

use core::sync::atomic::Ordering;

use ndk_abi::*;

use crate::Failure;
use crate::completion::Expected;
use crate::connection::Pair;
use crate::kinds::call;
use crate::step::Step;

/// Receives of each end.
const POSTED: usize = 8;

/// A flush ends each request of both queues once, in order.
pub(super) fn flush(step: &mut Step<'_>) -> Result<(), Failure> {
    let Pair { client, server, connectors, .. } = step.pair()?;
    for number in 0..POSTED {
        client.qp.receive(number, &[client.region.sge(0..100)])?;
    }
    // Nobody has a receive for it: it cannot end before the flush.
    client.qp.send(50, &[client.region.sge(0..100)], 0)?;
    call!(client.qp, NdkFlush());
    let (mut receives, mut sends) = (0, 0);
    for _ in 0..=POSTED {
        let got = step.next(client.queue, "NdkFlush")?;
        let status = got.Status;
        Failure::unless_status("a flushed request", status, STATUS_CANCELLED)?;
        let number = got.RequestContext.addr();
        if got.Type.is_receive() {
            Failure::unless_same("the order of a flush", number as u64, receives)?;
            receives += 1;
        } else {
            Failure::unless_same("a flushed SEND", number as u64, 50)?;
            sends += 1;
        }
    }
    Failure::unless_same("flushed SENDs", sends, 1)?;
    step.expect_nothing(client.queue)?;
    step.close(connectors[0])?;
    let gone = || server.events.disconnects.load(Ordering::Acquire);
    step.wait("a disconnect event", || gone() > 0)
}

/// One end disconnects, and the other follows: the other alone is told, once, and each receive ends as cancelled.
pub(super) fn disconnect(step: &mut Step<'_>) -> Result<(), Failure> {
    for leaver in 0..2 {
        let Pair { client, server, connectors, .. } = step.pair()?;
        for number in 0..POSTED {
            client.qp.receive(number, &[client.region.sge(0..100)])?;
            server.qp.receive(number, &[server.region.sge(0..100)])?;
        }
        let ends = [client, server];
        let leaving = step.begin_disconnect(connectors[leaver])?;
        let gone = |end: usize| ends[end].events.disconnects.load(Ordering::Acquire);
        let follower = 1 - leaver;
        step.wait("a disconnect event", || gone(follower) > 0)?;
        let following = step.begin_disconnect(connectors[follower])?;
        step.succeed(leaving)?;
        step.succeed(following)?;
        for end in ends {
            for number in 0..POSTED {
                let kind = NdkOperationTypeReceive;
                step.expect(end.queue, Expected::ended(number, kind, STATUS_CANCELLED))?;
            }
            step.expect_nothing(end.queue)?;
        }
        Failure::unless_same("disconnect events", gone(follower).into(), 1)?;
        Failure::unless_same("disconnect events of the end that left", gone(leaver).into(), 0)?;
        step.finish()?;
    }
    Ok(())
}
