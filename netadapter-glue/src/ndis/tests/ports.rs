//! The edges of several poll cores over one NIC.

use super::*;
use crate::ndis::units::Segmentation;

const CORES: usize = 3;
const CONFIG: NdisConfig =
    NdisConfig { mac: [2; 6], mtu: MTU, receive_depth: 2, transmit_depth: 1, units: 1 };

fn edges() -> (Vec<NdisEdge>, Arc<Ports>, Fake) {
    let fake = Fake::default();
    let (edges, ports) =
        open_several(CORES, &|| Box::new(fake.clone()) as Box<dyn Lower>, CONFIG).unwrap();
    assert_eq!((edges.len(), ports.cores()), (CORES, CORES));
    (edges, ports, fake)
}

#[test]
fn each_core_gets_the_frames_of_its_port() {
    let (mut edges, ports, _fake) = edges();
    let mut lists = [0, 1, 2].map(|core| FakeList::new(&[core; 60], &[], 0));
    for (core, list) in lists.iter_mut().enumerate() {
        // SAFETY: the list outlives the loan.
        let taken = unsafe { ports.of(core).receive(list.pointer(), None, true) };
        assert_eq!(taken, Taken::Lent);
    }
    for (core, edge) in (0..).zip(&mut edges) {
        assert_eq!(receive_all(edge), [vec![core; 60]]);
    }
    let counters = ports.counters();
    assert_eq!((counters.received, counters.received_bytes), (3, 180));
}

#[test]
fn a_core_that_falls_behind_costs_no_other_a_frame() {
    let (mut edges, ports, _fake) = edges();
    let mut list = FakeList::new(&[7; 60], &[], 0);
    for taken in [Taken::Copied, Taken::Copied, Taken::Dropped] {
        // SAFETY: the list is valid.
        assert_eq!(unsafe { ports.of(1).receive(list.pointer(), None, false) }, taken);
    }
    // SAFETY: as above.
    assert_eq!(unsafe { ports.of(2).receive(list.pointer(), None, false) }, Taken::Copied);
    assert_eq!(edges.iter().map(|edge| edge.drops().receive).collect::<Vec<_>>(), [0, 1, 0]);
    assert_eq!(receive_all(&mut edges[2]), [vec![7; 60]]);
    assert_eq!(ports.counters().dropped, 1);
}

/// NDIS names no core when it gives lists back.
#[test]
fn a_buffer_comes_back_to_the_core_that_sent_it() {
    let (mut edges, ports, fake) = edges();
    let send = |edge: &mut NdisEdge| {
        edge.transmit_each(2, |_| Some(Transmit { len: 60, segments: None })).unwrap()
    };
    for edge in &mut edges {
        assert_eq!(send(edge), 1, "its only buffer for frames");
        assert_eq!((send(edge), edge.backlog()), (0, 1));
    }
    let mut sent: Vec<_> = fake.0.lock().unwrap().sent.drain(..).map(|(.., nbl)| nbl).collect();
    for core in [2, 0, 1] {
        let nbl = core::mem::take(&mut sent[core]);
        // SAFETY: the list of that edge.
        unsafe { ports.sent(core::ptr::with_exposed_provenance_mut(nbl)) };
        let backlogs: Vec<_> = edges.iter().map(Edge::backlog).collect();
        let expected: Vec<_> = sent.iter().map(|nbl| usize::from(*nbl != 0)).collect();
        assert_eq!(backlogs, expected);
    }
    assert_eq!(ports.counters().sent, 3);
    drop(edges);
    assert_eq!(fake.0.lock().unwrap().freed, 2 * CORES);
}

#[test]
fn an_offer_is_one_to_every_core() {
    let (mut edges, ports, _fake) = edges();
    let v4 = Segmentation { max_len: 64_000, min_segments: 2, short_last: true, tagged: true };
    ports.offer(Offers { v4, v6: v4 });
    for edge in &mut edges {
        let mut room = 0;
        edge.transmit_each(1, |buffer| {
            room = buffer.len();
            None
        })
        .unwrap();
        assert_eq!(room, UNIT_MAX_LEN);
    }
}

/// The lists of the edges that were made before are freed.
#[test]
fn edges_that_are_refused_lists_are_none() {
    struct Poor(Fake, Arc<core::sync::atomic::AtomicUsize>);
    impl Lower for Poor {
        fn allocate(&self, bytes: *mut u8, len: usize) -> *mut NET_BUFFER_LIST {
            let is_last = self.1.fetch_add(1, Ordering::Relaxed) == 2 * CORES - 1;
            if is_last { null_mut() } else { self.0.allocate(bytes, len) }
        }
        fn free(&self, nbl: *mut NET_BUFFER_LIST) {
            self.0.free(nbl);
        }
        fn send(&self, _head: *mut NET_BUFFER_LIST, _count: u32) {}
        fn give_back(&self, _head: *mut NET_BUFFER_LIST, _count: u32) {}
        fn speed(&self) -> Option<u64> {
            None
        }
        fn map(&self, _mdl: *mut MDL) -> *mut u8 {
            null_mut()
        }
    }
    let (fake, asked) = (Fake::default(), Arc::default());
    let lower = || Box::new(Poor(fake.clone(), Arc::clone(&asked))) as Box<dyn Lower>;
    assert!(open_several(CORES, &lower, CONFIG).is_none());
    assert_eq!(fake.0.lock().unwrap().freed, 2 * CORES - 1);
}
