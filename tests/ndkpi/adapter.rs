//! The adapter: its description, its versions, and what it refuses to create.

use crate::record::Test;
use crate::world::{Net, status};
use driver::abi::*;
use ndkperf::SrqConfig;
use tests::call;
use tests::raw::Object;

crate::tests! {
    info_goes_by_the_size_that_is_given
    every_version_is_served_at_the_highest
    no_extension_is_offered
    a_cq_has_a_limit
}

fn info_goes_by_the_size_that_is_given(test: Test) {
    let net = Net::new(test);
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

fn every_version_is_served_at_the_highest(test: Test) {
    let net = Net::new(test);
    for (major, minor) in [(1, 1), (1, 2), (2, 0), (2, 1)] {
        let opened = net.open(0, NDK_VERSION { Major: major, Minor: minor }).unwrap();
        // SAFETY: the adapter is open.
        let version = unsafe { (*opened.adapter.0).Header.Version };
        assert_eq!((version.Major, version.Minor), (2, 1));
    }
    for (major, minor) in [(0, 9), (2, 2), (3, 0)] {
        let refused = net.open(0, NDK_VERSION { Major: major, Minor: minor }).err();
        assert_eq!(refused, Some(NDIS_STATUS_BAD_VERSION), "{major}.{minor}");
    }
}

fn no_extension_is_offered(test: Test) {
    let net = Net::new(test);
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
}

fn a_cq_has_a_limit(test: Test) {
    let net = Net::new(test);
    let info = net.adapters[0].info().unwrap();
    assert_eq!(status(net.adapters[0].create_cq(info.MaxCqDepth + 1)), STATUS_INVALID_PARAMETER);
    assert_eq!(status(net.adapters[0].create_cq(info.MaxCqDepth)), STATUS_SUCCESS);
}
