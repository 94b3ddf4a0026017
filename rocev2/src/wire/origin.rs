//! The origin of a packet: what the packets of a flow have in common below the transport, addresses apart.

use super::encap::{Encap, Mac};

/// The bits of a tag that name the VLAN. A packet's priority is its own.
const VLAN_ID: u16 = 0x0fff;

/// Layer 2, hop limit and UDP source port of a packet as it came.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Origin {
    /// Ethernet source and destination.
    pub macs: [Mac; 2],
    /// The VLAN's number; 0 without a tag, and in a tag that names a priority alone.
    pub vlan: u16,
    /// IPv4 TTL or IPv6 hop limit.
    pub hop_limit: u8,
    /// UDP source port.
    pub src_port: u16,
}

/// The fields of an [`Origin`], as a set.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Fields(u8);

impl Fields {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const MACS: Self = Self(1);
    pub(crate) const VLAN: Self = Self(1 << 1);
    pub(crate) const HOP_LIMIT: Self = Self(1 << 2);
    pub(crate) const SRC_PORT: Self = Self(1 << 3);
    /// Each alone.
    pub(crate) const EACH: [Self; 4] = [Self::MACS, Self::VLAN, Self::HOP_LIMIT, Self::SRC_PORT];

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    const fn if_so(self, so: bool) -> Self {
        if so { self } else { Self::NONE }
    }
}

impl Origin {
    /// That of a packet with these headers.
    pub const fn of(encap: &Encap) -> Self {
        let vlan = match encap.vlan {
            Some(tag) => tag & VLAN_ID,
            None => 0,
        };
        let Encap { src_mac, dst_mac, hop_limit, src_port, .. } = *encap;
        Self { macs: [src_mac, dst_mac], vlan, hop_limit, src_port }
    }

    /// The fields in which two differ.
    pub(crate) fn differs(&self, other: &Self) -> Fields {
        Fields::MACS
            .if_so(self.macs != other.macs)
            .or(Fields::VLAN.if_so(self.vlan != other.vlan))
            .or(Fields::HOP_LIMIT.if_so(self.hop_limit != other.hop_limit))
            .or(Fields::SRC_PORT.if_so(self.src_port != other.src_port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::example_encap;

    /// Each field that a flow has in common counts, and what differs from packet to packet does not.
    #[test]
    fn packets_of_a_flow_have_one_origin() {
        let encap = example_encap(false, Some(0x6005));
        let differs = |other: Encap| Origin::of(&encap).differs(&Origin::of(&other));
        let same = [
            encap,
            Encap { vlan: Some(0x0005), ..encap },
            Encap { traffic_class: 3, ip_id: 9, flow_label: 7, ..encap },
        ];
        assert!(same.into_iter().all(|other| differs(other).is_empty()));
        let others = [
            (Encap { src_mac: Mac([9; 6]), ..encap }, Fields::MACS),
            (Encap { dst_mac: Mac([9; 6]), ..encap }, Fields::MACS),
            (Encap { vlan: None, ..encap }, Fields::VLAN),
            (Encap { vlan: Some(0x6006), ..encap }, Fields::VLAN),
            (Encap { hop_limit: 62, ..encap }, Fields::HOP_LIMIT),
            (Encap { src_port: 1, ..encap }, Fields::SRC_PORT),
        ];
        for (other, field) in others {
            assert_eq!(differs(other), field, "{other:?}");
        }
        let untagged = Origin::of(&Encap { vlan: None, ..encap });
        assert_eq!(untagged, Origin::of(&Encap { vlan: Some(0x6000), ..encap }));
    }
}
