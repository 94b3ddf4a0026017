//! Connection requests that nobody wants: more than a host looks at, from one source or from many; and some
//! that are accepted, and then left so.

use super::guest::GUEST;
use super::{MAC, Strange, datagram, invented_ip, invented_mac, own_ip};
use crate::sim::foreign::cm::{Asks, req};
use crate::sim::foreign::wire::{Route, frame};
use crate::sim::forge::FORGED;
use crate::sim::world::{PORT, World};

/// Messages a second that a host looks at in such a world, and those that may come together.
const RATE: u32 = 100;
const BURST: u32 = 32;
/// As many times more come.
const TIMES: u32 = 5;

impl World {
    /// Few messages are many for such hosts.
    pub(super) fn suit_requests(&mut self) {
        for host in &mut self.hosts {
            (host.config.cm.max_rate, host.config.cm.max_burst) = (RATE, BURST);
        }
        // One in ten may find no way.
        (self.reliable, self.calm) = (false, false);
    }

    /// As many requests as fit between two times.
    pub(super) fn request_often(&mut self, strange: &mut Strange) {
        let many = RATE * TIMES / (1000 * 1_000_000 / strange.kind.pace()) as u32;
        // One source, or many.
        let sources = if strange.invented <= 64 { 1 } else { strange.invented };
        for at in 0..many {
            for victim in self.victims().into_iter().take(1) {
                let source = strange.rng.below(sources);
                let port = if strange.rng.below(2) == 0 { PORT } else { 7 };
                let route = self.invented_route(victim, source);
                let asks = asks(strange, &route, port);
                let after = u64::from(at) * strange.kind.pace() / u64::from(many);
                let frame = frame(&route, &datagram(req(&asks, &FORGED)));
                self.say(strange, victim, after, frame);
            }
        }
    }

    /// A request that a consumer accepts; what it says then is not heard.
    pub(super) fn request_half(&mut self, strange: &mut Strange) {
        for victim in self.victims() {
            for _ in 0..1 + strange.rng.below(4) {
                let source = strange.rng.below(strange.invented);
                let route = self.invented_route(victim, source);
                let asks = asks(strange, &route, PORT);
                let frame = frame(&route, &datagram(req(&asks, &GUEST)));
                self.say(strange, victim, 0, frame);
            }
        }
    }

    fn invented_route(&self, victim: usize, source: u32) -> Route {
        let ip = self.hosts[victim].ips[0];
        let macs = [invented_mac(source, 0), self.net.nic(victim)];
        Route { macs, ips: [invented_ip(ip, source), ip] }
    }

    /// The stranger's own way to a host.
    pub(super) fn own_route(&self, victim: usize) -> Route {
        let ip = self.hosts[victim].ips[0];
        Route { macs: [MAC, self.net.nic(victim)], ips: [own_ip(ip), ip] }
    }
}

/// What somebody asks for who can do anything.
pub(super) fn asks(strange: &mut Strange, route: &Route, port: u16) -> Asks {
    let [a, b, c, d, e, f] = route.macs[0];
    Asks {
        local: strange.rng.u32() | 1,
        transaction: strange.rng.u64(),
        guid: u64::from_be_bytes([0, 0, a, b, c, d, e, f]),
        ips: route.ips,
        ports: [40_000 + strange.rng.below(20_000) as u16, port],
        qpn: 2 + strange.rng.below(1 << 23),
        psn: strange.rng.below(1 << 24),
        mtu_code: 1,
        limits: [16, 16],
        timeout_code: 14,
        retry_count: 7,
        rnr_retry: 7,
    }
}
