//! What TCP/IP knows of a neighbour, and what it has to ask for.

use super::net::Net;
use super::*;

/// `NL_NEIGHBOR_STATE`, of which those from `NlnsDelay` on are worth something.
const STATES: [(&str, i32, bool); 7] = [
    ("unreachable", 0, false),
    ("incomplete", 1, false),
    ("probe", 2, false),
    ("delay", 3, true),
    ("stale", 4, true),
    ("reachable", 5, true),
    ("permanent", 6, true),
];

/// A connect to a neighbour that is in TCP/IP's table takes it from there, and has nobody asked; one that is not, or
/// whose entry is worth nothing, is asked for. Over both families.
pub(super) fn neighbours(host: &dyn Host, _: &[String]) {
    for address in [address as fn(usize) -> IpAddr, address6] {
        for (state, number, is_known) in STATES {
            let net = Net::start(host, 1500);
            let mac = net.vnics[1].mac();
            // An entry that is worth nothing is wrong, too.
            let mac = if is_known { mac } else { [2, 0xDE, 0xAD, 0, 0, 1] };
            netio::believe_as(address(1), mac, number);
            let before = netio::resolutions();
            let connection = net.try_connect(address(0), address(1)).expect("a connection");
            // The peer may have somebody asked, which does not know the first one.
            let asked_for = netio::believed(address(1)).is_none();
            assert_eq!(
                asked_for,
                !is_known,
                "{state}: {} resolutions",
                netio::resolutions() - before
            );
            connection.exchange(5, 1000);
            drop(connection);
            net.end(host);
        }
    }
    say!("known and unknown neighbours verified");
}
