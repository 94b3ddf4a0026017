//! Closes in every order.

use ndk_abi::*;

use crate::Failure;
use crate::call::Call;
use crate::connection::Pair;
use crate::step::Step;

/// Calls `visit` with each order of the numbers below `N`.
fn orders<const N: usize>(
    visit: &mut dyn FnMut([usize; N]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut order = core::array::from_fn(|number| number);
    loop {
        visit(order)?;
        // The next one by the alphabet.
        let Some(rise) = (1..N).rev().find(|&at| order[at - 1] < order[at]) else { return Ok(()) };
        let larger = (rise..N).rev().find(|&at| order[at] > order[rise - 1]).unwrap_or(rise);
        order.swap(rise - 1, larger);
        order[rise..].reverse();
    }
}

/// A domain, a completion queue, a region, a window and a queue pair are closed in each order. A domain and a completion
/// queue close no earlier than what was made of them.
pub(super) fn every_order(step: &mut Step<'_>) -> Result<(), Failure> {
    let events = step.events()?;
    let memory = step.memory(PAGE_SIZE)?;
    orders::<5>(&mut |order| {
        let first = step.flight.objects.len();
        let pd = step.pd(0)?;
        let cq = step.cq(0, 8, events)?;
        step.register(pd, memory)?;
        step.mw(pd)?;
        step.qp(pd, cq, 4)?;
        let mut calls = [const { None }; 5];
        for (turn, &number) in order.iter().enumerate() {
            calls[number] = Some(step.begin_close_at(first + number)?);
            let is_open = |of: usize| !order[..=turn].contains(&of);
            // By their numbers: the domain, the completion queue, and the three that are made of them.
            hold(step, calls[0], is_open(2) || is_open(3) || is_open(4))?;
            hold(step, calls[1], is_open(4))?;
        }
        for call in calls.into_iter().flatten() {
            step.succeed(call)?;
        }
        step.forget_from(first);
        Ok(())
    })
}

/// A close does not end while an object stands in its way.
fn hold(step: &Step<'_>, close: Option<Call>, is_held: bool) -> Result<(), Failure> {
    let has_ended = close.is_some_and(|close| is_held && step.flight.slots.has_ended(close));
    Failure::unless_same("closes that have ended before those below", has_ended.into(), 0)
}

/// The objects of a connection that stands are closed in each order: both connectors, the client's queue pair, the listener.
/// Each close ends, though nothing was flushed or disconnected before.
pub(super) fn connected(step: &mut Step<'_>) -> Result<(), Failure> {
    orders::<4>(&mut |order| {
        let Pair { client, server, connectors, listener } = step.pair()?;
        server.qp.receive(1, &[server.region.sge(0..100)])?;
        client.qp.receive(1, &[client.region.sge(0..100)])?;
        let places =
            [connectors[0].place, connectors[1].place, client.qp.place, listener.listener.place];
        let mut calls = [const { None }; 4];
        for number in order {
            calls[number] = Some(step.begin_close_at(places[number])?);
        }
        for call in calls.into_iter().flatten() {
            step.succeed(call)?;
        }
        step.finish()
    })
}
