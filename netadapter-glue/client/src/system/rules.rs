//! The rules of the rings, as checks of two images: before and after a call.
//!
//! They are those of [element management](https://learn.microsoft.com/windows-hardware/drivers/netcx/net-ring-element-management),
//! with which NetAdapterCx itself agrees under Driver Verifier, where its
//! [public source](https://github.com/microsoft/Network-Adapter-Class-Extension) shows the same comparison. A rule
//! of a NIC's own kind stands there too: a member that the driver has to fill is poisoned before.

#![allow(non_upper_case_globals, reason = "C names")]

use super::ring::Image;
use netadapter_glue::netadapter::abi::*;
use std::vec::Vec;

/// A rule that a call broke.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Breach {
    /// A member of `NET_RING` changed that is the system's, `EndIndex` among them.
    RingMember,
    /// `BeginIndex` left the driver's share.
    BeginIndex,
    /// An element of the system's share changed.
    SystemElement,
    /// Transmit: a packet changed in more than its `Scratch`.
    TransmitPacket,
    /// Transmit: a fragment changed in more than its `Scratch`.
    TransmitFragment,
    /// Transmit: a packet went back, and its fragments did not.
    TransmitFragmentsKept,
    /// Transmit: fragments went back before their packet.
    TransmitFragmentsEarly,
    /// Receive: an ignored packet changed in more than its `Ignore`.
    ReceiveIgnored,
    /// Receive: a reserved member changed.
    ReceiveReserved,
    /// Receive: a packet went back with a member that the driver has to fill.
    ReceivePacketUnfilled,
    /// Receive: a packet went back without a fragment.
    ReceiveFragmentCount,
    /// Receive: a packet names fragments that are not the driver's.
    ReceiveFragmentsOutside,
    /// Receive: a packet went back, and its fragments did not.
    ReceiveFragmentsKept,
    /// Receive: fragments went back, and no packet did.
    ReceiveFragmentsAlone,
    /// Receive: two packets share a fragment, or their fragments are not in their order.
    ReceiveFragmentsOverlap,
    /// Receive: a type of a layer that does not exist.
    ReceiveLayerType,
    /// Receive: a header shorter than its layer's can be.
    ReceiveHeaderLength,
    /// Receive: a fragment changed in a member that is the system's.
    ReceiveFragment,
    /// Receive: a fragment went back with a member that the driver has to fill.
    ReceiveFragmentUnfilled,
    /// Receive: the data of a fragment leaves its buffer.
    ReceiveFragmentLength,
    /// Bytes changed that the driver may not write: beside a buffer, in one of the system's, or in one that is sent.
    Payload,
    /// After a cancel elements stay with the driver.
    NotReturned,
    /// The system was notified without its permission.
    Unasked,
    /// The system was not notified, though there was something to drain.
    NotNotified,
}

/// Both rings of a queue at one moment.
pub(super) struct Pair {
    pub(super) packets: Image,
    pub(super) fragments: Image,
}

/// A packet of the receive ring with all that the driver has to fill.
pub(super) const POISONED_PACKET: NET_PACKET = NET_PACKET {
    FragmentIndex: u32::MAX,
    FragmentCount: u16::MAX,
    Layout: NET_PACKET_LAYOUT([0xff; 5]),
    Flags: 0,
};

/// A fragment of the receive ring with all that the driver has to fill.
pub(super) fn poisoned_fragment(capacity: usize) -> NET_FRAGMENT {
    NET_FRAGMENT::new(usize::MAX, capacity, usize::MAX)
}

/// The breaches of one call of a transmit queue.
pub(super) fn transmit(before: &Pair, after: &Pair) -> Vec<Breach> {
    let mut found = shares(before, after);
    if !found.is_empty() {
        return found;
    }
    let packets = &before.packets;
    for index in packets.range(packets.begin(), packets.end()) {
        let (old, new) = (packets.packet(index), after.packets.packet(index));
        let scratch = NET_PACKET::SCRATCH;
        let same = NET_PACKET { Flags: new.Flags & !scratch | old.Flags & scratch, ..new } == old;
        tell(&mut found, !same, Breach::TransmitPacket);
    }
    let fragments = &before.fragments;
    for index in fragments.range(fragments.begin(), fragments.end()) {
        let changed = fragments.fragment(index).0 ^ after.fragments.fragment(index).0;
        tell(&mut found, changed & !NET_FRAGMENT::SCRATCH != 0, Breach::TransmitFragment);
    }
    // Where the fragments of the packets that went back end.
    let expected = packets
        .range(packets.begin(), after.packets.begin())
        .map(|index| packets.packet(index))
        .filter(|packet| !packet.ignore())
        .fold(fragments.begin(), |_, packet| {
            fragments.advance(packet.FragmentIndex, packet.FragmentCount.into())
        });
    let due = fragments.count(fragments.begin(), expected);
    let came = fragments.count(fragments.begin(), after.fragments.begin());
    tell(&mut found, came < due, Breach::TransmitFragmentsKept);
    tell(&mut found, came > due, Breach::TransmitFragmentsEarly);
    found
}

/// The breaches of one call of a receive queue. A cancel gives buffers back for which there is no packet.
pub(super) fn receive(before: &Pair, after: &Pair, cancel: bool) -> Vec<Breach> {
    let mut found = shares(before, after);
    if !found.is_empty() {
        return found;
    }
    let packets = &before.packets;
    for index in packets.range(packets.begin(), packets.end()) {
        let (old, new) = (packets.packet(index), after.packets.packet(index));
        if new.ignore() {
            let same = NET_PACKET { Flags: new.Flags & !3 | old.Flags & 3, ..new } == old;
            tell(&mut found, !same, Breach::ReceiveIgnored);
        } else {
            let reserved = |packet: NET_PACKET| (packet.Flags & !3, packet.Layout.reserved());
            tell(&mut found, reserved(old) != reserved(new), Breach::ReceiveReserved);
        }
    }
    let mut end = before.fragments.begin();
    for index in packets.range(packets.begin(), after.packets.begin()) {
        let packet = after.packets.packet(index);
        if !packet.ignore() {
            returned(before, after, &packet, &mut end, &mut found);
        }
    }
    let alone = !cancel
        && after.packets.begin() == packets.begin()
        && after.fragments.begin() != before.fragments.begin();
    tell(&mut found, alone, Breach::ReceiveFragmentsAlone);
    found
}

/// A packet that went back, and its fragments. Those of the packet before it ended at `end`.
fn returned(
    before: &Pair,
    after: &Pair,
    packet: &NET_PACKET,
    end: &mut u32,
    found: &mut Vec<Breach>,
) {
    let poison = POISONED_PACKET;
    let unfilled = packet.FragmentIndex == poison.FragmentIndex
        || packet.FragmentCount == poison.FragmentCount
        || packet.Layout.layer2_type() == poison.Layout.layer2_type()
        || packet.Layout.layer3_type() == poison.Layout.layer3_type()
        || packet.Layout.layer4_type() == poison.Layout.layer4_type();
    if unfilled {
        return found.push(Breach::ReceivePacketUnfilled);
    }
    layout(packet.Layout, found);
    if packet.FragmentCount == 0 {
        return found.push(Breach::ReceiveFragmentCount);
    }
    let fragments = &before.fragments;
    let last = fragments.advance(packet.FragmentIndex, u32::from(packet.FragmentCount) - 1);
    let owned = fragments.count(fragments.begin(), fragments.end());
    if !fragments.owns(packet.FragmentIndex)
        || !fragments.owns(last)
        || u32::from(packet.FragmentCount) > owned
    {
        return found.push(Breach::ReceiveFragmentsOutside);
    }
    let kept = after.fragments.owns(packet.FragmentIndex) || after.fragments.owns(last);
    tell(found, kept, Breach::ReceiveFragmentsKept);
    let place = |index| fragments.count(fragments.begin(), index);
    tell(found, place(packet.FragmentIndex) < place(*end), Breach::ReceiveFragmentsOverlap);
    *end = fragments.advance(last, 1);
    for nth in 0..packet.FragmentCount {
        let index = fragments.advance(packet.FragmentIndex, nth.into());
        returned_fragment(before, after, index, found);
    }
}

fn returned_fragment(before: &Pair, after: &Pair, index: u32, found: &mut Vec<Breach>) {
    let (old, new) = (before.fragments.fragment(index), after.fragments.fragment(index));
    let bounced = (old.0 ^ new.0) & NET_FRAGMENT::BOUNCED != 0;
    let address = before.fragments.element(index)[8..] != after.fragments.element(index)[8..];
    tell(found, bounced || address || old.capacity() != new.capacity(), Breach::ReceiveFragment);
    let poison = poisoned_fragment(0);
    if new.valid_len() == poison.valid_len() || new.offset() == poison.offset() {
        return found.push(Breach::ReceiveFragmentUnfilled);
    }
    let too_long = new.offset() + new.valid_len() > new.capacity();
    tell(found, too_long, Breach::ReceiveFragmentLength);
}

/// A length of 0 says that it is unknown.
fn layout(layout: NET_PACKET_LAYOUT, found: &mut Vec<Breach>) {
    let types = [layout.layer2_type(), layout.layer3_type(), layout.layer4_type()];
    // Layer 2 has a type for IEEE 802.11 behind Ethernet.
    let most = [3, NetPacketLayer3TypeIPv6NoExtensions, NetPacketLayer4TypeIPNotFragment];
    let unknown = types.iter().zip(most).any(|(kind, most)| *kind > most);
    tell(found, unknown, Breach::ReceiveLayerType);
    let layer2 = usize::from(layout.layer2_header_len());
    let layer3 = usize::from(layout.layer3_header_len());
    let layer4 = usize::from(layout.layer4_header_len());
    let wrong = match types[0] {
        NetPacketLayer2TypeNull => layer2 != 0,
        NetPacketLayer2TypeEthernet => (1..14).contains(&layer2),
        _ => false,
    };
    let wrong = wrong
        || match types[1] {
            1..=3 => (1..20).contains(&layer3),
            4..=6 => (1..40).contains(&layer3),
            _ => false,
        };
    let wrong = wrong
        || match types[2] {
            NetPacketLayer4TypeTcp => {
                layer4 != 0 && (layer4 % 4 != 0 || !(20..=60).contains(&layer4))
            }
            NetPacketLayer4TypeUdp => (1..8).contains(&layer4),
            _ => false,
        };
    tell(found, wrong, Breach::ReceiveHeaderLength);
}

/// The rules of both rings and both kinds of queues.
fn shares(before: &Pair, after: &Pair) -> Vec<Breach> {
    let mut found = Vec::new();
    for (old, new) in [(&before.packets, &after.packets), (&before.fragments, &after.fragments)] {
        if old.system_members() != new.system_members() {
            found.push(Breach::RingMember);
            continue;
        }
        let moved = old.count(old.begin(), new.begin());
        let outside =
            new.begin() != old.advance(new.begin(), 0) || moved > old.count(old.begin(), old.end());
        tell(&mut found, outside, Breach::BeginIndex);
        let touched =
            old.range(old.end(), old.begin()).any(|index| old.element(index) != new.element(index));
        // An empty share leaves all of the ring to the system.
        let all = old.begin() == old.end()
            && (0..old.count(1, 0) + 1).any(|index| old.element(index) != new.element(index));
        tell(&mut found, touched || all, Breach::SystemElement);
    }
    found
}

fn tell(found: &mut Vec<Breach>, broken: bool, breach: Breach) {
    if broken && !found.contains(&breach) {
        found.push(breach);
    }
}
