//! Connections that come about, and those that do not.
#![allow(unsafe_code, reason = "calls the dispatch tables of C objects")]

use core::net::SocketAddr;

use ndk_abi::*;

use crate::Failure;
use crate::connection::{CALLEE_DATA, CALLER_DATA, DEPTH, Pair, address_of};
use crate::kinds::{Object, call};
use crate::step::Step;

/// A connection tells each side the addresses and the private data of the other.
pub(super) fn connect(step: &mut Step<'_>) -> Result<(), Failure> {
    let Pair { client: _, server: _, connectors: [client, server], listener } = step.pair()?;
    expect_data(server, CALLER_DATA)?;
    let limits = expect_data(client, CALLEE_DATA)?;
    Failure::unless_same(
        "a read limit of the two that are agreed on",
        limits.contains(&0).into(),
        0,
    )?;
    let local = |connector: Object<NDK_CONNECTOR>| {
        address_of("NdkGetLocalAddress", |address, len| {
            call!(connector, NdkGetLocalAddress(address, len))
        })
    };
    let peer = |connector: Object<NDK_CONNECTOR>| {
        address_of("NdkGetPeerAddress", |address, len| {
            call!(connector, NdkGetPeerAddress(address, len))
        })
    };
    expect_address(peer(client)?, listener.address)?;
    expect_address(local(server)?, listener.address)?;
    expect_address(peer(server)?, local(client)?)
}

fn expect_address(found: SocketAddr, expected: SocketAddr) -> Result<(), Failure> {
    Failure::unless_same("a port", found.port().into(), expected.port().into())?;
    let is_same = found.ip() == expected.ip();
    Failure::unless_same("an address that is the peer's", is_same.into(), 1)
}

/// The data of the peer begin with these; what follows is padding. The read limits.
fn expect_data(connector: Object<NDK_CONNECTOR>, expected: &[u8]) -> Result<[u32; 2], Failure> {
    let (mut inbound, mut outbound) = (0, 0);
    let mut data = [0_u8; 256];
    let mut len = data.len() as u32;
    let status = call!(
        connector,
        NdkGetConnectionData(
            &raw mut inbound,
            &raw mut outbound,
            data.as_mut_ptr().cast(),
            &raw mut len,
        )
    );
    Failure::unless_status("NdkGetConnectionData", status, STATUS_SUCCESS)?;
    let told = data.get(..len as usize).unwrap_or_default();
    let is_same = told.starts_with(expected);
    Failure::unless_same("private data that are the peer's", is_same.into(), 1)?;
    Ok([inbound, outbound])
}

/// The server refuses: the client's connect ends as refused, with the server's data.
pub(super) fn reject(step: &mut Step<'_>) -> Result<(), Failure> {
    let listener = step.listen()?;
    let client = step.end(0)?;
    let connector = step.connector(0)?;
    let connect = step.begin_connect(connector, client.qp, listener.address)?;
    let incoming = step.incoming(listener, connect)?;
    expect_data(incoming, CALLER_DATA)?;
    let data = CALLEE_DATA.as_ptr().cast();
    let rejected = call!(incoming, NdkReject(data, CALLEE_DATA.len() as u32));
    Failure::unless_status("NdkReject", rejected, STATUS_SUCCESS)?;
    let status = step.status(connect)?;
    Failure::unless_status("NdkConnect", status, STATUS_CONNECTION_REFUSED)?;
    expect_data(connector, CALLEE_DATA).map(drop)
}

/// Nobody listens: neither at a port that was never listened at, nor behind the close of the listener.
pub(super) fn refuse(step: &mut Step<'_>) -> Result<(), Failure> {
    let listener = step.listen()?;
    let client = step.end(0)?;
    step.close(listener.listener)?;
    for _ in 0..2 {
        let connector = step.connector(0)?;
        let connect = step.begin_connect(connector, client.qp, listener.address)?;
        let status = step.status(connect)?;
        Failure::unless_status("NdkConnect", status, STATUS_CONNECTION_REFUSED)?;
        step.close(connector)?;
    }
    Ok(())
}

/// Connections of a storm.
const STORM: usize = 96;

/// Connections come and go in turn, with no pause between them: one is used and disconnected, one is rejected, one is closed
/// on the way, one is closed as it stands.
pub(super) fn storm(step: &mut Step<'_>) -> Result<(), Failure> {
    let listener = step.listen()?;
    let (client, server) = (step.end(0)?, step.end(1)?);
    let first = step.flight.objects.len();
    for turn in 0..STORM {
        let qp = step.qp(client.pd, client.queue.cq, DEPTH)?;
        let connector = step.connector(0)?;
        let connect = step.begin_connect(connector, qp, listener.address)?;
        let incoming = step.incoming(listener, connect)?;
        let expected = match turn % 4 {
            0 => {
                let none = core::ptr::null();
                let rejected = call!(incoming, NdkReject(none, 0));
                Failure::unless_status("NdkReject", rejected, STATUS_SUCCESS)?;
                Some(STATUS_CONNECTION_REFUSED)
            }
            1 => {
                step.close(incoming)?;
                Some(STATUS_CONNECTION_REFUSED)
            }
            _ => {
                let peer = step.qp(server.pd, server.queue.cq, DEPTH)?;
                let accept = step.begin_accept(incoming, peer, server.events)?;
                step.succeed(connect)?;
                step.complete_connect(connector, client.events)?;
                step.succeed(accept)?;
                if turn % 4 == 2 {
                    let calls = [connector, incoming].map(|of| step.begin_disconnect(of));
                    for call in calls {
                        step.succeed(call?)?;
                    }
                }
                None
            }
        };
        if let Some(expected) = expected {
            let status = step.status(connect)?;
            Failure::unless_status("NdkConnect", status, expected)?;
        }
        step.close_from(first, false)?;
    }
    Ok(())
}
