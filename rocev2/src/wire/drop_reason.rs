//! Why a packet is discarded in silence.

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Why an inbound packet is discarded in silence (CA17-24). Also the index of its counter.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[$doc])* $name,)+
        }

        impl DropReason {
            /// Every reason, in the order of its counter.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$name,)+];

            /// How many reasons, and so counters, there are.
            pub const COUNT: usize = [$(Self::$name,)+].len();

            /// The index of the counter.
            pub const fn index(self) -> usize {
                self as usize
            }
        }
    };
}

drop_reasons! {
    /// Ends before a header, the ICRC or a length that it announces.
    Truncated,
    /// Neither IP nor UDP to port 4791: some other protocol's packet.
    NotRoce,
    /// IP version, options, extension headers, header checksum or total length.
    IpHeader,
    /// A fragment: RoCEv2 is never reassembled.
    Fragment,
    /// The UDP length contradicts the IP length or the transport headers.
    UdpLength,
    /// A UDP checksum is present and wrong.
    UdpChecksum,
    /// A transport header version other than 0.
    TransportVersion,
    /// A reserved opcode, or one of a transport that is not offered.
    UnknownOpcode,
    /// More pad bytes than bytes.
    BadPad,
    /// The invariant CRC does not match.
    Icrc,
    /// Destination QP 0.
    BadDestQp,
    /// No queue pair has the destination QP number.
    UnknownQpn,
    /// The opcode's transport is not that of the queue pair.
    TransportMismatch,
    /// Not from the queue pair's peer, or not to its address.
    AddressMismatch,
    /// The queue pair's state does not admit the packet.
    QpState,
    /// The partition key does not match.
    PKey,
    /// The Q_Key does not match.
    QKey,
    /// A request so far ahead of the one expected that it cannot be held.
    Gap,
    /// A request that was executed before and is not answered again, or that is held already.
    Duplicate,
    /// A response to nothing that is in flight, or one that came early and fits nothing or twice.
    StaleResponse,
    /// A response with a reserved syndrome.
    ReservedSyndrome,
    /// A congestion notification to a device whose congestion control is off.
    Congestion,
    /// A connection management datagram beyond the share of work that those may take, or that came while
    /// there was no memory for what it may lead to.
    CmShare,
    /// Not a connection management datagram of a known version.
    Mad,
    /// A connection management message that is not implemented.
    MadAttribute,
}
