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
    /// The priority of RoCE frames that have none, as tag control information.
    pub(crate) roce: u16,
}

impl Tagging {
    /// The values of `*PriorityVLANTag`, 0 to 3, and of `VlanId`; of RoCE.
    pub(crate) const fn new(keyword: u32, own: u32, roce_priority: u8) -> Self {
        let (priority, vlan) = (keyword & 1 != 0, keyword & 2 != 0);
        let own = if vlan { own as u16 & VLAN } else { 0 };
        Self { priority, vlan, own, roce: (roce_priority as u16) << PRIORITY_SHIFT }
    }

    /// Whether RoCE frames get a tag that their sender did not give them.
    pub(crate) const fn tags_roce(self) -> bool {
        self.own != 0 || self.priority && self.roce != 0
    }

    /// The tag of an outgoing RoCE frame, from its sender's. A connection that a peer asked for has the peer's priority, if
    /// that has one.
    pub(crate) fn outgoing_roce(self, tag: Option<Tag>) -> Option<Tag> {
        let tci = tag.map_or(0, Tag::tci);
        let priority = if tci >> PRIORITY_SHIFT == 0 { self.roce } else { 0 };
        self.outgoing(nonzero(tci | priority))
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
/// The place of the priority, its upper three bits.
const PRIORITY_SHIFT: u32 = 13;

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

/// Bytes of an Ethernet header without a tag.
pub(crate) const ETHERNET_HEADER_LEN: usize = 14;

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
        let sent = |keyword, own, tci| Tagging::new(keyword, own, 0).outgoing(tag(tci));
        let shown = |keyword, own, tci| Tagging::new(keyword, own, 0).incoming(tag(tci));
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
        let own = Tagging::new(3, 7, 0);
        let tag = |tci: u16| Some(Tag::from_tci(tci));
        assert_eq!(own.outgoing(None), tag(7));
        assert_eq!(own.outgoing(tag(0x6000)), tag(0x6007));
        assert_eq!(own.outgoing(tag(9)), tag(9));
        assert_eq!(own.incoming(tag(0x6007)), Ok(tag(0x6000)));
        assert_eq!(own.incoming(tag(7)), Ok(None));
        assert_eq!([own.incoming(None), own.incoming(tag(9))], [Err(OtherVlan); 2]);
        assert_eq!(Tagging::new(1, 7, 0).outgoing(None), None, "VLANs are off");
    }

    #[test]
    fn roce_has_a_priority_of_its_own() {
        let tag = |tci: u16| (tci != 0).then(|| Tag::from_tci(tci));
        let sent = |keyword, tci| Tagging::new(keyword, 7, 5).outgoing_roce(tag(tci));
        assert_eq!(sent(3, 0), tag(0xa007));
        assert_eq!(sent(1, 0), tag(0xa000), "a priority without a VLAN");
        assert_eq!(sent(3, 0x6009), tag(0x6009), "the peer's priority and VLAN");
        assert_eq!(sent(2, 0), tag(7), "priorities are off");
        assert_eq!(Tagging::new(3, 7, 5).outgoing(None), tag(7), "TCP/IP chooses its own");
        let tags = |keyword, own, priority| Tagging::new(keyword, own, priority).tags_roce();
        assert_eq!(
            [tags(3, 7, 0), tags(1, 0, 5), tags(3, 0, 0), tags(0, 7, 5)],
            [true, true, false, false]
        );
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
