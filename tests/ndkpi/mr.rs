//! Memory regions.

use driver::abi::*;
use ndk_consumer::{Buffer, Mdl};
use tests::call;
use tests::kit::raw::{Object, PATIENCE, request, wait};
use tests::kit::{ALL_ACCESS, Net};

crate::tests! {
    a_region_is_registered_and_named
    a_chain_has_to_be_one_range_and_long_enough
    a_region_is_in_one_state
    registrations_run_out
}

/// A domain and a region for `NdkRegisterMr`.
fn region(net: &Net) -> (Object<NDK_PD>, Object<NDK_MR>) {
    let pd = wait(|then| Object(net.adapters[0].as_ptr()).create_pd(then)).unwrap();
    (pd, wait(|then| pd.create_mr(then)).unwrap())
}

fn register(mr: Object<NDK_MR>, mdl: &mut Mdl, len: usize) -> NTSTATUS {
    let mdl = mdl.as_mut_ptr();
    let end =
        request(|done, context| call!(mr, NdkRegisterMr, mdl, len, ALL_ACCESS, done, context));
    end.recv_timeout(PATIENCE).unwrap()
}

fn deregister(mr: Object<NDK_MR>) -> NTSTATUS {
    let end = request(|done, context| call!(mr, NdkDeregisterMr, done, context));
    end.recv_timeout(PATIENCE).unwrap()
}

fn close(pd: Object<NDK_PD>, mr: Object<NDK_MR>) {
    wait(|then| mr.close(then));
    wait(|then| pd.close(then));
}

fn a_region_is_registered_and_named() {
    let net = Net::new();
    let (pd, mr) = region(&net);
    let buffer = Buffer::new(100);
    let mut mdl = Mdl::new(buffer.as_ptr(), 100);
    assert_eq!(register(mr, &mut mdl, 100), STATUS_SUCCESS);
    assert_ne!(call!(mr, NdkGetLocalTokenFromMr), 0);
    assert_ne!(call!(mr, NdkGetRemoteTokenFromMr), 0);
    assert_eq!(deregister(mr), STATUS_SUCCESS);
    // And again: a region outlives its registrations.
    assert_eq!(register(mr, &mut mdl, 50), STATUS_SUCCESS);
    close(pd, mr);
}

fn a_chain_has_to_be_one_range_and_long_enough() {
    let net = Net::new();
    let (pd, mr) = region(&net);
    let buffer = Buffer::new(300);
    let mut first = Mdl::new(buffer.as_ptr(), 100);
    assert_eq!(register(mr, &mut first, 101), STATUS_INVALID_PARAMETER, "longer than the chain");
    let mut second = Mdl::new(buffer.as_ptr().wrapping_add(101), 100);
    // SAFETY: ours.
    unsafe { (*first.as_mut_ptr()).Next = second.as_mut_ptr() };
    assert_eq!(register(mr, &mut first, 200), STATUS_INVALID_PARAMETER, "a gap");
    close(pd, mr);
}

fn a_region_is_in_one_state() {
    let net = Net::new();
    let (pd, mr) = region(&net);
    let buffer = Buffer::new(100);
    let mut mdl = Mdl::new(buffer.as_ptr(), 100);
    assert_eq!(deregister(mr), STATUS_INVALID_DEVICE_STATE);
    assert_eq!(register(mr, &mut mdl, 100), STATUS_SUCCESS);
    assert_eq!(register(mr, &mut mdl, 100), STATUS_INVALID_DEVICE_STATE);
    close(pd, mr);
}

fn registrations_run_out() {
    let net = Net::scarce();
    let pd = wait(|then| Object(net.adapters[0].as_ptr()).create_pd(then)).unwrap();
    let buffer = Buffer::new(1);
    let mut mdl = Mdl::new(buffer.as_ptr(), 1);
    let mut regions = Vec::new();
    let last = loop {
        let mr = wait(|then| pd.create_mr(then)).unwrap();
        regions.push(mr);
        let status = register(mr, &mut mdl, 1);
        if status != STATUS_SUCCESS {
            break status;
        }
    };
    assert_eq!(last, STATUS_INSUFFICIENT_RESOURCES);
    for mr in regions {
        wait(|then| mr.close(then));
    }
    wait(|then| pd.close(then));
}
