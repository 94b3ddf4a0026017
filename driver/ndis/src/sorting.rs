//! The receiver of each frame: a poll core, TCP/IP above the adapter, or neither.
//!
//! Every frame of the NIC is asked about, those of the host's own traffic, too: no lock is taken, and nothing is written.

use crate::abi::{
    NDIS_PACKET_TYPE_ALL_MULTICAST, NDIS_PACKET_TYPE_BROADCAST, NDIS_PACKET_TYPE_DIRECTED,
    NDIS_PACKET_TYPE_MULTICAST, NDIS_PACKET_TYPE_PROMISCUOUS,
};
use crate::addresses::{Address, AddressSet};
use crate::frame::{Cast, ETHERNET_HEADER_LEN, destination};
use core::net::IpAddr;
use core::sync::atomic::{AtomicU32, Ordering};
use rocev2::wire::{Addressee, addressee, roce_destination};

/// The receiver of a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Receiver {
    /// A RoCE packet to one of our addresses. It does not wait for TCP/IP's filter.
    PollCore,
    /// A frame that the filter of the adapter lets in.
    TcpIp,
    Nobody,
    /// It ends within its own header: nobody's, and counted.
    Runt,
}

/// The values that the frames of an adapter are told by.
#[derive(Debug)]
pub(crate) struct Sorting {
    mac: [u8; 6],
    /// The NIC's own TCP/IP has the same Ethernet address: frames for that are told apart by their addresses of IP.
    shared: bool,
    filter: AtomicU32,
    multicast: AddressSet,
    /// Addresses that connections may use.
    usable: AddressSet,
    /// Those, and the ones that TCP/IP still looks for in the network: used where `shared`.
    claimed: AddressSet,
}

impl Sorting {
    #[inline(never)]
    pub(crate) fn new(mac: [u8; 6], shared: bool) -> Self {
        Self {
            mac,
            shared,
            filter: AtomicU32::new(0),
            multicast: AddressSet::with_room(MULTICAST_MAX),
            usable: AddressSet::with_room(ADDRESSES_MAX),
            claimed: AddressSet::with_room(ADDRESSES_MAX),
        }
    }

    /// The packet filter of the adapter (`OID_GEN_CURRENT_PACKET_FILTER`).
    pub(crate) fn filter(&self) -> u32 {
        self.filter.load(Ordering::Relaxed)
    }

    /// Returns the filter before.
    pub(crate) fn set_filter(&self, filter: u32) -> u32 {
        self.filter.swap(filter, Ordering::Relaxed)
    }

    /// At most [`MULTICAST_MAX`]. One thread at a time, at DISPATCH_LEVEL.
    pub(crate) fn set_multicast(&self, list: &[[u8; 6]]) {
        self.multicast.replace(list.iter().copied().map(Address::ethernet));
    }

    /// At most [`ADDRESSES_MAX`] of each kind; connections may use the first. One thread at a time, at DISPATCH_LEVEL.
    pub(crate) fn set_addresses(&self, usable: &[IpAddr], claimed: &[IpAddr]) {
        self.usable.replace(usable.iter().copied().filter_map(Address::ip));
        self.claimed.replace(claimed.iter().copied().filter_map(Address::ip));
    }

    /// The receiver of the frame with this beginning, of which `PEEK_LEN` bytes suffice. IRQL <= DISPATCH_LEVEL.
    pub(crate) fn receiver(&self, frame: &[u8]) -> Receiver {
        let to = destination(frame).filter(|_| frame.len() >= ETHERNET_HEADER_LEN);
        let Some(to) = to else { return Receiver::Runt };
        if to == self.mac && roce_destination(frame).is_some_and(|to| has(&self.usable, to)) {
            Receiver::PollCore
        } else if self.shows(to, frame) {
            Receiver::TcpIp
        } else {
            Receiver::Nobody
        }
    }

    fn shows(&self, to: [u8; 6], frame: &[u8]) -> bool {
        let filter = self.filter();
        let passes = |kinds| filter & kinds != 0;
        if passes(NDIS_PACKET_TYPE_PROMISCUOUS) {
            return true;
        }
        match Cast::of(to) {
            Cast::Unicast => {
                to == self.mac && passes(NDIS_PACKET_TYPE_DIRECTED) && self.claims(frame)
            }
            Cast::Broadcast => passes(NDIS_PACKET_TYPE_BROADCAST),
            Cast::Multicast => {
                passes(NDIS_PACKET_TYPE_ALL_MULTICAST)
                    || passes(NDIS_PACKET_TYPE_MULTICAST)
                        && self.multicast.contains(Address::ethernet(to))
            }
        }
    }

    /// Whether a frame to our Ethernet address is not for the NIC's own TCP/IP.
    fn claims(&self, frame: &[u8]) -> bool {
        if !self.shared {
            return true;
        }
        let claims = |address| has(&self.claimed, address);
        match addressee(frame) {
            Some(Addressee::Packet(to)) => claims(to),
            // A response to who looks whether an address is taken may be for either.
            Some(Addressee::Arp { sender, target }) => {
                target.is_unspecified() || claims(target.into()) || claims(sender.into())
            }
            None => false,
        }
    }
}

fn has(set: &AddressSet, ip: IpAddr) -> bool {
    Address::ip(ip).is_some_and(|address| set.contains(address))
}

/// Addresses of an adapter.
pub(crate) const ADDRESSES_MAX: usize = 128;
/// Addresses of the multicast list.
pub(crate) const MULTICAST_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use Receiver::{Nobody, PollCore, Runt, TcpIp};
    use std::vec::Vec;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 9];
    const ALL: [u8; 6] = [0xff; 6];
    const GROUP: [u8; 6] = [1, 0, 0x5e, 0, 0, 1];
    const OURS: [u8; 4] = [10, 0, 0, 2];
    const THEIRS: [u8; 4] = [10, 0, 0, 3];
    const TENTATIVE: [u8; 4] = [10, 0, 0, 4];

    /// A UDP packet, to the port of RoCE or another.
    fn udp(mac: [u8; 6], to: [u8; 4], port: u16) -> Vec<u8> {
        let mut frame = Vec::from(mac);
        frame.extend([2, 0, 0, 0, 0, 7, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend([10, 0, 0, 1]);
        frame.extend(to);
        frame.extend([0xc0, 0]);
        frame.extend(port.to_be_bytes());
        frame.extend([0, 8, 0, 0]);
        frame
    }

    fn arp(mac: [u8; 6], sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
        let mut frame = Vec::from(mac);
        frame.extend([2, 0, 0, 0, 0, 7, 8, 6, 0, 1, 8, 0, 6, 4, 0, 2, 2, 0, 0, 0, 0, 7]);
        frame.extend(sender);
        frame.extend([0; 6]);
        frame.extend(target);
        frame
    }

    fn sorting(shared: bool, filter: u32) -> Sorting {
        let sorting = Sorting::new(MAC, shared);
        sorting.set_filter(filter);
        sorting.set_multicast(&[GROUP]);
        sorting.set_addresses(&[OURS.into()], &[OURS.into(), TENTATIVE.into()]);
        sorting
    }

    const USUAL: u32 =
        NDIS_PACKET_TYPE_DIRECTED | NDIS_PACKET_TYPE_MULTICAST | NDIS_PACKET_TYPE_BROADCAST;

    #[test]
    fn roce_to_an_address_of_ours_waits_for_no_filter() {
        for shared in [false, true] {
            for filter in [0, USUAL, NDIS_PACKET_TYPE_PROMISCUOUS] {
                let receiver = |mac, to| sorting(shared, filter).receiver(&udp(mac, to, 4791));
                assert_eq!(receiver(MAC, OURS), PollCore);
                assert!(receiver(OTHER, OURS) != PollCore && receiver(MAC, THEIRS) != PollCore);
                assert_ne!(receiver(MAC, TENTATIVE), PollCore, "no connection may use it yet");
            }
        }
    }

    /// Goal: TCP/IP sees of each kind of frame what its filter says, and without a filter nothing.
    #[test]
    fn tcpip_sees_what_its_filter_says() {
        let frames = [MAC, ALL, GROUP, [1, 0, 0x5e, 0, 0, 2], OTHER].map(|to| udp(to, OURS, 53));
        for (filter, seen) in [
            (0, [false; 5]),
            (NDIS_PACKET_TYPE_DIRECTED, [true, false, false, false, false]),
            (NDIS_PACKET_TYPE_BROADCAST, [false, true, false, false, false]),
            (NDIS_PACKET_TYPE_MULTICAST, [false, false, true, false, false]),
            (NDIS_PACKET_TYPE_ALL_MULTICAST, [false, false, true, true, false]),
            (NDIS_PACKET_TYPE_PROMISCUOUS, [true; 5]),
        ] {
            let sorting = sorting(false, filter);
            let shown = frames.each_ref().map(|frame| sorting.receiver(frame) == TcpIp);
            assert_eq!(shown, seen, "filter {filter:#x}");
        }
    }

    /// Goal: beside the NIC's TCP/IP the adapter takes what is for its addresses, and nothing that is for the other alone.
    #[test]
    fn a_shared_ethernet_address_is_told_apart_by_ip() {
        let nobodys = [0; 4];
        let shared = |frame: Vec<u8>| sorting(true, USUAL).receiver(&frame);
        for to in [OURS, TENTATIVE] {
            assert_eq!(shared(udp(MAC, to, 445)), TcpIp);
            assert_eq!(shared(arp(MAC, THEIRS, to)), TcpIp);
            assert_eq!(shared(arp(MAC, to, THEIRS)), TcpIp, "another says that it has it");
        }
        assert_eq!(shared(arp(MAC, THEIRS, nobodys)), TcpIp);
        assert_eq!(shared(arp(ALL, THEIRS, THEIRS)), TcpIp, "a broadcast is for both");
        assert_eq!(shared(udp(GROUP, [224, 0, 0, 1], 53)), TcpIp);
        for foreign in [udp(MAC, THEIRS, 445), udp(MAC, THEIRS, 4791), arp(MAC, THEIRS, THEIRS)] {
            assert_eq!(shared(foreign.clone()), Nobody);
            assert_eq!(sorting(false, USUAL).receiver(&foreign), TcpIp, "an address of its own");
        }
        let mut eapol = udp(MAC, OURS, 445);
        eapol[12..14].copy_from_slice(&[0x88, 0x8e]);
        assert_eq!(shared(eapol), Nobody, "802.1X is the NIC's");
    }

    #[test]
    fn nothing_without_a_whole_header_is_anybodys() {
        for to in [MAC, ALL, GROUP, OTHER] {
            let frame = udp(to, OURS, 53);
            for filter in [USUAL, NDIS_PACKET_TYPE_PROMISCUOUS] {
                let receiver = |len| sorting(false, filter).receiver(&frame[..len]);
                assert!((0..14).all(|len| receiver(len) == Runt));
                assert_ne!(receiver(14), Runt);
            }
        }
    }
}
