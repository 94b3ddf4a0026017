//! The driver's own word: its snapshot, which the control device answers, and the stages that it left in the registry.
//!
//! Both sides have the same files for the format, the stages and the problems: they know nothing of the driver, whose crates
//! are of the kernel and are not imported here.

#[path = "../../../driver/ndis/src/problems.rs"]
#[allow(dead_code, unreachable_pub, reason = "the driver needs more of it")]
pub(crate) mod problems;
#[path = "../../../driver/ndis/src/control/snapshot.rs"]
#[allow(dead_code, unreachable_pub, reason = "the driver needs more of it")]
pub(crate) mod snapshot;
#[path = "../../../driver/ndis/src/stage.rs"]
#[allow(dead_code, unreachable_pub, reason = "the driver needs more of it")]
pub(crate) mod stage;

use std::net::{Ipv6Addr, SocketAddr};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::machine::{Machine, Stages};
use problems::Problem;
use snapshot::{Adapter, Connection, Head, Snapshot, link, ndk};
use stage::Stage;

/// The snapshot; `None` where the driver has no adapter.
pub(crate) fn read(machine: &mut impl Machine) -> Result<Option<Snapshot>> {
    let Some(bytes) = machine.snapshot()? else { return Ok(None) };
    let read = Snapshot::read(&bytes);
    read.map(Some).context("the driver is of another version than this program")
}

/// The stages that stand in the registry, in words; empty where there are none.
pub(crate) fn stages(stages: &Stages) -> String {
    let Stages { last, previous } = stages;
    match (last, previous) {
        (None, None) => String::new(),
        (Some(last), None) => last.clone(),
        (last, Some(previous)) => {
            let last = last.as_deref().unwrap_or("unknown");
            format!("{last}; the load before ended with {previous}")
        }
    }
}

/// A snapshot in words.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(crate) struct Told {
    pub(crate) driver: String,
    /// A paragraph for each.
    pub(crate) adapters: String,
    /// A line for each.
    pub(crate) connections: String,
    pub(crate) last_problem: String,
}

pub(crate) fn tell(snapshot: &Snapshot) -> Told {
    let adapters: Vec<_> = snapshot.adapters.iter().map(|(adapter, _)| describe(adapter)).collect();
    let connections: Vec<_> =
        snapshot.adapters.iter().flat_map(|(_, connections)| connections).map(entry).collect();
    Told {
        driver: stage(&snapshot.head),
        adapters: adapters.join("\n"),
        connections: if connections.is_empty() { "none".into() } else { connections.join("\n") },
        last_problem: problem(&snapshot.head),
    }
}

fn stage(head: &Head) -> String {
    let name = Stage::from_number(head.stage).map_or("unknown", Stage::name);
    format!("{} adapters, last stage {name}", head.adapters)
}

fn describe(adapter: &Adapter) -> String {
    let nic = String::from_utf16_lossy(&adapter.nic);
    let link = match adapter.link {
        link::NO_NIC => "not bound".into(),
        link::DOWN => "link down".into(),
        _ => format!("link up, {} Mb/s", adapter.speed_bps / 1_000_000),
    };
    let ndk = match adapter.ndk {
        ndk::OFF => "off",
        ndk::ON => "on",
        _ => "going off, a consumer has not let go yet",
    };
    format!(
        "index {} on NIC {}: {link}, MTU {}, path MTU {}, NDK {ndk}, {} listeners\n\
         connects {}, accepts {}, failures {}, broken {}, CQ errors {}\n\
         sent {} bytes in {} frames, received {} in {}",
        adapter.interface,
        nic.trim_end_matches('\0'),
        adapter.mtu,
        adapter.path_mtu,
        adapter.endpoints,
        adapter.connects,
        adapter.accepts,
        adapter.connect_failures,
        adapter.connection_errors,
        adapter.cq_errors,
        adapter.out_bytes,
        adapter.out_frames,
        adapter.in_bytes,
        adapter.in_frames,
    )
}

fn entry(connection: &Connection) -> String {
    let end = |octets: [u8; 16], port| SocketAddr::new(Ipv6Addr::from(octets).to_canonical(), port);
    format!(
        "QPN {:#08x} {} to {}, path MTU {}: {} bytes sent, {} received, {} packets sent again",
        connection.qpn,
        end(connection.local, connection.local_port),
        end(connection.remote, connection.remote_port),
        connection.path_mtu,
        connection.sent_bytes,
        connection.received_bytes,
        connection.resent_packets,
    )
}

/// The sentence of the event log, and what mends it.
fn problem(head: &Head) -> String {
    if head.problem == 0 {
        return "none since the driver was loaded".into();
    }
    let Some(problem) = Problem::from_number(head.problem) else {
        return format!("number {}, which this program does not know", head.problem);
    };
    let words = problem.words();
    let [interface, first, second] = head.problem_values;
    let value = |value: u32| match words.values {
        problems::Values::Numbers => value.to_string(),
        problems::Values::Status => format!("{value:X}"),
    };
    let sentence = words.sentence.replace("%2", &interface.to_string());
    let sentence = sentence.replace("%3", &value(first)).replace("%4", &value(second));
    format!("{sentence}\n{}", words.remedy)
}
