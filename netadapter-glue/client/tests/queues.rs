//! Goal: the driver's packet queues carry every frame both ways, and break no rule of NetAdapterCx.
//! Method: the driver is loaded by a stand-in for the frameworks, its callbacks are called as Windows calls them, and
//! the ring owner judges each call. The test has the edge.

use netadapter_client::Client;
use netadapter_client::abi::NETADAPTER;
use netadapter_client::resident::{Neighbour, Resident};
use netadapter_client::system::{Breach, Sizes, System};
use netadapter_glue::netadapter::{NetAdapterConfig, NetAdapterEdge};
use netadapter_glue::{Edge as _, Transmit};
use proptest::prelude::*;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Wake, Waker};

static EDGES: LazyLock<Mutex<HashMap<NETADAPTER, NetAdapterEdge>>> = LazyLock::new(Mutex::default);

/// Frames that are on their way in each direction.
const DEPTH: usize = 6;
const MTU: usize = 4200;

static CLIENT: Client = Client {
    mac: [2, 0, 0, 0, 0, 1],
    edge: NetAdapterConfig { mac: [2, 0, 0, 0, 0, 2], mtu: MTU, depth: DEPTH },
    link_speed: 1_000_000_000,
    attach: |adapter, edge| {
        EDGES.lock().unwrap().insert(adapter, edge);
        Box::new(()) as Box<dyn Resident>
    },
};

/// A plugged-in adapter, and the edge at its other end.
fn plug(sizes: Sizes) -> (System, NetAdapterEdge) {
    let system = System::plug(&CLIENT, [sizes; 2]);
    let edge = EDGES.lock().unwrap().remove(&system.adapter()).expect("its edge");
    (system, edge)
}

/// Frame `number`, of at least four bytes.
fn frame(number: u32, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|at| (at as u32 * 7 + number * 13) as u8).collect();
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().unwrap())
}

fn take(edge: &mut NetAdapterEdge, budget: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    edge.receive_each(budget, |unit| frames.push(unit.frame.to_vec())).unwrap();
    frames
}

fn put(edge: &mut NetAdapterEdge, bytes: &[u8]) -> bool {
    let mut once = Some(bytes);
    let taken = edge.transmit_each(1, |buffer| {
        let bytes = once.take()?;
        buffer[..bytes.len()].copy_from_slice(bytes);
        Some(Transmit { len: bytes.len(), segments: None })
    });
    taken.unwrap() == 1
}

#[test]
fn frames_of_several_fragments_go_both_ways() {
    let (mut system, mut edge) = plug(Sizes { capacity: 512, ..Sizes::default() });
    system.give_buffers(64);
    for round in 0..100 {
        let bytes = frame(round, 60 + 37 * round as usize);
        assert!(system.send_ignored() && system.send(&bytes, 500));
        system.settle();
        assert_eq!(take(&mut edge, 9), [bytes]);
        let bytes = frame(round, 4000 - 31 * round as usize);
        assert!(put(&mut edge, &bytes));
        system.settle();
        assert_eq!(system.receive(), Some(bytes));
        system.give_buffers(64);
        system.settle();
    }
    assert_eq!(system.unplug(), []);
}

#[test]
fn a_packet_is_complete_when_the_poll_core_has_taken_its_frame() {
    let (mut system, mut edge) = plug(Sizes::default());
    for nth in 0..10 {
        assert!(system.send(&frame(nth, 100), 100));
    }
    system.settle();
    let [[packets, fragments], _] = system.outstanding();
    assert_eq!((packets, fragments), (10, 10), "nothing was taken");
    assert_eq!(take(&mut edge, 4).len(), 4);
    system.settle();
    assert_eq!(system.outstanding()[0], [6, 6]);
    // More packets wait than the wire has buffers: all arrive, in their order.
    let rest: Vec<u32> = std::iter::from_fn(|| {
        let frames = take(&mut edge, 3);
        system.settle();
        (!frames.is_empty()).then(|| frames.iter().map(|bytes| number(bytes)).collect::<Vec<_>>())
    })
    .flatten()
    .collect();
    assert_eq!(rest, Vec::from_iter(4..10));
    assert_eq!((system.outstanding()[0], system.unplug()), ([0; 2], vec![]));
}

#[test]
fn a_full_ring_holds_the_poll_core_up_and_loses_nothing() {
    let (mut system, mut edge) = plug(Sizes::default());
    let sent = (0..20).filter(|nth| put(&mut edge, &frame(*nth, 60))).count();
    assert_eq!(sent, DEPTH, "as many as the wire has buffers");
    system.settle();
    assert_eq!(system.receive(), None, "no buffer to receive into");
    system.give_buffers(2);
    system.settle();
    assert!(system.receive().is_some() && system.receive().is_some());
    assert_eq!((system.receive(), edge.backlog()), (None, DEPTH - 2));
    assert!(put(&mut edge, &frame(99, 60)));
    assert_eq!(system.unplug(), []);
}

#[test]
fn frames_that_no_ring_holds_are_dropped_and_counted() {
    // Three fragments of 64 bytes at most.
    let sizes = Sizes { packets: 4, fragments: 4, capacity: 64, others: 0 };
    let (mut system, mut edge) = plug(sizes);
    system.give_buffers(9);
    assert!(put(&mut edge, &frame(1, 193)) && put(&mut edge, &frame(2, 192)));
    system.settle();
    assert_eq!(system.receive(), Some(frame(2, 192)));
    let (mut long, mut others) = plug(Sizes { capacity: 8000, ..Sizes::default() });
    assert!(long.send(&frame(1, MTU + 19), 7000) && long.send(&frame(2, MTU + 18), 7000));
    long.settle();
    assert_eq!(take(&mut others, 9), [frame(2, MTU + 18)]);
    assert_eq!((edge.drops().transmit, others.drops().receive), (1, 1));
    long.settle();
    assert_eq!((system.unplug(), long.outstanding()[0], long.unplug()), (vec![], [0; 2], vec![]));
}

#[test]
fn a_lost_notification_would_be_found() {
    let (mut system, mut edge) = plug(Sizes::default());
    system.give_buffers(9);
    system.settle();
    assert!(put(&mut edge, &frame(1, 60)));
    system.lose_notifications();
    system.settle();
    assert_eq!(system.breaches(), [Breach::NotNotified]);
    // The same for a transmit queue.
    let (mut system, mut edge) = plug(Sizes::default());
    assert!(system.send(&frame(1, 60), 60));
    system.settle();
    assert_eq!(take(&mut edge, 9).len(), 1);
    system.lose_notifications();
    system.settle();
    assert_eq!(system.breaches(), [Breach::NotNotified]);
}

#[test]
fn the_wire_outlives_its_queues() {
    let (mut system, mut edge) = plug(Sizes::default());
    assert!(system.send(&frame(1, 60), 60));
    system.settle();
    assert!(put(&mut edge, &frame(2, 60)));
    system.power_cycle();
    // The frame on the wire arrives; its packet went back long ago.
    assert_eq!(take(&mut edge, 9), [frame(1, 60)]);
    assert!(system.send(&frame(3, 60), 60));
    system.give_buffers(9);
    system.settle();
    assert_eq!(system.receive(), Some(frame(2, 60)));
    assert_eq!(system.outstanding()[0], [1, 1], "the new packet is not complete by an old frame");
    assert_eq!(take(&mut edge, 9), [frame(3, 60)]);
    system.settle();
    assert_eq!((system.outstanding()[0], system.unplug()), ([0; 2], vec![]));
}

#[test]
fn without_a_poll_core_packets_are_complete_at_once() {
    let (mut system, edge) = plug(Sizes::default());
    assert!(system.send(&frame(1, 60), 60));
    system.settle();
    drop(edge);
    for nth in 2..20 {
        assert!(system.send(&frame(nth, 60), 60) && system.send_ignored());
        system.settle();
    }
    assert_eq!((system.outstanding()[0], system.unplug()), ([0; 2], vec![]));
}

#[derive(Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_poll_core_that_sleeps_is_woken_by_frames_and_by_buffers() {
    let (mut system, mut edge) = plug(Sizes::default());
    let wakes = Arc::new(Count::default());
    let count = || wakes.0.load(Ordering::Relaxed);
    edge.set_waker(&Waker::from(Arc::clone(&wakes)));
    edge.announce_sleep(true);
    assert!(system.send(&frame(1, 60), 60));
    system.settle();
    assert_eq!(count(), 1, "a frame");
    edge.announce_sleep(true);
    assert_eq!(count(), 2, "a frame that came before");
    edge.announce_sleep(false);
    take(&mut edge, 9);
    while put(&mut edge, &frame(2, 60)) {}
    edge.announce_sleep(true);
    assert_eq!(count(), 2, "no buffer is free");
    system.give_buffers(1);
    system.settle();
    assert_eq!((count(), system.unplug()), (3, vec![]));
}

#[test]
fn a_neighbour_behind_the_adapter_answers_arp_and_pings() {
    static NEIGHBOUR: Client = Client {
        attach: |_, edge| {
            let address: IpAddr = "10.0.0.2".parse().unwrap();
            Neighbour::new(edge, &[address]) as Box<dyn Resident>
        },
        ..CLIENT
    };
    let mut system = System::plug(&NEIGHBOUR, [Sizes::default(); 2]);
    system.give_buffers(20);
    let mut query = vec![0xff; 6];
    query.extend([2, 0, 0, 0, 0, 1, 0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1]);
    query.extend([2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
    query.resize(60, 0);
    assert!(system.send(&query, 30));
    system.settle();
    let answer = system.receive().expect("an answer");
    assert_eq!(answer[..6], [2, 0, 0, 0, 0, 1]);
    // An ARP reply: the address that was asked for, and where it is.
    assert_eq!(
        (&answer[20..22], &answer[22..32]),
        (&[0, 2][..], &[2, 0, 0, 0, 0, 2, 10, 0, 0, 2][..])
    );
    assert_eq!(system.unplug(), []);
}

#[derive(Clone, Debug)]
enum Step {
    Send { len: usize, piece: usize },
    SendIgnored,
    GiveBuffers(u32),
    Poll,
    Take(usize),
    Put { len: usize },
    Settle,
    PowerCycle,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (4usize..3000, 40usize..200).prop_map(|(len, piece)| Step::Send { len, piece }),
        1 => Just(Step::SendIgnored),
        4 => (1u32..20).prop_map(Step::GiveBuffers),
        8 => Just(Step::Poll),
        4 => (1usize..9).prop_map(Step::Take),
        6 => (4usize..1500).prop_map(|len| Step::Put { len }),
        2 => Just(Step::Settle),
        1 => Just(Step::PowerCycle),
    ]
}

/// Both ends, and the frames that are between them.
struct World {
    system: System,
    edge: NetAdapterEdge,
    down: VecDeque<Vec<u8>>,
    up: VecDeque<Vec<u8>>,
    count: u32,
    lost: usize,
}

impl World {
    /// The oldest expected frame that is not lost is the one that came. A power cycle may lose the packets that were not
    /// posted yet.
    fn came_down(&mut self, bytes: &[u8]) {
        while let Some(expected) = self.down.pop_front() {
            if expected == bytes {
                return;
            }
            self.lost += 1;
        }
        panic!("frame {} of {} bytes was not sent", number(bytes), bytes.len());
    }

    fn came_up(&mut self) {
        while let Some(bytes) = self.system.receive() {
            assert_eq!(Some(bytes), self.up.pop_front());
        }
    }

    /// Frames that have not arrived, and packets that have not come back.
    fn under_way(&mut self) -> usize {
        self.up.len() + self.down.len() + self.system.outstanding()[0][0] as usize
    }

    fn step(&mut self, step: &Step) {
        self.count += 1;
        match *step {
            Step::Send { len, piece } => {
                let bytes = frame(self.count, len);
                if self.system.send(&bytes, piece) {
                    self.down.push_back(bytes);
                }
            }
            Step::SendIgnored => {
                self.system.send_ignored();
            }
            Step::GiveBuffers(most) => {
                self.system.give_buffers(most);
            }
            Step::Poll => {
                self.system.poll();
            }
            Step::Take(budget) => {
                for bytes in take(&mut self.edge, budget) {
                    self.came_down(&bytes);
                }
            }
            Step::Put { len } => {
                let bytes = frame(self.count, len);
                if put(&mut self.edge, &bytes) {
                    self.up.push_back(bytes);
                }
            }
            Step::Settle => self.system.settle(),
            Step::PowerCycle => self.power_cycle(),
        }
        self.came_up();
    }

    /// Frames that the cancel indicates go with their queue.
    fn power_cycle(&mut self) {
        self.system.settle();
        self.came_up();
        let before = self.edge.backlog();
        self.system.power_cycle();
        for _ in self.edge.backlog()..before {
            self.up.pop_front();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every frame arrives whole, once and in order, whatever the order of the calls, and no call breaks a rule.
    #[test]
    fn no_schedule_breaks_a_rule(
        steps in proptest::collection::vec(step(), 1..120),
        packets in 2u32..6,
        fragments in 4u32..7,
    ) {
        let sizes = Sizes { packets: 1 << packets, fragments: 1 << fragments, capacity: 256, others: 16 };
        let (system, edge) = plug(sizes);
        let (down, up) = (VecDeque::new(), VecDeque::new());
        let mut world = World { system, edge, down, up, count: 0, lost: 0 };
        for step in &steps {
            world.step(step);
        }
        // Everything that is under way comes to its end. Frames of a queue that is gone may have to leave the wire before
        // a packet of the next one moves.
        while !(world.up.is_empty() && world.system.outstanding()[0] == [0; 2]) {
            let before = world.under_way();
            for step in [Step::GiveBuffers(8), Step::Settle, Step::Take(8), Step::Settle] {
                world.step(&step);
            }
            prop_assert!(world.under_way() < before, "nothing moves any more");
        }
        world.step(&Step::Take(DEPTH));
        let cycled = steps.iter().any(|step| matches!(step, Step::PowerCycle));
        let lost = world.down.len() + world.lost;
        prop_assert!(cycled || lost == 0, "{} frames were lost", lost);
        prop_assert_eq!(world.system.unplug(), vec![]);
    }
}
