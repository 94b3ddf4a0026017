//! A switch, as far as congestion knows one: a port sends at the speed of its link, what comes faster
//! waits there, is marked and is dropped. The simulator's networks are made of it, and `incast`.

use rocev2::env::Rng;

/// Preamble, FCS and gap of an Ethernet frame.
const ETHERNET: u64 = 24;
/// With fewer bytes waiting than the first a port marks nothing, with more than the second everything,
/// and just before that one packet in so many. In a small buffer the two are these parts of it, in
/// hundredths.
const MARK_FROM: (u64, u64) = (20_000, 15);
const MARK_ALL: (u64, u64) = (100_000, 75);
const MARK_ONE_IN: u64 = 20;

/// A port and its link.
#[derive(Clone, Copy, Debug)]
pub struct PortConfig {
    /// Bytes per second.
    pub rate: u64,
    /// Bytes that may wait.
    pub buffer: u64,
    /// It marks before it drops (RFC 3168).
    pub marks: bool,
}

/// A port of a switch.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    config: PortConfig,
    free_at: u64,
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Passage {
    /// The buffer is full.
    Dropped,
    /// Its last bit is on the link.
    Leaves {
        /// Then, in ns.
        at: u64,
        /// It says now that the network is congested.
        marked: bool,
    },
}

impl Port {
    /// A port at which nothing waits.
    pub const fn new(config: PortConfig) -> Self {
        Self { config, free_at: 0 }
    }

    /// What it is.
    pub const fn config(&self) -> &PortConfig {
        &self.config
    }

    /// The link has another rate from here on; what waits leaves at the old one.
    pub const fn set_rate(&mut self, rate: u64) {
        self.config.rate = rate;
    }

    /// Bytes that wait at `now`, in ns.
    pub const fn waiting(&self, now: u64) -> u64 {
        let ns = self.free_at.saturating_sub(now);
        (ns as u128 * self.config.rate as u128 / 1_000_000_000) as u64
    }

    /// A frame comes at `now`, which never goes back.
    pub fn pass(&mut self, now: u64, frame: &mut [u8], rng: &mut Rng) -> Passage {
        let waiting = self.waiting(now);
        if waiting + frame.len() as u64 > self.config.buffer {
            return Passage::Dropped;
        }
        let marked = self.marks(waiting, rng) && mark(frame);
        self.free_at = self.free_at.max(now) + wire_ns(frame.len(), self.config.rate);
        Passage::Leaves { at: self.free_at, marked }
    }

    /// Random early detection, without an average.
    fn marks(&self, waiting: u64, rng: &mut Rng) -> bool {
        let PortConfig { buffer, marks, .. } = self.config;
        let part = |(bytes, percent): (u64, u64)| bytes.min(buffer * percent / 100);
        let (from, all) = (part(MARK_FROM), part(MARK_ALL));
        let above = waiting.saturating_sub(from);
        let chance = (all - from) * MARK_ONE_IN;
        marks && (waiting >= all || u64::from(rng.below(chance as u32)) < above)
    }
}

/// The time in ns that a frame takes on a link of `rate` bytes per second.
pub const fn wire_ns(len: usize, rate: u64) -> u64 {
    (len as u64 + ETHERNET) * 1_000_000_000 / rate
}

/// Marks an IP packet that may be marked, and corrects the checksum of an IPv4 header (RFC 1624).
fn mark(frame: &mut [u8]) -> bool {
    match frame.get(ETHERTYPE..ETHERTYPE + 2) {
        Some([0x08, 0x00]) => mark_v4(frame),
        Some([0x86, 0xdd]) => mark_v6(frame),
        _ => false,
    }
}

fn mark_v4(frame: &mut [u8]) -> bool {
    let Some(header) = frame.get_mut(IP..IP + 20).filter(|header| is_capable(header[1])) else {
        return false;
    };
    let before = u16::from_be_bytes([header[0], header[1]]);
    header[1] |= CE;
    let after = u16::from_be_bytes([header[0], header[1]]);
    let checksum = u16::from_be_bytes([header[10], header[11]]);
    let (sum, carry) = (!checksum).overflowing_add(after - before);
    header[10..12].copy_from_slice(&(!(sum + u16::from(carry))).to_be_bytes());
    true
}

fn mark_v6(frame: &mut [u8]) -> bool {
    let Some(class) = frame.get_mut(IP + 1).filter(|class| is_capable(**class >> 4)) else {
        return false;
    };
    *class |= CE << 4;
    true
}

/// ECN-capable, and not marked yet (RFC 3168, section 5).
const fn is_capable(traffic_class: u8) -> bool {
    matches!(traffic_class & CE, 1 | 2)
}

const ETHERTYPE: usize = 12;
const IP: usize = 14;
const CE: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: PortConfig = PortConfig { rate: 1_000_000_000, buffer: 10_000, marks: true };

    fn port(marks: bool) -> (Port, Rng) {
        (Port::new(PortConfig { marks, ..CONFIG }), Rng::from_seed([1; 32]))
    }

    fn v4(traffic_class: u8) -> Vec<u8> {
        let mut frame = vec![0; 976];
        frame[ETHERTYPE..IP + 2].copy_from_slice(&[0x08, 0x00, 0x45, traffic_class]);
        let sum = sum(&frame[IP..IP + 20]);
        frame[IP + 10..IP + 12].copy_from_slice(&(!sum).to_be_bytes());
        frame
    }

    fn sum(header: &[u8]) -> u16 {
        let words = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
        let sum: u32 = words.sum();
        ((sum & 0xffff) + (sum >> 16)) as u16
    }

    #[test]
    fn frames_leave_one_after_the_other_until_the_buffer_is_full() {
        let (mut port, mut rng) = port(false);
        for count in 1..=10 {
            let passage = port.pass(500, &mut v4(2), &mut rng);
            assert_eq!(passage, Passage::Leaves { at: 500 + 1000 * count, marked: false });
            assert_eq!(port.waiting(500), 1000 * count);
        }
        assert_eq!(port.pass(500, &mut v4(2), &mut rng), Passage::Dropped);
        let passage = port.pass(1500, &mut v4(2), &mut rng);
        assert_eq!(passage, Passage::Leaves { at: 11_500, marked: false });
        assert_eq!(port.waiting(11_500), 0);
    }

    #[test]
    fn what_waits_long_is_marked_and_what_does_not_is_not() {
        let (mut port, mut rng) = port(true);
        let mut marked = || match port.pass(0, &mut v4(2), &mut rng) {
            Passage::Leaves { marked, .. } => marked,
            Passage::Dropped => false,
        };
        // 15 and 75 % of the buffer.
        let passages: Vec<_> = (0..10).map(|_| marked()).collect();
        assert_eq!((passages[..2].contains(&true), &passages[8..]), (false, &[true; 2][..]));
    }

    #[test]
    fn only_what_may_be_marked_is_and_its_checksum_stays_right() {
        for (before, after) in
            [(0, None), (1, Some(3)), (2, Some(3)), (0xc2, Some(0xc3)), (3, None)]
        {
            let mut frame = v4(before);
            assert_eq!(mark(&mut frame), after.is_some());
            assert_eq!(frame[IP + 1], after.unwrap_or(before));
            assert_eq!(sum(&frame[IP..IP + 20]), 0xffff);
        }
        let mut frame = vec![0; 60];
        frame[ETHERTYPE..IP + 2].copy_from_slice(&[0x86, 0xdd, 0x6c, 0x2f]);
        assert!(mark(&mut frame) && !mark(&mut frame));
        assert_eq!(frame[IP..IP + 2], [0x6c, 0x3f]);
    }
}
