//! The requests of a home to the poll core that it runs, and its reports: from any thread, by messages.
//!
//! A home is a platform's program around the provider: it has the thread or the DPC that polls, and the
//! calls with which an adapter is opened and closed.

use super::request::{CheckPaths, List, Listed, Resolved, SetAddresses, SetTrafficClasses, Stop};
use crate::abi::{
    NDIS_STATUS_BAD_VERSION, NDIS_STATUS_RESOURCES, NDK_ADAPTER, NDK_VERSION, NTSTATUS,
};
use crate::adapter::request::{OpenAdapter, Opened};
use crate::adapter::shared::{AdapterObject, negotiate};
use crate::counters::AdapterCounters;
use crate::object::done::{CloseDone, Closed};
use crate::shard::Shard;
use crate::sync::Full;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::IpAddr;
use rocev2::class::TrafficClasses;

/// The messages of a home. [`Full`] passes within moments: the core has only to take a turn. Any of
/// them: IRQL <= DISPATCH_LEVEL.
impl Shard {
    /// Asks for an adapter instance. The consumer gives the lowest minor version that it can live with,
    /// and gets our highest.
    ///
    /// # Errors
    /// `NDIS_STATUS_BAD_VERSION`, `NDIS_STATUS_RESOURCES`; `opened` is not called then.
    pub fn open_adapter(&self, asked: NDK_VERSION, opened: Opened) -> Result<(), NTSTATUS> {
        let version = negotiate(asked).ok_or(NDIS_STATUS_BAD_VERSION)?;
        let message = OpenAdapter { version, opened };
        self.request(message).map_err(|_| NDIS_STATUS_RESOURCES)
    }

    /// Closes an adapter instance. `closed` is called once every object under it is closed and every
    /// callback has returned.
    ///
    /// # Safety
    /// `adapter` was opened here and is not closed yet; nothing uses it any more.
    #[allow(unsafe_code, reason = "the consumer's pointer is the object")]
    pub unsafe fn close_adapter(&self, adapter: *mut NDK_ADAPTER, closed: Closed) {
        // SAFETY: the caller's promise.
        unsafe { AdapterObject::from_ndk(adapter) }.base.close(CloseDone::Signal(closed));
    }

    /// The adapter has these addresses from the next turn on. Connections from one that is gone end at
    /// once. `zone` is that of its link-local addresses ([`ProviderConfig::zone`](crate::ProviderConfig::zone)); 0 leaves it
    /// as it is.
    ///
    /// # Errors
    /// [`Full`].
    pub fn set_addresses(&self, addresses: Vec<IpAddr>, zone: u32) -> Result<(), Full> {
        self.tell(SetAddresses { addresses, zone })
    }

    /// Keeps memory until no core can reach it by a mapping of logical addresses whose release has returned.
    pub fn keep(&self, memory: Box<dyn Send + Sync>) {
        self.lams.keep(memory);
        self.wake_all();
    }

    /// The operating system's routes or interfaces have changed: neighbours may be elsewhere.
    ///
    /// # Errors
    /// [`Full`].
    pub fn check_paths(&self) -> Result<(), Full> {
        self.tell(CheckPaths)
    }

    /// The packets of each connection have the class of its service from the next turn on: the port that a connector named, or that its
    /// listener has. This holds for established connections, and for those that a later call begins.
    ///
    /// # Errors
    /// [`Full`].
    pub fn set_traffic_classes(&self, classes: TrafficClasses) -> Result<(), Full> {
        self.tell(SetTrafficClasses { classes })
    }

    /// Reports that [`Platform::resolve`](super::Platform::resolve) has ended; `None` where there was no
    /// answer.
    ///
    /// # Errors
    /// [`Full`].
    pub fn resolved(&self, remote: IpAddr, mac: Option<[u8; 6]>) -> Result<(), Full> {
        self.tell(Resolved { remote, mac })
    }

    /// Asks for the listeners and connections.
    ///
    /// # Errors
    /// `listed`, to ask again: there is no room for the message.
    pub fn list(&self, listed: Listed) -> Result<(), Listed> {
        let mut listed = Some(listed);
        // An error of either kind leaves it here.
        let _ = self.request_if(|| listed.take().map(|listed| List { listed }).ok_or(()));
        listed.map_or(Ok(()), Err)
    }

    /// Ends the core: its next turn says [`stopped`](crate::Turn::stopped). Every adapter was closed
    /// before.
    ///
    /// # Errors
    /// [`Full`].
    pub fn stop(&self) -> Result<(), Full> {
        self.tell(Stop)
    }

    /// The adapter's counters, without a message.
    pub fn counters(&self) -> AdapterCounters {
        self.counters.snapshot()
    }
}
