//! The tables object by object, to the letter of the pages: what works, every status that is
//! documented, and what becomes of a consumer's mistakes.
#![allow(unsafe_code, reason = "looks at the tables themselves")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a table is read through two pointers")]

mod adapter;
mod connector;
mod cq;
mod lam;
mod loopback;
mod misuse;
mod paths;
mod posts;
mod reason;
mod shared_endpoint;
mod zones;

use driver::abi::*;
use ndk_consumer::{Adapter, Qp, QpConfig};
use std::sync::Arc;
use tests::kit::raw::{Object, wait};
use tests::kit::*;

/// The tests of this room.
pub(crate) const FILES: &[&[crate::Entry]] = &[
    adapter::TESTS,
    connector::TESTS,
    cq::TESTS,
    lam::TESTS,
    loopback::TESTS,
    misuse::TESTS,
    paths::TESTS,
    posts::TESTS,
    reason::TESTS,
    shared_endpoint::TESTS,
    zones::TESTS,
];

/// Calls a slot of the table of a pointer to an object.
macro_rules! call {
    ($object:expr, $($call:tt)*) => { tests::call!(Object($object), $($call)*) };
}
use call;

/// When this returns, the provider has ended a turn that began after the call.
fn turn(adapter: &Arc<Adapter>) {
    drop(adapter.create_pd().unwrap());
}

/// A QP whose receives complete at once, cancelled: a source of completions.
fn dead_qp(side: &Side, cq: &Arc<ndk_consumer::Cq>) -> Arc<Qp> {
    let qp = side.pd.create_qp(cq, &side.cq, QpConfig::default()).unwrap();
    qp.flush();
    qp
}

/// Makes completions with these contexts.
fn complete(qp: &Qp, side: &Side, contexts: std::ops::Range<usize>) {
    for context in contexts {
        while let Err(error) = qp.receive(context, &[side.mr.sge(0..1)]) {
            assert_eq!(error.status, STATUS_NO_MORE_ENTRIES);
            std::thread::yield_now();
        }
    }
}
