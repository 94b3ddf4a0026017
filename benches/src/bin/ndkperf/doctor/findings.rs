//! The faults that can be named, and what mends each.

/// A fault. The names stay as they are: programs read them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Code {
    AddressTaken,
    NoNeighbour,
    SeveralNeighbours,
    WrongVlan,
    OneWayPath,
    PeerDown,
    NoRoce,
    FilteredPort,
    NoListener,
    Rejected,
    IncompatibleTransport,
    NotAccepted,
    MtuHole,
    OperationFailed,
    WrongData,
    UnitsLost,
    Loss,
    Reordering,
    MarksErased,
    Damage,
}

impl Code {
    /// The name in a document.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::AddressTaken => "address-taken",
            Self::NoNeighbour => "no-neighbour",
            Self::SeveralNeighbours => "several-neighbours",
            Self::WrongVlan => "wrong-vlan",
            Self::OneWayPath => "one-way-path",
            Self::PeerDown => "peer-down",
            Self::NoRoce => "no-roce",
            Self::FilteredPort => "filtered-port",
            Self::NoListener => "no-listener",
            Self::Rejected => "rejected",
            Self::IncompatibleTransport => "incompatible-transport",
            Self::NotAccepted => "not-accepted",
            Self::MtuHole => "mtu-hole",
            Self::OperationFailed => "operation-failed",
            Self::WrongData => "wrong-data",
            Self::UnitsLost => "units-lost",
            Self::Loss => "loss",
            Self::Reordering => "reordering",
            Self::MarksErased => "marks-erased",
            Self::Damage => "damage",
        }
    }

    /// The way to mend it.
    pub(crate) const fn mend(self) -> &'static str {
        match self {
            Self::AddressTaken => {
                "give us an address that no host has (--address), or take it from the other host"
            }
            Self::NoNeighbour => {
                "check the peer's address, that it is up and on the same link: there are no routers. \
                 With AF_PACKET, check that the interface is up (`ip link`)"
            }
            Self::SeveralNeighbours => "take the address from all hosts but one",
            Self::WrongVlan => {
                "use that VLAN: --vlan, or with AF_PACKET the VLAN's own interface (`ip link add link`); \
                 or change the switch's port"
            }
            Self::OneWayPath => {
                "look at the switch between: a filter, port security, or an Ethernet address learnt at the wrong port; \
                 at a host, a firewall that lets one direction through"
            }
            Self::PeerDown => {
                "start the peer, or wake it; where another host answers in its place, stop that (proxy ARP)"
            }
            Self::NoRoce => {
                "start RoCE on the peer: `ndkperf serve`, or on Linux `rdma link add rxe0 type rxe netdev IFACE`; \
                 the message comes from its kernel, which has no use for UDP port 4791"
            }
            Self::FilteredPort => {
                "let UDP port 4791 pass, in both directions: in the peer's firewall (`nft list ruleset`), on the way, and in \
                 ours; on a peer with rdma_rxe see that the interface has it (`rdma link`)"
            }
            Self::NoListener => {
                "start a listener on that port (`ndkperf serve --port`), or name its port (--port)"
            }
            Self::Rejected => {
                "ask the program that listens: it refuses this client; perhaps it is of another protocol"
            }
            Self::IncompatibleTransport => {
                "compare the ends: addresses, MTU (`ip link set IFACE mtu` at both) and transport, as the reason says"
            }
            Self::NotAccepted => {
                "wait until the listener is free: `ndkperf serve` serves one client at a time"
            }
            Self::MtuHole => {
                "give every link on the way the MTU of its ends, or the ends (`ip link set IFACE mtu`) that of the \
                 smallest link"
            }
            Self::OperationFailed => {
                "record it (--pcap) and ask `ndkperf decode` for the packet that went wrong"
            }
            Self::WrongData => {
                "look for a device that changes packets: the ICRC fits, and the data do not"
            }
            Self::UnitsLost => {
                "leave units off: no --offload here, `RoCESegmentation` 0 on Windows; or have the device that loses them \
                 divide them: `ethtool -K IFACE tx-udp-segmentation off` gives that to the kernel, and a newer driver of \
                 the NIC, or of a guest's virtual NIC, may mend it. Until then packets leave singly by themselves"
            }
            Self::Loss => {
                "look for a full queue, a bad cable or a duplex mismatch: the drop counters of switch and NICs \
                 (`ethtool -S IFACE`, `ip -s link`)"
            }
            Self::Reordering => {
                "keep a connection on one path: hash by addresses and ports where links are bundled, and \
                 one queue for it in each NIC"
            }
            Self::MarksErased => {
                "let switches and tunnels keep the two bits of ECN, and leave congestion control on at the peer \
                 (no --no-congestion-control)"
            }
            Self::Damage => {
                "look for a bad cable or NIC, and for offloads that write wrong checksums (`ethtool -K IFACE`)"
            }
        }
    }
}

/// A fault that was found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Finding {
    pub(super) code: Code,
    /// What was seen, in sentences.
    pub(super) text: String,
}
