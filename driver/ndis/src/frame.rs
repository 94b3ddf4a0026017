//! Ethernet frames of TCP/IP's interface: their VLAN tags, and their destinations.

use netadapter_glue::ndis::chain::Tag;

/// An adapter's treatment of the IEEE 802.1Q tags beside its frames.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Tagging {
    /// Priorities are honoured.
    pub(crate) priority: bool,
    /// VLANs are honoured.
    pub(crate) vlan: bool,
    /// The VLAN of the adapter, which the layers above do not see; 0 for all VLANs.
    pub(crate) own: u16,
}

impl Tagging {
    /// The values of `*PriorityVLANTag`, 0 to 3, and of `VlanId`.
    pub(crate) const fn new(keyword: u32, own: u32) -> Self {
        let vlan = keyword & 2 != 0;
        Self { priority: keyword & 1 != 0, vlan, own: if vlan { own as u16 & VLAN } else { 0 } }
    }

    /// The tag of an outgoing frame, from the sender's.
    pub(crate) fn outgoing(self, tag: Option<Tag>) -> Option<Tag> {
        let tci = tag.map_or(0, Tag::tci);
        let vlan = match tci & VLAN {
            _ if !self.vlan => 0,
            0 => self.own,
            vlan => vlan,
        };
        nonzero(self.priority_of(tci) | vlan)
    }

    /// The tag to show of a received frame; an error for a frame of another VLAN.
    pub(crate) fn incoming(self, tag: Option<Tag>) -> Result<Option<Tag>, OtherVlan> {
        let tci = tag.map_or(0, Tag::tci);
        let vlan = match tci & VLAN {
            0 if self.own == 0 => 0,
            vlan if self.own != 0 && vlan == self.own => 0,
            vlan if self.own == 0 && self.vlan => vlan,
            _ => return Err(OtherVlan),
        };
        Ok(nonzero(self.priority_of(tci) | vlan))
    }

    const fn priority_of(self, tci: u16) -> u16 {
        if self.priority { tci & !VLAN } else { 0 }
    }
}

fn nonzero(tci: u16) -> Option<Tag> {
    (tci != 0).then(|| Tag::from_tci(tci))
}

/// A frame is not of the adapter's VLAN.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct OtherVlan;

/// The VLAN in the control information of a tag.
const VLAN: u16 = 0xfff;

/// The kind of a destination address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Cast {
    Unicast,
    Multicast,
    Broadcast,
}

impl Cast {
    pub(crate) const fn of(destination: [u8; 6]) -> Self {
        match destination {
            [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] => Self::Broadcast,
            [first, ..] if first & 1 != 0 => Self::Multicast,
            _ => Self::Unicast,
        }
    }
}

/// The destination address of a frame.
pub(crate) fn destination(bytes: &[u8]) -> Option<[u8; 6]> {
    bytes.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_honoured_as_the_keyword_says() {
        let tag = |tci: u16| (tci != 0).then(|| Tag::from_tci(tci));
        let sent = |keyword, own, tci| Tagging::new(keyword, own).outgoing(tag(tci));
        let shown = |keyword, own, tci| Tagging::new(keyword, own).incoming(tag(tci));
        const BOTH: u16 = 0x6007;
        for (keyword, tci) in [(0, 0), (1, 0x6000), (2, 7), (3, BOTH)] {
            assert_eq!(sent(keyword, 0, BOTH), tag(tci), "keyword {keyword}");
        }
        for (keyword, tci) in [(2, Ok(tag(7))), (3, Ok(tag(BOTH)))] {
            assert_eq!(shown(keyword, 0, BOTH), tci, "keyword {keyword}");
        }
        // An adapter without VLANs gets no frame of a VLAN, but the priorities of untagged ones.
        assert_eq!([shown(0, 0, BOTH), shown(1, 0, BOTH)], [Err(OtherVlan); 2]);
        assert_eq!([shown(0, 0, 0x6000), shown(1, 0, 0x6000)], [Ok(None), Ok(tag(0x6000))]);
    }

    #[test]
    fn an_adapter_lives_in_its_vlan_without_knowing() {
        let own = Tagging::new(3, 7);
        let tag = |tci: u16| Some(Tag::from_tci(tci));
        assert_eq!(own.outgoing(None), tag(7));
        assert_eq!(own.outgoing(tag(0x6000)), tag(0x6007));
        assert_eq!(own.outgoing(tag(9)), tag(9));
        assert_eq!(own.incoming(tag(0x6007)), Ok(tag(0x6000)));
        assert_eq!(own.incoming(tag(7)), Ok(None));
        assert_eq!([own.incoming(None), own.incoming(tag(9))], [Err(OtherVlan); 2]);
        assert_eq!(Tagging::new(1, 7).outgoing(None), None, "VLANs are off");
    }

    #[test]
    fn casts() {
        assert_eq!(Cast::of([0xff; 6]), Cast::Broadcast);
        assert_eq!(Cast::of([0x01, 0, 0x5e, 0, 0, 1]), Cast::Multicast);
        assert_eq!(Cast::of([2, 0, 0, 0, 0, 1]), Cast::Unicast);
        assert_eq!(destination(&[0xff; 14]).map(Cast::of), Some(Cast::Broadcast));
        assert_eq!(destination(&[0xff; 5]), None);
    }
}
