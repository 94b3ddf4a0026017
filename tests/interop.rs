//! Linux's `rdma_rxe`, in a QEMU guest, against this provider in a process of its own (`ndkperf`).
//!
//! Goal: what Linux's own RDMA users do with us works, over IPv4 and IPv6, whichever side connects,
//! and each packet on the wire is one that others accept.
//! Method: the guest's NIC is joined to our process by a Unix datagram socket. The guest runs rping, or a program
//! of ours on its libraries, and the process is then the test itself; the captures are judged by tools that share
//! no code with us.
//!
//! What a run leaves (guest console, logs, captures) stays under `target/tmp/interop`.

#[path = "interop/churn.rs"]
mod churn;
#[path = "interop/doctor.rs"]
mod doctor;
#[path = "interop/ecn.rs"]
mod ecn;
#[path = "interop/invalidate.rs"]
mod invalidate;
#[path = "interop/loss.rs"]
mod loss;
#[path = "interop/storage.rs"]
mod storage;
#[path = "interop/udp.rs"]
mod udp;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use tests::lab::{Guest, Lab, Side, Verdict, judge, scratch, skip, verdict};

/// (name, the guest's address, ours)
const FAMILIES: [(&str, &str, &str); 2] =
    [("ipv4", "10.0.0.1", "10.0.0.2"), ("ipv6", "fd00::1", "fd00::2")];
/// As both rping and `ndkperf rping` take them. 65535 bytes are the most: rping refuses 65536.
const PINGS: &str = "-p 7174 -V -C 100 -S 65535";
const ITERATIONS: usize = 100;
/// As `PINGS`, to a port where nobody listens on either side.
const NOBODY: &str = "-p 7175 -V -C 1";
/// In the guest: returns once rping listens.
const LISTENING: &str = "until rdma resource show cm_id | grep -q LISTEN; do usleep 50000; done";

/// Goal: the guest's `rping -c` connects to our listener; all its pings come back intact; both sides see the end.
#[test]
fn sys_06_rxe_connects_to_us() {
    let Some(mut lab) = Lab::start("rxe_connects_to_us") else { return };
    for (family, _, ours) in FAMILIES {
        let capture = lab.path(&format!("{family}.pcap"));
        let mut server = lab.ndkperf(&format!("serve -a {ours} {PINGS}"), &capture);
        server.wait_for("listening");
        let (status, log) = lab.guest.start(&format!("rping -c -a {ours} {PINGS}")).wait();
        assert_eq!(status, 0, "{family}: rping -c says\n{log}\nand ndkperf\n{}", server.output());
        let (status, output) = server.wait();
        assert_eq!(status, 0, "{family}: ndkperf says\n{output}");
        assert!(output.contains("disconnect"), "{family}: we saw no disconnect\n{output}");
        judge_pings(&capture);
    }
    lab.finish();
}

/// Goal: our connector reaches the guest's `rping -s`; all our pings come back intact; both sides see the end.
#[test]
fn sys_06_we_connect_to_rxe() {
    let Some(mut lab) = Lab::start("we_connect_to_rxe") else { return };
    for (family, theirs, _) in FAMILIES {
        let capture = lab.path(&format!("{family}.pcap"));
        let server = lab.guest.start(&format!("rping -s -a {theirs} {PINGS}"));
        lab.guest.run(LISTENING);
        let (status, output) =
            lab.ndkperf(&format!("connect -a {theirs} {PINGS}"), &capture).wait();
        assert_eq!(status, 0, "{family}: ndkperf says\n{output}");
        assert!(output.contains("disconnect"), "{family}: we saw no disconnect\n{output}");
        let (status, log) = server.wait();
        assert_eq!(status, 0, "{family}: rping -s says\n{log}");
        assert!(
            log.contains("server DISCONNECT EVENT"),
            "{family}: the guest saw no disconnect\n{log}"
        );
        judge_pings(&capture);
    }
    lab.finish();
}

/// Goal: a connect to a port without a listener is refused, with that reason, in both directions.
#[test]
fn nobody_listens() {
    let Some(mut lab) = Lab::start("nobody_listens") else { return };
    for (family, theirs, ours) in FAMILIES {
        let capture = lab.path(&format!("{family}-ours.pcap"));
        let (status, output) =
            lab.ndkperf(&format!("connect -a {theirs} {NOBODY}"), &capture).wait();
        assert_ne!(status, 0, "{family}: ndkperf says\n{output}");
        assert!(output.contains("STATUS_CONNECTION_REFUSED"), "{family}: ndkperf says\n{output}");
        judge_refusal(&capture);

        let capture = lab.path(&format!("{family}-theirs.pcap"));
        let mut server = lab.ndkperf(&format!("serve -a {ours} {PINGS}"), &capture);
        server.wait_for("listening");
        let (status, log) = lab.guest.start(&format!("rping -c -a {ours} {NOBODY}")).wait();
        assert_ne!(status, 0, "{family}: rping -c says\n{log}");
        // Status 8 is the REJ's reason, invalid service id: no timeout looks like this.
        assert!(log.contains("RDMA_CM_EVENT_REJECTED, error 8"), "{family}: rping -c says\n{log}");
    }
    lab.finish();
}

/// Goal: the lab and the judges find nothing wrong where both sides are Linux: a control for the tests above.
#[test]
fn rxe_against_rxe() {
    let Some(mut lab) = Lab::start("rxe_against_rxe") else { return };
    let mut other = Guest::boot(&lab.path("other"), &lab.sockets, Side::Ours);
    for (family, _, ours) in FAMILIES {
        let server = other.start(&format!("rping -s -a {ours} {PINGS}"));
        other.run(LISTENING);
        lab.guest.run(&format!("rping -c -a {ours} {PINGS}"));
        let (status, log) = server.wait();
        assert_eq!(status, 0, "{family}: rping -s says\n{log}");
    }
    other.end();
    lab.finish();
    judge_pings(&lab.nic_capture());
}

/// Goal: each judge accepts a sound capture and refuses the same with one packet changed.
#[test]
fn judges_tell_right_from_wrong() {
    let sound = Path::new(env!("CARGO_MANIFEST_DIR")).join("captures/rping_v4.pcap");
    let bytes = fs::read(&sound).expect("the capture is part of the repository");
    let dir = scratch("judges_tell_right_from_wrong");
    // The file's last byte belongs to an ICRC.
    let mut corrupt = bytes.clone();
    *corrupt.last_mut().expect("the capture is not empty") ^= 1;
    // An ACK that says it is a READ request ends in the middle of the RETH.
    let mut malformed = bytes.clone();
    let opcode = opcodes(&bytes).find(|&at| bytes[at] == 0x11).expect("the capture has an ACK");
    malformed[opcode] = 0x0c;
    for (judge, wrong) in [("icrc", &corrupt), ("scapy", &corrupt), ("tshark", &malformed)] {
        let refused = dir.join(format!("{judge}.pcap"));
        fs::write(&refused, wrong).expect("target/tmp is writable");
        match (verdict(judge, &sound), verdict(judge, &refused)) {
            (Verdict::Sound(_), Verdict::Wrong(_)) => {}
            (Verdict::Skipped(reason), _) => skip(&reason),
            (sound, wrong) => panic!("{judge}: sound: {sound:?}, changed: {wrong:?}"),
        }
    }
}

/// Goal: scapy is found where only Debian's python3 has it.
/// Method: a python3 without its packages runs the judge.
#[test]
fn scapy_is_found_beside_another_python() {
    let debians = || Command::new("/usr/bin/python3");
    let has = debians().args(["-c", "import scapy.contrib.roce"]).stderr(Stdio::null()).status();
    if !has.is_ok_and(|status| status.success()) {
        return skip("/usr/bin/python3 has no scapy");
    }
    let sound = Path::new(env!("CARGO_MANIFEST_DIR")).join("captures/rping_v4.pcap");
    let judge = Path::new(env!("CARGO_MANIFEST_DIR")).join("lab/judge.py");
    let judged = debians().arg("-S").arg(judge).arg("scapy").arg(sound).status().unwrap();
    assert_eq!(judged.code(), Some(0));
}

/// Where the BTH opcodes are in a little-endian pcap of RoCEv2 over IPv4: after Ethernet 14, IPv4 20, UDP 8.
fn opcodes(pcap: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let mut record = 24;
    std::iter::from_fn(move || {
        let captured = *pcap.get(record + 8..)?.first_chunk()?;
        let frame = record + 16;
        record = frame + u32::from_le_bytes(captured) as usize;
        Some(frame + 42)
    })
}

/// The capture of a whole rping: connected, every iteration's READ and WRITE in it, disconnected.
fn judge_pings(capture: &Path) {
    let kinds = judge(capture, &["icrc", "scapy", "tshark"]);
    let count = |kind: &str| kinds.get(kind).copied().unwrap_or(0);
    for kind in ["CM_REQ", "CM_REP", "CM_RTU", "CM_DREQ", "CM_DREP"] {
        assert!(count(kind) > 0, "{}: no {kind} in {kinds:?}", capture.display());
    }
    for kind in ["READ_REQUEST", "READ_RESPONSE_LAST", "WRITE_LAST", "SEND_ONLY"] {
        assert!(count(kind) >= ITERATIONS, "{}: too few {kind} in {kinds:?}", capture.display());
    }
    // A NAK 0, PSN sequence error, answers a lost packet; the others answer a request that is wrong.
    for kind in ["CM_REJ", "NAK_1", "NAK_2", "NAK_3", "NAK_4"] {
        assert_eq!(count(kind), 0, "{}: {kind} in {kinds:?}", capture.display());
    }
}

/// The capture of a refused connect.
fn judge_refusal(capture: &Path) {
    let kinds = judge(capture, &["icrc", "scapy", "tshark"]);
    let has = |kind: &str| kinds.contains_key(kind);
    assert!(has("CM_REQ") && has("CM_REJ") && !has("CM_REP"), "{}: {kinds:?}", capture.display());
}
