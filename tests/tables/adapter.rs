use super::*;
use std::ptr::null_mut;

#[test]
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
        | NDK_ADAPTER_FLAG_MULTI_ENGINE_SUPPORTED
        | NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED
        | NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED
        | NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED;
    assert_eq!(info.AdapterFlags & offered, offered);
    // Within one packet nobody says in which order the bytes are copied.
    assert_eq!(info.AdapterFlags & NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED, 0);
}

#[test]
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

#[test]
fn no_extension_is_offered_by_any_object() {
    let net = Net::new();
    let connection = net.connect();
    let side = &connection.sides[0];
    let endpoint = net.adapters[0].share(net.at(0, 0)).unwrap();
    let id = GUID { Data1: 1, Data2: 2, Data3: 3, Data4: [4; 8] };
    let mut extension = NDK_EXTENSION_INTERFACE { Dispatch: null_mut() };
    macro_rules! asks {
        ($($object:expr),+) => {$({
            let object = $object;
            // SAFETY: the object is open.
            let query = unsafe { (*(*object).Dispatch.get().read()).NdkQueryExtension };
            let version = Adapter::VERSION;
            // SAFETY: as above; the extension is ours.
            let status = unsafe { query(object.cast(), &id, version, &mut extension) };
            assert_eq!(status, STATUS_NOT_SUPPORTED);
        })+};
    }
    asks!(
        net.adapters[0].as_ptr(),
        side.cq.as_ptr(),
        side.pd.as_ptr(),
        side.mr.as_ptr(),
        side.qp.as_ptr(),
        connection.connectors[0].as_ptr(),
        connection.listener.as_ptr(),
        endpoint.as_ptr()
    );
    assert!(extension.Dispatch.is_null());
}
