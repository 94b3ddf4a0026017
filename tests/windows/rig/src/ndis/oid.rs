//! OID requests, in both directions.

use super::{Completion, Header, PENDING, member, nic::Nic, vnic::Vnic};
use crate::ntos::irql::{self, DISPATCH, PASSIVE};
use crate::ntos::{Pointer, lock};

pub const QUERY: i32 = 0;
pub const SET: i32 = 1;
pub const METHOD: i32 = 12;

pub const GEN_CURRENT_PACKET_FILTER: u32 = 0x0001_010E;
pub const GEN_VLAN_ID: u32 = 0x0001_021C;
pub const PNP_SET_POWER: u32 = 0xFD01_0101;
pub const PNP_QUERY_POWER: u32 = 0xFD01_0102;
pub const GEN_LINK_STATE: u32 = 0x0001_0207;
pub const GEN_RECEIVE_SCALE_PARAMETERS: u32 = 0x0001_0204;
pub const GEN_STATISTICS: u32 = 0x0002_0106;
pub const GEN_MAXIMUM_FRAME_SIZE: u32 = 0x0001_0106;
pub const ETHERNET_PERMANENT_ADDRESS: u32 = 0x0101_0101;
pub const ETHERNET_CURRENT_ADDRESS: u32 = 0x0101_0102;
pub const ETHERNET_MULTICAST_LIST: u32 = 0x0101_0103;
pub const OFFLOAD_ENCAPSULATION: u32 = 0x0101_010A;
pub const TCP_OFFLOAD_PARAMETERS: u32 = 0xFC01_020C;
pub const QOS_HARDWARE_CAPABILITIES: u32 = 0xFC05_0001;
pub const QOS_CURRENT_CAPABILITIES: u32 = 0xFC05_0002;
pub const QOS_PARAMETERS: u32 = 0xFC05_0003;
pub const QOS_OPERATIONAL_PARAMETERS: u32 = 0xFC05_0004;
pub const QOS_REMOTE_PARAMETERS: u32 = 0xFC05_0005;
pub const NDK_SET_STATE: u32 = 0xFC04_0201;
pub const NDK_STATISTICS: u32 = 0xFC04_0202;
pub const NDK_CONNECTIONS: u32 = 0xFC04_0203;
pub const NDK_LOCAL_ENDPOINTS: u32 = 0xFC04_0204;

/// `NDIS_OID_REQUEST`, and how it ends.
#[repr(C)]
pub struct Request {
    header: Header,
    kind: i32,
    port: u32,
    timeout: u32,
    id: usize,
    handle: usize,
    pub oid: u32,
    buffer: *mut u8,
    len: u32,
    /// Of a method, the room for its answer, which is in the place of its data.
    done: u32,
    /// Of a method, its name.
    needed: u32,
    /// Of a method alone: bytes written, read, needed.
    method: [u32; 3],
    rest: [u64; 23],
    completion: Completion,
}
const _: () = assert!(
    std::mem::offset_of!(Request, buffer) == 0x28 && std::mem::offset_of!(Request, rest) == 0x48
);

/// The image's answer: status, bytes written or read, bytes needed.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub status: i32,
    pub done: u32,
    pub needed: u32,
}

/// Asks the image's miniport.
pub fn ask(vnic: &Vnic, kind: i32, oid: u32, buffer: &mut [u8], direct: bool) -> Answer {
    let miniport = super::driver::registered().miniport.expect("an adapter has a driver").0;
    let mut request = Request {
        header: Header::new(0x96, 1, 0xEC),
        kind,
        port: 0,
        timeout: 10,
        id: 0,
        handle: 0,
        oid,
        buffer: buffer.as_mut_ptr(),
        len: buffer.len() as u32,
        done: if kind == METHOD { buffer.len() as u32 } else { 0 },
        needed: 0,
        method: [0; 3],
        rest: [0; 23],
        completion: Completion::new(),
    };
    let handler = if direct { miniport.direct_oid } else { miniport.oid_request };
    let handler = handler.expect("checked at registration");
    let pointer = (&raw mut request).cast::<u8>();
    // Direct requests come at up to DISPATCH_LEVEL.
    let irql = if direct { DISPATCH } else { PASSIVE };
    IN_OID.set(true);
    let returned =
        irql::run_at(irql, "an OID request", || unsafe { handler(vnic.context(), pointer) });
    IN_OID.set(false);
    lock::none_held("an OID request");
    if oid == NDK_SET_STATE && returned == PENDING {
        breach!("OID_NDK_SET_STATE pends");
    }
    let status = request.completion.wait("an OID request", returned);
    if kind == METHOD {
        let [done, read, needed] = request.method;
        if done != read {
            breach!("a method in place has read {read} bytes and written {done}");
        }
        return Answer { status, done, needed };
    }
    Answer { status, done: request.done, needed: request.needed }
}

thread_local! {
    pub static IN_OID: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

unsafe fn complete(request: *mut Request, status: i32) {
    irql::at_most(DISPATCH, "NdisMOidRequestComplete");
    (*request).completion.complete("an OID request", status);
}

exports! { "ndis.sys":
    fn NdisMOidRequestComplete(_handle: Pointer, request: *mut Request, status: i32) { complete(request, status) }
    fn NdisMDirectOidRequestComplete(_handle: Pointer, request: *mut Request, status: i32) { complete(request, status) }
    /// The image asks the NIC below.
    fn NdisOidRequest(handle: Pointer, request: Pointer) -> i32 {
        irql::at_most(PASSIVE, "NdisOidRequest");
        member::<Header>(request, 0).check("NDIS_OID_REQUEST", 0x96, &[(1, 0xEC), (2, 0xF8), (1, 0xF0)]);
        let Some(nic) = Nic::opened(handle, "NdisOidRequest") else { return super::FAILURE };
        nic.oid_request(request)
    }
}
