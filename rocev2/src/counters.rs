//! The counters of a device and its queue pairs.
//!
//! One table names every counter. The engine that sees an event counts it once: into the counters of its
//! QP, if it has one, and into those of the device. A device's number is therefore the sum over all QPs
//! that it ever had, and of the events without a QP. Names are those of Linux: of rxe's `hw_counters`, else
//! of mlx5's, so that existing dashboards fit; the others are ours.

use crate::wire::DropReason;
use crate::wire::mad::CmMessage;
use alloc::sync::Arc;
use core::ops::{Index, Sub};
use core::sync::atomic::{AtomicU64, Ordering};

/// The unit of a counter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unit {
    /// RoCE packets.
    Packets,
    /// Bytes of RoCE packets: from the Ethernet header to the ICRC, without padding and FCS.
    Bytes,
    /// Events.
    Events,
    /// Connection management messages.
    Messages,
    /// Nanoseconds of the caller's clock.
    Nanoseconds,
}

/// The scope of a counter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// In a QP, and in its device.
    Qp,
    /// In the device only.
    Device,
}

macro_rules! counters {
    ($(
        events { $($(#[$doc:meta])* $name:ident = $text:literal, $unit:ident, $scope:ident;)+ }
        drops { $($drop:ident = $drop_text:literal, $drop_scope:ident, $reason:ident;)+ }
    )+) => {
        /// A counter. Its index may differ between versions, its name does not.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[repr(u8)]
        pub enum Counter {
            $(
                $($(#[$doc])* $name,)+
                $(
                    #[doc = concat!("Packets received and dropped: [`DropReason::", stringify!($reason), "`].")]
                    $drop,
                )+
            )+
        }

        impl Counter {
            /// Every counter, in the order of its index.
            pub const ALL: [Self; Self::COUNT] = [$($(Self::$name,)+ $(Self::$drop,)+)+];

            /// The number of counters.
            pub const COUNT: usize = [$($(Self::$name,)+ $(Self::$drop,)+)+].len();

            /// The counter's name: `lower_snake_case`, and unique.
            pub const fn name(self) -> &'static str {
                match self {
                    $(
                        $(Self::$name => $text,)+
                        $(Self::$drop => $drop_text,)+
                    )+
                }
            }

            /// The counter's unit.
            pub const fn unit(self) -> Unit {
                match self {
                    $(
                        $(Self::$name => Unit::$unit,)+
                        $(Self::$drop => Unit::Packets,)+
                    )+
                }
            }

            /// The counter's scope.
            pub const fn scope(self) -> Scope {
                match self {
                    $(
                        $(Self::$name => Scope::$scope,)+
                        $(Self::$drop => Scope::$drop_scope,)+
                    )+
                }
            }

            /// The counter of the packets that are dropped for a reason.
            pub const fn dropped(reason: DropReason) -> Self {
                match reason {
                    $($(DropReason::$reason => Self::$drop,)+)+
                }
            }
        }
    };
}

counters! {
    events {
        /// RoCE packets sent, resends included. rxe's name.
        SentPkts = "sent_pkts", Packets, Qp;
        /// Bytes of [`Self::SentPkts`].
        SentBytes = "sent_bytes", Bytes, Qp;
        /// RoCE packets received whose headers and ICRC are right. rxe's name. Other packets are counted by
        /// their [`DropReason`] and not here.
        RcvdPkts = "rcvd_pkts", Packets, Qp;
        /// Bytes of [`Self::RcvdPkts`].
        RcvdBytes = "rcvd_bytes", Bytes, Qp;

        /// Units of several packets sent, for the kernel or the NIC to divide. A packet that is sent again leaves singly.
        UnitsSent = "units_sent", Events, Qp;
        /// Units lost whole: each packet had to be sent again, alone, and came then. One unit at a time is watched.
        UnitsLost = "units_lost", Events, Qp;
        /// Packets resent because a retransmission timer expired.
        ResentTimerPkts = "resent_timer_pkts", Packets, Qp;
        /// Bytes of [`Self::ResentTimerPkts`].
        ResentTimerBytes = "resent_timer_bytes", Bytes, Qp;
        /// Packets resent after a NAK (PSN sequence error).
        ResentNakPkts = "resent_nak_pkts", Packets, Qp;
        /// Bytes of [`Self::ResentNakPkts`].
        ResentNakBytes = "resent_nak_bytes", Bytes, Qp;
        /// READ requests resent because responses to later requests came and theirs did not (implied NAK).
        ResentImpliedNakPkts = "resent_implied_nak_pkts", Packets, Qp;
        /// Bytes of [`Self::ResentImpliedNakPkts`].
        ResentImpliedNakBytes = "resent_implied_nak_bytes", Bytes, Qp;
        /// Packets resent after the pause of an RNR NAK.
        ResentRnrPkts = "resent_rnr_pkts", Packets, Qp;
        /// Bytes of [`Self::ResentRnrPkts`].
        ResentRnrBytes = "resent_rnr_bytes", Bytes, Qp;
        /// READ requests among the resent packets, for any cause.
        ReadRequestsResent = "read_requests_resent", Packets, Qp;

        /// Probes sent for connection management: requests without effect, to which the peer's QP responds
        /// if it is there.
        ProbesSent = "probes_sent", Packets, Qp;
        /// Times that packets were resent because of a timer or a NAK, RNR NAKs excepted. rxe's name.
        CompleterRetryErr = "completer_retry_err", Events, Qp;
        /// Resends whose first copy turned out to have a response: two responses to a READ, or one sooner
        /// than any round trip. Others go unnoticed.
        NeedlessResends = "needless_resends", Events, Qp;
        /// Tail loss probes: zero-length WRITEs sent to a silent peer.
        TailLossProbes = "tail_loss_probes", Packets, Qp;

        /// Retransmission timers that expired and made the requester resend, or give up. mlx5's name.
        LocalAckTimeoutErr = "local_ack_timeout_err", Events, Qp;
        /// QPs that failed because the peer stayed silent through all retries. rxe's name.
        RetryExceededErr = "retry_exceeded_err", Events, Qp;
        /// QPs that failed because the peer was not ready through all RNR retries. rxe's name.
        RetryRnrExceededErr = "retry_rnr_exceeded_err", Events, Qp;
        /// PSN sequence NAKs received that name a packet in flight. mlx5's name; rxe's `rcvd_seq_err`.
        PacketSeqErr = "packet_seq_err", Packets, Qp;
        /// Gaps in the READ responses that a later response showed. mlx5's name. Most are reordering, and
        /// close by themselves.
        ImpliedNakSeqErr = "implied_nak_seq_err", Events, Qp;
        /// RNR NAKs received for a request in flight. rxe's name; mlx5's `rnr_nak_retry_err`.
        RcvdRnrErr = "rcvd_rnr_err", Packets, Qp;
        /// Invalid request NAKs received. mlx5's name.
        ReqRemoteInvalidRequest = "req_remote_invalid_request", Packets, Qp;
        /// Remote access NAKs received. mlx5's name.
        ReqRemoteAccessErrors = "req_remote_access_errors", Packets, Qp;
        /// Remote operational error NAKs received.
        ReqRemoteOpErrors = "req_remote_op_errors", Packets, Qp;
        /// READ responses that came before an older one, and were placed.
        EarlyReadResponses = "early_read_responses", Packets, Qp;

        /// READ requests received and executed. mlx5's name.
        RxReadRequests = "rx_read_requests", Packets, Qp;
        /// Request packets received that were executed before. rxe's and mlx5's name.
        DuplicateRequest = "duplicate_request", Packets, Qp;
        /// Request packets received behind a gap. rxe's name; mlx5's `out_of_sequence`.
        OutOfSeqRequest = "out_of_seq_request", Packets, Qp;
        /// Request packets of [`Self::OutOfSeqRequest`] that went into the reorder buffer.
        OutOfOrderHeld = "out_of_order_held", Packets, Qp;
        /// Request packets refused because no receive was posted. mlx5's name.
        OutOfBuffer = "out_of_buffer", Packets, Qp;
        /// RNR NAKs sent. rxe's name.
        SendRnrErr = "send_rnr_err", Packets, Qp;
        /// PSN sequence NAKs sent.
        SendSeqErr = "send_seq_err", Packets, Qp;
        /// Invalid request NAKs sent.
        RespRemoteInvalidRequest = "resp_remote_invalid_request", Packets, Qp;
        /// Remote access NAKs sent. mlx5's name.
        RespRemoteAccessErrors = "resp_remote_access_errors", Packets, Qp;
        /// Remote operational error NAKs sent.
        RespRemoteOpErrors = "resp_remote_op_errors", Packets, Qp;
        /// SENDs received that were longer than their receive. mlx5's name.
        RespLocalLengthError = "resp_local_length_error", Events, Qp;
        /// Unsolicited ACKs: the peer was silent after it had sent packets twice.
        AckRepeated = "ack_repeated", Events, Qp;

        /// Packets with data received with a congestion mark (ECN). mlx5's name.
        NpEcnMarkedRocePackets = "np_ecn_marked_roce_packets", Packets, Qp;
        /// Congestion notifications sent. mlx5's name.
        NpCnpSent = "np_cnp_sent", Packets, Qp;
        /// Congestion notifications received and processed. mlx5's name.
        RpCnpHandled = "rp_cnp_handled", Packets, Qp;
        /// Time for which congestion control delayed a packet.
        PacedNs = "paced_ns", Nanoseconds, Qp;
    }
    drops {
        DropTransportMismatch = "drop_transport_mismatch", Qp, TransportMismatch;
        DropAddressMismatch = "drop_address_mismatch", Qp, AddressMismatch;
        DropFlowMismatch = "drop_flow_mismatch", Qp, FlowMismatch;
        DropQpState = "drop_qp_state", Qp, QpState;
        DropGap = "drop_gap", Qp, Gap;
        DropDuplicate = "drop_duplicate", Qp, Duplicate;
        DropHeldConflict = "drop_held_conflict", Qp, HeldConflict;
        DropStaleResponse = "drop_stale_response", Qp, StaleResponse;
        DropReservedSyndrome = "drop_reserved_syndrome", Qp, ReservedSyndrome;
        RpCnpIgnored = "rp_cnp_ignored", Qp, Congestion;
    }
    events {
        /// Times that units were given up over a path, as those in a row were lost, or the one that was tried: packets leave singly.
        UnitsOffPath = "units_off_path", Events, Device;
        /// The same over all paths of the core, as no path had a unit come.
        UnitsOffLink = "units_off_link", Events, Device;
        /// Messages received for an unknown connection.
        CmUnknownId = "cm_unknown_id", Messages, Device;
        /// Messages received that the connection's state does not admit, most of them duplicates.
        CmUnexpected = "cm_unexpected", Messages, Device;
        /// Connection requests put off because a listener's backlog was full.
        CmPutOff = "cm_put_off", Messages, Device;
        /// Messages of ours that found the transmit queue full.
        CmTransmitFull = "cm_transmit_full", Messages, Device;
        /// Connects of ours that the peer refused for their path MTU, and that another one could not mend.
        CmPathMtuRefused = "cm_path_mtu_refused", Messages, Device;
        /// REQs received that had no effect, for any reason.
        CmReqDropped = "cm_req_dropped", Messages, Device;
        /// REPs received that had no effect.
        CmRepDropped = "cm_rep_dropped", Messages, Device;
        /// RTUs received that had no effect.
        CmRtuDropped = "cm_rtu_dropped", Messages, Device;
        /// REJs received that had no effect.
        CmRejDropped = "cm_rej_dropped", Messages, Device;
        /// MRAs received that had no effect.
        CmMraDropped = "cm_mra_dropped", Messages, Device;
        /// DREQs received that had no effect.
        CmDreqDropped = "cm_dreq_dropped", Messages, Device;
        /// DREPs received that had no effect.
        CmDrepDropped = "cm_drep_dropped", Messages, Device;
        /// SIDR requests and replies received that had no effect.
        CmSidrDropped = "cm_sidr_dropped", Messages, Device;
    }
    drops {
        DropTruncated = "drop_truncated", Device, Truncated;
        DropNotRoce = "drop_not_roce", Device, NotRoce;
        DropIpHeader = "drop_ip_header", Device, IpHeader;
        DropFragment = "drop_fragment", Device, Fragment;
        DropUdpLength = "drop_udp_length", Device, UdpLength;
        DropUdpChecksum = "drop_udp_checksum", Device, UdpChecksum;
        DropTransportVersion = "drop_transport_version", Device, TransportVersion;
        DropUnknownOpcode = "drop_unknown_opcode", Device, UnknownOpcode;
        DropBadPad = "drop_bad_pad", Device, BadPad;
        RxIcrcEncapsulated = "rx_icrc_encapsulated", Device, Icrc;
        DropBadDestQp = "drop_bad_dest_qp", Device, BadDestQp;
        DropUnknownQpn = "drop_unknown_qpn", Device, UnknownQpn;
        DropPKey = "drop_pkey", Device, PKey;
        DropQKey = "drop_qkey", Device, QKey;
        DropCmShare = "drop_cm_share", Device, CmShare;
        DropMad = "drop_mad", Device, Mad;
        DropMadAttribute = "drop_mad_attribute", Device, MadAttribute;
        DropEthernetAddress = "drop_ethernet_address", Device, EthernetAddress;
        DropMartian = "drop_martian", Device, Martian;
        DropVlan = "drop_vlan", Device, Vlan;
    }
}

impl Counter {
    /// The number of counters that a QP has: those of a device alone stand behind them.
    const OF_QP: usize = {
        let mut count = 0;
        while matches!(Self::ALL[count].scope(), Scope::Qp) {
            count += 1;
        }
        count
    };

    /// The counter of a kind of message that had no effect.
    pub(crate) const fn cm_dropped(message: &CmMessage) -> Self {
        match message {
            CmMessage::Req(_) => Self::CmReqDropped,
            CmMessage::Rep(_) => Self::CmRepDropped,
            CmMessage::Rtu(_) => Self::CmRtuDropped,
            CmMessage::Rej(_) => Self::CmRejDropped,
            CmMessage::Mra(_) => Self::CmMraDropped,
            CmMessage::Dreq(_) => Self::CmDreqDropped,
            CmMessage::Drep(_) => Self::CmDrepDropped,
            CmMessage::SidrReq(_) | CmMessage::SidrRep(_) => Self::CmSidrDropped,
        }
    }
}

/// The counters of a device. They begin with 0 and wrap at 2^64. The owner of the device writes them; any
/// thread may read them at any time, without a lock.
pub type Counters = Cells<{ Counter::COUNT }>;

/// The counters of a QP, as [`Counters`].
pub type QpCounters = Cells<{ Counter::OF_QP }>;

/// The first `N` counters; those that each packet adds to share a cache line.
#[derive(Debug)]
#[repr(align(64))]
pub struct Cells<const N: usize>([AtomicU64; N]);

impl<const N: usize> Default for Cells<N> {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; N])
    }
}

impl<const N: usize> Cells<N> {
    /// Adds to a counter, if it is counted here. There is one writer, so it needs no read-modify-write.
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        if let Some(cell) = self.0.get(counter as usize) {
            cell.store(cell.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
        }
    }

    /// Counts received packets, of so many bytes together.
    pub(crate) fn add_received(&self, packets: u64, bytes: u64) {
        self.add(Counter::RcvdPkts, packets);
        self.add(Counter::RcvdBytes, bytes);
    }

    /// The current value of a counter; 0 for one that is not counted here.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0.get(counter as usize).map_or(0, |cell| cell.load(Ordering::Relaxed))
    }

    /// The current values of all counters. Each is right; events during the call may be in some and not in
    /// others.
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::ZERO;
        self.add_to(&mut snapshot);
        snapshot
    }

    /// Adds the current values to those of other cores, as [`Self::snapshot`] reads them. In place, as a snapshot is a large part of
    /// a kernel's stack.
    pub fn add_to(&self, sum: &mut Snapshot) {
        for (sum, cell) in sum.0.iter_mut().zip(&self.0) {
            *sum = sum.wrapping_add(cell.load(Ordering::Relaxed));
        }
    }
}

/// Counts for a QP: into its own counters, and into its device's.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    qp: Arc<QpCounters>,
    device: Arc<Counters>,
}

impl Tally {
    /// Counters of a new QP of the device whose counters are `device`.
    pub(crate) fn new(device: Arc<Counters>) -> Self {
        Self { qp: Arc::default(), device }
    }

    /// The QP's counters.
    pub(crate) const fn of_qp(&self) -> &Arc<QpCounters> {
        &self.qp
    }

    /// Counts one.
    pub(crate) fn count(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Counts `n`.
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        debug_assert!(counter.scope() == Scope::Qp, "{counter:?}");
        self.qp.add(counter, n);
        self.device.add(counter, n);
    }
}

/// The values of all counters at one time, or their differences between two times.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Snapshot([u64; Counter::COUNT]);

impl Snapshot {
    /// All 0.
    pub const ZERO: Self = Self([0; Counter::COUNT]);

    /// Each counter with its value.
    pub fn iter(&self) -> impl Iterator<Item = (Counter, u64)> + use<> {
        Counter::ALL.into_iter().zip(self.0)
    }

    /// Packets dropped, for all reasons.
    pub fn dropped(&self) -> u64 {
        DropReason::ALL.iter().map(|reason| self[Counter::dropped(*reason)]).sum()
    }
}

impl Index<Counter> for Snapshot {
    type Output = u64;

    fn index(&self, counter: Counter) -> &u64 {
        &self.0[counter as usize]
    }
}

/// The difference from an earlier snapshot.
impl Sub for Snapshot {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self(core::array::from_fn(|index| self.0[index].wrapping_sub(earlier.0[index])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_counter_has_a_name_of_its_own() {
        let names: BTreeSet<_> = Counter::ALL.iter().map(|counter| counter.name()).collect();
        assert_eq!(names.len(), Counter::COUNT);
        let plain =
            |name: &str| name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        assert!(names.iter().all(|name| plain(name)), "{names:?}");
        assert!(Counter::ALL.iter().enumerate().all(|(index, counter)| *counter as usize == index));
        let of_device = |counter: &Counter| counter.scope() == Scope::Device;
        assert!(Counter::ALL[Counter::OF_QP..].iter().all(of_device), "a QP has the first ones");
    }

    #[test]
    fn a_queue_pair_counts_for_its_device_too() {
        let device = Arc::new(Counters::default());
        let pairs = [(); 2].map(|()| Tally::new(Arc::clone(&device)));
        pairs[0].count(Counter::PacketSeqErr);
        let before = device.snapshot();
        pairs[0].add(Counter::SentBytes, 700);
        pairs[1].add(Counter::SentBytes, 33);
        let moved = device.snapshot() - before;
        assert!(moved.iter().all(|(counter, n)| (counter == Counter::SentBytes) == (n > 0)));
        assert_eq!((moved[Counter::SentBytes], before[Counter::PacketSeqErr]), (733, 1));
        assert_eq!(pairs.map(|pair| pair.of_qp().get(Counter::SentBytes)), [700, 33]);
    }
}
