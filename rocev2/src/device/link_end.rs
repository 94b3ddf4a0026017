//! The device's end of its link: which packets are for it, and who may have sent them.
//!
//! The general way of a packet checks this once. A queue pair's short way compares the headers down to UDP with those of a packet
//! that came the general way, so nothing gets past this by it.

use super::DeviceConfig;
use super::engine::Engine;
use crate::env::Rng;
use crate::wire::{DropReason, Encap, Mac};

/// The device's knowledge of its end of the link.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LinkEnd {
    /// The Ethernet address. Packets to another one are dropped, so all that is sent back has this one as its source. `None`: the
    /// caller gives the device no frame for another host.
    pub mac: Option<Mac>,
    /// The ID of the VLAN, 1 to 4094. Packets of another one are dropped, and so are those without a tag, or with one that names a
    /// priority alone (VLAN ID 0). `None`: packets of every VLAN are taken, and each connection stays in its own.
    pub vlan: Option<u16>,
}

impl LinkEnd {
    fn check(&self, encap: &Encap) -> Result<(), DropReason> {
        if self.mac.is_some_and(|mac| mac != encap.dst_mac) {
            return Err(DropReason::EthernetAddress);
        }
        let vlan = encap.vlan.map_or(0, |tci| tci & VLAN_ID);
        if self.vlan.is_some_and(|own| own != vlan) { Err(DropReason::Vlan) } else { Ok(()) }
    }
}

impl Engine {
    /// The Ethernet address, source and destination alike, of the connections between addresses of this device. The caller gives
    /// what is sent to it back to the device, and lets none of it leave.
    ///
    /// It is drawn for each device: a host on the link that sends from one of our addresses does not know it, and is dropped.
    pub const fn loopback_mac(&self) -> Mac {
        self.loopback_mac
    }

    /// Checks that a packet is for an address of ours, from another host's on the link, or from an own one by the loopback.
    pub(super) fn check_ends(&self, encap: &Encap) -> Result<(), DropReason> {
        let DeviceConfig { addresses, link, .. } = &self.config;
        if !addresses.contains(&encap.dst) {
            return Err(DropReason::AddressMismatch);
        }
        let loops = [encap.src_mac, encap.dst_mac] == [self.loopback_mac; 2];
        match addresses.contains(&encap.src) {
            true if loops => Ok(()),
            false if !loops => link.check(encap),
            true | false => Err(DropReason::Martian),
        }
    }
}

/// Draws the address of a loopback: that of one host, locally administered.
pub(super) fn loopback_mac(rng: &mut Rng) -> Mac {
    let [first, rest @ .., _, _] = rng.u64().to_be_bytes();
    let [a, b, c, d, e] = rest;
    Mac([first & !GROUP | LOCAL, a, b, c, d, e])
}

/// The bits of tag control information that name the VLAN (IEEE 802.1Q).
const VLAN_ID: u16 = 0xfff;
/// The bits of the first byte of an Ethernet address.
const GROUP: u8 = 1;
const LOCAL: u8 = 2;
