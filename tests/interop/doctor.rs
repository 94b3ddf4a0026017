//! `ndkperf doctor` against `rdma_rxe`.

use tests::lab::{TAP, TapLab};

use super::{FAMILIES, LISTENING};

/// In the guest: returns once rping has ended.
const ENDED: &str = "killall rping; while pgrep rping; do usleep 50000; done";
/// An address that no kernel has, beside each of ours.
const OWN: [&str; 2] = ["10.0.0.9", "fd00::9"];
/// What the guest lacks from here on, in that order, and the fault that the doctor names then.
const STAGES: [(&str, &str); 4] = [
    ("true", "no-listener"),
    (
        "tc qdisc add dev eth0 clsact
         tc filter add dev eth0 ingress protocol ip flower ip_proto udp dst_port 4791 action drop",
        "filtered-port",
    ),
    // It keeps the port as long as it is loaded, and says nothing there.
    ("tc qdisc delete dev eth0 clsact; rdma link delete rxe0", "filtered-port"),
    ("rmmod rdma_rxe", "no-roce"),
];

/// Examinations of a healthy path, of which one finds nothing.
const ATTEMPTS: usize = 3;

/// Goal: the doctor finds nothing at a healthy path to rxe, and of a fault in the guest's kernel names the one that it is.
/// Method: the guest's NIC is a TAP, and at its other end the doctor has a packet socket and an address of its own.
#[test]
fn the_doctor_examines_rxe() {
    let Some(mut lab) = TapLab::start("the_doctor_examines_rxe") else { return };
    let examine = |lab: &mut TapLab, theirs: &str, own: &str| {
        let edge = format!("--edge af-packet:{TAP} --address {own}");
        lab.ndkperf(&format!("doctor {theirs} --rping {edge}")).wait()
    };
    for ((_, theirs, _), own) in FAMILIES.into_iter().zip(OWN) {
        let server = lab.guest.start(&format!("rping -s -P -a {theirs} -p 7174 -S 65535"));
        lab.guest.run(LISTENING);
        // A machine that is busy with others may lose frames, which is a fault, too.
        let healthy = (0..ATTEMPTS).any(|_| {
            let (status, output) = examine(&mut lab, theirs, own);
            println!("{theirs}: the doctor says\n{output}");
            status == 0
        });
        assert!(healthy, "{theirs}: rping says\n{}", server.output());
        lab.guest.run(ENDED);
    }
    for (fault, code) in STAGES {
        lab.guest.run(fault);
        let (status, output) = examine(&mut lab, FAMILIES[0].1, OWN[0]);
        assert!(status == 1 && output.contains(&format!("{code}: ")), "{code}: {status}\n{output}");
    }
    lab.guest.end();
}
