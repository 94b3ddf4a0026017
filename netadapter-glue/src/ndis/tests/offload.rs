//! Units that the NIC below divides, and those that it has joined.

use super::*;
use crate::segment::tests::unit;
use crate::segment::{patch, split};
use crate::{Segments, Transmit};
use abi::{
    TcpIpChecksumNetBufferListInfo, UdpRecvSegCoalesceOffloadInfo, UdpSegmentationOffloadInfo,
};
use units::Segmentation;

const FRAMES: usize = 8;
const ALL: Segmentation =
    Segmentation { max_len: 64_000, min_segments: 2, short_last: true, tagged: true };

fn edge_with_units() -> (NdisEdge, Arc<Port>, Fake) {
    let fake = Fake::default();
    let depths = (FRAMES, FRAMES);
    let config = NdisConfig {
        mac: [2; 6],
        mtu: MTU,
        receive_depth: depths.0,
        transmit_depth: depths.1,
        units: 2,
    };
    let (edge, port) = open(Box::new(fake.clone()), config, 0).unwrap();
    (edge, port, fake)
}

fn send(edge: &mut NdisEdge, bytes: &[u8], segments: Segments) {
    let mut unit = Some(Transmit { len: bytes.len(), segments: Some(segments) });
    let fill = |buffer: &mut [u8]| {
        let unit = unit.take()?;
        buffer[..bytes.len()].copy_from_slice(bytes);
        Some(unit)
    };
    assert_eq!(edge.transmit_each(1, fill).unwrap(), 1);
}

/// Sent lists: their bytes, and the segmentation beside them.
fn sent(fake: &Fake) -> Vec<(Vec<u8>, usize)> {
    let list = |(bytes, _, address): &(Vec<u8>, usize, usize)| {
        let nbl = core::ptr::with_exposed_provenance::<NET_BUFFER_LIST>(*address);
        // SAFETY: the edge's list, which is out.
        let info = unsafe { (*nbl).NetBufferListInfo[UdpSegmentationOffloadInfo] };
        (bytes.clone(), info.addr())
    };
    fake.0.lock().unwrap().sent.iter().map(list).collect()
}

fn frames_of(bytes: &[u8], segments: Segments) -> Vec<Vec<u8>> {
    let frame =
        |segment: crate::segment::Segment<'_>| [segment.header(), segment.payload()].concat();
    split(bytes, Some(segments)).map(frame).collect()
}

#[test]
fn an_offer_decides_how_much_a_buffer_takes() {
    let (mut edge, port, _fake) = edge_with_units();
    assert!(edge.link().max_segments > 1 && edge.link().max_unit_len > 8 * MTU);
    let lens = |edge: &mut NdisEdge| {
        let mut lens = Vec::new();
        let see = &mut |slots: &mut [Slot<'_>]| {
            lens.extend(slots.iter().map(|slot| slot.buffer.len()));
            0
        };
        edge.transmit(4, see).unwrap();
        lens
    };
    assert_eq!(lens(&mut edge), [MTU + 18; 4], "nothing is offered");
    port.offer(Offers { v4: Segmentation { max_len: 8000, ..ALL }, v6: Segmentation::default() });
    assert_eq!(lens(&mut edge), [8042, 8042, MTU + 18, MTU + 18], "units first");
    port.offer(Offers { v4: Segmentation { max_len: 1000, ..ALL }, v6: Segmentation::default() });
    assert_eq!(lens(&mut edge), [MTU + 18; 4], "less than a frame");
}

#[test]
fn a_unit_is_one_list_with_its_segments_beside_it() {
    for v6 in [false, true] {
        let (mut edge, port, fake) = edge_with_units();
        port.offer(Offers { v4: ALL, v6: ALL });
        let (bytes, segments) = unit(v6, 3500, 1000);
        send(&mut edge, &bytes, segments);
        let sent = sent(&fake);
        let [(whole, info)] = &sent[..] else { panic!("{} lists", sent.len()) };
        let udp = segments.header_len - 8;
        assert_eq!(*info, 1000 | udp << 20 | usize::from(v6) << 31);
        let mut wanted = bytes.clone();
        patch(&mut wanted[..segments.header_len], 0, 3500);
        assert_eq!(*whole, wanted, "the headers are those of one datagram");
        let Counters { sent, sent_bytes, .. } = port.counters();
        assert_eq!((sent, sent_bytes), (4, (3500 + 4 * segments.header_len) as u64));
        complete(&port, &fake);
        assert_eq!((edge.transmit_each(1, |_| None).unwrap(), edge.backlog()), (0, 0));
    }
}

#[test]
fn a_tag_goes_beside_a_unit_and_shifts_its_headers() {
    let (mut edge, port, fake) = edge_with_units();
    port.offer(Offers { v4: ALL, v6: ALL });
    let (bytes, segments) = unit(false, 2000, 1000);
    let mut tagged = bytes.clone();
    tagged.splice(12..12, [0x81, 0, 0x60, 5]);
    send(&mut edge, &tagged, Segments { header_len: segments.header_len + 4, ..segments });
    let mut wanted = bytes.clone();
    patch(&mut wanted[..segments.header_len], 0, 2000);
    assert_eq!(sent(&fake), [(wanted, 1000 | 34 << 20)]);
    complete(&port, &fake);
    // Where a NIC takes none beside a unit, it gets frames.
    port.offer(Offers { v4: Segmentation { tagged: false, ..ALL }, v6: ALL });
    send(&mut edge, &tagged, Segments { header_len: segments.header_len + 4, ..segments });
    let wanted = frames_of(&bytes, segments).into_iter().map(|frame| (frame, 0));
    assert_eq!(sent(&fake), wanted.collect::<Vec<_>>());
    complete(&port, &fake);
}

#[test]
fn the_rest_of_a_unit_leaves_as_frames() {
    let (bytes, segments) = unit(false, 3500, 1000);
    let frames = frames_of(&bytes, segments);
    for (offer, divided) in [
        (Segmentation { short_last: false, ..ALL }, 3),
        (Segmentation { min_segments: 5, ..ALL }, 0),
        (Segmentation { max_len: 3400, ..ALL }, 0),
    ] {
        let (mut edge, port, fake) = edge_with_units();
        // The other version's offer makes room.
        port.offer(Offers { v4: offer, v6: ALL });
        send(&mut edge, &bytes, segments);
        let mut sent = sent(&fake);
        if divided > 0 {
            assert_eq!(sent.remove(0).0[42..], bytes[42..42 + divided * 1000], "{offer:?}");
        }
        let rest: Vec<_> = frames[divided..].iter().map(|frame| (frame.clone(), 0)).collect();
        assert_eq!(sent, rest, "{offer:?}");
        assert_eq!(port.counters().sent, 4);
        complete(&port, &fake);
    }
}

#[test]
fn a_frame_without_a_buffer_is_given_up() {
    let (mut edge, port, fake) = edge_with_units();
    port.offer(Offers { v4: Segmentation { min_segments: 63, ..ALL }, v6: ALL });
    let (bytes, segments) = unit(false, 10_000, 1000);
    send(&mut edge, &bytes, segments);
    assert_eq!(sent(&fake).len(), FRAMES);
    assert_eq!(edge.drops().transmit, 10 - FRAMES as u64);
    complete(&port, &fake);
}

/// A coalesced list, as a NIC makes it: lengths of the whole, no checksums.
fn coalesced(bytes: &[u8], segments: Segments, info: usize, cuts: &[usize]) -> FakeList {
    let mut bytes = bytes.to_vec();
    let header_len = segments.header_len;
    let payload_len = bytes.len() - header_len;
    patch(&mut bytes[..header_len], 0, payload_len);
    if bytes[12..14] == [8, 0] {
        bytes[24..26].fill(0);
    }
    let mut list = FakeList::new(&bytes, cuts, 3);
    list.nbl.NetBufferListInfo[UdpRecvSegCoalesceOffloadInfo] =
        core::ptr::without_provenance_mut(info);
    list
}

#[test]
fn a_coalesced_unit_becomes_the_frames_that_came() {
    for (v6, cuts) in [(false, &[][..]), (true, &[]), (false, &[1, 13, 700]), (true, &[20, 30, 5])]
    {
        let (mut edge, port, _fake) = edge_with_units();
        let (bytes, segments) = unit(v6, 4400, 1000);
        let mut list = coalesced(&bytes, segments, 1000 << 16 | 5, cuts);
        // SAFETY: the list is valid for the call.
        assert_eq!(unsafe { port.receive(list.pointer(), None, true) }, Taken::Copied);
        drop(list);
        assert_eq!(receive_all(&mut edge), frames_of(&bytes, segments));
        assert_eq!((port.counters().received, port.counters().dropped), (5, 0));
    }
}

#[test]
fn a_tag_beside_a_coalesced_unit_goes_into_each_frame() {
    let (mut edge, port, _fake) = edge_with_units();
    let (bytes, segments) = unit(true, 1500, 1000);
    let mut list = coalesced(&bytes, segments, 1000 << 16 | 2, &[]);
    // SAFETY: the list is valid for the call.
    unsafe { port.receive(list.pointer(), Some(Tag::from_tci(0x6005)), true) };
    let mut wanted = frames_of(&bytes, segments);
    for frame in &mut wanted {
        frame.splice(12..12, [0x81, 0, 0x60, 5]);
    }
    assert_eq!(receive_all(&mut edge), wanted);
}

#[test]
fn a_unit_with_wrong_numbers_is_a_counted_drop() {
    let (mut edge, port, _fake) = edge_with_units();
    let (bytes, segments) = unit(false, 4400, 1000);
    let wrong = [1000 << 16 | 4, 1000 << 16 | 6, 1100 << 16 | 5, 5, 1000 << 16, 1];
    for info in wrong {
        let mut list = coalesced(&bytes, segments, info, &[]);
        // SAFETY: the list is valid for the call.
        let taken = unsafe { port.receive(list.pointer(), None, true) };
        assert_eq!(taken, Taken::Dropped, "{info:#x}");
    }
    assert_eq!(edge.drops().receive, wrong.len() as u64);
    assert_eq!(receive_all(&mut edge), Vec::<Vec<u8>>::new());
}

#[test]
fn datagrams_without_room_are_dropped_each_for_itself() {
    let (mut edge, port, _fake) = edge_with_units();
    let (bytes, segments) = unit(false, 10_000, 1000);
    let mut list = coalesced(&bytes, segments, 1000 << 16 | 10, &[]);
    // SAFETY: the list is valid for the call.
    assert_eq!(unsafe { port.receive(list.pointer(), None, true) }, Taken::Copied);
    assert_eq!(receive_all(&mut edge), frames_of(&bytes, segments)[..FRAMES]);
    assert_eq!(port.counters().dropped, 10 - FRAMES as u64);
}

#[test]
fn a_frame_that_the_nic_found_damaged_is_a_counted_drop() {
    let (mut edge, port, _fake) = edge_with_units();
    let (mut bytes, segments) = unit(false, 100, 100);
    bytes[segments.header_len - 1] = 7;
    // The bits of failures are 0 to 2, those of successes 3 to 5: TCP, UDP, IP.
    for (verdict, taken) in [
        (0, Taken::Lent),
        (0b11_0000, Taken::Lent),
        (0b00_0001, Taken::Lent),
        (0b10_0010, Taken::Dropped),
        (0b01_0100, Taken::Dropped),
    ] {
        let mut list = FakeList::new(&bytes, &[], 0);
        list.nbl.NetBufferListInfo[TcpIpChecksumNetBufferListInfo] =
            core::ptr::without_provenance_mut(verdict);
        // SAFETY: the list outlives its loan.
        assert_eq!(unsafe { port.receive(list.pointer(), None, true) }, taken, "{verdict:#b}");
        receive_all(&mut edge);
    }
    assert_eq!(edge.drops().receive, 2);
}
