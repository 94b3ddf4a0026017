//! The adapter: its description, its versions, and what it refuses to create.

use driver::abi::*;
use ndk_consumer::SrqConfig;
use tests::call;
use tests::kit::Net;
use tests::kit::raw::{Object, PATIENCE, request, wait};

crate::tests! {
    info_goes_by_the_size_that_is_given
    every_version_is_served_at_the_highest_of_its_major
    at_1_x_all_is_of_1_2
    no_extension_is_offered
}

fn info_goes_by_the_size_that_is_given() {
    let net = Net::new();
    let adapter = Object(net.adapters[0].as_ptr());
    let mut info = NDK_ADAPTER_INFO::default();
    let mut size = size_of::<NDK_ADAPTER_INFO>() as u32;
    assert_eq!(call!(adapter, NdkQueryAdapterInfo, &raw mut info, &raw mut size), STATUS_SUCCESS);
    assert_eq!((info.RdmaTechnology, size), (NdkRoCEv2, 0x68));
    let none = std::ptr::null_mut();
    let mut size = 0;
    assert_eq!(call!(adapter, NdkQueryAdapterInfo, none, &raw mut size), STATUS_BUFFER_TOO_SMALL);
    assert_eq!(size, 0x68);
    assert_eq!(
        call!(adapter, NdkQueryAdapterInfo, &raw mut info, std::ptr::null_mut()),
        STATUS_INVALID_PARAMETER
    );
}

const fn version(major: u16, minor: u16) -> NDK_VERSION {
    NDK_VERSION { Major: major, Minor: minor }
}

fn every_version_is_served_at_the_highest_of_its_major() {
    let net = Net::new();
    for (asked, served) in
        [((1, 0), (1, 2)), ((1, 1), (1, 2)), ((1, 2), (1, 2)), ((2, 0), (2, 1)), ((2, 1), (2, 1))]
    {
        let opened = net.open_raw(0, version(asked.0, asked.1)).unwrap();
        let (mut info, mut size) = (NDK_ADAPTER_INFO::default(), 0x68);
        let answer = call!(opened.adapter, NdkQueryAdapterInfo, &raw mut info, &raw mut size);
        assert_eq!((answer, info.Version), (STATUS_SUCCESS, version(served.0, served.1)));
        // SAFETY: the adapter is open.
        assert_eq!(unsafe { (*opened.adapter.0).Header.Version }, info.Version);
    }
    for (major, minor) in [(0, 9), (1, 3), (2, 2), (3, 0)] {
        let refused = net.open_raw(0, NDK_VERSION { Major: major, Minor: minor }).err();
        assert_eq!(refused, Some(NDIS_STATUS_BAD_VERSION), "{major}.{minor}");
    }
}

/// What a consumer that asked for 1.x finds: the shorter structure, objects of its version, and nothing
/// that came with 2.1.
fn at_1_x_all_is_of_1_2() {
    let net = Net::new();
    let opened = net.open_raw(0, version(1, 1)).unwrap();
    let adapter = opened.adapter;
    let mut info = NDK_ADAPTER_INFO::default();
    let mut query = |room: u32| {
        let mut size = room;
        (call!(adapter, NdkQueryAdapterInfo, &raw mut info, &raw mut size), size)
    };
    assert_eq!(query(0x5f), (STATUS_BUFFER_TOO_SMALL, 0x60));
    assert_eq!([query(0x60), query(0x68)], [(STATUS_SUCCESS, 0x60); 2]);
    assert_eq!((info.MaxCalleeData, info.RdmaTechnology), (148, NdkUndefined));

    let pd = wait(|then| adapter.create_pd(then)).unwrap();
    let cq = wait(|then| adapter.create_cq(8, Box::new(|_| ()), then)).unwrap();
    let mr = wait(|then| pd.create_mr(then)).unwrap();
    let qp = wait(|then| pd.create_qp(cq, 4, then)).unwrap();
    let connector = wait(|then| adapter.create_connector(then)).unwrap();
    let listener = wait(|then| adapter.create_listener(Box::new(|_| ()), then)).unwrap();
    macro_rules! of_1_2 {
        // SAFETY: the objects are open.
        ($($object:ident)+) => {$(unsafe {
            assert_eq!((*$object.0).Header.Version, version(1, 2), stringify!($object));
        })+};
    }
    of_1_2!(adapter pd cq mr qp connector listener);
    let none = std::ptr::null_mut();
    let complete =
        request(|done, context| call!(connector, NdkCompleteConnectEx, None, none, done, context));
    let accept = request(|done, context| {
        call!(connector, NdkAcceptEx, qp.0, 1, 1, none, 0, None, none, done, context)
    });
    for refused in [complete, accept] {
        assert_eq!(refused.recv_timeout(PATIENCE), Ok(STATUS_NOT_SUPPORTED));
    }
    wait(|then| listener.close(then));
    wait(|then| connector.close(then));
    wait(|then| qp.close(then));
    wait(|then| mr.close(then));
    wait(|then| cq.close(then));
    wait(|then| pd.close(then));
}

fn no_extension_is_offered() {
    let net = Net::new();
    let connection = net.connect();
    let side = &connection.sides[0];
    let (id, version) =
        (GUID { Data1: 7, Data2: 0, Data3: 0, Data4: [0; 8] }, NDK_VERSION { Major: 1, Minor: 0 });
    let mut extension = NDK_EXTENSION_INTERFACE { Dispatch: std::ptr::null() };
    macro_rules! refused {
        ($($object:expr),+) => {$({
            let object = Object($object.as_ptr());
            let header = object.0.cast();
            // SAFETY: the object is open, and so is its table.
            let query = unsafe { (*(*object.0).Dispatch.get().read()).NdkQueryExtension };
            // SAFETY: as above; the arguments outlive the call.
            let answer = unsafe { query(header, &raw const id, version, &raw mut extension) };
            assert_eq!(answer, STATUS_NOT_SUPPORTED);
        })+};
    }
    refused!(net.adapters[0], side.pd, side.mr, side.cq, side.qp);
    refused!(connection.connectors[0], connection.listener);
    let srq = SrqConfig { depth: 1, receive_sge: 1, threshold: 0 };
    let (srq, mw) = (side.pd.create_srq(srq).unwrap(), side.pd.create_mw().unwrap());
    let endpoint = net.adapters[0].share(net.at(0, 0)).unwrap();
    refused!(srq, mw, endpoint);
    assert!(extension.Dispatch.is_null());
}
