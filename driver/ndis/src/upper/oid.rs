//! Object identifiers: the queries and sets of the adapter.
#![allow(unsafe_code, reason = "requests come with raw buffers")]

use super::adapter::{Adapter, MulticastList};
use super::ndk::NdkState;
use super::qos;
use crate::abi::*;
use crate::frame::ETHERNET_HEADER_LEN;
use crate::frame::Tagging;
use crate::sorting::MULTICAST_MAX;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use driver::Endpoint;

/// The OIDs that are handled here. NDIS handles others from the attributes.
const SUPPORTED: [NDIS_OID; 36] = [
    OID_GEN_SUPPORTED_LIST,
    OID_GEN_HARDWARE_STATUS,
    OID_GEN_TRANSMIT_BUFFER_SPACE,
    OID_GEN_RECEIVE_BUFFER_SPACE,
    OID_GEN_TRANSMIT_BLOCK_SIZE,
    OID_GEN_RECEIVE_BLOCK_SIZE,
    OID_GEN_VENDOR_ID,
    OID_GEN_VENDOR_DESCRIPTION,
    OID_GEN_VENDOR_DRIVER_VERSION,
    OID_GEN_CURRENT_PACKET_FILTER,
    OID_GEN_CURRENT_LOOKAHEAD,
    OID_GEN_DRIVER_VERSION,
    OID_GEN_MAXIMUM_TOTAL_SIZE,
    OID_GEN_STATISTICS,
    OID_GEN_XMIT_OK,
    OID_GEN_RCV_OK,
    OID_GEN_XMIT_ERROR,
    OID_GEN_RCV_ERROR,
    OID_GEN_RCV_NO_BUFFER,
    OID_GEN_INTERRUPT_MODERATION,
    OID_GEN_LINK_PARAMETERS,
    OID_802_3_RCV_ERROR_ALIGNMENT,
    OID_802_3_XMIT_ONE_COLLISION,
    OID_802_3_XMIT_MORE_COLLISIONS,
    OID_802_3_PERMANENT_ADDRESS,
    OID_802_3_CURRENT_ADDRESS,
    OID_802_3_MULTICAST_LIST,
    OID_802_3_MAXIMUM_LIST_SIZE,
    OID_GEN_VLAN_ID,
    OID_PNP_SET_POWER,
    OID_PNP_QUERY_POWER,
    OID_NDK_SET_STATE,
    OID_NDK_STATISTICS,
    OID_NDK_CONNECTIONS,
    OID_NDK_LOCAL_ENDPOINTS,
    // The last one, which not all have.
    OID_QOS_PARAMETERS,
];

/// Those of an adapter with QoS or without it.
pub(crate) fn supported(has_qos: bool) -> &'static [NDIS_OID] {
    if has_qos { &SUPPORTED } else { SUPPORTED.split_last().map_or(&[], |(_, others)| others) }
}

pub(crate) const PACKET_FILTERS: ULONG = NDIS_PACKET_TYPE_DIRECTED
    | NDIS_PACKET_TYPE_MULTICAST
    | NDIS_PACKET_TYPE_ALL_MULTICAST
    | NDIS_PACKET_TYPE_BROADCAST
    | NDIS_PACKET_TYPE_PROMISCUOUS;
/// The MAC options, with the support of tags.
pub(crate) const fn mac_options(tagging: Tagging) -> ULONG {
    let mut options = NDIS_MAC_OPTION_COPY_LOOKAHEAD_DATA
        | NDIS_MAC_OPTION_TRANSFERS_NOT_PEND
        | NDIS_MAC_OPTION_NO_LOOPBACK;
    if tagging.priority {
        options |= NDIS_MAC_OPTION_8021P_PRIORITY;
    }
    if tagging.vlan {
        options |= NDIS_MAC_OPTION_8021Q_VLAN;
    }
    options
}

pub(crate) const STATISTICS: ULONG = NDIS_STATISTICS_FLAGS_VALID_DIRECTED_FRAMES_RCV
    | NDIS_STATISTICS_FLAGS_VALID_MULTICAST_FRAMES_RCV
    | NDIS_STATISTICS_FLAGS_VALID_BROADCAST_FRAMES_RCV
    | NDIS_STATISTICS_FLAGS_VALID_BYTES_RCV
    | NDIS_STATISTICS_FLAGS_VALID_RCV_DISCARDS
    | NDIS_STATISTICS_FLAGS_VALID_RCV_ERROR
    | NDIS_STATISTICS_FLAGS_VALID_DIRECTED_FRAMES_XMIT
    | NDIS_STATISTICS_FLAGS_VALID_MULTICAST_FRAMES_XMIT
    | NDIS_STATISTICS_FLAGS_VALID_BROADCAST_FRAMES_XMIT
    | NDIS_STATISTICS_FLAGS_VALID_BYTES_XMIT
    | NDIS_STATISTICS_FLAGS_VALID_XMIT_ERROR
    | NDIS_STATISTICS_FLAGS_VALID_XMIT_DISCARDS;

/// "No OUI": this project has none.
const VENDOR_ID: u32 = 0x00ff_ffff;
const VENDOR_DESCRIPTION: &[u8] = b"RoCEv2 NDK provider\0";
const DRIVER_VERSION: u32 = 0x0001_0000;

/// The answer to `OID_GEN_INTERRUPT_MODERATION`: an adapter without interrupts cannot moderate them.
const NO_INTERRUPTS: NDIS_INTERRUPT_MODERATION_PARAMETERS = NDIS_INTERRUPT_MODERATION_PARAMETERS {
    Header: header(
        NDIS_OBJECT_TYPE_DEFAULT,
        NDIS_INTERRUPT_MODERATION_PARAMETERS_REVISION_1,
        size_of::<NDIS_INTERRUPT_MODERATION_PARAMETERS>(),
    ),
    Flags: 0,
    InterruptModeration: NdisInterruptModerationNotSupported,
};

/// Handles a request of the ordinary path. PASSIVE_LEVEL.
pub(crate) fn handle(adapter: &Arc<Adapter>, request: &mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    match request.RequestType {
        NdisRequestQueryInformation | NdisRequestQueryStatistics => query(adapter, request),
        NdisRequestSetInformation => set(adapter, request),
        NdisRequestMethod if request.Oid == OID_QOS_PARAMETERS => qos::set(adapter, request),
        _ => NDIS_STATUS_NOT_SUPPORTED,
    }
}

/// Handles a request of the direct path. IRQL <= DISPATCH_LEVEL.
pub(crate) fn handle_direct(adapter: &Adapter, request: &mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    let is_query =
        matches!(request.RequestType, NdisRequestQueryInformation | NdisRequestQueryStatistics);
    match request.Oid {
        OID_NDK_STATISTICS if is_query => answer(request, &ndk_statistics(adapter)),
        _ => NDIS_STATUS_NOT_SUPPORTED,
    }
}

fn query(adapter: &Adapter, request: &mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    let frame_len = (adapter.mtu() + ETHERNET_HEADER_LEN) as u32;
    let stats = &adapter.stats;
    let number = match request.Oid {
        OID_GEN_SUPPORTED_LIST => return answer_oids(request, supported(adapter.has_qos())),
        // `NdisHardwareStatusReady`.
        OID_GEN_HARDWARE_STATUS => 0,
        OID_GEN_TRANSMIT_BUFFER_SPACE | OID_GEN_RECEIVE_BUFFER_SPACE => frame_len * 256,
        OID_GEN_TRANSMIT_BLOCK_SIZE | OID_GEN_RECEIVE_BLOCK_SIZE | OID_GEN_MAXIMUM_TOTAL_SIZE => {
            frame_len
        }
        OID_GEN_CURRENT_LOOKAHEAD => adapter.mtu() as u32,
        OID_GEN_VENDOR_ID => VENDOR_ID,
        OID_GEN_VENDOR_DESCRIPTION => return answer_bytes(request, VENDOR_DESCRIPTION),
        OID_GEN_VENDOR_DRIVER_VERSION => DRIVER_VERSION,
        OID_GEN_DRIVER_VERSION => return answer(request, &0x0600_u16),
        OID_GEN_CURRENT_PACKET_FILTER => adapter.filter(),
        OID_GEN_VLAN_ID if adapter.attachment().tagging().vlan => {
            u32::from(adapter.attachment().tagging().own)
        }
        // Every state is possible: there is no hardware.
        OID_PNP_QUERY_POWER => return NDIS_STATUS_SUCCESS,
        OID_802_3_MAXIMUM_LIST_SIZE => MULTICAST_MAX as u32,
        OID_802_3_PERMANENT_ADDRESS | OID_802_3_CURRENT_ADDRESS => {
            return answer_bytes(request, &adapter.mac);
        }
        OID_802_3_MULTICAST_LIST => {
            let list = adapter.multicast();
            return answer_bytes(request, list.as_flattened());
        }
        OID_GEN_XMIT_OK => return answer_count(request, sum(&stats.out_frames)),
        OID_GEN_RCV_OK => return answer_count(request, sum(&stats.in_frames)),
        OID_GEN_RCV_NO_BUFFER => {
            return answer_count(request, stats.in_discards.load(Ordering::Relaxed));
        }
        // There is no wire that could have these.
        OID_GEN_XMIT_ERROR
        | OID_GEN_RCV_ERROR
        | OID_802_3_RCV_ERROR_ALIGNMENT
        | OID_802_3_XMIT_ONE_COLLISION
        | OID_802_3_XMIT_MORE_COLLISIONS => return answer_count(request, 0),
        OID_GEN_INTERRUPT_MODERATION => return answer(request, &NO_INTERRUPTS),
        OID_GEN_STATISTICS => return answer(request, &statistics(adapter)),
        // The statistics are available by this path, too, for a caller that does not know the other.
        OID_NDK_STATISTICS => return answer(request, &ndk_statistics(adapter)),
        OID_NDK_CONNECTIONS => return connections(adapter, request),
        OID_NDK_LOCAL_ENDPOINTS => return local_endpoints(adapter, request),
        _ => return NDIS_STATUS_NOT_SUPPORTED,
    };
    answer(request, &number)
}

fn set(adapter: &Arc<Adapter>, request: &mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    match request.Oid {
        OID_GEN_CURRENT_PACKET_FILTER => match read::<u32>(request) {
            Ok(filter) if filter & !PACKET_FILTERS != 0 => NDIS_STATUS_NOT_SUPPORTED,
            Ok(filter) => {
                adapter.set_filter(filter);
                NDIS_STATUS_SUCCESS
            }
            Err(status) => status,
        },
        // Whole frames are indicated, whatever the look-ahead.
        OID_GEN_CURRENT_LOOKAHEAD => read::<u32>(request).map(drop).into(),
        OID_802_3_MULTICAST_LIST => set_multicast(adapter, request),
        // The link is the NIC's, whatever is asked of the adapter.
        OID_GEN_LINK_PARAMETERS => read::<NDIS_LINK_PARAMETERS>(request).map(drop).into(),
        // As its page demands of an adapter that answers the query so.
        OID_GEN_INTERRUPT_MODERATION => NDIS_STATUS_INVALID_DATA,
        OID_GEN_VLAN_ID if adapter.attachment().tagging().vlan => match read::<u32>(request) {
            Ok(vlan @ 0..=0xfff) => {
                adapter.set_vlan(vlan as u16);
                NDIS_STATUS_SUCCESS
            }
            Ok(_) => STATUS_INVALID_PARAMETER,
            Err(status) => status,
        },
        OID_PNP_SET_POWER => match read::<i32>(request) {
            Ok(state) => {
                adapter.attachment().set_asleep(state != NdisDeviceStateD0);
                NDIS_STATUS_SUCCESS
            }
            Err(status) => status,
        },
        OID_NDK_SET_STATE => match read::<u8>(request) {
            Ok(enable) => NdkState::request(adapter, enable != 0).into(),
            Err(status) => status,
        },
        _ => NDIS_STATUS_NOT_SUPPORTED,
    }
}

fn set_multicast(adapter: &Adapter, request: &mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    // SAFETY: the buffer of a set is readable for its length during the request.
    let bytes =
        unsafe { slice(request.InformationBuffer.cast::<u8>(), request.InformationBufferLength) };
    let (addresses, rest) = bytes.as_chunks::<6>();
    if !rest.is_empty() {
        return NDIS_STATUS_INVALID_LENGTH;
    }
    let Ok(list) = MulticastList::from_slice(addresses) else {
        return NDIS_STATUS_MULTICAST_FULL;
    };
    request.BytesWritten = request.InformationBufferLength;
    adapter.set_multicast(list);
    NDIS_STATUS_SUCCESS
}

fn sum(counters: &[AtomicU64; 3]) -> u64 {
    counters.iter().map(|counter| counter.load(Ordering::Relaxed)).sum()
}

/// The general statistics count RDMA traffic too: it is unicast.
fn statistics(adapter: &Adapter) -> NDIS_STATISTICS_INFO {
    let stats = &adapter.stats;
    let rdma = adapter.ndk_counters();
    let get =
        |counters: &[AtomicU64; 3]| [0, 1, 2].map(|at: usize| counters[at].load(Ordering::Relaxed));
    let ([in_u, in_m, in_b], [in_ub, in_mb, in_bb]) = (get(&stats.in_frames), get(&stats.in_bytes));
    let ([out_u, out_m, out_b], [out_ub, out_mb, out_bb]) =
        (get(&stats.out_frames), get(&stats.out_bytes));
    let (in_ub, out_ub) = (in_ub + rdma.RDMAInOctets, out_ub + rdma.RDMAOutOctets);
    NDIS_STATISTICS_INFO {
        Header: header(NDIS_OBJECT_TYPE_DEFAULT, 1, size_of::<NDIS_STATISTICS_INFO>()),
        SupportedStatistics: STATISTICS,
        ifInDiscards: stats.in_discards.load(Ordering::Relaxed)
            + adapter.ports().counters().dropped,
        ifInErrors: 0,
        ifHCInOctets: in_ub + in_mb + in_bb,
        ifHCInUcastPkts: in_u + rdma.RDMAInFrames,
        ifHCInMulticastPkts: in_m,
        ifHCInBroadcastPkts: in_b,
        ifHCOutOctets: out_ub + out_mb + out_bb,
        ifHCOutUcastPkts: out_u + rdma.RDMAOutFrames,
        ifHCOutMulticastPkts: out_m,
        ifHCOutBroadcastPkts: out_b,
        ifOutErrors: 0,
        ifOutDiscards: stats.out_discards.load(Ordering::Relaxed),
        ifHCInUcastOctets: in_ub,
        ifHCInMulticastOctets: in_mb,
        ifHCInBroadcastOctets: in_bb,
        ifHCOutUcastOctets: out_ub,
        ifHCOutMulticastOctets: out_mb,
        ifHCOutBroadcastOctets: out_bb,
    }
}

fn ndk_statistics(adapter: &Adapter) -> NDIS_NDK_STATISTICS_INFO {
    NDIS_NDK_STATISTICS_INFO {
        Header: header(
            NDIS_OBJECT_TYPE_DEFAULT,
            NDIS_NDK_STATISTICS_INFO_REVISION_1,
            size_of::<NDIS_NDK_STATISTICS_INFO>(),
        ),
        Flags: 0,
        CounterSet: adapter.ndk_counters(),
    }
}

fn connections(adapter: &Adapter, request: &mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    let Some(endpoints) = adapter.endpoints() else { return NDIS_STATUS_RESOURCES };
    let entries = endpoints.iter().filter_map(|endpoint| match endpoint {
        Endpoint::Connection(connection) => Some(NDIS_NDK_CONNECTION_ENTRY {
            Local: connection.local.into(),
            Remote: connection.remote.into(),
            UserModeOwner: FALSE,
            OwnerPid: 0,
        }),
        Endpoint::Listener(_) | Endpoint::Shared(_) => None,
    });
    answer_list(request, entries)
}

fn local_endpoints(adapter: &Adapter, request: &mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    let Some(endpoints) = adapter.endpoints() else { return NDIS_STATUS_RESOURCES };
    let entries = endpoints.iter().filter_map(|endpoint| {
        let (local, listener) = match endpoint {
            Endpoint::Listener(local) => (local, true),
            Endpoint::Shared(local) => (local, false),
            Endpoint::Connection(_) => return None,
        };
        Some(NDIS_NDK_LOCAL_ENDPOINT_ENTRY {
            Local: (*local).into(),
            UserModeOwner: FALSE,
            Listener: listener.into(),
            OwnerPid: 0,
        })
    });
    answer_list(request, entries)
}

/// Both lists begin alike: header, flags, count, "mapped to TCP".
fn answer_list<T: Copy>(
    request: &mut NDIS_OID_REQUEST,
    entries: impl Iterator<Item = T> + Clone,
) -> NDIS_STATUS {
    let count = entries.clone().count();
    let len = size_of::<NDIS_NDK_CONNECTIONS>() + count * size_of::<T>();
    let head = NDIS_NDK_CONNECTIONS {
        Header: header(NDIS_OBJECT_TYPE_DEFAULT, 1, len.min(usize::from(u16::MAX))),
        Flags: 0,
        Count: count as ULONG,
        NDConnectionsMappedtoTCPConnections: FALSE,
        Connections: [],
    };
    // SAFETY: structures of plain numbers; their padding is zero or unread.
    answer_pieces(request, len, unsafe { bytes_of(&head) }, entries)
}

fn answer_oids(request: &mut NDIS_OID_REQUEST, oids: &[NDIS_OID]) -> NDIS_STATUS {
    answer_pieces(request, size_of_val(oids), &[], oids.iter().copied())
}

fn answer<T: Copy>(request: &mut NDIS_OID_REQUEST, value: &T) -> NDIS_STATUS {
    // SAFETY: a structure of plain numbers.
    answer_bytes(request, unsafe { bytes_of(value) })
}

/// Responds with a statistic. Where there is room for no more, with its lower half, as callers of NDIS 5 ask:
/// [general statistics](https://learn.microsoft.com/windows-hardware/drivers/network/general-statistics).
fn answer_count(request: &mut NDIS_OID_REQUEST, count: u64) -> NDIS_STATUS {
    if !(4..8).contains(&request.InformationBufferLength) {
        return answer(request, &count);
    }
    let status = answer(request, &(count as u32));
    request.BytesNeeded = size_of::<u64>() as u32;
    status
}

fn answer_bytes(request: &mut NDIS_OID_REQUEST, bytes: &[u8]) -> NDIS_STATUS {
    answer_pieces(request, bytes.len(), bytes, core::iter::empty::<u8>())
}

/// Responds with `head` and the entries behind it, `len` bytes in all, which are plain numbers.
fn answer_pieces<T: Copy>(
    request: &mut NDIS_OID_REQUEST,
    len: usize,
    head: &[u8],
    rest: impl Iterator<Item = T>,
) -> NDIS_STATUS {
    request.BytesNeeded = len as u32;
    if (request.InformationBufferLength as usize) < len {
        request.BytesWritten = 0;
        return NDIS_STATUS_BUFFER_TOO_SHORT;
    }
    let to = request.InformationBuffer.cast::<u8>();
    // SAFETY: the buffer of a query is writable for its length during the request.
    unsafe { core::ptr::copy_nonoverlapping(head.as_ptr(), to, head.len()) };
    let mut to = to.wrapping_add(head.len()).cast::<T>();
    for entry in rest {
        // SAFETY: as above; the length counts every entry.
        unsafe { to.write_unaligned(entry) };
        to = to.wrapping_add(1);
    }
    request.BytesWritten = len as u32;
    NDIS_STATUS_SUCCESS
}

fn read<T: Copy>(request: &mut NDIS_OID_REQUEST) -> Result<T, NDIS_STATUS> {
    let len = size_of::<T>() as u32;
    if request.InformationBufferLength < len {
        request.BytesNeeded = len;
        return Err(NDIS_STATUS_INVALID_LENGTH);
    }
    // `BytesRead`, at the same place.
    request.BytesWritten = len;
    // SAFETY: the buffer of a set is readable for its length during the request.
    Ok(unsafe { request.InformationBuffer.cast::<T>().read_unaligned() })
}

/// # Safety
/// Every byte of `T` may be read.
unsafe fn bytes_of<T>(value: &T) -> &[u8] {
    let (data, len) = (core::ptr::from_ref(value).cast(), size_of::<T>());
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts(data, len) }
}
