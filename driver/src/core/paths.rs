//! The paths of connections: who is asked for them, and what becomes of the answers.
//!
//! Where the operating system owns the address, it is asked, again when a path is silent, and looked at
//! now and then, as it tells nobody of a neighbour that changed. Elsewhere the provider asks the network
//! itself; then a neighbour is believed to be elsewhere only once it no longer answers where it was.
//! Nobody who answers is no news: the connection's own retries decide how long that is borne.

use super::State;
use crate::platform::Resolve;
use core::net::IpAddr;
use netadapter_glue::neighbour::Link;
use rocev2::env::{Duration, Instant};
use rocev2::path::{Path, PathEvent, PathNews};
use rocev2::wire::{Hop, Mac};

/// Time between two looks at what the operating system knows.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Paths that one look is for.
const CHECKS: usize = 16;

/// Which paths are looked at next.
#[derive(Debug, Default)]
pub(super) struct PathChecks {
    due: Instant,
    next: usize,
}

impl PathChecks {
    /// All of them, from now on.
    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }
}

impl State {
    /// Asks for the paths that came into use or are doubted.
    pub(super) fn follow_paths(&mut self, now: Instant) {
        self.check_paths(now);
        while let Some(event) = self.device.poll_path() {
            let Path { local, remote } = event.path;
            // What is sent to an own address comes back here.
            if self.owns(remote) {
                continue;
            }
            let how = match event.why {
                PathNews::Opened => Resolve::Ask,
                // A frame is not worth a question that its sender could answer as well.
                PathNews::Moved => Resolve::Look,
                PathNews::Silent => Resolve::Renew,
            };
            if !self.shard.platform.resolve(local, remote, how) {
                self.ask_network(now, &event);
            }
        }
    }

    fn ask_network(&mut self, now: Instant, event: &PathEvent) {
        let (now, Path { local, remote }) = (now.as_nanos(), event.path);
        let link = |mac: Mac, tci| Link { mac: mac.0, vlan: vlan(tci) };
        let source = event.source.map(|source| link(source.mac, source.vlan));
        match event.why {
            PathNews::Opened => {
                let source = source.unwrap_or(link(event.hop.dst_mac, event.hop.vlan));
                self.neighbours.resolve(now, local, remote, Some(source));
            }
            PathNews::Moved | PathNews::Silent => self.neighbours.doubt(now, local, remote, source),
        }
    }

    /// Looks at what the operating system knows of some paths.
    fn check_paths(&mut self, now: Instant) {
        if now < self.path_checks.due {
            return;
        }
        self.path_checks.due = now + CHECK_INTERVAL;
        let (platform, mut looked) = (&self.shard.platform, 0);
        for (path, _) in self.device.paths().skip(self.path_checks.next).take(CHECKS) {
            looked += 1;
            // One that cannot be asked for now is asked for in a later round.
            let _ = platform.resolve(path.local, path.remote, Resolve::Look);
        }
        self.path_checks.next = if looked < CHECKS { 0 } else { self.path_checks.next + CHECKS };
    }

    /// Every path to `remote` leads to `mac`, with the tag that `tag` makes of the one so far.
    pub(super) fn update_paths(
        &mut self,
        remote: IpAddr,
        mac: Mac,
        tag: impl Fn(Option<u16>) -> Option<u16>,
    ) {
        for index in 0..self.device.config().addresses.len() {
            let path = Path { local: self.device.config().addresses[index], remote };
            if let Some(hop) = self.device.path_hop(path) {
                let vlan = tag(hop.vlan);
                self.device.path_update(path, Hop { dst_mac: mac, vlan, ..hop });
            }
        }
    }
}

/// The VLAN that tag control information names.
pub(super) fn vlan(tci: Option<u16>) -> Option<u16> {
    tci.map(|tci| tci & 0xfff).filter(|vlan| *vlan != 0)
}

/// The tag for a VLAN: the one so far, with its priority, where it names that VLAN already.
pub(super) fn retag(tci: Option<u16>, to: Option<u16>) -> Option<u16> {
    if vlan(tci) == to { tci } else { to }
}
