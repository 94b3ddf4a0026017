//! Traffic classes: the bits of headers by which switches and routers tell the packets of one service from others.
//!
//! A class belongs to the port of a service (IBTA annex A11): the one that a connect asks for, and that a listener has. So both
//! ends of a connection find it, each in its own table. It holds for all packets of a connection, those of connection management
//! too, and for those that it has already: a new table is in force from the next packet on.

use crate::wire::Encap;
use alloc::vec::Vec;

/// A traffic class.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct TrafficClass {
    /// The priority in the tag of a frame (PCP, IEEE 802.1Q), 0..=7. Frames without a VLAN have a tag for it, but for 0.
    pub priority: u8,
    /// The differentiated services code point of a packet (DSCP, RFC 2474), 0..=63.
    pub dscp: u8,
}

/// The classes of a device's connections, by the ports of services.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TrafficClasses {
    /// The class of the other ports. `None`: packets of our connects have the traffic class of
    /// [`CmConfig`](crate::cm::CmConfig), and those of a connection that a peer asked for have the peer's; the priority is the path's.
    pub default: Option<TrafficClass>,
    /// Ports and their classes, each port once.
    pub ports: Vec<(u16, TrafficClass)>,
}

impl TrafficClasses {
    /// The class of a service.
    pub fn of(&self, port: u16) -> Option<TrafficClass> {
        let own = self.ports.iter().find(|(of, _)| *of == port);
        own.map(|(_, class)| *class).or(self.default)
    }
}

/// The bits of a class in one connection's packets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ClassBits {
    /// IPv4 TOS or IPv6 traffic class. The bits of ECN are not the class's.
    pub traffic_class: u8,
    /// `None`: that of the path's tag.
    pub priority: Option<u8>,
}

impl ClassBits {
    /// Those of a class; without one, `others`.
    pub(crate) fn new(class: Option<TrafficClass>, others: Self) -> Self {
        let of = |TrafficClass { priority, dscp }| Self {
            traffic_class: dscp << 2,
            priority: Some(priority),
        };
        class.map_or(others, of)
    }
}

/// The priority of a tag, but for 0.
pub(crate) fn priority_of(tci: Option<u16>) -> Option<u8> {
    tci.map(|tci| (tci >> PRIORITY_SHIFT) as u8).filter(|priority| *priority != 0)
}

/// The tag that is left without the priority.
pub(crate) fn without_priority(tci: Option<u16>) -> Option<u16> {
    tci.map(|tci| tci & !PRIORITY).filter(|tci| *tci != 0)
}

/// Puts a priority into a packet's tag, in the place of the one that is there. An untagged frame gets a tag without a VLAN.
pub(crate) fn prioritize(encap: &mut Encap, priority: Option<u8>) {
    let Some(priority) = priority else { return };
    let tci = encap.vlan.unwrap_or_default() & !PRIORITY | u16::from(priority) << PRIORITY_SHIFT;
    encap.vlan = (encap.vlan.is_some() || tci != 0).then_some(tci);
}

/// The priority in tag control information.
const PRIORITY: u16 = 0xe000;
const PRIORITY_SHIFT: u32 = 13;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::example_encap;
    use std::vec;

    const FIRST: TrafficClass = TrafficClass { priority: 3, dscp: 26 };
    const SECOND: TrafficClass = TrafficClass { priority: 0, dscp: 0 };

    #[test]
    fn a_port_has_its_class_or_that_of_others() {
        let mut classes = TrafficClasses { default: None, ports: vec![(445, FIRST), (1, SECOND)] };
        assert_eq!([445, 1, 4450].map(|port| classes.of(port)), [Some(FIRST), Some(SECOND), None]);
        classes.default = Some(FIRST);
        assert_eq!([1, 2].map(|port| classes.of(port)), [Some(SECOND), Some(FIRST)]);
        assert_eq!(TrafficClasses::default().of(445), None);
    }

    /// A class of priority 0 takes the peer's priority out of a tag, but no tag out of a frame.
    #[test]
    fn a_priority_takes_the_place_of_that_in_the_tag() {
        let tagged = |vlan, priority| {
            let mut encap = example_encap(false, vlan);
            prioritize(&mut encap, priority);
            encap.vlan
        };
        assert_eq!(tagged(None, None), None);
        assert_eq!(tagged(None, Some(0)), None);
        assert_eq!(tagged(None, Some(7)), Some(0xe000));
        assert_eq!(tagged(Some(0xb005), None), Some(0xb005));
        assert_eq!(tagged(Some(0xb005), Some(3)), Some(0x7005), "drop eligibility stays");
        assert_eq!(tagged(Some(0xa005), Some(0)), Some(5));
        assert_eq!(tagged(Some(0xa000), Some(0)), Some(0));
    }

    #[test]
    fn a_class_leaves_ecn_alone() {
        let others = ClassBits { traffic_class: 0x6b, priority: None };
        let bits = ClassBits { traffic_class: 26 << 2, priority: Some(3) };
        assert_eq!(ClassBits::new(Some(FIRST), others), bits);
        assert_eq!(ClassBits::new(None, others), others);
    }

    #[test]
    fn a_tag_is_a_priority_and_a_rest() {
        for (tci, priority, rest) in
            [(0xb005, Some(5), Some(0x1005)), (0x6000, Some(3), None), (5, None, Some(5))]
        {
            assert_eq!((priority_of(Some(tci)), without_priority(Some(tci))), (priority, rest));
        }
        assert_eq!((priority_of(None), without_priority(None)), (None, None));
    }
}
