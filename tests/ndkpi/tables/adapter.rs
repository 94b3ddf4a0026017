use super::*;
use std::ptr::null_mut;
use tests::kit::raw::request;

crate::tests! {
    the_adapter_tells_the_truth
    every_limit_survives_a_narrower_integer
    the_limits_of_bytes_are_kept
    instances_live_and_end_apart
}

fn the_adapter_tells_the_truth() {
    let net = Net::new();
    let adapter = &net.adapters[0];
    let info = adapter.info().unwrap();
    assert_eq!((info.Version, info.RdmaTechnology), (Adapter::VERSION, NdkRoCEv2));
    // SAFETY: the adapter is open.
    assert_eq!(unsafe { (*adapter.as_ptr()).Header.Version }, info.Version);
    // What it says it takes, it takes, and nothing beyond.
    let side = net.side(0);
    let cq = adapter.create_cq(info.MaxCqDepth).unwrap();
    assert_eq!(status(adapter.create_cq(info.MaxCqDepth + 1)), STATUS_INVALID_PARAMETER);
    let largest = QpConfig {
        receive_depth: info.MaxReceiveQueueDepth,
        initiator_depth: info.MaxInitiatorQueueDepth,
        receive_sge: info.MaxReceiveRequestSge,
        initiator_sge: info.MaxInitiatorRequestSge,
        inline_len: info.MaxInlineDataSize,
        context: 0,
    };
    let qp = side.pd.create_qp(&cq, &cq, largest).unwrap();
    let widest = vec![side.mr.sge(0..1); info.MaxReceiveRequestSge as usize];
    for context in 0..info.MaxReceiveQueueDepth as usize {
        qp.receive(context, &widest).unwrap();
    }
    assert_eq!(status(qp.receive(0, &[])), STATUS_NO_MORE_ENTRIES);
    assert_eq!(info.MaxReadRequestSge, info.MaxInitiatorRequestSge);
    let offered = NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED
        | NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED
        | NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED
        | NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED;
    assert_eq!(info.AdapterFlags & offered, offered);
    // Within one packet nobody says in which order the bytes are copied, and one core serves all
    // connections.
    let missing = NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED | NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED;
    assert_eq!(info.AdapterFlags & missing, 0);
}

/// Whether a limit is one in whatever integer a consumer keeps it, and not below `floor` there.
fn survives(limit: u64, bits: u32, floor: u64) {
    let kept = limit & (u64::MAX >> (64 - bits));
    assert!(kept >= floor, "{limit:#x} is {kept:#x} in {bits} bits");
    assert!(bits == 16 || kept >> (bits - 1) == 0, "{limit:#x} is negative in {bits} bits");
}

/// Goal: a consumer that keeps a limit in a `ULONG`, a `LONG` or, a queue's, in a `USHORT` works with
/// a limit that is as useful.
/// Method: the lowest value that is still useful, for each field; the list names all of them.
fn every_limit_survives_a_narrower_integer() {
    let NDK_ADAPTER_INFO {
        Version: _,
        VendorId: _,
        DeviceId: _,
        MaxRegistrationSize,
        MaxWindowSize,
        FRMRPageCount,
        MaxInitiatorRequestSge,
        MaxReceiveRequestSge,
        MaxReadRequestSge,
        MaxTransferLength,
        MaxInlineDataSize,
        MaxInboundReadLimit,
        MaxOutboundReadLimit,
        MaxReceiveQueueDepth,
        MaxInitiatorQueueDepth,
        MaxSrqDepth,
        MaxCqDepth,
        LargeRequestThreshold,
        MaxCallerData,
        MaxCalleeData,
        AdapterFlags: _,
        RdmaTechnology: _,
    } = Net::new().adapters[0].info().unwrap();
    for size in [MaxRegistrationSize as u64, MaxWindowSize as u64] {
        survives(size, 64, 1 << 39);
        survives(size, 32, 1 << 30);
    }
    survives(MaxTransferLength.into(), 32, 1 << 30);
    for (limit, floor) in [
        (FRMRPageCount, 256),
        (MaxInitiatorRequestSge, 16),
        (MaxReceiveRequestSge, 16),
        (MaxReadRequestSge, 16),
        (MaxInlineDataSize, 64),
        (MaxInboundReadLimit, 16),
        (MaxOutboundReadLimit, 16),
        (MaxReceiveQueueDepth, 4096),
        (MaxInitiatorQueueDepth, 4096),
        (MaxSrqDepth, 4096),
        (MaxCqDepth, 8192),
        (LargeRequestThreshold, 1024),
        (MaxCallerData, 56),
        (MaxCalleeData, 148),
    ] {
        for bits in [32, 16] {
            survives(limit.into(), bits, floor);
        }
    }
}

/// A chain of MDLs over `len` bytes at least that nobody may touch.
fn endless(len: usize) -> Vec<MDL> {
    const PIECE: usize = 1 << 31;
    let at = |index: usize| std::ptr::without_provenance_mut((1 << 44) + index * PIECE);
    let mut chain: Vec<MDL> = (0..len.div_ceil(PIECE))
        .map(|index| MDL {
            Next: null_mut(),
            Size: size_of::<MDL>() as i16,
            MdlFlags: MDL_MAPPED_TO_SYSTEM_VA | MDL_PAGES_LOCKED,
            Process: null_mut(),
            MappedSystemVa: at(index),
            StartVa: at(index),
            ByteCount: PIECE as u32,
            ByteOffset: 0,
        })
        .collect();
    let mut next = null_mut();
    for mdl in chain.iter_mut().rev() {
        mdl.Next = next;
        next = mdl;
    }
    chain
}

/// What is over a limit of bytes is refused, and what is at it is taken.
fn the_limits_of_bytes_are_kept() {
    let net = Net::new();
    let info = net.adapters[0].info().unwrap();
    let connection = net.connect();
    let (qp, pd) = (Object(connection.sides[0].qp.as_ptr()), connection.sides[0].pd.as_ptr());
    let most = |over: u32| [NDK_SGE::from_virtual(null_mut(), info.MaxTransferLength + over, 7)];
    let over = most(1);
    assert_eq!(qp.receive(0, &over), STATUS_BUFFER_OVERFLOW);
    assert_eq!(qp.send(0, &over), STATUS_BUFFER_OVERFLOW);
    assert_eq!(qp.read(0, &over, 0, 7), STATUS_BUFFER_OVERFLOW);
    assert_eq!(qp.write(0, &over, 0, 7), STATUS_BUFFER_OVERFLOW);
    assert_eq!(qp.receive(0, &most(0)), STATUS_SUCCESS);
    let mr = wait(|then| Object(pd).create_mr(then)).unwrap();
    let mut chain = endless(info.MaxRegistrationSize + 1);
    let mdl: *mut MDL = &raw mut chain[0];
    let register = |len| {
        let pending =
            request(|done, context| call!(mr.0, NdkRegisterMr, mdl, len, 0, done, context));
        pending.recv_timeout(PATIENCE).unwrap()
    };
    assert_eq!(register(info.MaxRegistrationSize + 1), STATUS_INVALID_PARAMETER);
    assert_eq!(register(info.MaxRegistrationSize), STATUS_SUCCESS);
    wait(|then| mr.close(then));
}

fn instances_live_and_end_apart() {
    let net = Net::new();
    let (first, second) = (net.open(0), net.open(0));
    let side = Side::new(&first);
    let other = Side::new(&second);
    // Objects of one instance under another's.
    let qp = side.pd.create_qp(&other.cq, &side.cq, QpConfig::default()).unwrap();
    qp.receive(5, &[side.mr.sge(0..1)]).unwrap();
    qp.flush();
    assert_eq!(other.statuses(1), [STATUS_CANCELLED]);
    drop((qp, side, first));
    other.qp.receive(6, &[other.mr.sge(0..1)]).unwrap();
    other.qp.flush();
    assert_eq!(other.statuses(1), [STATUS_CANCELLED]);
}
