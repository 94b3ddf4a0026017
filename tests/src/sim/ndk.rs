//! The dispatch tables for a simulation: every context is a number, and every callback becomes an
//! entry of a list that the simulation reads after the turn. One thread, so one list.

#![allow(unsafe_code, reason = "calls through the tables")]

use crate::raw::{Object, call};
use driver::abi::*;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// What a provider told its consumer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
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
}

thread_local! {
    static EVENTS: RefCell<VecDeque<Event>> = const { RefCell::new(VecDeque::new()) };
}

/// The oldest event that was not read yet.
pub(crate) fn next_event() -> Option<Event> {
    EVENTS.with_borrow_mut(VecDeque::pop_front)
}

/// Forgets what an earlier simulation left.
pub(crate) fn clear_events() {
    EVENTS.with_borrow_mut(VecDeque::clear);
}

fn tell(event: Event) {
    EVENTS.with_borrow_mut(|events| events.push_back(event));
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

fn context(number: usize) -> PVOID {
    std::ptr::without_provenance_mut(number)
}

macro_rules! closes {
    ($($object:ident: $slot:ident;)+) => {$(
        impl Close for Object<$object> {
            fn close_as(self, token: usize) -> NTSTATUS {
                let context = context(token);
                // SAFETY: the object is open, and so is its table.
                let close = unsafe { (*(*self.0).Dispatch.get().read()).$slot };
                // SAFETY: as above; the context is a number.
                unsafe { close(self.0.cast(), Some(closed), context) }
            }
        }
    )+};
}

/// What can be closed.
pub(crate) trait Close {
    /// Closes it; the end comes as [`Event::Closed`].
    fn close_as(self, token: usize) -> NTSTATUS;
}

closes! {
    NDK_CQ: NdkCloseCq;
    NDK_PD: NdkClosePd;
    NDK_MR: NdkCloseMr;
    NDK_QP: NdkCloseQp;
    NDK_CONNECTOR: NdkCloseConnector;
    NDK_LISTENER: NdkCloseListener;
}

/// `NdkCreateCq`; `notify` names the CQ in [`Event::Notified`].
pub(crate) fn create_cq(
    on: Object<NDK_ADAPTER>,
    depth: u32,
    notify: usize,
    token: usize,
) -> NTSTATUS {
    let (out, none) = (std::ptr::null_mut(), std::ptr::null());
    let (notify, token) = (context(notify), context(token));
    call!(on, NdkCreateCq, depth, Some(notified), notify, none, Some(created), token, out)
}

/// `NdkCreatePd`.
pub(crate) fn create_pd(on: Object<NDK_ADAPTER>, token: usize) -> NTSTATUS {
    call!(on, NdkCreatePd, Some(created), context(token), std::ptr::null_mut())
}

/// `NdkCreateMr`, for `NdkRegisterMr`.
pub(crate) fn create_mr(pd: Object<NDK_PD>, token: usize) -> NTSTATUS {
    call!(pd, NdkCreateMr, FALSE, Some(created), context(token), std::ptr::null_mut())
}

/// `NdkCreateQp` with up to 16 elements; `name` comes back with each completion.
pub(crate) fn create_qp(
    pd: Object<NDK_PD>,
    cqs: [Object<NDK_CQ>; 2],
    depths: [u32; 2],
    name: usize,
    token: usize,
) -> NTSTATUS {
    let ([receive, initiator], name, sge) = (cqs, context(name), 4);
    let [receives, requests] = depths;
    call!(
        pd,
        NdkCreateQp,
        receive.0,
        initiator.0,
        name,
        receives,
        requests,
        sge,
        sge,
        0,
        Some(created),
        context(token),
        std::ptr::null_mut(),
    )
}

/// `NdkCreateConnector`.
pub(crate) fn create_connector(on: Object<NDK_ADAPTER>, token: usize) -> NTSTATUS {
    call!(on, NdkCreateConnector, Some(created), context(token), std::ptr::null_mut())
}

/// `NdkCreateListener`; `name` comes with each [`Event::Connecting`].
pub(crate) fn create_listener(on: Object<NDK_ADAPTER>, name: usize, token: usize) -> NTSTATUS {
    let (name, token, out) = (context(name), context(token), std::ptr::null_mut());
    call!(on, NdkCreateListener, Some(connecting), name, Some(created), token, out)
}

/// `NdkListen`.
pub(crate) fn listen(listener: Object<NDK_LISTENER>, local: SocketAddr, token: usize) -> NTSTATUS {
    let local = SOCKADDR_INET::from(local);
    let token = context(token);
    call!(listener, NdkListen, local.as_ptr(), local.len(), Some(requested), token)
}

/// `NdkRegisterMr`.
pub(crate) fn register(
    mr: Object<NDK_MR>,
    mdl: *mut MDL,
    len: usize,
    flags: u32,
    token: usize,
) -> NTSTATUS {
    call!(mr, NdkRegisterMr, mdl, len, flags, Some(requested), context(token))
}

/// `NdkDeregisterMr`.
pub(crate) fn deregister(mr: Object<NDK_MR>, token: usize) -> NTSTATUS {
    call!(mr, NdkDeregisterMr, Some(requested), context(token))
}

/// `NdkConnect`.
pub(crate) fn connect(
    connector: Object<NDK_CONNECTOR>,
    qp: Object<NDK_QP>,
    [local, remote]: [SocketAddr; 2],
    [inbound, outbound]: [u32; 2],
    data: &[u8],
    token: usize,
) -> NTSTATUS {
    let (local, remote) = (SOCKADDR_INET::from(local), SOCKADDR_INET::from(remote));
    call!(
        connector,
        NdkConnect,
        qp.0,
        local.as_ptr(),
        local.len(),
        remote.as_ptr(),
        remote.len(),
        inbound,
        outbound,
        data.as_ptr().cast(),
        data.len() as u32,
        Some(requested),
        context(token),
    )
}

/// `NdkCompleteConnect`; `name` comes with [`Event::Left`].
pub(crate) fn complete_connect(
    connector: Object<NDK_CONNECTOR>,
    name: usize,
    token: usize,
) -> NTSTATUS {
    let (name, token) = (context(name), context(token));
    call!(connector, NdkCompleteConnect, Some(left), name, Some(requested), token)
}

/// `NdkAccept`; `name` comes with [`Event::Left`].
pub(crate) fn accept(
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
pub(crate) fn disconnect(connector: Object<NDK_CONNECTOR>, token: usize) -> NTSTATUS {
    call!(connector, NdkDisconnect, Some(requested), context(token))
}

/// `NdkGetConnectionData`: read limits inbound and outbound, and up to 148 bytes of the peer.
///
/// # Errors
/// The provider's.
pub(crate) fn connection_data(
    connector: Object<NDK_CONNECTOR>,
) -> Result<([u32; 2], Vec<u8>), NTSTATUS> {
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

/// An initiator request, as the four functions take it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    /// `NdkSend`.
    Send,
    /// `NdkSendAndInvalidate` of this token.
    SendInvalidate(u32),
    /// `NdkWrite` to address and token.
    Write(u64, u32),
    /// `NdkRead` from address and token.
    Read(u64, u32),
}

/// Posts an initiator request.
pub(crate) fn post(
    qp: Object<NDK_QP>,
    request: Request,
    id: usize,
    sgl: &[NDK_SGE],
    flags: u32,
) -> NTSTATUS {
    let (id, list, count) = (context(id), sgl.as_ptr(), sgl.len() as u32);
    match request {
        Request::Send => call!(qp, NdkSend, id, list, count, flags),
        Request::SendInvalidate(token) => {
            call!(qp, NdkSendAndInvalidate, id, list, count, flags, token)
        }
        Request::Write(address, token) => {
            call!(qp, NdkWrite, id, list, count, address, token, flags)
        }
        Request::Read(address, token) => {
            call!(qp, NdkRead, id, list, count, address, token, flags)
        }
    }
}

/// `NdkArmCq`.
pub(crate) fn arm(cq: Object<NDK_CQ>, kind: u32) {
    call!(cq, NdkArmCq, kind);
}

/// `NdkGetCqResultsEx`, at most 8 of them.
pub(crate) fn results(cq: Object<NDK_CQ>) -> Vec<NDK_RESULT_EX> {
    let mut results = [NDK_RESULT_EX::EMPTY; 8];
    let count = call!(cq, NdkGetCqResultsEx, results.as_mut_ptr(), 8);
    results[..count as usize].to_vec()
}
