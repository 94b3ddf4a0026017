//! The offloads of a NIC: it divides units (USO), joins datagrams (URO) and checks checksums, and judges what it is asked for by
//! Microsoft's pages.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Nbl, Nic, nbl};
use crate::ndis::{Header, set_member};
use crate::ntos::Pointer;

/// What a NIC does beyond carrying frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offloads {
    pub uso: Option<Uso>,
    /// Joins datagrams of one flow whose identifications follow each other.
    pub joins: bool,
    /// Tells its verdict on the checksums of received frames.
    pub checks: bool,
    /// Merges segments of TCP (RSC) until it is told not to.
    pub merges: bool,
}

/// Segmentation of UDP, over both versions of IP.
#[derive(Clone, Copy, Debug)]
pub struct Uso {
    /// `MaxOffLoadSize`.
    pub max_len: u32,
    pub min_segments: u32,
    /// `SubMssFinalSegmentSupported`.
    pub short_last: bool,
    /// A tag may be beside a unit.
    pub tagged: bool,
}

/// How much went through the offloads.
#[derive(Debug, Default)]
pub struct Counts {
    /// Units that were divided, and the frames that they became.
    pub divided: [AtomicUsize; 2],
    /// Units that were made, and the datagrams in them.
    pub joined: [AtomicUsize; 2],
}

impl Counts {
    /// Units divided and made so far.
    pub fn units(&self) -> [usize; 2] {
        [&self.divided, &self.joined].map(|[units, _]| units.load(Ordering::Relaxed))
    }
}

fn count([units, frames]: &[AtomicUsize; 2], more: usize) {
    units.fetch_add(1, Ordering::Relaxed);
    frames.fetch_add(more, Ordering::Relaxed);
}

const ETHERNET: u32 = 2;
const ETHERNET_TAG_BESIDE: u32 = 8;
const UDP: u8 = 17;
const UDP_LEN: usize = 8;

impl Offloads {
    /// What every NIC does.
    pub const PLAIN: Self = Self { uso: None, joins: false, checks: false, merges: true };

    /// An `NDIS_OFFLOAD` of revision 6, which is never freed; NULL where there is nothing to tell.
    pub fn config(&self, merging: [bool; 2]) -> Pointer {
        if self.uso.is_none() && !self.merges {
            return std::ptr::null_mut();
        }
        let start = Box::leak(Box::new([0_u32; 0xD8 / 4])).as_mut_ptr().cast::<u8>();
        unsafe {
            set_member(start, 0, Header::new(0xA7, 6, 0xD8));
            set_member(start, 0x90, merging);
        }
        let Some(uso) = self.uso else { return start };
        let frames = ETHERNET | if uso.tagged { ETHERNET_TAG_BESIDE } else { 0 };
        unsafe {
            for ip in [0xBC, 0xC8] {
                set_member(start, ip, frames);
                set_member(start, ip + 4, uso.max_len);
                set_member(start, ip + 8, uso.min_segments | u32::from(uso.short_last) << 6);
            }
        }
        start
    }
}

impl Nic {
    /// What `NDIS_OFFLOAD_PARAMETERS` ask for: no change, off, on.
    pub(super) fn set_merging(&self, families: [u8; 2]) {
        let mut merging = self.merging.lock().unwrap();
        for (family, asked) in merging.iter_mut().zip(families) {
            match asked {
                0 => {}
                1 => *family = false,
                2 => *family = true,
                _ => breach!("OID_TCP_OFFLOAD_PARAMETERS asks for {families:?}"),
            }
        }
    }

    /// Whoever asked something of it has taken that back, if it answered.
    pub(super) fn expect_as_it_was(&self) {
        let (before, now) =
            ([self.offloads.lock().unwrap().merges; 2], *self.merging.lock().unwrap());
        let answers =
            self.powered.load(Ordering::SeqCst) && self.aborts.load(Ordering::SeqCst) == 0;
        if answers && !self.scaling.lock().unwrap().is_empty() {
            breach!("an unbind leaves the scaling of a NIC");
        }
        if answers && now != before {
            breach!("an unbind leaves a NIC that merges {now:?}, and merged {before:?} before");
        }
    }

    /// The frames that a sent list becomes: those in it, or the segments of a unit.
    pub(super) unsafe fn divide(&self, list: *mut Nbl) -> Vec<Vec<u8>> {
        let (frames, info) = (nbl::frames(list), (*list).info[nbl::USO]);
        if info == 0 {
            return frames;
        }
        let [unit] = &frames[..] else {
            breach!("a unit of {} net buffers", frames.len());
            return frames;
        };
        let (mss, udp) = (info & 0xF_FFFF, info >> 20 & 0x3FF);
        let tagged = (*list).info[nbl::VLAN] != 0;
        if let Err(why) = self.judge(unit, mss, udp, info >> 31 != 0, tagged) {
            breach!("a unit of {} bytes, MSS {mss}, UDP at {udp}: {why}", unit.len());
            return frames;
        }
        let (header, payload) = unit.split_at(udp + UDP_LEN);
        let segments: Vec<_> = payload
            .chunks(mss)
            .enumerate()
            .map(|(index, payload)| segment(header, index as u16, payload))
            .collect();
        count(&self.counts.divided, segments.len());
        segments
    }

    /// The rules of the page on UDP segmentation offload.
    fn judge(
        &self,
        unit: &[u8],
        mss: usize,
        udp: usize,
        v6: bool,
        tagged: bool,
    ) -> Result<(), String> {
        let Some(uso) = self.offloads.lock().unwrap().uso else {
            return Err("none is offered".into());
        };
        let rule = |holds: bool, rule: &str| if holds { Ok(()) } else { Err(rule.to_owned()) };
        rule(self.encapsulation.load(Ordering::SeqCst), "OID_OFFLOAD_ENCAPSULATION was not set")?;
        rule(!tagged || uso.tagged, "a tag beside it")?;
        rule(mss > 0 && unit.len() > udp + UDP_LEN, "no payload")?;
        let (ether_type, ip_len, protocol) =
            if v6 { ([0x86, 0xDD], 40, 20) } else { ([8, 0], 20, 23) };
        rule(unit[12..14] == ether_type, "the version of IP is another")?;
        rule(udp == 14 + ip_len && unit[protocol] == UDP, "no UDP header there")?;
        rule(v6 || unit[20] & 0x3F == 0 && unit[21] == 0, "a fragment")?;
        let payload = &unit[udp + UDP_LEN..];
        let whole = (UDP_LEN + payload.len()) as u16;
        rule(
            unit[udp + 4..udp + 6] == whole.to_be_bytes(),
            "the UDP length is not that of the whole",
        )?;
        rule(payload.len() <= uso.max_len as usize, "longer than MaxOffLoadSize")?;
        let least = mss * (uso.min_segments as usize - 1);
        rule(payload.len() > least && payload.len() > mss, "fewer segments than MinSegmentCount")?;
        rule(uso.short_last || payload.len().is_multiple_of(mss), "a short last segment")?;
        rule(ip_len + UDP_LEN + mss <= self.mtu as usize, "a segment exceeds the MTU")?;
        rule(unit[udp + 6..udp + 8] == [0, 0], "RoCE has no UDP checksum")
    }

    /// Received frames as the NIC shows them, each with the values beside it: coalescing and checksums.
    pub(super) fn show(&self, frames: &[(Vec<u8>, usize)]) -> Vec<Shown> {
        let Offloads { joins, checks, .. } = *self.offloads.lock().unwrap();
        let mut all: Vec<Shown> = Vec::new();
        for (frame, tag) in frames {
            if joins && all.last_mut().is_some_and(|last| last.join(frame, *tag)) {
                continue;
            }
            all.push(Shown::new(frame.clone(), *tag));
        }
        for shown in &mut all {
            if shown.count > 1 {
                count(&self.counts.joined, shown.count);
                shown.seal();
            } else if checks {
                shown.verdict = verdict(&shown.frame);
            }
        }
        all
    }
}

/// A received frame, or several that were joined, and the values beside it.
pub struct Shown {
    pub frame: Vec<u8>,
    pub tag: usize,
    pub verdict: usize,
    count: usize,
    /// Where its UDP header is.
    udp: Option<usize>,
    /// The payload of each but the last.
    len: usize,
    /// A shorter one has ended it.
    ended: bool,
}

impl Shown {
    fn new(frame: Vec<u8>, tag: usize) -> Self {
        let udp = udp_of(&frame);
        let len = udp.map_or(0, |udp| frame.len() - udp - UDP_LEN);
        Self { frame, tag, verdict: 0, count: 1, udp, len, ended: false }
    }

    /// The value beside it that tells of several.
    pub fn info(&self) -> usize {
        if self.count > 1 { self.count | self.len << 16 } else { 0 }
    }

    /// Appends a datagram, if it is of the same flow and the next.
    fn join(&mut self, frame: &[u8], tag: usize) -> bool {
        let (Some(udp), Some(other)) = (self.udp, udp_of(frame)) else { return false };
        let len = frame.len() - other - UDP_LEN;
        let room = self.frame.len() + len < 60_000;
        if self.ended || udp != other || tag != self.tag || len > self.len || len == 0 || !room {
            return false;
        }
        // All that the page wants equal; of a good NIC the identifications follow each other, too.
        let next = |frame: &[u8], by: u16| {
            let mut header = frame[..udp + UDP_LEN].to_vec();
            if header[12] == 8 {
                let id = u16::from_be_bytes([header[18], header[19]]).wrapping_add(by);
                header[18..20].copy_from_slice(&id.to_be_bytes());
                header[24..26].fill(0);
            }
            let lens = if header[12] == 8 { 16..18 } else { 18..20 };
            header[lens].fill(0);
            header[udp + 4..udp + 6].fill(0);
            header
        };
        if next(&self.frame, self.count as u16) != next(frame, 0)
            || frame[udp + 6..udp + 8] != [0, 0]
        {
            return false;
        }
        self.frame.extend_from_slice(&frame[udp + UDP_LEN..]);
        (self.count, self.ended) = (self.count + 1, len < self.len);
        true
    }

    /// The lengths of the whole, and no checksums: the page has them zero, and the verdict good.
    fn seal(&mut self) {
        let Some(udp) = self.udp else { return };
        let payload = self.frame.split_off(udp + UDP_LEN);
        self.frame = segment(&self.frame, 0, &payload);
        if self.frame[12] == 8 {
            self.frame[24..26].fill(0);
        }
        self.verdict = UDP_GOOD | IP_GOOD;
    }
}

const UDP_BAD: usize = 0x02;
const IP_BAD: usize = 0x04;
const UDP_GOOD: usize = 0x10;
const IP_GOOD: usize = 0x20;

/// The verdict of a strict NIC: over IPv6 there has to be a UDP checksum.
fn verdict(frame: &[u8]) -> usize {
    let Some(udp) = udp_of(frame) else { return 0 };
    let v4 = frame[12] == 8;
    let ip = if v4 && sum(&frame[14..34]) != 0xFFFF { IP_BAD } else { IP_GOOD };
    let addresses = if v4 { &frame[26..34] } else { &frame[22..54] };
    let datagram = &frame[udp..];
    let pseudo = [addresses, &[0, UDP], &datagram[4..6], datagram].concat();
    let has_none = datagram[6..8] == [0, 0];
    let good = if has_none { v4 } else { sum(&pseudo) == 0xFFFF };
    ip | if good { UDP_GOOD } else { UDP_BAD }
}

/// Where the UDP header of a whole datagram without options is.
fn udp_of(frame: &[u8]) -> Option<usize> {
    let (udp, protocol) = match frame.get(12..15)? {
        [8, 0, 0x45] => (34, 23),
        [0x86, 0xDD, _] => (54, 20),
        _ => return None,
    };
    let whole = frame.len() > udp + UDP_LEN && frame[protocol] == UDP;
    // Padding of a short frame is not payload.
    let len = || usize::from(u16::from_be_bytes([frame[udp + 4], frame[udp + 5]]));
    (whole && len() == frame.len() - udp).then_some(udp)
}

/// A datagram with headers like those: its lengths, its identification, and the checksum of its IPv4 header.
fn segment(header: &[u8], index: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [header, payload].concat();
    let (udp, len) = (header.len() - UDP_LEN, frame.len());
    if frame[12] == 8 {
        let id = u16::from_be_bytes([frame[18], frame[19]]).wrapping_add(index);
        frame[16..18].copy_from_slice(&((len - 14) as u16).to_be_bytes());
        frame[18..20].copy_from_slice(&id.to_be_bytes());
        frame[24..26].fill(0);
        let checksum = !sum(&frame[14..34]);
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    } else {
        frame[18..20].copy_from_slice(&((len - 54) as u16).to_be_bytes());
    }
    frame[udp + 4..udp + 6].copy_from_slice(&((len - udp) as u16).to_be_bytes());
    frame
}

/// The one's complement sum.
fn sum(bytes: &[u8]) -> u16 {
    let pair = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&byte| byte.into());
    let mut sum: u32 = bytes.chunks(2).map(pair).sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ethernet, IP and UDP before `len` bytes of payload; no UDP checksum.
    fn datagram(v6: bool, id: u16, len: usize) -> Vec<u8> {
        let mut header = vec![2; 12];
        if v6 {
            header.extend([0x86, 0xDD, 0x60, 0, 0, 0, 0, 0, UDP, 64]);
            header.extend([0xFD; 32]);
        } else {
            header.extend([8, 0, 0x45, 0, 0, 0]);
            header.extend(id.to_be_bytes());
            header.extend([0x40, 0, 64, UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        }
        header.extend([0xC0, 0, 0x12, 0xB7, 0, 0, 0, 0]);
        segment(&header, 0, &vec![7; len])
    }

    #[test]
    fn a_unit_that_breaks_a_rule_is_found() {
        let uso = Uso { max_len: 5000, min_segments: 3, short_last: false, tagged: false };
        let nic = Nic::plug_in_with(1500, Offloads { uso: Some(uso), ..Offloads::default() });
        let unit = datagram(false, 1, 3000);
        let good = || nic.judge(&unit, 1000, 34, false, false);
        assert!(good().is_err_and(|why| why.contains("OID_OFFLOAD_ENCAPSULATION")));
        nic.encapsulation.store(true, Ordering::SeqCst);
        assert_eq!(good(), Ok(()));
        assert_eq!(nic.judge(&datagram(true, 0, 3000), 1000, 54, true, false), Ok(()));
        let other = |at: usize| {
            let mut other = unit.clone();
            other[at] ^= 1;
            other
        };
        for (unit, mss, udp, tagged, rule) in [
            (&unit, 1000, 34, true, "tag"),
            (&unit, 0, 34, false, "payload"),
            (&unit, 1000, 33, false, "UDP header"),
            (&unit, 1500, 34, false, "MinSegmentCount"),
            (&unit, 999, 34, false, "short last"),
            (&datagram(false, 1, 6000), 1000, 34, false, "MaxOffLoadSize"),
            (&datagram(false, 1, 4500), 1500, 34, false, "MTU"),
            (&other(13), 1000, 34, false, "version"),
            (&other(21), 1000, 34, false, "fragment"),
            (&other(39), 1000, 34, false, "length"),
            (&other(41), 1000, 34, false, "checksum"),
        ] {
            let judged = nic.judge(unit, mss, udp, false, tagged);
            assert!(judged.as_ref().is_err_and(|why| why.contains(rule)), "{rule}: {judged:?}");
        }
    }

    #[test]
    fn datagrams_of_one_flow_are_joined_and_no_others() {
        for v6 in [false, true] {
            let nic = Nic::plug_in_with(1500, Offloads { joins: true, ..Offloads::default() });
            let mut frames: Vec<_> = [(1, 900), (2, 900), (3, 800), (4, 900), (5, 900)]
                .map(|(id, len)| (datagram(v6, id, len), 0))
                .into();
            // Another flow, and another tag.
            frames[4].0[34 + if v6 { 20 } else { 0 }] ^= 1;
            frames.push((datagram(v6, 6, 900), 3));
            let shown = nic.show(&frames);
            let told: Vec<_> =
                shown.iter().map(|shown| (shown.info(), shown.verdict, shown.tag)).collect();
            assert_eq!(
                told,
                [(3 | 900 << 16, UDP_GOOD | IP_GOOD, 0), (0, 0, 0), (0, 0, 0), (0, 0, 3)]
            );
            let udp = if v6 { 54 } else { 34 };
            assert_eq!(shown[0].frame.len(), udp + UDP_LEN + 2600);
            assert_eq!(shown[0].frame[udp + 4..udp + 6], (UDP_LEN as u16 + 2600).to_be_bytes());
        }
        let nic = Nic::plug_in_with(1500, Offloads { joins: true, ..Offloads::default() });
        let apart = [1, 3].map(|id| (datagram(false, id, 900), 0));
        assert_eq!(nic.show(&apart).len(), 2, "identifications that do not follow each other");
    }

    #[test]
    fn a_verdict_is_on_what_is_there() {
        assert_eq!(verdict(&datagram(false, 1, 100)), UDP_GOOD | IP_GOOD);
        assert_eq!(
            verdict(&datagram(true, 0, 100)),
            UDP_BAD | IP_GOOD,
            "RFC 8200 wants a checksum"
        );
        let mut damaged = datagram(false, 1, 100);
        damaged[24] ^= 1;
        damaged[41] = 9;
        assert_eq!(verdict(&damaged), UDP_BAD | IP_BAD);
        assert_eq!(verdict(&[0; 60]), 0, "no datagram");
    }
}
