//! A packet by offset, apart from the provider's own codec, and as strict as a provider may be held
//! to: what is reserved is zero, what is a length is exact, what is a checksum is right.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One RoCEv2 packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    /// The sender.
    pub(crate) src: IpAddr,
    /// The receiver.
    pub(crate) dst: IpAddr,
    /// BTH opcode.
    pub(crate) opcode: u8,
    /// Solicited event.
    pub(crate) solicited: bool,
    /// Destination QP.
    pub(crate) qpn: u32,
    /// Acknowledge request.
    pub(crate) ack_req: bool,
    /// Packet sequence number.
    pub(crate) psn: u32,
    /// Congestion marks and reserved bits, which may change under way.
    pub(crate) marks: u8,
    /// The network says that it is congested (RFC 3168: CE).
    pub(crate) congested: bool,
    /// Extended headers.
    pub(crate) ext: &'a [u8],
    /// Payload, without pad.
    pub(crate) payload: &'a [u8],
}

/// Bytes of an ACK behind the first of a list.
pub(crate) const LISTED_LEN: usize = 12;

impl<'a> Seen<'a> {
    /// The packets that it stands for: the ACKs of a list, and else itself.
    pub(crate) fn parts(self) -> impl Iterator<Item = Self> {
        let list = self.opcode == opcode::ACK_LIST;
        let (opcode, payload): (_, &[u8]) =
            if list { (opcode::ACKNOWLEDGE, &[]) } else { (self.opcode, self.payload) };
        let first = Self { opcode, payload, ..self };
        let others = if list { self.payload.as_chunks::<LISTED_LEN>().0 } else { &[] };
        let other = move |bytes: &'a [u8; LISTED_LEN]| {
            let (qpn, psn) = (number(bytes, 0, 4) as u32, number(bytes, 4, 4) as u32);
            Self { qpn, psn, ext: &bytes[8..], ..first }
        };
        std::iter::once(first).chain(others.iter().map(other))
    }
}

/// Operation classes of a reliable connection.
pub(crate) mod opcode {
    pub(crate) const READ_REQUEST: u8 = 0x0c;
    pub(crate) const READ_FIRST: u8 = 0x0d;
    pub(crate) const READ_LAST: u8 = 0x0f;
    pub(crate) const READ_ONLY: u8 = 0x10;
    pub(crate) const ACKNOWLEDGE: u8 = 0x11;
    pub(crate) const UD_SEND_ONLY: u8 = 0x64;
    pub(crate) const CNP: u8 = 0x81;
    pub(crate) const GAP_REPORT: u8 = 0xc0;
    pub(crate) const ACK_LIST: u8 = 0xc1;

    /// Starts a message.
    pub(crate) const fn opens(opcode: u8) -> bool {
        matches!(opcode, 0x00 | 0x04 | 0x05 | 0x06 | 0x0a | 0x0b | 0x0c | 0x17)
    }

    /// Ends a message.
    pub(crate) const fn ends(opcode: u8) -> bool {
        matches!(opcode, 0x02..=0x05 | 0x08..=0x0c | 0x16 | 0x17)
    }

    pub(crate) const fn is_send(opcode: u8) -> bool {
        matches!(opcode, 0x00..=0x05 | 0x16 | 0x17)
    }

    pub(crate) const fn is_write(opcode: u8) -> bool {
        matches!(opcode, 0x06..=0x0b)
    }

    pub(crate) const fn is_read_response(opcode: u8) -> bool {
        matches!(opcode, READ_FIRST..=READ_ONLY)
    }

    pub(crate) const fn is_response(opcode: u8) -> bool {
        matches!(opcode, 0x0d..=0x11 | GAP_REPORT | ACK_LIST)
    }
}

pub(crate) const fn ext_len(opcode: u8) -> Option<usize> {
    Some(match opcode {
        0x00..=0x02 | 0x04 | 0x07 | 0x08 | 0x0e | opcode::GAP_REPORT => 0,
        0x03 | 0x05 | 0x09 | 0x0d | 0x0f | 0x10 | 0x11 | 0x16 | 0x17 | opcode::ACK_LIST => 4,
        0x06 | 0x0a | 0x0c => 16,
        0x0b => 20,
        0x64 => 8,
        opcode::CNP => 16,
        _ => return None,
    })
}

/// What an RNR NAK with a timer code asks for, in ns (IBTA ch. 9, RNR NAK Timer Field).
pub(crate) const fn rnr_pause(code: u8) -> u64 {
    const HUNDREDTHS_OF_MS: [u64; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
        1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    HUNDREDTHS_OF_MS[code as usize] * 10_000
}

/// Big-endian bytes at `at`.
pub(crate) fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Takes a frame apart; `None` where it is not RoCEv2.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn look(frame: &[u8]) -> Option<Result<Seen<'_>, &'static str>> {
    // One tag, whose VLAN is not looked at.
    let at = if frame.get(12..14)? == [0x81, 0] { 16 } else { 12 };
    let ip = frame.get(at + 2..)?;
    let v4 = match number(frame, at, 2) {
        0x0800 => true,
        0x86dd => false,
        _ => return None,
    };
    let header = if v4 { 20 } else { 40 };
    let udp = ip.get(header..)?;
    let protocol = if v4 { ip[9] } else { ip[6] };
    if protocol != 17 || udp.len() < 8 || number(udp, 2, 2) != 4791 {
        return None;
    }
    Some(look_inside(ip, header, udp))
}

fn look_inside<'a>(ip: &[u8], header: usize, udp: &'a [u8]) -> Result<Seen<'a>, &'static str> {
    let v4 = header == 20;
    let (src, dst) = if v4 {
        if ip[0] != 0x45 || number(ip, 2, 2) != ip.len() as u64 || sum(&ip[..20]) != 0xffff {
            return Err("IPv4 header");
        }
        let address = |at| IpAddr::V4(Ipv4Addr::from_bits(number(ip, at, 4) as u32));
        (address(12), address(16))
    } else {
        if ip[0] >> 4 != 6 || number(ip, 4, 2) != udp.len() as u64 {
            return Err("IPv6 header");
        }
        let address = |at: usize| {
            let bytes: [u8; 16] = ip[at..at + 16].try_into().unwrap_or_default();
            IpAddr::V6(Ipv6Addr::from(bytes))
        };
        (address(8), address(24))
    };
    if number(udp, 4, 2) != udp.len() as u64 || udp.len() < 8 + 12 + 4 {
        return Err("UDP length");
    }
    // The ICRC is the check; a checksum that is there has to be right, and nobody needs one.
    if number(udp, 6, 2) != 0 {
        return Err("UDP checksum");
    }
    let (body, icrc) = udp[8..].split_at(udp.len() - 12);
    if icrc_of(ip, header, &udp[..udp.len() - 4]) != icrc {
        return Err("ICRC");
    }
    let ext_len = ext_len(body[0]).ok_or("opcode")?;
    let pad = usize::from(body[1] >> 4 & 3);
    if body[1] & 0x0f != 0 || number(body, 2, 2) != 0xffff || body[8] & 0x7f != 0 {
        return Err("BTH");
    }
    let rest = body.get(12 + ext_len..).ok_or("too short for its headers")?;
    let len = rest.len().checked_sub(pad).ok_or("pad longer than the payload")?;
    if !rest.len().is_multiple_of(4) || rest[len..].iter().any(|&byte| byte != 0) {
        return Err("pad");
    }
    Ok(Seen {
        src,
        dst,
        opcode: body[0],
        solicited: body[1] & 0x80 != 0,
        marks: body[4],
        congested: if v4 { ip[1] & 3 == 3 } else { ip[1] >> 4 & 3 == 3 },
        qpn: number(body, 5, 3) as u32,
        ack_req: body[8] & 0x80 != 0,
        psn: number(body, 9, 3) as u32,
        ext: &body[12..12 + ext_len],
        payload: &rest[..len],
    })
}

/// The one's complement sum of big-endian words: 0xffff over a good header.
pub(crate) fn sum(bytes: &[u8]) -> u32 {
    let sum: u32 = bytes.chunks(2).map(|pair| number(pair, 0, pair.len()) as u32).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) + (sum >> 16)
}

/// The invariant CRC: eight bytes of ones, then the packet with what may change under way set.
pub(crate) fn icrc_of(ip: &[u8], header: usize, udp: &[u8]) -> [u8; 4] {
    let mut covered = vec![0xff; 8];
    covered.extend_from_slice(&ip[..header]);
    covered.extend_from_slice(udp);
    let ones: &[usize] = if header == 20 { &[1, 8, 10, 11] } else { &[1, 2, 3, 7] };
    ones.iter().for_each(|at| covered[8 + at] = 0xff);
    if header == 40 {
        covered[8] |= 0x0f;
    }
    let udp = 8 + header;
    [6, 7, 8 + 4].iter().for_each(|at| covered[udp + at] = 0xff);
    crc32fast::hash(&covered).to_le_bytes()
}
