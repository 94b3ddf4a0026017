//! The snapshot of this moment.

use super::snapshot::{self, Head, Writer, link, ndk};
use crate::log;
use crate::pairing::DRIVER;
use crate::upper::adapter::Adapter;
use crate::upper::ndk::Ndk;
use core::net::IpAddr;
use driver::{Connection, Endpoint};
use rocev2::counters::Counter;
use rocev2::wire::Pmtu;

/// Writes a snapshot: the bytes that are written and those that all takes; `None` where the room is too short for a head.
/// Holds no lock meanwhile; an adapter that halts waits until it is written. PASSIVE_LEVEL.
pub(super) fn fill(room: &mut [u8]) -> Option<(usize, usize)> {
    let mut writer = Writer::new(room)?;
    let mut adapters = 0;
    while DRIVER.with_adapter(adapters, |adapter| add(&mut writer, adapter)).is_some() {
        adapters += 1;
    }
    let (problem, problem_values) = log::last().map_or((0, [0; 3]), |last| (last.0 as u32, last.1));
    Some(writer.finish(Head {
        version: snapshot::VERSION,
        len: 0,
        adapters: adapters as u32,
        stage: DRIVER.stage(),
        problem,
        problem_values,
    }))
}

/// Adds an adapter and its connections. Where NDK is off or memory is short, it has none.
fn add(writer: &mut Writer<'_>, adapter: &Adapter) {
    let endpoints = adapter.open_endpoints().unwrap_or_default();
    let count = connections(&endpoints).count();
    writer.add(&describe(adapter, count, endpoints.len() - count));
    connections(&endpoints).for_each(|connection| writer.add(&entry(connection)));
}

fn connections(endpoints: &[Endpoint]) -> impl Iterator<Item = &Connection> {
    endpoints.iter().filter_map(|endpoint| match endpoint {
        Endpoint::Connection(connection) => Some(connection),
        Endpoint::Listener(_) | Endpoint::Shared(_) => None,
    })
}

fn describe(adapter: &Adapter, connections: usize, endpoints: usize) -> snapshot::Adapter {
    let state = adapter.link();
    let counted = adapter.ndk_counters();
    let mut nic = [0; 48];
    nic.iter_mut().zip(adapter.nic()).for_each(|(to, from)| *to = *from);
    snapshot::Adapter {
        interface: adapter.interface,
        mac: adapter.mac,
        nic,
        link: match state {
            None => link::NO_NIC,
            Some(state) if state.connected => link::UP,
            Some(_) => link::DOWN,
        },
        speed_bps: state.map_or(0, |state| state.speed),
        mtu: adapter.mtu() as u32,
        path_mtu: Pmtu::for_mtu(adapter.roce_mtu()).map_or(0, |pmtu| pmtu.bytes() as u32),
        ndk: match adapter.ndk.state() {
            Ndk::Off => ndk::OFF,
            Ndk::On => ndk::ON,
            Ndk::Closing => ndk::CLOSING,
        },
        endpoints: endpoints as u32,
        connections: connections as u32,
        connects: counted.Connect,
        accepts: counted.Accept,
        connect_failures: counted.ConnectFailure,
        connection_errors: counted.ConnectionError,
        cq_errors: counted.CQError,
        in_bytes: counted.RDMAInOctets,
        out_bytes: counted.RDMAOutOctets,
        in_frames: counted.RDMAInFrames,
        out_frames: counted.RDMAOutFrames,
    }
}

fn entry(connection: &Connection) -> snapshot::Connection {
    let octets = |address| match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    let counted = connection.counters.snapshot();
    snapshot::Connection {
        qpn: connection.qpn.get(),
        path_mtu: connection.pmtu.into(),
        local: octets(connection.local.ip()),
        local_port: connection.local.port(),
        remote: octets(connection.remote.ip()),
        remote_port: connection.remote.port(),
        sent_bytes: counted[Counter::SentBytes],
        received_bytes: counted[Counter::RcvdBytes],
        resent_packets: counted[Counter::ResentTimerPkts],
    }
}
