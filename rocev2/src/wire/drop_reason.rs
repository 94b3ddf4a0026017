//! The reasons to discard a packet in silence.

macro_rules! drop_reasons {
    ($($(#[$meta:meta])* $name:ident,)+) => {
        /// The reason to discard an inbound packet in silence (CA17-24). Also the index of its counter.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, thiserror::Error)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum DropReason {
            $($(#[$meta])* $name,)+
        }

        impl DropReason {
            /// Every reason, in the order of its counter.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$name,)+];

            /// The number of reasons, and so of their counters.
            pub const COUNT: usize = [$(Self::$name,)+].len();

            /// The index of the counter.
            pub const fn index(self) -> usize {
                self as usize
            }
        }
    };
}

drop_reasons! {
    /// The frame ends before a header, the ICRC or a length that it announces.
    #[error("the packet ends too early")]
    Truncated,
    /// Neither IP nor UDP to port 4791: some other protocol's packet.
    #[error("the frame is of another protocol")]
    NotRoce,
    /// IP version, options, extension headers, header checksum or total length.
    #[error("the IP header is not valid")]
    IpHeader,
    /// A fragment: RoCEv2 is never reassembled.
    #[error("the packet is a fragment")]
    Fragment,
    /// The UDP length contradicts the IP length or the transport headers.
    #[error("the UDP length does not fit")]
    UdpLength,
    /// A UDP checksum is present and wrong.
    #[error("the UDP checksum is wrong")]
    UdpChecksum,
    /// A transport header version other than 0.
    #[error("the transport header version is not 0")]
    TransportVersion,
    /// A reserved opcode, or one of a transport that is not offered.
    #[error("the opcode is unknown")]
    UnknownOpcode,
    /// More pad bytes than bytes.
    #[error("there are more pad bytes than bytes")]
    BadPad,
    /// The invariant CRC does not match.
    #[error("the ICRC is wrong")]
    Icrc,
    /// Destination QP 0.
    #[error("the destination is QP 0")]
    BadDestQp,
    /// No queue pair has the destination QP number.
    #[error("there is no such queue pair")]
    UnknownQpn,
    /// The opcode's transport is not that of the queue pair.
    #[error("the opcode is of another transport than the queue pair")]
    TransportMismatch,
    /// Not from the queue pair's peer, or not to its address.
    #[error("the addresses are not those of the connection")]
    AddressMismatch,
    /// Another VLAN, Ethernet address, hop limit or UDP source port than the packets of the queue pair's peer have, and no number that
    /// only the peer knows.
    #[error("the headers are not those of the peer's packets")]
    FlowMismatch,
    /// The queue pair's state does not admit the packet.
    #[error("the state of the queue pair does not admit the packet")]
    QpState,
    /// The partition key does not match.
    #[error("the partition key is wrong")]
    PKey,
    /// The Q_Key does not match.
    #[error("the Q_Key is wrong")]
    QKey,
    /// A request too far ahead of the expected PSN for the reorder buffer.
    #[error("the request is too far ahead")]
    Gap,
    /// A request that was executed before and needs no response, or that is in the reorder buffer.
    #[error("the request is a duplicate")]
    Duplicate,
    /// A request of the number of one in the reorder buffer, and not the same: neither is kept.
    #[error("another request of that number is buffered")]
    HeldConflict,
    /// A response to no packet in flight; or a READ response out of order that does not fit, or is a
    /// duplicate.
    #[error("the response fits no request")]
    StaleResponse,
    /// A response with a reserved syndrome.
    #[error("the syndrome of the response is reserved")]
    ReservedSyndrome,
    /// A CNP to a device whose congestion control is off.
    #[error("congestion control is off")]
    Congestion,
    /// A connection management datagram beyond the rate limit, or while its processing was stopped for lack
    /// of memory.
    #[error("the share of connection management is used up")]
    CmShare,
    /// Not a connection management datagram of a known version.
    #[error("the connection management datagram is malformed")]
    Mad,
    /// A connection management message that is not implemented.
    #[error("the connection management message is not implemented")]
    MadAttribute,
    /// An Ethernet source or destination that is not the address of one host, or a destination that is not ours.
    #[error("the Ethernet addresses are not those of one host and of this one")]
    EthernetAddress,
    /// An IP source address that no other host may have: an own one, loopback, a group's, broadcast, class E, 0.0.0.0/8.
    #[error("no other host may have the IP source address")]
    Martian,
    /// A tag of another VLAN than that of the device, or none where it has one.
    #[error("the packet is of another VLAN")]
    Vlan,
}
