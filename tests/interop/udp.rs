//! The edge over an ordinary UDP socket against `rdma_rxe`.

use tests::lab::TapLab;

use super::{FAMILIES, LISTENING, judge_pings};

/// As [`super::PINGS`], of which eight runs are more than enough.
const PINGS: &str = "-p 7174 -V -C 25 -S 65535";

/// Goal: rxe and the edge over a UDP socket connect to each other, over IPv4 and IPv6, and all pings come back intact, whether
/// the kernel divides units and joins packets or not; each packet on the wire has the right ICRC, though the kernel wrote
/// its headers.
/// Method: the guest's NIC is a TAP of a network that an ordinary user made, in which the kernel has our addresses.
#[test]
fn a_udp_socket_and_rxe_ping_each_other() {
    let Some(mut lab) = TapLab::start("a_udp_socket_and_rxe_ping_each_other") else { return };
    for (_, theirs, ours) in FAMILIES {
        for offload in ["", " --offload"] {
            let edge = format!("--edge udp:{ours}{offload}");
            let mut server = lab.ndkperf(&format!("rping serve -a {ours} {PINGS} {edge}"));
            server.wait_for("listening");
            let (status, log) = lab.guest.start(&format!("rping -c -a {ours} {PINGS}")).wait();
            assert_eq!(status, 0, "{edge}: rping -c says\n{log}\nndkperf\n{}", server.output());
            let (status, output) = server.wait();
            assert_eq!(status, 0, "{edge}: ndkperf says\n{output}");

            let server = lab.guest.start(&format!("rping -s -a {theirs} {PINGS}"));
            lab.guest.run(LISTENING);
            let connect = format!("rping connect -a {theirs} {PINGS} {edge}");
            let (status, output) = lab.ndkperf(&connect).wait();
            assert_eq!(status, 0, "{edge}: ndkperf says\n{output}");
            let (status, log) = server.wait();
            assert_eq!(status, 0, "{edge}: rping -s says\n{log}");
        }
    }
    lab.guest.end();
    judge_pings(&lab.guest.nic_capture(0));
}
