//! Many connections at once.
#![allow(unsafe_code, reason = "calls the dispatch tables of C objects")]

use ndk_abi::*;

use crate::Failure;
use crate::completion::{Expected, Queue, request};
use crate::kinds::call;
use crate::step::Step;

/// Connections that share a completion queue: its depth holds a receive and a SEND of each.
const OF_A_QUEUE: usize = 2000;
/// Bytes of a message.
const LEN: usize = 64;
/// Requests of a queue.
const DEPTH: u32 = 2;

/// So many connections as the flight was told stand at the same time, and each carries a message. They are closed together.
pub(super) fn connections(step: &mut Step<'_>) -> Result<(), Failure> {
    let count = step.flight.config.connections;
    let listener = step.listen()?;
    let (client, server) = (step.end(0)?, step.end(1)?);
    let room = count.div_ceil(OF_A_QUEUE);
    let mut queues = [const { None }; 5];
    for number in 0..count {
        if number % OF_A_QUEUE == 0 {
            let pair = [queue(step, 0, count)?, queue(step, 1, count)?];
            if let Some(place) = queues.get_mut(number / OF_A_QUEUE) {
                *place = Some(pair);
            }
        }
        let Some([ours, theirs]) = queues.get(number / OF_A_QUEUE).copied().flatten() else {
            break;
        };
        let receiver = step.qp(server.pd, theirs.cq, DEPTH)?;
        let sge = server.region.sge(0..LEN);
        let posted = call!(receiver, NdkReceive(request(number), &raw const sge, 1));
        Failure::unless_status("NdkReceive", posted, STATUS_SUCCESS)?;
        let sender = step.qp(client.pd, ours.cq, DEPTH)?;
        step.join(listener, (sender, client.events), (receiver, server.events))?;
        sender.send(number, &[client.region.sge(0..LEN)], 0)?;
    }
    for (place, pair) in queues.iter().take(room).enumerate() {
        let Some([ours, theirs]) = *pair else { break };
        for _ in place * OF_A_QUEUE..count.min((place + 1) * OF_A_QUEUE) {
            let sent = step.next(ours, "NdkSend")?;
            Failure::unless_status("NdkSend", sent.Status, STATUS_SUCCESS)?;
            let got = step.next(theirs, "NdkReceive")?;
            let expected = Expected::received(got.RequestContext.addr(), LEN);
            expected.judge(&got)?;
        }
        step.expect_nothing(ours)?;
        step.expect_nothing(theirs)?;
    }
    Ok(())
}

/// A completion queue for a part of so many connections.
fn queue<'f>(step: &mut Step<'f>, end: usize, count: usize) -> Result<Queue<'f>, Failure> {
    let events = step.events()?;
    let depth = 2 * count.min(OF_A_QUEUE);
    let cq = step.cq(end, depth.max(1), events)?;
    Ok(Queue { cq, events })
}
