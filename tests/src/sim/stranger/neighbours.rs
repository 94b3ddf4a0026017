//! Invented hosts that ask for ours, each from two places: a known host that is said to be elsewhere is a reason to ask where
//! it is.

use super::{Strange, invented_ip, invented_mac};
use crate::sim::foreign::wire::ask;
use crate::sim::world::World;

impl World {
    /// Some invented hosts ask each host of ours where it is.
    pub(super) fn ask_around(&mut self, strange: &mut Strange, many: u32) {
        let apart = strange.kind.pace() / u64::from(many);
        for at in 0..many {
            let all = strange.invented;
            // In turn where they are few, each twice at once.
            let of = strange.sent / self.victims().len().max(1) as u32;
            let host = if all < 100 { of / 2 % all } else { strange.rng.below(all) };
            let place = if all < 100 { of & 1 } else { strange.rng.below(2) };
            let mac = invented_mac(host, place as u8);
            for victim in self.victims() {
                let target = self.hosts[victim].ips[0];
                let frame = ask(mac, invented_ip(target, host), self.net.nic(victim), target);
                self.say(strange, victim, u64::from(at) * apart, frame);
            }
        }
    }
}
