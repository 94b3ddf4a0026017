//! Goal: the ring owner finds each rule that a driver breaks, and no other.
//! Method: a driver that keeps the rules makes one call; a hand then changes the one thing that breaks one.

use netadapter_client::system::{Breach, Hand, Kind, RingOwner, Sizes, System};
use netadapter_client::{Client, resident::Resident};
use netadapter_glue::netadapter::NetAdapterConfig;
use netadapter_glue::netadapter::abi::{NET_FRAGMENT, NET_PACKET, NET_PACKET_LAYOUT};

const PACKETS: usize = 0;
const FRAGMENTS: usize = 1;
const CAPACITY: usize = 2048;

/// Three packets of two fragments each are the driver's. It sends the first.
fn send_one(also: impl FnOnce(&Hand)) -> Vec<Breach> {
    let mut owner = RingOwner::new(Kind::Transmit, Sizes::default());
    for nth in 0..3 {
        assert!(owner.give(&[nth; 100], 50, 6));
    }
    drive(&mut owner, |hand| {
        hand.set_begin(PACKETS, 1);
        hand.set_begin(FRAGMENTS, 2);
        also(hand);
    })
}

/// Eight buffers are the driver's. It fills two with the first packet, and one with the second.
fn receive_two(also: impl FnOnce(&Hand)) -> Vec<Breach> {
    let mut owner = RingOwner::new(Kind::Receive, Sizes::default());
    assert!(owner.give_buffers(8));
    drive(&mut owner, |hand| {
        for (index, first, count) in [(0, 0, 2), (1, 2, 1)] {
            for fragment in first..first + u32::from(count) {
                hand.poke(fragment, 0);
                hand.set_fragment(fragment, |old| old.with_data(60, 0));
            }
            hand.set_packet(index, |packet| {
                packet.FragmentIndex = first;
                packet.FragmentCount = count;
                packet.Layout = NET_PACKET_LAYOUT([14, 0, 0, 2, 0xf0]);
            });
        }
        hand.set_begin(PACKETS, 2);
        hand.set_begin(FRAGMENTS, 3);
        also(hand);
    })
}

fn drive(owner: &mut RingOwner, call: impl FnOnce(&Hand)) -> Vec<Breach> {
    let hand = owner.hand();
    owner.call(|| call(&hand));
    owner.breaches().to_vec()
}

type Deed = fn(&Hand);

#[test]
fn a_driver_that_keeps_the_rules_is_let_alone() {
    assert_eq!(send_one(|_| ()), []);
    assert_eq!(receive_two(|_| ()), []);
    let free = send_one(|hand| {
        hand.set_packet(1, |packet| packet.Flags |= NET_PACKET::SCRATCH);
        hand.set_fragment(3, |old| NET_FRAGMENT(old.0 | NET_FRAGMENT::SCRATCH));
        hand.set_member(PACKETS, NEXT_INDEX, 3);
        hand.set_member(FRAGMENTS, SCRATCH, 9);
    });
    assert_eq!(free, [], "what a driver may write of a packet to send");
    // A buffer that waits for data is the hardware's to write.
    assert_eq!(receive_two(|hand| hand.poke(7, 100)), []);
}

#[test]
fn each_breach_of_a_transmit_queue_is_found() {
    let deeds: &[(Breach, Deed)] = &[
        (Breach::RingMember, |hand| hand.set_member(PACKETS, END_INDEX, 2)),
        (Breach::RingMember, |hand| hand.set_member(FRAGMENTS, OS_RESERVED, 7)),
        (Breach::BeginIndex, |hand| hand.set_begin(PACKETS, 4)),
        (Breach::BeginIndex, |hand| hand.set_begin(PACKETS, 31)),
        (Breach::BeginIndex, |hand| hand.set_begin(FRAGMENTS, 1 << 20)),
        (Breach::SystemElement, |hand| hand.set_packet(9, |packet| packet.FragmentCount = 3)),
        (Breach::SystemElement, |hand| hand.set_fragment(63, |_| NET_FRAGMENT(1))),
        (Breach::TransmitPacket, |hand| {
            hand.set_packet(1, |packet| packet.Flags |= NET_PACKET::IGNORE);
        }),
        (Breach::TransmitPacket, |hand| hand.set_packet(0, |packet| packet.FragmentCount = 1)),
        (Breach::TransmitFragment, |hand| hand.set_fragment(2, |old| old.with_data(1, 0))),
        (Breach::TransmitFragment, |hand| {
            hand.set_fragment(0, |old| NET_FRAGMENT(old.0 | NET_FRAGMENT::BOUNCED));
        }),
        (Breach::TransmitFragmentsKept, |hand| hand.set_begin(FRAGMENTS, 1)),
        (Breach::TransmitFragmentsEarly, |hand| hand.set_begin(FRAGMENTS, 4)),
        (Breach::Payload, |hand| hand.poke(2, 10)),
        (Breach::Payload, |hand| hand.poke(2, -1)),
        (Breach::Payload, |hand| hand.poke(2, CAPACITY as isize)),
    ];
    for (nth, (breach, deed)) in deeds.iter().enumerate() {
        assert_eq!(send_one(deed), [*breach], "deed {nth}");
    }
}

#[test]
fn each_breach_of_a_receive_queue_is_found() {
    let deeds: &[(Breach, Deed)] = &[
        (Breach::RingMember, |hand| hand.set_member(FRAGMENTS, END_INDEX, 9)),
        (Breach::BeginIndex, |hand| hand.set_begin(FRAGMENTS, 9)),
        (Breach::SystemElement, |hand| hand.set_packet(20, |packet| packet.FragmentCount = 1)),
        (Breach::ReceiveIgnored, |hand| {
            hand.set_packet(0, |packet| packet.Flags |= NET_PACKET::IGNORE);
        }),
        (Breach::ReceiveReserved, |hand| hand.set_packet(5, |packet| packet.Flags |= 0x80)),
        (Breach::ReceiveReserved, |hand| hand.set_packet(1, |packet| packet.Layout.0[4] = 0)),
        (Breach::ReceivePacketUnfilled, |hand| {
            hand.set_packet(0, |packet| packet.FragmentCount = u16::MAX);
        }),
        (Breach::ReceivePacketUnfilled, |hand| {
            hand.set_packet(1, |packet| packet.Layout.0[3] |= 0xf0);
        }),
        (Breach::ReceiveFragmentCount, |hand| {
            hand.set_packet(1, |packet| packet.FragmentCount = 0);
        }),
        (Breach::ReceiveFragmentsOutside, |hand| {
            hand.set_packet(1, |packet| packet.FragmentIndex = 20);
        }),
        (Breach::ReceiveFragmentsOutside, |hand| {
            hand.set_packet(1, |packet| packet.FragmentCount = 8);
        }),
        (Breach::ReceiveFragmentsKept, |hand| hand.set_begin(FRAGMENTS, 2)),
        (Breach::ReceiveFragmentsAlone, |hand| hand.set_begin(PACKETS, 0)),
        (Breach::ReceiveFragmentsOverlap, |hand| {
            hand.set_packet(1, |packet| packet.FragmentIndex = 1);
        }),
        (Breach::ReceiveLayerType, |hand| hand.set_packet(1, |packet| packet.Layout.0[3] = 0x72)),
        (Breach::ReceiveHeaderLength, |hand| hand.set_packet(1, |packet| packet.Layout.0[0] = 13)),
        (Breach::ReceiveHeaderLength, |hand| {
            // A UDP header of 7 bytes.
            hand.set_packet(0, |packet| packet.Layout = NET_PACKET_LAYOUT([14, 0, 7, 2, 0xf2]));
        }),
        (Breach::ReceiveFragment, |hand| {
            hand.set_fragment(0, |_| NET_FRAGMENT::new(60, CAPACITY - 1, 0));
        }),
        (Breach::ReceiveFragmentUnfilled, |hand| {
            hand.set_fragment(2, |old| old.with_data(60, usize::MAX));
        }),
        (Breach::ReceiveFragmentLength, |hand| {
            hand.set_fragment(2, |old| old.with_data(CAPACITY, 1));
        }),
        (Breach::Payload, |hand| hand.poke(8, 0)),
        (Breach::Payload, |hand| hand.poke(0, -64)),
    ];
    for (nth, (breach, deed)) in deeds.iter().enumerate() {
        assert_eq!(receive_two(deed), [*breach], "deed {nth}");
    }
}

#[test]
fn a_queue_that_returns_nothing_when_it_is_cancelled_is_found() {
    let mut owner = RingOwner::new(Kind::Receive, Sizes::default());
    assert!(owner.give_buffers(8));
    owner.cancel(|| ());
    assert_eq!(owner.breaches(), [Breach::NotReturned]);
}

#[test]
fn a_notification_without_permission_is_found() {
    let mut system = System::plug(&CLIENT, [Sizes::default(); 2]);
    system.notify(Kind::Receive);
    assert_eq!(system.breaches(), [Breach::Unasked]);
    // The edge is gone, so a packet is complete at once, and nobody has to notify.
    let mut system = System::plug(&CLIENT, [Sizes::default(); 2]);
    assert!(system.send(&[1; 60], 60));
    system.settle();
    assert_eq!(system.breaches(), []);
}

static CLIENT: Client = Client {
    mac: [2, 0, 0, 0, 0, 1],
    edge: NetAdapterConfig { mac: [2, 0, 0, 0, 0, 2], mtu: 1500, depth: 8 },
    link_speed: 1_000_000_000,
    attach: |_, edge| {
        drop(edge);
        Box::new(()) as Box<dyn Resident>
    },
};

/// Members of `NET_RING`.
const OS_RESERVED: usize = 16;
const END_INDEX: usize = 12;
const NEXT_INDEX: usize = 52;
const SCRATCH: usize = 56;
