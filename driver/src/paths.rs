//! The paths of connections: their resolution, and its results.
//!
//! Where the operating system owns the address, it resolves paths. It is asked again when a path is silent,
//! and polled now and then, as it does not report a neighbour that changed. Elsewhere the provider queries
//! the network itself; then a neighbour is found elsewhere only once it no longer answers at its old place.
//! A query without an answer changes nothing: the connection's own retries decide how long it lasts.

use crate::lane::{Lane, Lanes};
use crate::platform::{Resolve, Resolver};
use crate::shard::Shard;
use core::net::IpAddr;
use netadapter_glue::neighbour::{Link, Neighbours};
use rocev2::env::{Duration, Instant};
use rocev2::path::{Path, PathEvent, PathNews};
use rocev2::wire::{Hop, Mac};
use rocev2::{Device, DeviceConfig, Engine};

/// Time between two looks at what the operating system knows.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Paths that one look is for.
const CHECKS: usize = 16;

/// The core's knowledge of neighbours, and its queries.
pub(crate) struct Paths {
    pub(crate) neighbours: Neighbours,
    /// Our link-layer address.
    pub(crate) mac: [u8; 6],
    /// That of connections to own addresses ([`Engine::loopback_mac`]).
    pub(crate) loopback_mac: [u8; 6],
    /// Of connects, as tag control information.
    pub(crate) vlan: Option<u16>,
    /// Of the adapter's link-local addresses; 0: not known.
    pub(crate) zone: u32,
    /// When the operating system is looked at next, and from which path on.
    check_due: Instant,
    check_next: usize,
}

impl Paths {
    pub(crate) fn new(mac: [u8; 6], engine: &Engine, tci: Option<u16>) -> Self {
        Self {
            neighbours: Neighbours::new(mac, &engine.config().addresses).in_vlan(vlan(tci)),
            mac,
            loopback_mac: engine.loopback_mac().0,
            vlan: tci,
            zone: 0,
            check_due: Instant::default(),
            check_next: 0,
        }
    }

    /// The same, with this zone of link-local addresses.
    pub(crate) fn in_zone(self, zone: u32) -> Self {
        Self { zone, ..self }
    }

    /// The hop to a neighbour.
    pub(crate) const fn hop(&self, mac: [u8; 6], vlan: Option<u16>) -> Hop {
        Hop { src_mac: Mac(self.mac), dst_mac: Mac(mac), vlan }
    }

    /// All paths are looked at, from now on.
    pub(crate) fn restart_checks(&mut self) {
        (self.check_due, self.check_next) = (Instant::default(), 0);
    }

    /// Asks for the paths that came into use or are doubted.
    pub(crate) fn follow(&mut self, now: Instant, device: &mut Device<Lanes>, shard: &Shard) {
        self.check(now, device, shard);
        self.ask(now, &mut device.engines.own, shard);
    }

    /// Asks for the paths that the engine of a lane has doubts about.
    pub(crate) fn ask(&mut self, now: Instant, lane: &mut Lane, shard: &Shard) {
        while let Some(event) = lane.engine.poll_path() {
            self.resolve(now, &event, lane.engine.config(), shard);
        }
    }

    #[inline(never)]
    fn resolve(&mut self, now: Instant, event: &PathEvent, config: &DeviceConfig, shard: &Shard) {
        let Path { local, remote } = event.path;
        // A packet to an own address comes back here.
        if config.addresses.contains(&remote) {
            return;
        }
        let how = match event.why {
            PathNews::Opened => Resolve::Confirm,
            // A frame is not worth a question that its sender could answer as well.
            PathNews::Moved => Resolve::Look,
            PathNews::Silent => Resolve::Renew,
        };
        match shard.platform.resolve(local, remote, how) {
            Resolver::Provider => self.ask_network(now, event),
            // A path without an answer keeps its hop, and one that is silent is doubted again.
            Resolver::Platform | Resolver::Nobody => {}
        }
    }

    fn ask_network(&mut self, now: Instant, event: &PathEvent) {
        let (now, Path { local, remote }) = (now.as_nanos(), event.path);
        let link = |mac: Mac, tci| Link { mac: mac.0, vlan: vlan(tci) };
        let source = event.source.map(|source| link(source.mac, source.vlan));
        match event.why {
            PathNews::Opened => {
                let source = source.unwrap_or(link(event.hop.dst_mac, event.hop.vlan));
                self.neighbours.confirm(now, local, remote, source);
            }
            PathNews::Moved => self.neighbours.hint(now, local, remote, source),
            PathNews::Silent => self.neighbours.doubt(now, local, remote, source),
        }
    }

    /// Looks at what the operating system knows of some paths.
    fn check(&mut self, now: Instant, device: &mut Device<Lanes>, shard: &Shard) {
        if now < self.check_due {
            return;
        }
        self.check_due = now + CHECK_INTERVAL;
        let mut looked = 0;
        for (path, _) in device.paths().skip(self.check_next).take(CHECKS) {
            looked += 1;
            // One that cannot be asked for now is asked for in a later round.
            let _ = shard.platform.resolve(path.local, path.remote, Resolve::Look);
        }
        self.check_next = if looked < CHECKS { 0 } else { self.check_next + CHECKS };
    }
}

/// Every path to `remote` leads to `mac`, with the tag that `tag` makes of the one so far.
pub(crate) fn update(
    device: &mut Device<Lanes>,
    remote: IpAddr,
    mac: Mac,
    tag: impl Fn(Option<u16>) -> Option<u16>,
) {
    for index in 0.. {
        let Some(&local) = device.engines.own.engine.config().addresses.get(index) else { return };
        let path = Path { local, remote };
        if let Some(hop) = device.path_hop(path) {
            let vlan = tag(hop.vlan);
            device.path_update(path, Hop { dst_mac: mac, vlan, ..hop });
        }
    }
}

/// The VLAN that tag control information names.
pub(crate) fn vlan(tci: Option<u16>) -> Option<u16> {
    tci.map(|tci| tci & 0xfff).filter(|vlan| *vlan != 0)
}

/// The tag for a VLAN: the one so far, with its priority, where it names that VLAN already.
pub(crate) fn retag(tci: Option<u16>, to: Option<u16>) -> Option<u16> {
    if vlan(tci) == to { tci } else { to }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_keeps_its_priority_where_the_vlan_is_the_same() {
        let own = Some(3 << 13 | 7);
        assert_eq!([Some(7), Some(8), None].map(|to| retag(own, to)), [own, Some(8), None]);
        let priority = Some(3 << 13);
        assert_eq!(retag(priority, None), priority, "VLAN 0 is none");
    }
}
