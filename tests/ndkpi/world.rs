//! Two providers joined in memory, and what a consumer makes on them. Every call is recorded.

use crate::record::Test;
use driver::abi::*;
use driver::{Provider, ProviderConfig};
use ndk_consumer::Opener;
use rocev2::env::Duration as Nanos;
use std::sync::Arc;
pub(crate) use tests::kit::{
    ADDRESSES, ALL_ACCESS, Connection, Fate, LIMITS, Net, PORT, Side, joined, status,
};

/// A provider whose adapters are recorded.
struct Recorded {
    provider: Arc<Provider>,
    test: Test,
}

// SAFETY: as the provider's own.
unsafe impl Opener for Recorded {
    fn open(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NTSTATUS> {
        let adapter = self.provider.open_adapter(version)?;
        self.test.adopt(adapter);
        Ok(adapter)
    }

    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) {
        // SAFETY: the caller's promise.
        unsafe { self.provider.close_adapter(adapter) };
    }
}

/// Two hosts whose every call is recorded.
pub(crate) fn recorded(test: Test) -> Net {
    recorded_with(test, |_| ())
}

/// Hosts that give up within a fraction of a second.
pub(crate) fn impatient(test: Test) -> Net {
    recorded_with(test, |config| {
        config.cm.first_resend = Nanos::from_millis(20);
        config.cm.connect_limit = Nanos::from_millis(200);
        config.cm.disconnect_limit = Nanos::from_millis(200);
        config.ack_timeout_code = 8;
        config.retry_count = 1;
    })
}

fn recorded_with(test: Test, change: impl Fn(&mut ProviderConfig)) -> Net {
    Net::opened_by(joined(), ADDRESSES, change, |provider| Arc::new(Recorded { provider, test }))
}

/// How requests of a side end.
pub(crate) trait Ends {
    /// The types and statuses of the next completions, which have to come.
    fn ends(&self, count: usize) -> Vec<(NDK_OPERATION_TYPE, NTSTATUS)>;
}

impl Ends for Side {
    fn ends(&self, count: usize) -> Vec<(NDK_OPERATION_TYPE, NTSTATUS)> {
        self.results(count).iter().map(|result| (result.Type, result.Status)).collect()
    }
}
