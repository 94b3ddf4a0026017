//! The network between the providers: what it loses, repeats, delays and damages.

use super::meter::apart;
use super::packet::{look, opcode};
use driver::ProviderConfig;
use netadapter_glue::segment::split;
use netadapter_glue::{Edge, EdgeError, Link, Received, Transmit};
use rocev2::env::Rng;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a provider did with its edge, in order.
#[derive(Debug)]
pub(crate) enum Crossing {
    /// It took a frame.
    Taken(Vec<u8>),
    /// It sent a frame.
    Sent(Vec<u8>),
}

impl Crossing {
    /// It belongs to a connection that is established.
    pub(crate) fn is_data(&self) -> bool {
        let (Self::Taken(frame) | Self::Sent(frame)) = self;
        matches!(look(frame), Some(Ok(seen)) if seen.opcode != opcode::UD_SEND_ONLY)
    }
}

/// The simulation's end of an edge.
#[derive(Debug, Default)]
pub(crate) struct Port {
    /// Arrived, and not taken yet.
    pub(crate) inbox: VecDeque<Vec<u8>>,
    /// What crossed in this turn.
    pub(crate) crossed: Vec<Crossing>,
    /// Frames that a turn may send.
    pub(crate) room: usize,
    /// The last turn had more to send.
    pub(crate) lacked: bool,
}

/// An edge of the simulated network.
pub(crate) struct SimEdge {
    link: Link,
    port: Arc<Mutex<Port>>,
    buffer: Vec<u8>,
    scratch: Vec<u8>,
}

impl SimEdge {
    /// An edge with a port.
    pub(crate) fn new(link: Link, port: Arc<Mutex<Port>>) -> Self {
        let (buffer, scratch) = (vec![0; link.max_unit_len], vec![0; link.max_unit_len]);
        Self { link, port, buffer, scratch }
    }
}

/// One thread uses it; a panic under the lock ends the simulation anyway.
pub(crate) fn lock(port: &Mutex<Port>) -> MutexGuard<'_, Port> {
    port.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Edge for SimEdge {
    fn link(&self) -> Link {
        self.link
    }

    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(Received<'_>),
    ) -> Result<usize, EdgeError> {
        let mut port = lock(&self.port);
        let mut taken = 0;
        while taken < budget
            && let Some(frame) = port.inbox.pop_front()
        {
            sink(Received { frame: &frame, segments: None });
            apart(|| port.crossed.push(Crossing::Taken(frame)));
            taken += 1;
        }
        Ok(taken)
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Option<Transmit>,
    ) -> Result<usize, EdgeError> {
        let mut port = lock(&self.port);
        port.lacked = false;
        let mut sent = 0;
        while sent < budget {
            if port.room == 0 {
                port.lacked = true;
                break;
            }
            let Some(transmit) = fill(&mut self.buffer) else { break };
            port.room -= 1;
            for segment in split(&self.buffer[..transmit.len], transmit.segments) {
                let len = segment.copy_to(&mut self.scratch);
                apart(|| port.crossed.push(Crossing::Sent(self.scratch[..len].to_vec())));
            }
            sent += 1;
        }
        Ok(sent)
    }
}

/// How the network behaves; chances are per 1000.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// Lost.
    pub(crate) loss: u32,
    /// Delivered twice.
    pub(crate) duplicate: u32,
    /// Held back behind others.
    pub(crate) reorder: u32,
    /// Damaged in one to eight bits.
    pub(crate) corrupt: u32,
    /// Cut short.
    pub(crate) truncate: u32,
    /// Held back for long.
    pub(crate) spike: u32,
    /// Delivered once more, much later.
    pub(crate) ghost: u32,
    /// One way, in ns.
    pub(crate) delay: u64,
    /// How far a frame is held back, in ns.
    pub(crate) window: u64,
}

impl Faults {
    /// The share of frames that do not arrive as they were sent, per 1000.
    pub(crate) const fn lossy(&self) -> u32 {
        self.loss + self.corrupt + self.truncate
    }

    /// Frames arrive late, twice or not at all.
    pub(crate) const fn any(&self) -> bool {
        self.lossy() + self.duplicate + self.reorder + self.spike + self.ghost > 0
    }

    /// With this window.
    pub(crate) const fn within(self, window: u64) -> Self {
        Self { window, ..self }
    }

    /// A network without faults and with the same delay.
    pub(crate) fn healed(&self) -> Self {
        Self { delay: self.delay, ..Self::default() }
    }
}

/// Frames on their way between `n` hosts, in the order of their arrival.
pub(crate) struct Net {
    rng: Rng,
    /// Now.
    pub(crate) faults: Faults,
    /// By arrival and number.
    flying: BTreeMap<(u64, u64), (usize, Vec<u8>)>,
    number: u64,
    /// `cut[from][to]`: nothing gets through.
    pub(crate) cut: Vec<Vec<bool>>,
    parted: bool,
}

impl Net {
    /// A network without partitions.
    pub(crate) fn new(hosts: usize, faults: Faults, rng: Rng) -> Self {
        let cut = vec![vec![false; hosts]; hosts];
        Self { rng, faults, flying: BTreeMap::new(), number: 0, cut, parted: false }
    }

    /// No faults from now on; what is on its way keeps its delay.
    pub(crate) fn heal(&mut self) {
        self.faults = self.faults.healed();
        self.cut.iter_mut().flatten().for_each(|cut| *cut = self.parted);
    }

    /// Nothing gets through any more, whatever heals.
    pub(crate) fn part_for_ever(&mut self) {
        self.parted = true;
        self.flying.clear();
        self.heal();
    }

    /// When the next frame arrives.
    pub(crate) fn next(&self) -> Option<u64> {
        self.flying.first_key_value().map(|(&(at, _), _)| at)
    }

    /// A frame that has arrived by `now`, and where.
    pub(crate) fn arrive(&mut self, now: u64) -> Option<(usize, Vec<u8>)> {
        let entry = self.flying.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(entry.remove())
    }

    fn chance(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.rng.below(1000) < per_mille
    }

    /// Sends a frame of `from` to whom its Ethernet address names.
    pub(crate) fn send(&mut self, now: u64, from: usize, frame: &[u8]) {
        let all = frame[0] & 1 != 0;
        for to in 0..self.cut.len() {
            if to != from && (all || frame[..6] == mac(to)) && !self.cut[from][to] {
                self.send_to(now, to, frame);
            }
        }
    }

    fn send_to(&mut self, now: u64, to: usize, frame: &[u8]) {
        let Faults { loss, duplicate, reorder, corrupt, truncate, spike, ghost, delay, window } =
            self.faults;
        if self.chance(loss) {
            return;
        }
        let mut flying = frame.to_vec();
        // Ethernet's own check catches the rest of what happens on a real wire; what gets past it
        // must not be an address resolution, which has no check of its own.
        let is_ip = matches!(frame[12..14], [0x08, 0x00] | [0x86, 0xdd]);
        let is_neighbour = frame.get(20) == Some(&58);
        if is_ip && !is_neighbour {
            if self.chance(corrupt) {
                self.damage(&mut flying);
            }
            if self.chance(truncate) {
                let len = 14 + self.rng.below(frame.len() as u32 - 14) as usize;
                flying.truncate(len);
            }
        }
        let mut at = now + delay;
        if self.chance(reorder) {
            at += 1 + self.rng.u64() % window.max(1);
        }
        if self.chance(spike) {
            at += window * (1 + u64::from(self.rng.below(50)));
        }
        if self.chance(duplicate) {
            let again = at + self.rng.u64() % (window + 1);
            self.fly(again, to, flying.clone());
        }
        if self.chance(ghost) {
            let again = at + 1_000_000 * u64::from(self.rng.below(2000));
            self.fly(again, to, flying.clone());
        }
        self.fly(at, to, flying);
    }

    fn damage(&mut self, frame: &mut [u8]) {
        for _ in 0..1 + self.rng.below(8) {
            let at = 14 + self.rng.below(frame.len() as u32 - 14) as usize;
            frame[at] ^= 1 << self.rng.below(8);
        }
    }

    fn fly(&mut self, at: u64, to: usize, frame: Vec<u8>) {
        self.number += 1;
        self.flying.insert((at, self.number), (to, frame));
    }
}

/// The Ethernet address of a host.
pub(crate) const fn mac(host: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, host as u8 + 1]
}

/// Connection timers and windows that a small simulation can wait for.
pub(crate) fn config(ip: std::net::IpAddr, rng: &mut Rng, patient: bool) -> ProviderConfig {
    let mut config = ProviderConfig::new(vec![ip]);
    config.ack_timeout_code = if patient { 17 } else { 10 + rng.below(5) as u8 };
    config.retry_count = if patient { 7 } else { rng.below(8) as u8 };
    config.window.bytes = 1 << (10 + rng.below(7));
    config.window.read_chunk = 1 << (10 + rng.below(6));
    config.window.held = [0, 1 << (10 + rng.below(10)), 512 << 10][rng.below(3) as usize];
    config
}
