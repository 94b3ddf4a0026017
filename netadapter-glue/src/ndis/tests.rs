//! The edge over net buffer lists that a test made.

mod offload;
mod ports;

use super::abi::{Ieee8021QNetBufferListInfo, MDL_SOURCE_IS_NONPAGED_POOL, NET_BUFFER};
use super::chain::{for_each, insert_tag, remove_tag};
use super::*;
use crate::Transmit;
use alloc::vec::Vec;
use chain::TAG_LEN;
use core::mem::zeroed;
use core::ptr::null_mut;
use proptest::prelude::*;
use std::sync::Mutex;

const MTU: usize = 1500;

/// A list with one frame, cut into the pieces of an MDL chain.
struct FakeList {
    nbl: Box<NET_BUFFER_LIST>,
    _nb: Box<NET_BUFFER>,
    _mdls: Vec<MDL>,
    _pieces: Vec<Vec<u8>>,
}

// SAFETY: the pointers inside are to boxes of its own.
unsafe impl Send for FakeList {}

impl FakeList {
    /// `cuts` are lengths of the leading pieces; `skip` bytes precede the frame in the first.
    fn new(frame: &[u8], cuts: &[usize], skip: usize) -> Self {
        let mut pieces = vec![vec![0xEE; skip]];
        let mut rest = frame;
        for &cut in cuts {
            let (piece, tail) = rest.split_at(cut.min(rest.len()));
            pieces.last_mut().unwrap().extend(piece);
            pieces.push(Vec::new());
            rest = tail;
        }
        pieces.last_mut().unwrap().extend(rest);
        let mut mdls: Vec<MDL> = pieces.iter_mut().map(|piece| mdl(piece)).collect();
        for index in 1..mdls.len() {
            mdls[index - 1].Next = &raw mut mdls[index];
        }
        // SAFETY: all zero is an empty net buffer.
        let mut nb: Box<NET_BUFFER> = Box::new(unsafe { zeroed() });
        nb.MdlChain = mdls.as_mut_ptr();
        nb.CurrentMdl = nb.MdlChain;
        nb.DataOffset = skip as u32;
        nb.CurrentMdlOffset = skip as u32;
        nb.DataLength = frame.len();
        // SAFETY: all zero is an empty list.
        let mut nbl: Box<NET_BUFFER_LIST> = Box::new(unsafe { zeroed() });
        nbl.FirstNetBuffer = &raw mut *nb;
        Self { nbl, _nb: nb, _mdls: mdls, _pieces: pieces }
    }

    fn pointer(&mut self) -> *mut NET_BUFFER_LIST {
        &raw mut *self.nbl
    }
}

fn mdl(piece: &mut [u8]) -> MDL {
    let address = piece.as_mut_ptr().cast();
    MDL {
        Next: null_mut(),
        Size: 0x30,
        MdlFlags: MDL_SOURCE_IS_NONPAGED_POOL,
        Process: null_mut(),
        MappedSystemVa: address,
        StartVa: address,
        ByteCount: piece.len() as u32,
        ByteOffset: 0,
    }
}

#[derive(Default)]
struct Wire {
    sent: Vec<(Vec<u8>, usize, usize)>,
    given_back: Vec<usize>,
    freed: usize,
    speed: Option<u64>,
}

/// Keeps sent lists until the test completes them.
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<Wire>>);

impl Lower for Fake {
    fn allocate(&self, bytes: *mut u8, len: usize) -> *mut NET_BUFFER_LIST {
        // SAFETY: all zero is an empty MDL.
        let mdl: MDL = MDL {
            MdlFlags: MDL_SOURCE_IS_NONPAGED_POOL,
            MappedSystemVa: bytes.cast(),
            StartVa: bytes.cast(),
            ByteCount: len as u32,
            ..unsafe { zeroed() }
        };
        // SAFETY: all zero is an empty net buffer.
        let mut nb: NET_BUFFER = unsafe { zeroed() };
        nb.MdlChain = Box::into_raw(Box::new(mdl));
        // SAFETY: all zero is an empty list.
        let mut nbl: NET_BUFFER_LIST = unsafe { zeroed() };
        nbl.FirstNetBuffer = Box::into_raw(Box::new(nb));
        Box::into_raw(Box::new(nbl))
    }

    fn free(&self, nbl: *mut NET_BUFFER_LIST) {
        // SAFETY: from `allocate`.
        let nbl = unsafe { Box::from_raw(nbl) };
        // SAFETY: as above.
        let nb = unsafe { Box::from_raw(nbl.FirstNetBuffer) };
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(nb.MdlChain) });
        self.0.lock().unwrap().freed += 1;
    }

    fn speed(&self) -> Option<u64> {
        self.0.lock().unwrap().speed
    }

    fn send(&self, head: *mut NET_BUFFER_LIST, count: u32) {
        let mut wire = self.0.lock().unwrap();
        let before = wire.sent.len();
        let each = |nbl: *mut NET_BUFFER_LIST| {
            // SAFETY: a list of the edge.
            let nb = unsafe { (*nbl).FirstNetBuffer };
            // SAFETY: as above.
            let frame = unsafe { Frame::of(nb) };
            let mut bytes = vec![0; frame.len()];
            // SAFETY: as above.
            assert_eq!(unsafe { frame.copy_to(&mut bytes, &|_| null_mut()) }, frame.len());
            // SAFETY: as above.
            let info = unsafe { (*nbl).NetBufferListInfo[Ieee8021QNetBufferListInfo] }.addr();
            wire.sent.push((bytes, info, nbl.expose_provenance()));
        };
        // SAFETY: the edge's chain.
        unsafe { for_each(head, each) };
        assert_eq!(wire.sent.len() - before, count as usize);
    }

    fn give_back(&self, head: *mut NET_BUFFER_LIST, count: u32) {
        let mut wire = self.0.lock().unwrap();
        let before = wire.given_back.len();
        // SAFETY: lists of the test.
        unsafe { for_each(head, |nbl| wire.given_back.push(nbl.addr())) };
        assert_eq!(wire.given_back.len() - before, count as usize);
    }

    fn map(&self, _mdl: *mut MDL) -> *mut u8 {
        null_mut()
    }
}

fn edge(depth: usize) -> (NdisEdge, Arc<Port>, Fake) {
    let fake = Fake::default();
    let config =
        NdisConfig { mac: [2; 6], mtu: MTU, receive_depth: depth, transmit_depth: depth, units: 0 };
    let (edge, port) = open(Box::new(fake.clone()), config, 0).unwrap();
    (edge, port, fake)
}

fn receive_all(edge: &mut NdisEdge) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    edge.receive_each(64, |unit| frames.push(unit.frame.to_vec())).unwrap();
    frames
}

fn complete(port: &Port, fake: &Fake) {
    let sent = core::mem::take(&mut fake.0.lock().unwrap().sent);
    for (.., nbl) in sent {
        // SAFETY: the edge's list.
        unsafe { port.sent(core::ptr::with_exposed_provenance_mut(nbl)) };
    }
}

#[test]
fn one_piece_is_lent_and_given_back_once_read() {
    let (mut edge, port, fake) = edge(4);
    let mut list = FakeList::new(&[7; 100], &[], 10);
    // SAFETY: the list outlives its loan.
    assert_eq!(unsafe { port.receive(list.pointer(), None, true) }, Taken::Lent);
    assert!(fake.0.lock().unwrap().given_back.is_empty());
    assert_eq!(receive_all(&mut edge), [vec![7; 100]]);
    assert_eq!(fake.0.lock().unwrap().given_back, [list.pointer().addr()]);
}

#[test]
fn the_speed_is_that_of_the_nic_below() {
    let (mut edge, _port, fake) = edge(1);
    for speed in [None, Some(25_000_000_000), Some(1_000_000_000)] {
        fake.0.lock().unwrap().speed = speed;
        assert_eq!(edge.speed(), speed);
    }
}

#[test]
fn without_leave_to_keep_it_a_frame_is_copied() {
    let (mut edge, port, fake) = edge(4);
    let mut list = FakeList::new(&[7; 100], &[], 0);
    // SAFETY: the list is valid for the call.
    assert_eq!(unsafe { port.receive(list.pointer(), None, false) }, Taken::Copied);
    drop(list);
    assert_eq!(receive_all(&mut edge), [vec![7; 100]]);
    assert!(fake.0.lock().unwrap().given_back.is_empty());
}

#[test]
fn a_tag_beside_the_frame_is_put_into_the_copy() {
    let (mut edge, port, _fake) = edge(4);
    let mut list = FakeList::new(&(0..60).collect::<Vec<u8>>(), &[], 0);
    // SAFETY: the list is valid.
    unsafe { chain::put_beside(list.pointer(), Some(Tag::from_tci(0x6005))) };
    // SAFETY: as above.
    let tag = unsafe { Tag::beside(list.pointer()) };
    // SAFETY: as above.
    assert_eq!(unsafe { port.receive(list.pointer(), tag, true) }, Taken::Copied);
    let frame = receive_all(&mut edge).remove(0);
    assert_eq!(frame[..18], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0x81, 0, 0x60, 5, 12, 13]);
    assert_eq!(frame.len(), 64);
}

#[test]
fn a_tag_in_a_sent_frame_travels_beside_it() {
    let (mut edge, port, fake) = edge(2);
    let frame = |buffer: &mut [u8]| {
        buffer[..16].copy_from_slice(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0x81, 0, 0x60, 5]);
        Some(Transmit { len: 16, segments: None })
    };
    assert_eq!(edge.transmit_each(1, frame).unwrap(), 1);
    let (bytes, info, _) = fake.0.lock().unwrap().sent[0].clone();
    assert_eq!(bytes, (0..12).collect::<Vec<u8>>());
    assert_eq!(Tag::from_info(info), Some(Tag::from_tci(0x6005)));
    complete(&port, &fake);
}

/// The out-of-band values that a driver below leaves beside a sent list would make the next NIC alter the
/// frame.
#[test]
fn nothing_beside_a_frame_is_sent_again() {
    let (mut edge, port, fake) = edge(1);
    let mut fill = |_: &mut [u8]| Some(Transmit { len: 60, segments: None });
    assert_eq!(edge.transmit_each(1, &mut fill).unwrap(), 1);
    let list = || {
        let address = fake.0.lock().unwrap().sent[0].2;
        // SAFETY: the edge's list, which the test has for now.
        unsafe { &mut *core::ptr::with_exposed_provenance_mut::<NET_BUFFER_LIST>(address) }
    };
    let left = list();
    left.NetBufferListInfo.fill(core::ptr::without_provenance_mut(0x55));
    (left.NblFlags, left.Status) = (1, -1);
    complete(&port, &fake);
    assert_eq!(edge.transmit_each(1, &mut fill).unwrap(), 1);
    let sent = list();
    assert!(sent.NetBufferListInfo.iter().all(|info| info.is_null()));
    assert_eq!((sent.NblFlags, sent.Status), (0, 0));
    complete(&port, &fake);
}

#[test]
fn buffers_that_are_out_are_not_filled_again() {
    let (mut edge, port, fake) = edge(2);
    let mut fill = |buffer: &mut [u8]| {
        buffer.fill(1);
        Some(Transmit { len: 60, segments: None })
    };
    assert_eq!(edge.transmit_each(8, &mut fill).unwrap(), 2);
    assert_eq!((edge.transmit_each(8, &mut fill).unwrap(), edge.backlog()), (0, 2));
    complete(&port, &fake);
    assert_eq!((edge.transmit_each(8, &mut fill).unwrap(), edge.backlog()), (2, 2));
    complete(&port, &fake);
    drop(edge);
    assert_eq!(fake.0.lock().unwrap().freed, 2);
}

#[test]
fn a_full_ring_drops_and_counts() {
    let (mut edge, port, fake) = edge(2);
    let mut lists: Vec<FakeList> = (0..3).map(|_| FakeList::new(&[1; 60], &[], 0)).collect();
    let taken: Vec<Taken> =
        // SAFETY: the lists outlive their loans.
        lists.iter_mut().map(|list| unsafe { port.receive(list.pointer(), None, true) }).collect();
    assert_eq!(taken, [Taken::Lent, Taken::Lent, Taken::Dropped]);
    let counters = port.counters();
    assert_eq!((counters.received, counters.dropped), (2, 1));
    port.drain();
    assert_eq!(fake.0.lock().unwrap().given_back.len(), 2);
    assert!(receive_all(&mut edge).is_empty());
}

#[test]
fn a_frame_longer_than_a_buffer_is_dropped() {
    let (mut edge, port, _fake) = edge(2);
    let mut list = FakeList::new(&[1; MTU + 100], &[500], 0);
    // SAFETY: the list is valid for the call.
    assert_eq!(unsafe { port.receive(list.pointer(), None, true) }, Taken::Dropped);
    assert!(receive_all(&mut edge).is_empty());
}

#[test]
fn a_sleeper_is_woken_by_a_frame_and_a_starved_one_by_a_buffer() {
    use std::task::Wake;
    #[derive(Default)]
    struct Count(std::sync::atomic::AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (mut edge, port, fake) = edge(1);
    let count = Arc::new(Count::default());
    edge.set_waker(&Waker::from(Arc::clone(&count)));
    let wakes = || count.0.load(Ordering::Relaxed);
    let mut list = FakeList::new(&[1; 60], &[], 0);
    // SAFETY: the list outlives the loan.
    unsafe { port.receive(list.pointer(), None, true) };
    assert_eq!(wakes(), 0);
    edge.announce_sleep(true);
    assert_eq!(wakes(), 1);
    edge.announce_sleep(false);
    receive_all(&mut edge);
    edge.announce_sleep(true);
    // SAFETY: as above.
    unsafe { port.receive(list.pointer(), None, true) };
    assert_eq!(wakes(), 2);
    receive_all(&mut edge);
    let mut fill = |_: &mut [u8]| Some(Transmit { len: 60, segments: None });
    edge.transmit_each(2, &mut fill).unwrap();
    edge.announce_sleep(true);
    complete(&port, &fake);
    assert_eq!(wakes(), 3);
}

proptest! {
    /// However a frame is cut into MDLs, the same bytes come out.
    #[test]
    fn cuts_do_not_matter(
        frame in proptest::collection::vec(any::<u8>(), 14..MTU),
        cuts in proptest::collection::vec(0usize..400, 0..6),
        skip in 0usize..40,
        keep in any::<bool>(),
    ) {
        let (mut edge, port, _fake) = edge(2);
        let mut list = FakeList::new(&frame, &cuts, skip);
        // SAFETY: the list outlives the loan.
        let taken = unsafe { port.receive(list.pointer(), None, keep) };
        prop_assert!(taken != Taken::Dropped);
        prop_assert_eq!(receive_all(&mut edge), [frame]);
    }

    /// A tag survives the way beside the frame and into it again.
    #[test]
    fn tags_survive(tci in 1u16.., frame in proptest::collection::vec(any::<u8>(), 12..100)) {
        let tag = Tag::from_tci(tci);
        prop_assert_eq!(Tag::from_info(tag.to_info()), Some(tag));
        let mut buffer = frame.clone();
        buffer.resize(frame.len() + TAG_LEN, 0);
        let len = insert_tag(&mut buffer, frame.len(), tag).unwrap();
        prop_assert_eq!(remove_tag(&mut buffer[..len]), Some(tag));
        prop_assert_eq!(&buffer[TAG_LEN..len], &frame[..]);
    }
}

/// Goal: a NIC that refuses each frame holds up nothing, and what it refused is told from what only failed.
#[test]
fn refused_frames_are_given_up_and_counted() {
    let (mut edge, port, fake) = edge(4);
    let mut send = |status: i32| {
        edge.transmit_each(4, |buffer| {
            buffer[..60].fill(1);
            Some(Transmit { len: 60, segments: None })
        })
        .unwrap();
        let sent = core::mem::take(&mut fake.0.lock().unwrap().sent);
        assert_eq!(sent.len(), 4, "each buffer is back");
        let refused = sent.into_iter().filter(|(.., nbl)| {
            let nbl: *mut NET_BUFFER_LIST = core::ptr::with_exposed_provenance_mut(*nbl);
            // SAFETY: the edge's list, which the NIC has.
            unsafe { (*nbl).Status = status };
            // SAFETY: as above.
            unsafe { port.sent(nbl) }
        });
        (refused.count(), edge.drops().transmit, edge.drops().refused)
    };
    const FAILURE: u32 = 0xC000_0001;
    const INVALID_LENGTH: u32 = 0xC001_0014;
    const PAUSED: u32 = 0xC023_002A;
    const RESOURCES: u32 = 0xC000_009A;
    for (status, wanted) in [
        (FAILURE, (4, 4, 4)),
        (INVALID_LENGTH, (4, 8, 8)),
        (PAUSED, (0, 12, 8)),
        (RESOURCES, (0, 16, 8)),
        (status::MEDIA_DISCONNECTED as u32, (0, 20, 8)),
        (0, (0, 20, 8)),
        // `STATUS_PENDING` and warnings are no failures.
        (0x103, (0, 20, 8)),
    ] {
        assert_eq!(send(status as i32), wanted, "{status:#x}");
    }
}
