//! `ndkperf` as its users run it: what it prints, how it ends, and that two of them understand
//! each other over the sockets of a QEMU network.

mod kit;
#[path = "cli/refused.rs"]
mod refused;
#[path = "cli/udp.rs"]
mod udp;

use std::fs::File;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Output, Stdio};
use std::thread;
use std::time::Instant;

use kit::{LIMIT, Network, SLICE, command, json, operations, run, text};
use pcap_file::pcap::PcapReader;
use rocev2::wire::{Opcode, Packet};
use serde_json::Value;
use tempfile::TempDir;

// ---- loopback ----------------------------------------------------------------------------------

#[test]
fn everything_is_verified_over_a_bad_network() {
    let faults = "--loss 2 --duplicate 1 --reorder 2 --corrupt 0.5 --seed 1";
    let report = json(&format!("loopback --iterations 200 --size 16k {faults}"));
    assert_eq!(report["edge"]["loss_percent"], 2.0);
    assert_eq!(report["edge"]["corrupt_percent"], 0.5);
    assert_whole(&report, 200, 16 << 10);
}

#[test]
fn everything_is_verified_over_ip6() {
    assert_whole(&json("loopback --ip6 --iterations 300 --size 10000"), 300, 10_000);
}

#[test]
fn everything_is_verified_in_large_packets_and_short_units() {
    let report = json("loopback --mtu 9000 --segments 8 --iterations 300");
    assert_eq!(report["edge"]["mtu"], 9000);
    assert_eq!(report["edge"]["segments"], 8);
    assert_whole(&report, 300, 64 << 10);
}

/// Goal: an adapter of several cores does what one of a single core does, and says how many it has.
#[test]
fn everything_is_verified_over_several_cores() {
    let faults = "--loss 1 --reorder 1 --seed 3";
    let report = json(&format!(
        "loopback --cores 3 --threads 3 --qps 2 --iterations 300 --size 9000 {faults}"
    ));
    assert_eq!(report["edge"]["cores"], 3);
    assert_whole(&report, 300, 9000);
}

/// Each core's frames are in a file of its own.
#[test]
fn every_core_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let first = folder.path().join("run.pcap");
    let flags =
        "loopback --cores 2 --threads 2 --qps 2 --iterations 64 --size 4096 --operations write";
    json(&format!("{flags} --pcap {}", first.display()));
    for name in ["run.pcap", "run.1.pcap"] {
        let bytes = std::fs::metadata(folder.path().join(name)).unwrap().len();
        assert!(bytes > 16 * 4096, "{name}: {bytes} bytes");
    }
}

#[test]
fn everything_is_verified_where_a_notification_tells_of_several() {
    let report = json("--iterations 300 --size 3000 --depth 64 --cq-mod 16");
    assert_whole(&report, 300, 3000);
}

#[test]
fn a_report_has_every_field() {
    let report = json("--iterations 10 --operations read --size 100 --depth 3 --seed 7");
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(report["edge"]["kind"], "memory");
    assert_eq!((&report["depth"], &report["seed"]), (&Value::from(3), &Value::from(7)));
    let [operation] = operations(&report) else { panic!("{report}") };
    assert_eq!(operation["operation"], "read");
    let numbers = ["seconds", "messages_per_second", "gigabytes_per_second", "cpu_ns_per_message"];
    let latencies = ["p50", "p99", "p99.9", "max"];
    let numbers = numbers.map(|name| &operation[name]);
    let latencies = latencies.map(|name| &operation["latency_us"][name]);
    for number in numbers.iter().chain(&latencies) {
        assert!(number.as_f64().is_some_and(|number| number > 0.0), "{operation}");
    }
}

#[test]
fn a_table_tells_that_every_byte_was_checked() {
    let output = run("loopback --iterations 10 --seed 7");
    assert!(output.status.success());
    let table = text(&output.stdout);
    for word in ["send", "write", "read", "every byte checked", "seed 7"] {
        assert!(table.contains(word), "{word}: {table}");
    }
    // No terminal, so no progress bar.
    assert_eq!(text(&output.stderr), "");
}

/// All of them have the class and the priority that were asked for, but for the bits of ECN.
#[test]
fn a_capture_holds_the_packets_of_a_run() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("write.pcap");
    let load = "--operations write --iterations 20 --size 4k --tclass 105 --sl 5";
    let output = run(&format!("{load} --pcap {}", file.display()));
    assert!(output.status.success(), "{output:?}");
    let mut capture = PcapReader::new(File::open(&file).unwrap()).unwrap();
    let (mut writes, mut acknowledgements, mut management) = (0, 0, 0);
    while let Some(record) = capture.next_packet() {
        // All that is no RoCE packet are the questions for Ethernet addresses.
        let record = record.unwrap();
        let Ok(Packet { encap, bth, .. }) = Packet::parse(&record.data) else { continue };
        assert_eq!((encap.traffic_class & !3, encap.vlan), (104, Some(5 << 13)), "{bth:?}");
        match bth.opcode {
            Opcode::WriteOnly => writes += 1,
            Opcode::Acknowledge => acknowledgements += 1,
            _ => management += u32::from(bth.dest_qpn.get() == 1),
        }
    }
    assert!(writes >= 20 && acknowledgements > 0 && management >= 4, "{writes}, {management}");
}

// ---- failures ----------------------------------------------------------------------------------

#[test]
fn bad_arguments_are_told_in_one_line_and_a_hint() {
    let edge = "--edge qemu-dgram:/tmp/a:/tmp/b";
    for (arguments, word) in [
        ("frobnicate", "frobnicate"),
        ("--loss 101", "--loss"),
        ("--size 0", "--size"),
        ("--size 512M", "1024 MiB"),
        ("--size 64,8M --depth 128", "8388608 bytes"),
        ("--all --size 64", "--size"),
        ("--srq --operations write,read", "no SEND"),
        ("--operations erase", "send, write, read"),
        ("--iterations 5 --seconds 1", "--seconds"),
        ("serve", "--edge"),
        ("serve --edge eth0 --address 10.0.0.1", "af-packet:IFACE"),
        ("serve --edge tap:t0 --address 10.0.0.1 --mtu 9000", "--mtu"),
        ("serve --edge tap:t0 --address 10.0.0.1 --vlan 4095", "--vlan"),
        ("serve --edge af-packet:e0 --address 10.0.0.1 --vlan 7", "own interface"),
        (&format!("serve {edge} --address 10.0.0.300"), "10.0.0.300"),
        (&format!("connect 224.0.0.1 {edge} --address 10.0.0.1"), "224.0.0.1"),
        (&format!("connect fd00::1 {edge} --address 10.0.0.1"), "family"),
        (&format!("connect 10.0.0.1 {edge} --address 10.0.0.1"), "loopback"),
        ("rping", "serve, connect"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        let mut lines = text(&output.stderr).lines();
        let problem = lines.next().unwrap_or_default();
        assert!(problem.starts_with("ndkperf: ") && problem.contains(word), "{word}: {problem}");
        assert!(lines.all(|line| line.starts_with("  ")), "{output:?}");
        assert_eq!(text(&output.stdout), "");
    }
}

#[test]
fn a_near_miss_is_told_with_what_was_meant() {
    let output = run("--operation send");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("'--operations'"), "{output:?}");
}

#[test]
fn help_is_no_failure() {
    for arguments in ["--help", "serve --help", "rping connect --help", "--version"] {
        let output = run(arguments);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        assert!(text(&output.stdout).contains("ndkperf"));
    }
}

#[test]
fn nobody_at_an_address_is_told_in_one_line() {
    let network = Network::new();
    let output = run(&format!("connect 10.0.0.9 {}", network.dgram(2)));
    assert_eq!(output.status.code(), Some(1));
    assert_one_line(&output, "STATUS_HOST_UNREACHABLE");
    let output = run(&format!("rping connect -a 10.0.0.9 {}", network.dgram(2)));
    assert_eq!(output.status.code(), Some(1));
    assert_one_line(&output, "STATUS_HOST_UNREACHABLE");
}

#[test]
fn nobody_at_a_port_is_told_in_one_line() {
    let network = Network::new();
    let _server = network.start("server", &format!("serve {}", network.dgram(1)));
    let output = run(&format!("connect 10.0.0.1 -p 9 {}", network.dgram(2)));
    assert_eq!(output.status.code(), Some(1));
    assert_one_line(&output, "STATUS_CONNECTION_REFUSED");
}

/// Goal: one JSON document, whatever happened.
#[test]
fn a_failure_is_part_of_the_document() {
    let network = Network::new();
    let output = run(&format!("connect 10.0.0.9 --json {}", network.dgram(2)));
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let [operation] = operations(&report) else { panic!("{report}") };
    assert_eq!(operation["messages"], 0);
    let error = operation["error"].as_str().unwrap();
    assert!(error.contains("STATUS_HOST_UNREACHABLE"), "{error}");
}

#[test]
fn a_socket_that_another_process_has_is_not_taken_from_it() {
    let network = Network::new();
    let _server = network.start("server", &format!("serve {}", network.dgram(1)));
    let output = run(&format!("serve {}", network.dgram(1)));
    assert_eq!(output.status.code(), Some(1));
    assert_one_line(&output, "in use");
    // The first one is still there, and still served.
    let report = json(&format!("connect 10.0.0.1 --iterations 10 {}", network.dgram(2)));
    assert_whole(&report, 10, 64 << 10);
}

/// Both hosts would answer for it.
#[test]
fn an_address_that_another_host_has_is_not_taken_from_it() {
    let network = Network::new();
    let first = format!("serve {} --mac 02:00:00:00:00:0a", network.dgram(1));
    let _server = network.start("server", &first);
    let second = network.dgram(2).replace("10.0.0.2", "10.0.0.1");
    for arguments in [format!("serve {second}"), format!("connect 10.0.0.9 {second}")] {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments}");
        let words = "the address 10.0.0.1 is taken: the host at 02:00:00:00:00:0a has it";
        assert_one_line(&output, words);
    }
    let _second = network.start("second", &format!("serve {second} --no-address-probe"));
}

/// A server tells of a host that takes its address later.
#[test]
fn a_host_that_takes_the_address_of_a_server_is_told() {
    let network = Network::new();
    let server = network.start("server", &format!("serve {}", network.dgram(1)));
    let (mac, ip) = ([2, 0, 0, 0, 0, 9], [10, 0, 0, 1]);
    // An ARP announcement (RFC 5227): the address is its sender's, who asks for it.
    let head = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9, 8, 6];
    let arp = [0, 1, 8, 0, 6, 4, 0, 1];
    let frame = [&head[..], &arp, &mac, &ip, &[0; 6], &ip, &[0; 18]].concat();
    let socket = UnixDatagram::unbound().unwrap();
    socket.send_to(&frame, network.path("1")).unwrap();
    wait_until(|| server.log().contains("1 frames of another host that has our address"));
}

#[test]
fn a_report_that_cannot_be_printed_is_a_failure_and_no_panic() {
    let output = command("--iterations 5")
        .stdout(File::options().write(true).open("/dev/full").unwrap())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot be printed"), "{output:?}");
}

// ---- the user ends it --------------------------------------------------------------------------

/// Goal: ctrl-C ends a run like its time limit: results, a whole capture, and a peer that knows.
#[test]
fn an_interrupted_client_prints_what_it_has_and_tells_the_server() {
    let network = Network::new();
    let server = network.start("server", &format!("serve {}", network.dgram(1)));
    let pcap = network.path("client.pcap");
    let arguments = format!(
        "connect 10.0.0.1 --json --operations write,read --seconds 600 --size 4k --pcap {} {}",
        pcap.display(),
        network.dgram(2)
    );
    let client = command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Data has passed once the capture is longer than a connection takes.
    wait_until(|| std::fs::metadata(&pcap).is_ok_and(|file| file.len() > 1_000_000));
    interrupt(&client);
    let output = client.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["interrupted"], true);
    let [operation] = operations(&report) else { panic!("{report}") };
    assert!(operation["messages"].as_u64().unwrap() > 0 && operation["error"].is_null());
    let mut capture = PcapReader::new(File::open(&pcap).unwrap()).unwrap();
    while let Some(record) = capture.next_packet() {
        record.expect("the capture is whole");
    }
    let messages = format!(": {} messages", operation["messages"]);
    wait_until(|| server.log().contains(&messages));
}

#[test]
fn an_interrupted_server_tells_its_client() {
    let network = Network::new();
    let mut server = network.start("server", &format!("serve {}", network.dgram(1)));
    let pcap = network.path("client.pcap");
    let arguments = format!(
        "connect 10.0.0.1 --json --operations send --seconds 600 --size 4k --pcap {} {}",
        pcap.display(),
        network.dgram(2)
    );
    let client = command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until(|| std::fs::metadata(&pcap).is_ok_and(|file| file.len() > 1_000_000));
    interrupt(&server.child);
    assert_eq!(server.wait().code(), Some(130), "{}", server.log());
    let output = client.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let [operation] = operations(&report) else { panic!("{report}") };
    assert!(operation["messages"].as_u64().unwrap() > 0);
    let error = operation["error"].as_str().unwrap();
    assert!(error.contains("disconnected"), "{error}");
}

// ---- two processes -----------------------------------------------------------------------------

#[test]
fn serve_and_connect_verify_over_datagrams() {
    let network = Network::new();
    measure(&network, &network.dgram(1), &network.dgram(2));
}

#[test]
fn serve_and_connect_verify_over_a_stream() {
    let network = Network::new();
    let [server, client] = stream(&network);
    measure(&network, &server, &client);
}

#[test]
fn rping_verifies_over_datagrams() {
    let network = Network::new();
    ping(&network, &network.dgram(1), &network.dgram(2));
}

#[test]
fn rping_verifies_over_a_stream() {
    let network = Network::new();
    let [server, client] = stream(&network);
    ping(&network, &server, &client);
}

#[test]
fn rping_verifies_over_a_bad_network() {
    let network = Network::new();
    let client = format!("{} --loss 2 --corrupt 1 --duplicate 2", network.dgram(2));
    ping(&network, &network.dgram(1), &client);
}

/// Neighbours are asked for, connects go out and answers come back in the VLAN, and with the priority, of who
/// connects, though the server was told of none.
#[test]
fn a_connect_in_a_vlan_stays_in_it() {
    let network = Network::new();
    let pcap = network.path("client.pcap");
    let client = format!("{} --vlan 7 --sl 3 --pcap {}", network.dgram(2), pcap.display());
    measure(&network, &network.dgram(1), &client);
    let mut capture = PcapReader::new(File::open(&pcap).unwrap()).unwrap();
    let mut frames = 0;
    while let Some(record) = capture.next_packet() {
        let frame = record.unwrap().data;
        // Our neighbours' questions and answers have no priority.
        let priority = if Packet::parse(&frame).is_ok() { 3 << 5 } else { 0 };
        assert_eq!(frame[12..16], [0x81, 0, priority, 7], "frame {frames}");
        frames += 1;
    }
    // The question for the neighbour, 300 messages, and what confirms them.
    assert!(frames > 600, "{frames}");
}

/// All three operations, and the server's word for it.
fn measure(network: &Network, server_edge: &str, client_edge: &str) {
    let mut server = network.start("server", &format!("serve --runs 3 {server_edge}"));
    let report = json(&format!("connect 10.0.0.1 --iterations 100 --size 5000 {client_edge}"));
    assert_whole(&report, 100, 5000);
    assert!(server.wait().success(), "{}", server.log());
    assert_eq!(server.log().matches(": 100 messages").count(), 3, "{}", server.log());
}

/// Ten pings, compared by both sides, and a disconnect that both sides see.
fn ping(network: &Network, server_edge: &str, client_edge: &str) {
    let mut server = network.start("server", &format!("rping serve -V -C 10 {server_edge}"));
    let output = run(&format!("rping connect -vV -C 10 -S 100 -a 10.0.0.1 {client_edge}"));
    assert!(output.status.success(), "{output:?}");
    let pings = text(&output.stdout);
    assert_eq!(pings.matches("ping data: rdma-ping-").count(), 10, "{pings}");
    assert!(text(&output.stderr).contains("10 pings, disconnected"), "{output:?}");
    assert!(server.wait().success(), "{}", server.log());
    assert!(server.log().contains("10 pings, then it disconnected"), "{}", server.log());
}

// ---- help --------------------------------------------------------------------------------------

/// The arguments of server and client on a link of one stream socket.
fn stream(network: &Network) -> [String; 2] {
    let path = network.path("stream");
    [(1, "listen"), (2, "connect")].map(|(host, role)| {
        format!("--edge qemu-stream:{role}:{} --address 10.0.0.{host}", path.display())
    })
}

/// As ctrl-C does.
fn interrupt(child: &Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}

fn wait_until(mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !done() {
        assert!(Instant::now() < deadline, "it does not come");
        thread::sleep(SLICE);
    }
}

/// SEND, WRITE and READ moved every byte, and every byte was right.
fn assert_whole(report: &Value, messages: u64, size: u64) {
    assert_eq!(report["verified"], true);
    assert_eq!(report["size"], size);
    let operations = operations(report);
    let names: Vec<&Value> = operations.iter().map(|operation| &operation["operation"]).collect();
    assert_eq!(names, ["send", "write", "read"]);
    for operation in operations {
        assert_eq!(operation["messages"], messages);
        assert_eq!(operation["bytes"], messages * size);
        assert_eq!(operation["wrong_messages"], 0);
    }
}

fn assert_one_line(output: &Output, word: &str) {
    let line = text(&output.stderr);
    assert!(line.starts_with("ndkperf: ") && line.contains(word), "{word}: {line}");
    assert_eq!(line.trim_end().lines().count(), 1, "{line}");
    assert_eq!(text(&output.stdout), "");
}
