//! A peer that fell silent: an ICMP error, or whether its host is still there, says why.

use netadapter_glue::neighbour::ask::{Heard, Refusal, hear};
use rocev2::wire::ROCE_PORT;

use super::Path;
use super::findings::Code;
use super::report::Report;
use super::station::{Signs, Station};
use crate::failure::Failure;

/// Names the fault. `from` is the frame from which on a provider has spoken, and whether it was connected.
pub(super) fn explain(
    station: &mut Station,
    path: &Path,
    mac: [u8; 6],
    before: Signs,
    (from, was_connected): (usize, bool),
    report: &mut Report,
) -> Result<(), Failure> {
    report.begin("silence");
    let Path { peer, port, .. } = *path;
    let refused = station.trace.since(from, |frames| {
        frames.iter().filter_map(|seen| hear(&seen.bytes)).find_map(|news| match news {
            Heard::Refused { from, to, udp_port: Some(ROCE_PORT), reason } if to == peer => {
                Some((from, reason))
            }
            _ => None,
        })
    });
    let request = format!("requests to connect to port {port}");
    match refused.filter(|_| !was_connected) {
        Some((host, Refusal::Port)) if host == peer => {
            let text = format!(
                "{peer} is there and has no RoCE: its kernel answers {request} with ICMP port unreachable for UDP {ROCE_PORT}"
            );
            report.find(Code::NoRoce, text);
            return Ok(());
        }
        Some((host, Refusal::Port | Refusal::Prohibited | Refusal::Unreachable)) => {
            let text = format!(
                "{host} answers {request} with ICMP unreachable: a filter forbids UDP {ROCE_PORT}"
            );
            report.find(Code::FilteredPort, text);
            return Ok(());
        }
        Some((_, Refusal::TooBig(_))) | None => {}
    }
    let now = station.is_there(path, mac)?;
    let (code, text) = match (now.by_address || now.by_ping, before.by_ping, was_connected) {
        (false, ..) => (
            Code::PeerDown,
            format!(
                "{peer} answered a moment ago, and now answers nothing: it went down, or its link did"
            ),
        ),
        (true, false, false) => (
            Code::PeerDown,
            format!(
                "{peer} answers for its Ethernet address and to nothing else: it sleeps or has crashed and its NIC or \
                 another host answers for it; or it drops pings and UDP {ROCE_PORT} alike"
            ),
        ),
        (true, true, false) => (
            Code::FilteredPort,
            format!(
                "{peer} answers pings, and {request} stay without any answer: UDP {ROCE_PORT} is filtered there or on the way, \
                 or it is Linux with rdma_rxe loaded and not on the interface of that address"
            ),
        ),
        (true, _, true) => (
            Code::OperationFailed,
            format!("{peer} has accepted a connection, and its messages got no answer"),
        ),
    };
    report.find(code, text);
    Ok(())
}
