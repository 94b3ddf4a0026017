//! Frames by offset, apart from the crate's own idea of them.

pub(super) fn word(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

pub(super) fn l3(frame: &[u8]) -> usize {
    if word(frame, 12) == 0x8100 { 18 } else { 14 }
}

pub(super) fn l4(frame: &[u8]) -> usize {
    l3(frame) + if frame[l3(frame)] >> 4 == 4 { 20 } else { 40 }
}

pub(super) fn udp_len(frame: &[u8]) -> usize {
    usize::from(word(frame, l4(frame) + 4))
}

pub(super) fn stored_icrc(frame: &[u8]) -> [u8; 4] {
    *frame.last_chunk().unwrap()
}

/// The bits whose change shall be noticed: all that the ICRC covers, and itself.
pub(super) fn covered_mask(frame: &[u8]) -> Vec<u8> {
    let (ip, udp) = (l3(frame), l4(frame));
    let mut mask = vec![0xff; frame.len()];
    mask[..ip].fill(0);
    match frame[ip] >> 4 {
        4 => [1, 8, 10, 11].iter().for_each(|at| mask[ip + at] = 0),
        _ => {
            mask[ip] = 0xf0;
            [1, 2, 3, 7].iter().for_each(|at| mask[ip + at] = 0);
        }
    }
    mask[udp + 6..udp + 8].fill(0);
    mask[udp + 8 + 4] = 0;
    mask
}

/// The ICRC of a frame without padding: eight bytes of ones, then the packet, uncovered bits set.
pub(super) fn icrc(frame: &[u8]) -> [u8; 4] {
    let mask = covered_mask(frame);
    let mut covered = vec![0xff; 8];
    covered.extend((l3(frame)..frame.len() - 4).map(|at| frame[at] | !mask[at]));
    crc32fast::hash(&covered).to_le_bytes()
}

/// Makes lengths, IPv4 checksum and ICRC right for a frame without padding.
pub(super) fn seal(frame: &mut [u8]) {
    seal_lengths(frame);
    seal_icrc(frame);
}

pub(super) fn seal_lengths(frame: &mut [u8]) {
    let (ip, udp) = (l3(frame), l4(frame));
    let (ip_len, udp_len) = ((frame.len() - ip) as u16, (frame.len() - udp) as u16);
    let (at, len) = if frame[ip] >> 4 == 4 { (ip + 2, ip_len) } else { (ip + 4, udp_len) };
    frame[at..at + 2].copy_from_slice(&len.to_be_bytes());
    frame[udp + 4..udp + 6].copy_from_slice(&udp_len.to_be_bytes());
    seal_ip(frame);
}

pub(super) fn seal_ip(frame: &mut [u8]) {
    let ip = l3(frame);
    if frame[ip] >> 4 == 4 {
        frame[ip + 10..ip + 12].fill(0);
        let checksum = !ones_complement_sum(&frame[ip..ip + 20], 0);
        frame[ip + 10..ip + 12].copy_from_slice(&checksum.to_be_bytes());
    }
}

pub(super) fn seal_icrc(frame: &mut [u8]) {
    let icrc = icrc(frame);
    *frame.last_chunk_mut().unwrap() = icrc;
}

pub(super) fn udp_checksum(frame: &[u8]) -> u16 {
    let (ip, udp) = (l3(frame), l4(frame));
    let addresses = if frame[ip] >> 4 == 4 { ip + 12..ip + 20 } else { ip + 8..ip + 40 };
    let pseudo = ones_complement_sum(&frame[addresses], 17 + udp_len(frame) as u16);
    let mut segment = frame[udp..].to_vec();
    segment[6..8].fill(0);
    !ones_complement_sum(&segment, pseudo)
}

pub(super) fn ones_complement_sum(bytes: &[u8], start: u16) -> u16 {
    let words = bytes.chunks(2).map(|pair| match pair {
        [high, low] => u32::from_be_bytes([0, 0, *high, *low]),
        [high] => u32::from_be_bytes([0, 0, *high, 0]),
        _ => 0,
    });
    let mut sum = u32::from(start) + words.sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// What an edge without segmentation offload sends: each segment under its own headers.
pub(super) fn split(unit: &[u8], header_len: usize, segment_len: usize) -> Vec<Vec<u8>> {
    let (headers, segments) = unit.split_at(header_len);
    let id = |i: usize| word(headers, l3(headers) + 4).wrapping_add(i as u16);
    let segments = segments.chunks(segment_len).enumerate();
    segments
        .map(|(i, segment)| {
            let mut frame = [headers, segment].concat();
            let ip = l3(&frame);
            if frame[ip] >> 4 == 4 {
                frame[ip + 4..ip + 6].copy_from_slice(&id(i).to_be_bytes());
            }
            seal_lengths(&mut frame);
            frame
        })
        .collect()
}
