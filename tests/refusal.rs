//! Goal: a pool that refuses memory costs a call its status and nothing else. Whichever allocation of an NDK call or of an
//! exchange of connection management is refused, alone or with all after it: the call ends with a status that says so, the
//! same call works once there is memory, all closes complete, and no object and no byte is left.
//! Method: two providers and a consumer that allocates nothing on one thread and a virtual clock, over a platform that sets
//! memory aside as the Windows driver does, and an allocator that refuses the n-th allocation, for each n. A refusal that
//! nobody expects ends the process. Each reservation has to cover what is allocated under it.
#![allow(unsafe_code, reason = "calls the dispatch tables")]
#![allow(non_snake_case, reason = "C names")]

#[path = "refusal/steps.rs"]
mod steps;
#[path = "refusal/world.rs"]
mod world;

use driver::abi::*;
use std::collections::BTreeSet;
use steps::{STEPS, Step};
use tests::alloc::pool::{Asked, Plan, follow};
use tests::alloc::{Counting, held};
use world::World;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The ends of a call whose memory was refused. A peer that gets no answer, or a refusal, may try again.
const ENDS: &[NTSTATUS] = &[
    STATUS_SUCCESS,
    STATUS_INSUFFICIENT_RESOURCES,
    STATUS_CONNECTION_REFUSED,
    STATUS_CONNECTION_ABORTED,
    STATUS_IO_TIMEOUT,
];

/// Runs all steps before this one, this one under a plan, and the closes. Returns how it ended and what it asked for.
fn run(number: usize, plan: Plan) -> (NTSTATUS, Asked) {
    let Step { name, act } = &STEPS[number];
    let mut world = World::new();
    for step in &STEPS[..number] {
        assert_eq!((step.act)(&mut world), STATUS_SUCCESS, "{} before {name}", step.name);
    }
    follow(plan);
    let status = act(&mut world);
    let asked = follow(Plan::Nothing);
    assert!(ENDS.contains(&status), "{name} under {plan:?} ended with {status:?}");
    assert_eq!(asked.overrun, 0, "{name} under {plan:?}: more than was set aside");
    if status != STATUS_SUCCESS {
        assert!(asked.refused > 0, "{name} failed with {status:?} by itself");
        assert_eq!(act(&mut world), STATUS_SUCCESS, "{name} again, after {plan:?}");
    }
    world.close();
    (status, asked)
}

/// Every allocation of every step, refused alone, and with all that come after it.
#[test]
fn every_refusal_is_a_status_and_nothing_is_lost() {
    // What is made once in a process is made.
    let _ = run(STEPS.len() - 1, Plan::Nothing);
    let (mut refusals, mut failed) = (0, BTreeSet::new());
    for (number, step) in STEPS.iter().enumerate() {
        let (_, Asked { times, .. }) = run(number, Plan::Nothing);
        for plan in (1..=times).flat_map(|n| [Plan::One(n), Plan::From(n)]) {
            let before = held();
            let (status, asked) = run(number, plan);
            assert!(asked.refused > 0, "{}: {plan:?} of {times} refused nothing", step.name);
            assert_eq!(held(), before, "{} under {plan:?} leaves memory", step.name);
            refusals += 1;
            if status != STATUS_SUCCESS {
                failed.insert(step.name);
            }
        }
        println!("{}: {times} allocations", step.name);
    }
    println!("{refusals} refusals, by which these fail: {failed:?}");
    assert!(failed.len() > STEPS.len() / 2, "refusals are felt: {failed:?}");
}
