//! Goal: the verifier reports each mistake of a consumer by its rule, and nothing of right consumers; the explorer makes
//! a provider end calls in every way, by its seed alone.
//! Method: a table of mistakes, each made by calls on the raw tables; right consumers by the wrappers, with threads, and
//! for 1,000 seeds on a virtual clock.
#![allow(unsafe_code, reason = "calls through the tables")]

mod ends;
mod explored;
mod mistakes;
mod right;

use driver::Provider;
use ndk_consumer::Opener;
use ndk_verifier::{Explore, Explorer, Report, Verifier, Verify};
use std::cell::{Cell, RefCell};
use std::sync::{Arc, Once};
use tests::kit::{Net, open_by};

thread_local! {
    static EXPLORE: Cell<Option<Explore>> = const { Cell::new(None) };
    static VERIFIERS: RefCell<Vec<Arc<Verifier>>> = const { RefCell::new(Vec::new()) };
}

/// Two hosts whose consumers are watched.
struct Watched {
    net: Net,
    verifiers: Vec<Arc<Verifier>>,
}

impl Watched {
    /// With an explorer between, if there is one.
    fn new(explore: Option<Explore>) -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| open_by(watch));
        EXPLORE.set(explore);
        let net = Net::new();
        Self { net, verifiers: VERIFIERS.take() }
    }

    fn reports(&self) -> Vec<Report> {
        self.verifiers.iter().flat_map(|verifier| verifier.reports()).collect()
    }
}

fn watch(provider: Arc<Provider>) -> Arc<dyn Opener> {
    let opener: Arc<dyn Opener> = match EXPLORE.get() {
        Some(explore) => Explorer::new(provider, explore),
        None => provider,
    };
    let verifier = Verifier::new(opener, Verify::default());
    VERIFIERS.with_borrow_mut(|verifiers| verifiers.push(Arc::clone(&verifier)));
    verifier
}
