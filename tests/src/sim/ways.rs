//! What becomes of the ways between hosts: a NIC is replaced, an address goes away and comes back, another
//! host says that it has one.

use super::Deed;
use super::end::{End, Phase};
use super::packet::look;
use super::script::Act;
use super::world::{MS, Step, World, require};
use rocev2::env::Rng;
use std::net::IpAddr;

impl World {
    /// Draws up what happens to ways, in some worlds; by a generator of its own, so that the others stay as
    /// they are without it.
    pub(crate) fn plan_ways(&mut self, rng: &mut Rng) {
        if self.trial.is_some() || self.lossless || rng.below(3) > 0 {
            return;
        }
        self.calm = false;
        // Nobody gives up before the other side has found it.
        for quirks in self.hosts.iter_mut().filter_map(|host| host.quirks.as_mut()) {
            quirks.be_persistent();
        }
        let chaos = self.chaos_ends - self.lead;
        let mut some_time = |within: u64| self.now + rng.u64() % within;
        let mut acts = Vec::new();
        for _ in 0..3 {
            // A stranger alone speaks before.
            let (at, long) = (self.lead + some_time(chaos), MS + some_time(300 * MS));
            acts.push((at, long));
        }
        for (at, long) in acts.into_iter().take(1 + rng.below(3) as usize) {
            let host = rng.below(self.hosts.len() as u32) as usize;
            match rng.below(3) {
                0 => {
                    self.moves = true;
                    self.schedule(at, Act::NewNic(host));
                }
                1 if !self.is_foreign(host) => {
                    let ips = &self.hosts[host].ips;
                    let ip = ips[rng.below(ips.len() as u32) as usize];
                    self.schedule(at, Act::Lose(host, ip));
                    self.schedule(at + long, Act::Regain(host, ip));
                    let other = (host + 1) % self.hosts.len();
                    self.schedule(at + long + MS, Act::Connect(other, host));
                }
                _ => self.schedule(at, Act::Claim),
            }
        }
    }

    /// A host gets another NIC, and what is on its way to the old one is lost.
    pub(crate) fn new_nic(&mut self, host: usize) {
        let nic = self.net.replace_nic(host);
        let ips = &self.hosts[host].ips;
        let foreign: Vec<_> = ips.clone();
        for other in self.hosts.iter_mut().filter_map(|other| other.foreign.as_mut()) {
            foreign.iter().for_each(|&ip| other.meet(ip, nic));
        }
        self.did(Deed::NewNic);
    }

    /// An address of a host is gone: its connections end at once, and are told.
    pub(crate) fn lose_address(&mut self, host: usize, ip: IpAddr) -> Step {
        if self.hosts[host].provider.is_none() || self.hosts[host].lost.contains(&ip) {
            return Ok(());
        }
        let ends: Vec<_> = (0..self.ends.len()).filter(|&end| self.leads_to(end, ip)).collect();
        for &end in &ends {
            self.excuse(end, "its address is gone");
            self.ends[end].cut_off = true;
        }
        let lives = |end: &End| end.host == host && end.phase == Phase::Up && !end.disconnected;
        let told: Vec<_> = ends.into_iter().filter(|&end| lives(&self.ends[end])).collect();
        self.hosts[host].lost.push(ip);
        self.set_addresses(host)?;
        for end in told {
            let this = &self.ends[end];
            require!(this.phase != Phase::Up, "end {end} does not know that its address is gone");
            self.did(Deed::AddressLost);
        }
        Ok(())
    }

    /// An address of a host is back.
    pub(crate) fn regain_address(&mut self, host: usize, ip: IpAddr) -> Step {
        let lost = &mut self.hosts[host].lost;
        let before = lost.len();
        lost.retain(|gone| *gone != ip);
        if lost.len() < before {
            self.did(Deed::AddressBack);
            self.set_addresses(host)?;
        }
        Ok(())
    }

    /// The provider of a host has the addresses that are not lost.
    fn set_addresses(&mut self, host: usize) -> Step {
        let this = &self.hosts[host];
        let Some(provider) = &this.provider else { return Ok(()) };
        let left = this.ips.iter().filter(|ip| !this.lost.contains(ip)).copied().collect();
        let set = provider.set_addresses(left);
        require!(set.is_ok(), "no room for addresses: {set:?}");
        self.turn_asking(host)?;
        self.handle_events()
    }

    /// A connection has, or will have, an address at one of its ends.
    fn leads_to(&self, end: usize, ip: IpAddr) -> bool {
        let names = |end: &End| end.local == Some(ip) || end.remote == Some(ip);
        let this = &self.ends[end];
        names(this) || this.peer.is_some_and(|peer| names(&self.ends[peer]))
    }

    /// Nothing leaves from an address that is gone.
    pub(crate) fn check_source(&self, host: usize, frame: &[u8]) -> Step {
        let lost = &self.hosts[host].lost;
        if let Some(Ok(seen)) = look(frame).filter(|_| !lost.is_empty()) {
            require!(
                !lost.contains(&seen.src),
                "host {host} speaks from {}, which is gone",
                seen.src
            );
        }
        Ok(())
    }
}
