//! The simulation's end of an edge: what arrived, what crossed, and how it fails.

use super::meter::apart;
use super::packet::{look, number, opcode, sum};
use netadapter_glue::segment::split;
use netadapter_glue::{Edge, EdgeError, Link, Received, Segments, Slot, Transmit};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a received unit, at most.
const UNIT_MAX: usize = 60_000;
/// Why an edge fails: an I/O error.
const EIO: i32 = 5;

/// What a provider did with its edge, in order.
#[derive(Debug)]
pub(crate) enum Crossing {
    /// It took a frame.
    Taken(Vec<u8>),
    /// It sent a frame.
    Sent(Vec<u8>),
    /// It sent a frame, and the edge failed with it.
    Lost(Vec<u8>),
}

impl Crossing {
    /// It belongs to a connection that is established.
    pub(crate) fn is_data(&self) -> bool {
        let (Self::Taken(frame) | Self::Sent(frame) | Self::Lost(frame)) = self;
        matches!(look(frame), Some(Ok(seen)) if seen.opcode != opcode::UD_SEND_ONLY)
    }
}

/// The directions of an edge.
pub(crate) const RECEIVING: usize = 0;
pub(crate) const SENDING: usize = 1;

/// The simulation's end of an edge.
#[derive(Debug, Default)]
pub(crate) struct Port {
    /// Arrived, and not taken yet.
    pub(crate) inbox: VecDeque<Vec<u8>>,
    /// What crossed in this turn.
    pub(crate) crossed: Vec<Crossing>,
    /// Units that a turn may send.
    pub(crate) room: usize,
    /// The last turn had more to send.
    pub(crate) lacked: bool,
    /// Frames of one received unit, at most.
    pub(crate) coalesces: usize,
    /// Bits per second, if the edge tells.
    pub(crate) speed: Option<u64>,
    /// In this direction everything is an error.
    pub(crate) fails: [bool; 2],
    /// Units of several frames that were taken.
    pub(crate) coalesced: u64,
    /// Calls that failed.
    pub(crate) failed: [u64; 2],
}

impl Port {
    /// A frame is here that can be taken.
    pub(crate) fn has_mail(&self) -> bool {
        !self.inbox.is_empty() && !self.fails[RECEIVING]
    }

    /// The frames of the next run, each a unit.
    fn next_run(&mut self, max: usize) -> Vec<Vec<u8>> {
        let len = self.inbox.len().min(max).min(SIM_RUN);
        self.inbox.drain(..len).collect()
    }

    /// The frames of the next unit; several are joined in `unit`.
    fn next_unit(&mut self, unit: &mut Vec<u8>) -> Vec<Vec<u8>> {
        let mut frames = Vec::from_iter(self.inbox.pop_front());
        let Some(header_len) = frames.first().and_then(|frame| header_len(frame)) else {
            return frames;
        };
        let payload_len = frames[0].len() - header_len;
        unit.clear();
        unit.extend_from_slice(&frames[0]);
        while frames.len() < self.coalesces
            && frames.last().is_some_and(|last| last.len() == frames[0].len())
            && unit.len() + payload_len < UNIT_MAX
            && let Some(next) = self.inbox.front()
            && continues(&frames[0], next, frames.len() as u64)
            && let Some(next) = self.inbox.pop_front()
        {
            unit.extend_from_slice(&next[header_len..]);
            frames.push(next);
        }
        frames
    }
}

/// Ethernet, IP and UDP of a frame whose headers a NIC finds right; what they carry may be damaged.
fn header_len(frame: &[u8]) -> Option<usize> {
    let (ip, udp) = match frame.get(12..14)? {
        [0x08, 0x00] => (frame.get(14..34)?, 34),
        [0x86, 0xdd] => (frame.get(14..54)?, 54),
        _ => return None,
    };
    let right = if udp == 34 {
        let whole = number(ip, 6, 2) & 0x3fff == 0;
        let len = number(ip, 2, 2) == frame.len() as u64 - 14;
        ip[0] == 0x45 && ip[9] == 17 && whole && len && sum(ip) == 0xffff
    } else {
        ip[6] == 17 && number(ip, 4, 2) == frame.len() as u64 - 54
    };
    let udp_len = number(frame.get(udp..udp + 8)?, 4, 2);
    (right && udp_len == (frame.len() - udp) as u64).then_some(udp + 8)
}

/// Whether `next` can be the frame `index` of the unit that `first` begins: the headers are the same but
/// for the number and the checksum of IPv4, and only the last is shorter (Windows, UDP Receive
/// Segment Coalescing Offload).
fn continues(first: &[u8], next: &[u8], index: u64) -> bool {
    let (Some(len), Some(same)) = (header_len(first), header_len(next)) else { return false };
    let v4 = len == 14 + 20 + 8;
    if len != same || next.len() > first.len() || next.len() == len {
        return false;
    }
    let (udp, number_at, lengths) = if v4 { (34, 18, 16..18) } else { (54, 0, 18..20) };
    // Lengths are every frame's own, and so are an IPv4 header's number and checksum.
    let differs = |at: usize| {
        let own = v4 && ((18..20).contains(&at) || (24..26).contains(&at));
        own || lengths.contains(&at) || (udp + 4..udp + 6).contains(&at)
    };
    let numbered = (number(first, number_at, 2) + index) & 0xffff;
    (0..len).filter(|&at| !differs(at)).all(|at| first[at] == next[at])
        && (!v4 || number(next, number_at, 2) == numbered)
}

fn plain(frame: &[u8]) -> Received<'_> {
    Received { frame, segments: None }
}

/// Units that an edge lends with one call: few, so that runs end, too.
const SIM_RUN: usize = 4;

/// An edge of the simulated network.
pub(crate) struct SimEdge {
    link: Link,
    port: Arc<Mutex<Port>>,
    buffers: [Vec<u8>; SIM_RUN],
    scratch: Vec<u8>,
    unit: Vec<u8>,
}

impl SimEdge {
    /// An edge with a port.
    pub(crate) fn new(link: Link, port: Arc<Mutex<Port>>) -> Self {
        let buffer = || vec![0; link.max_unit_len];
        let buffers = [(); SIM_RUN].map(|()| buffer());
        Self { link, port, buffers, scratch: buffer(), unit: Vec::new() }
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

    fn speed(&mut self) -> Option<u64> {
        lock(&self.port).speed
    }

    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, EdgeError> {
        let mut port = lock(&self.port);
        if port.fails[RECEIVING] {
            port.failed[RECEIVING] += 1;
            return Err(EdgeError::Os(EIO));
        }
        let mut taken = 0;
        while taken < budget && !port.inbox.is_empty() {
            if port.coalesces <= 1 {
                let frames = apart(|| port.next_run(budget - taken));
                let units = apart(|| frames.iter().map(|frame| plain(frame)).collect::<Vec<_>>());
                sink(&units);
                taken += units.len();
                apart(|| port.crossed.extend(frames.into_iter().map(Crossing::Taken)));
                continue;
            }
            let frames = apart(|| port.next_unit(&mut self.unit));
            match &frames[..] {
                [frame] => sink(&[plain(frame)]),
                frames => {
                    let header_len = header_len(&frames[0]).unwrap_or_default();
                    let segment_len = frames[0].len() - header_len;
                    let segments = Some(Segments { header_len, segment_len });
                    sink(&[Received { frame: &self.unit, segments }]);
                    port.coalesced += 1;
                }
            }
            apart(|| port.crossed.extend(frames.into_iter().map(Crossing::Taken)));
            taken += 1;
        }
        Ok(taken)
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    ) -> Result<usize, EdgeError> {
        let mut port = lock(&self.port);
        port.lacked = false;
        let fails = port.fails[SENDING];
        // What was taken before the error is lost.
        let budget = if fails { 1 } else { budget };
        let mut sent = 0;
        while sent < budget {
            let run = (budget - sent).min(port.room).min(SIM_RUN);
            if run == 0 {
                port.lacked = true;
                break;
            }
            let mut units = [Transmit::default(); SIM_RUN];
            let lent = self.buffers.each_mut().into_iter().zip(&mut units);
            let mut slots: Vec<Slot<'_>> =
                apart(|| lent.take(run).map(|(buffer, unit)| Slot { buffer, unit }).collect());
            let filled = fill(&mut slots);
            apart(|| drop(slots));
            port.room -= filled;
            for (buffer, unit) in self.buffers.iter().zip(units).take(filled) {
                for segment in split(&buffer[..unit.len], unit.segments) {
                    let len = segment.copy_to(&mut self.scratch);
                    let crossing = if fails { Crossing::Lost } else { Crossing::Sent };
                    apart(|| port.crossed.push(crossing(self.scratch[..len].to_vec())));
                }
            }
            sent += filled;
            if filled < run {
                break;
            }
        }
        if fails {
            port.failed[SENDING] += 1;
            return Err(EdgeError::Os(EIO));
        }
        Ok(sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 frame of a packet for QP 7 with its ICRC.
    fn frame(id: u16, payload: &[u8]) -> Vec<u8> {
        use rocev2::ids::Qpn;
        use rocev2::psn::Psn;
        use rocev2::wire::{Bth, Encap, Ext, Mac, Opcode, Template, UnitWriter};
        let encap = Encap {
            src_mac: Mac([2; 6]),
            dst_mac: Mac([4; 6]),
            vlan: None,
            src: [10, 0, 0, 1].into(),
            dst: [10, 0, 0, 2].into(),
            traffic_class: 2,
            hop_limit: 64,
            ip_id: id,
            flow_label: 0,
            src_port: 50_000,
        };
        let mut buf = vec![0; 400];
        let template = Template::new(&encap);
        let mut writer = UnitWriter::new(&mut buf, &template, encap.ip_id);
        let bth = Bth::new(Opcode::SendOnly, Qpn::new(7), Psn::new(1));
        let fill = |to: &mut [u8]| -> Result<(), ()> {
            to.copy_from_slice(payload);
            Ok(())
        };
        writer.push(&bth, &Ext::None, payload.len(), fill).unwrap();
        let len = writer.finish().len;
        buf.truncate(len);
        buf
    }

    fn units(coalesces: usize, frames: &[Vec<u8>]) -> Vec<usize> {
        let inbox = frames.iter().cloned().collect();
        let mut port = Port { inbox, coalesces, ..Port::default() };
        let mut unit = Vec::new();
        let mut counts = Vec::new();
        while !port.inbox.is_empty() {
            counts.push(port.next_unit(&mut unit).len());
        }
        counts
    }

    #[test]
    fn only_what_belongs_together_is_joined() {
        let [a, b, c] = [1, 2, 3].map(|id| frame(id, &[5; 64]));
        assert_eq!(units(8, &[a.clone(), b.clone(), c.clone()]), [3]);
        assert_eq!(units(2, &[a.clone(), b.clone(), c.clone()]), [2, 1]);
        assert_eq!(units(8, &[a.clone(), c.clone()]), [1, 1], "a number is missing");
        let mut damaged = b.clone();
        damaged[30] ^= 1;
        assert_eq!(units(8, &[a.clone(), damaged, c.clone()]), [1, 1, 1], "another sender");
        let mut damaged = b.clone();
        damaged[60] ^= 1;
        assert_eq!(units(8, &[a.clone(), damaged, c.clone()]), [3], "a NIC does not see it");
        let short = frame(2, &[5; 4]);
        assert_eq!(units(8, &[a, short, c]), [2, 1], "the shorter one is the last");
    }
}
