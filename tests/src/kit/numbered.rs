//! The dispatch tables for a simulation or a fuzz target: every context is a number, and every callback becomes an
//! entry of a list that the simulation reads after the turn. One thread, so one list.

#![allow(unsafe_code, reason = "calls through the tables")]
#![allow(clippy::not_unsafe_ptr_arg_deref, reason = "a pointer and a promise, as an `Object` is")]

use crate::kit::raw::{Object, call};
use crate::sim::meter::apart;
use driver::abi::*;
use ndk_consumer::NdkObject;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// What a provider told its consumer.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A creation ended.
    Created(usize, Result<*mut NDK_OBJECT_HEADER, NTSTATUS>),
    /// A request ended.
    Requested(usize, NTSTATUS),
    /// A close ended.
    Closed(usize),
    /// A CQ notified.
    Notified(usize, NTSTATUS),
    /// A connect event of a listener.
    Connecting(usize, Object<NDK_CONNECTOR>),
    /// A disconnect event.
    Left(usize),
    /// A shared receive queue fell below its threshold.
    Low(usize, NTSTATUS),
}

thread_local! {
    static EVENTS: RefCell<VecDeque<Event>> = const { RefCell::new(VecDeque::new()) };
}

/// The oldest event that was not read yet.
pub fn next_event() -> Option<Event> {
    EVENTS.with_borrow_mut(VecDeque::pop_front)
}

/// Forgets what an earlier simulation left.
pub fn clear_events() {
    EVENTS.take();
}

fn tell(event: Event) {
    apart(|| EVENTS.with_borrow_mut(|events| events.push_back(event)));
}

unsafe extern "system" fn created(
    context: PVOID,
    status: NTSTATUS,
    object: *mut NDK_OBJECT_HEADER,
) {
    let result = if status.is_success() { Ok(object) } else { Err(status) };
    tell(Event::Created(context.addr(), result));
}

unsafe extern "system" fn requested(context: PVOID, status: NTSTATUS) {
    tell(Event::Requested(context.addr(), status));
}

unsafe extern "system" fn closed(context: PVOID) {
    tell(Event::Closed(context.addr()));
}

unsafe extern "system" fn notified(context: PVOID, status: NTSTATUS) {
    tell(Event::Notified(context.addr(), status));
}

unsafe extern "system" fn connecting(context: PVOID, connector: *mut NDK_CONNECTOR) {
    tell(Event::Connecting(context.addr(), Object(connector)));
}

unsafe extern "system" fn left(context: PVOID) {
    tell(Event::Left(context.addr()));
}

unsafe extern "system" fn low(context: PVOID, status: NTSTATUS) {
    tell(Event::Low(context.addr(), status));
}

fn context(number: usize) -> PVOID {
    std::ptr::without_provenance_mut(number)
}

/// Closes anything; the end comes as [`Event::Closed`].
pub fn close<T: NdkObject>(object: Object<T>, token: usize) -> NTSTATUS {
    object.close_by(closed, context(token))
}

/// The processor of a core.
fn affinity(core: usize) -> GROUP_AFFINITY {
    GROUP_AFFINITY { Mask: 1 << core, Group: 0, Reserved: [0; 3] }
}

/// `NdkCreateCq` near a core, or anywhere; `notify` names the CQ in [`Event::Notified`].
pub fn create_cq(
    on: Object<NDK_ADAPTER>,
    depth: u32,
    near: Option<usize>,
    notify: usize,
    token: usize,
) -> NTSTATUS {
    let (near, out) = (near.map(affinity), std::ptr::null_mut());
    let near = near.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let (notify, token) = (context(notify), context(token));
    call!(on, NdkCreateCq, depth, Some(notified), notify, near, Some(created), token, out)
}

/// `NdkCreatePd`.
pub fn create_pd(on: Object<NDK_ADAPTER>, token: usize) -> NTSTATUS {
    call!(on, NdkCreatePd, Some(created), context(token), std::ptr::null_mut())
}

/// `NdkCreateMr`, for `NdkRegisterMr` or for fast registration.
pub fn create_mr(pd: Object<NDK_PD>, fast_register: bool, token: usize) -> NTSTATUS {
    let (kind, out) = (fast_register.into(), std::ptr::null_mut());
    call!(pd, NdkCreateMr, kind, Some(created), context(token), out)
}

/// `NdkInitializeFastRegisterMr`, for peers too.
pub fn initialize(mr: Object<NDK_MR>, pages: u32, token: usize) -> NTSTATUS {
    let (remote, token) = (TRUE, context(token));
    call!(mr, NdkInitializeFastRegisterMr, pages, remote, Some(requested), token)
}

/// `NdkBuildLAM`: the logical addresses of the pages, and what [`release_lam`] takes.
///
/// # Errors
/// The provider's.
pub fn build_lam(
    on: Object<NDK_ADAPTER>,
    mdl: *mut MDL,
    len: usize,
) -> Result<(Vec<NDK_LOGICAL_ADDRESS>, Vec<u64>), NTSTATUS> {
    let (mut size, mut fbo) = (0, 0);
    let mut build = |lam: *mut NDK_LOGICAL_ADDRESS_MAPPING, size: &mut u32| {
        let null = std::ptr::null_mut();
        call!(on, NdkBuildLAM, mdl, len, Some(requested), null, lam, size, &raw mut fbo)
    };
    let status = build(std::ptr::null_mut(), &mut size);
    if status != STATUS_BUFFER_TOO_SMALL {
        return Err(status);
    }
    let mut lam = vec![0_u64; size.div_ceil(8) as usize];
    build(lam.as_mut_ptr().cast(), &mut size).ok()?;
    // Its header is as long as two pages.
    let page = |&page: &u64| NDK_LOGICAL_ADDRESS { QuadPart: page.cast_signed() };
    let pages = lam[NDK_LOGICAL_ADDRESS_MAPPING::size_for(0) / 8..].iter().map(page).collect();
    Ok((pages, lam))
}

/// `NdkReleaseLAM`.
pub fn release_lam(on: Object<NDK_ADAPTER>, mut lam: Vec<u64>) {
    call!(on, NdkReleaseLAM, lam.as_mut_ptr().cast());
}

/// `NdkCreateMw`.
pub fn create_mw(pd: Object<NDK_PD>, token: usize) -> NTSTATUS {
    call!(pd, NdkCreateMw, Some(created), context(token), std::ptr::null_mut())
}

/// `NdkCreateSrq` of a depth and a threshold, near a core or anywhere, with up to 4 elements; `name` comes with each [`Event::Low`].
pub fn create_srq(
    pd: Object<NDK_PD>,
    [depth, threshold]: [u32; 2],
    near: Option<usize>,
    name: usize,
    token: usize,
) -> NTSTATUS {
    let (name, token) = (context(name), context(token));
    let (near, out) = (near.map(affinity), std::ptr::null_mut());
    let near = near.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    call!(pd, NdkCreateSrq, depth, 4, threshold, Some(low), name, near, Some(created), token, out)
}

/// `NdkModifySrq` of the threshold.
pub fn arm_srq(srq: Object<NDK_SRQ>, threshold: u32, token: usize) -> NTSTATUS {
    call!(srq, NdkModifySrq, 0, threshold, Some(requested), context(token))
}

/// What a queue pair is made with.
#[derive(Clone, Copy, Debug)]
pub struct QpParts {
    /// For receives, and for initiator requests.
    pub cqs: [Object<NDK_CQ>; 2],
    /// Of the receive queue and of the initiator queue.
    pub depths: [u32; 2],
    /// Takes the place of the receive queue.
    pub srq: Option<Object<NDK_SRQ>>,
    /// Bytes of inline data.
    pub inline: u32,
}

/// `NdkCreateQp` or `NdkCreateQpWithSrq` with up to 4 elements; `name` comes back with each
/// completion.
pub fn create_qp(pd: Object<NDK_PD>, parts: &QpParts, name: usize, token: usize) -> NTSTATUS {
    let ([receive, initiator], [receives, requests]) = (parts.cqs, parts.depths);
    let (name, token, out) = (context(name), context(token), std::ptr::null_mut());
    let (sge, inline, done) = (4, parts.inline, Some(created as NDK_FN_CREATE_COMPLETION));
    let [receive, initiator] = [receive.0, initiator.0];
    match parts.srq.map(|srq| srq.0) {
        Some(srq) => call!(
            pd,
            NdkCreateQpWithSrq,
            receive,
            initiator,
            srq,
            name,
            requests,
            sge,
            inline,
            done,
            token,
            out,
        ),
        None => call!(
            pd,
            NdkCreateQp,
            receive,
            initiator,
            name,
            receives,
            requests,
            sge,
            sge,
            inline,
            done,
            token,
            out,
        ),
    }
}

/// `NdkCreateConnector`.
pub fn create_connector(on: Object<NDK_ADAPTER>, token: usize) -> NTSTATUS {
    call!(on, NdkCreateConnector, Some(created), context(token), std::ptr::null_mut())
}

/// `NdkCreateListener`; `name` comes with each [`Event::Connecting`].
pub fn create_listener(on: Object<NDK_ADAPTER>, name: usize, token: usize) -> NTSTATUS {
    let (name, token, out) = (context(name), context(token), std::ptr::null_mut());
    call!(on, NdkCreateListener, Some(connecting), name, Some(created), token, out)
}

/// `NdkCreateSharedEndpoint` on any port.
pub fn share(on: Object<NDK_ADAPTER>, local: SocketAddr, token: usize) -> NTSTATUS {
    let (local, out) = (SOCKADDR_INET::from(local), std::ptr::null_mut());
    let (done, token) = (Some(created as NDK_FN_CREATE_COMPLETION), context(token));
    call!(on, NdkCreateSharedEndpoint, local.as_ptr(), local.len(), done, token, out)
}

/// The address that a query tells.
fn address(query: impl FnOnce(*mut SOCKADDR, *mut u32) -> NTSTATUS) -> Option<SocketAddr> {
    let (mut inet, mut len) = (SOCKADDR_INET::UNSPECIFIED, size_of::<SOCKADDR_INET>() as u32);
    let status = query((&raw mut inet).cast(), &raw mut len);
    inet.socket_addr().filter(|_| status == STATUS_SUCCESS)
}

/// `NdkGetLocalAddress` of a shared endpoint.
pub fn shared_address(endpoint: Object<NDK_SHARED_ENDPOINT>) -> Option<SocketAddr> {
    address(|address, len| call!(endpoint, NdkGetLocalAddress, address, len))
}

/// `NdkGetPeerAddress`.
pub fn peer_address(connector: Object<NDK_CONNECTOR>) -> Option<SocketAddr> {
    address(|address, len| call!(connector, NdkGetPeerAddress, address, len))
}

/// `NdkListen`.
pub fn listen(listener: Object<NDK_LISTENER>, local: SocketAddr, token: usize) -> NTSTATUS {
    let local = SOCKADDR_INET::from(local);
    let token = context(token);
    call!(listener, NdkListen, local.as_ptr(), local.len(), Some(requested), token)
}

/// `NdkRegisterMr`.
pub fn register(
    mr: Object<NDK_MR>,
    mdl: *mut MDL,
    len: usize,
    flags: u32,
    token: usize,
) -> NTSTATUS {
    call!(mr, NdkRegisterMr, mdl, len, flags, Some(requested), context(token))
}

/// `NdkDeregisterMr`.
pub fn deregister(mr: Object<NDK_MR>, token: usize) -> NTSTATUS {
    call!(mr, NdkDeregisterMr, Some(requested), context(token))
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug)]
pub enum From {
    /// Any port of an address.
    Address(SocketAddr),
    /// A shared endpoint.
    Endpoint(Object<NDK_SHARED_ENDPOINT>),
}

/// `NdkConnect` or `NdkConnectWithSharedEndpoint`.
pub fn connect(
    connector: Object<NDK_CONNECTOR>,
    qp: Object<NDK_QP>,
    from: From,
    remote: SocketAddr,
    [inbound, outbound]: [u32; 2],
    data: &[u8],
    token: usize,
) -> NTSTATUS {
    let (address, done) =
        (SOCKADDR_INET::from(remote), Some(requested as NDK_FN_REQUEST_COMPLETION));
    let (remote, remote_len) = (address.as_ptr(), address.len());
    let (data, data_len, token) = (data.as_ptr().cast(), data.len() as u32, context(token));
    match from {
        From::Address(local) => {
            let local = SOCKADDR_INET::from(local);
            call!(
                connector,
                NdkConnect,
                qp.0,
                local.as_ptr(),
                local.len(),
                remote,
                remote_len,
                inbound,
                outbound,
                data,
                data_len,
                done,
                token,
            )
        }
        From::Endpoint(endpoint) => call!(
            connector,
            NdkConnectWithSharedEndpoint,
            qp.0,
            endpoint.0,
            remote,
            remote_len,
            inbound,
            outbound,
            data,
            data_len,
            done,
            token,
        ),
    }
}

/// `NdkCompleteConnect`; `name` comes with [`Event::Left`].
pub fn complete_connect(connector: Object<NDK_CONNECTOR>, name: usize, token: usize) -> NTSTATUS {
    let (name, token) = (context(name), context(token));
    call!(connector, NdkCompleteConnect, Some(left), name, Some(requested), token)
}

/// `NdkAccept`; `name` comes with [`Event::Left`].
pub fn accept(
    connector: Object<NDK_CONNECTOR>,
    qp: Object<NDK_QP>,
    [inbound, outbound]: [u32; 2],
    data: &[u8],
    name: usize,
    token: usize,
) -> NTSTATUS {
    call!(
        connector,
        NdkAccept,
        qp.0,
        inbound,
        outbound,
        data.as_ptr().cast(),
        data.len() as u32,
        Some(left),
        context(name),
        Some(requested),
        context(token),
    )
}

/// `NdkDisconnect`.
pub fn disconnect(connector: Object<NDK_CONNECTOR>, token: usize) -> NTSTATUS {
    call!(connector, NdkDisconnect, Some(requested), context(token))
}

/// `NdkGetConnectionData`: read limits inbound and outbound, and up to 148 bytes of the peer.
///
/// # Errors
/// The provider's.
pub fn connection_data(connector: Object<NDK_CONNECTOR>) -> Result<([u32; 2], Vec<u8>), NTSTATUS> {
    let (mut inbound, mut outbound, mut data, mut len) = (0, 0, [0_u8; 256], 256);
    let status = call!(
        connector,
        NdkGetConnectionData,
        &mut inbound,
        &mut outbound,
        data.as_mut_ptr().cast(),
        &mut len,
    );
    status.ok().map(|()| ([inbound, outbound], data[..len as usize].to_vec()))
}

/// `NdkArmCq`.
pub fn arm(cq: Object<NDK_CQ>, kind: u32) {
    call!(cq, NdkArmCq, kind);
}

/// `NdkResizeCq`.
pub fn resize(cq: Object<NDK_CQ>, depth: u32, token: usize) -> NTSTATUS {
    call!(cq, NdkResizeCq, depth, Some(requested), context(token))
}

/// `NdkGetCqResultsEx`, at most 8 of them.
pub fn results(cq: Object<NDK_CQ>) -> Vec<NDK_RESULT_EX> {
    let mut results = [NDK_RESULT_EX::EMPTY; 8];
    let count = call!(cq, NdkGetCqResultsEx, results.as_mut_ptr(), 8);
    results[..count as usize].to_vec()
}
