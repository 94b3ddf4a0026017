//! Two providers in this process, as a Linux program has them, joined in memory.

use std::sync::Arc;

use driver::abi::NDK_ADAPTER;
use driver::{Provider, ProviderConfig};
use ndk_consumer::Opener;
use ndk_verifier::{Verifier, Verify};
use netadapter_glue::fault::{FaultInjector, Faults};
use netadapter_glue::memory::{MemoryConfig, pair};

use crate::outsider::{boundary, thunk::Convention};
use crate::scenarios::address;
use crate::wsk::{self, Interface};

pub(super) struct Providers {
    providers: [Arc<Provider>; 2],
    verifiers: Vec<Arc<Verifier>>,
}

impl Providers {
    /// The link loses one frame of `every`, at random; none if that is 0.
    pub(super) fn start(every: usize, verify: bool) -> Self {
        let loss = if every == 0 { 0.0 } else { 1.0 / every as f64 };
        let (first, second) = pair(MemoryConfig::default());
        let mut number = 0;
        let providers = [first, second].map(|edge| {
            let seed = crate::ntos::misc::system_time() + number as u64;
            let edge = FaultInjector::new(edge, Faults { seed, loss, ..Faults::default() });
            let config = ProviderConfig::new(vec![address(number)]);
            number += 1;
            Arc::new(Provider::start(Box::new(edge), config).expect("a provider starts"))
        });
        let mut verifiers = Vec::new();
        for (provider, index) in providers.iter().zip(Self::INDICES) {
            let mut opener: Arc<dyn Opener> = Arc::<Provider>::clone(provider);
            if verify {
                let verifier = Verifier::new(opener, Verify::default());
                verifiers.push(Arc::clone(&verifier));
                opener = verifier;
            }
            wsk::add(index, Interface { opener, opened });
        }
        Self { providers, verifiers }
    }

    const INDICES: [u32; 2] = [1, 2];

    pub(super) fn indices(&self) -> [u32; 2] {
        Self::INDICES
    }

    /// Tells what the verifiers have found; nothing is left.
    pub(super) fn end(self) {
        wsk::clear();
        for report in self.verifiers.iter().flat_map(|verifier| verifier.reports()) {
            say!("verifier: {report}");
        }
        for provider in &self.providers {
            let left = provider.open_objects();
            if left > 0 {
                breach!("{left} objects of a provider are left");
            }
        }
    }
}

fn opened(adapter: *mut NDK_ADAPTER) {
    unsafe { boundary::adopt(adapter as u64, Convention::Linux) };
}
