//! Edges of this host as an ordinary user has them: two processes over UDP sockets, `ndkperf lab`, and those that cannot be.

use super::*;

#[test]
fn everything_is_verified_over_udp_sockets() {
    for (server, client, flags) in [
        ("127.2.0.1", "127.2.0.2", ["", ""]),
        ("127.2.0.3", "127.2.0.4", ["--offload", "--offload"]),
        ("127.2.0.5", "127.2.0.6", ["", "--offload --loss 1 --reorder 1 --corrupt 1"]),
    ] {
        let network = Network::new();
        let serve = format!("serve --edge udp:{server} --runs 3 {}", flags[0]);
        let mut process = network.start("server", &serve);
        let load = format!("--iterations 200 --seed 3 {}", flags[1]);
        let report = json(&format!("connect {server} --edge udp:{client} {load}"));
        assert_whole(&report, 200, 64 << 10);
        assert!(process.wait().success(), "{}", process.log());
    }
}

/// An ordinary user's socket and a packet socket, over a veth pair, on which the kernel leaves checksums unfinished.
#[test]
fn a_udp_socket_and_a_packet_socket_exchange_data() {
    let ndkperf = env!("CARGO_BIN_EXE_ndkperf");
    let log = Network::new();
    let log = log.path("server");
    for (server, client) in [("10.9.0.1", "10.9.0.2"), ("fd99::1", "fd99::2")] {
        let script = format!(
            "set -e
             ip link add v0 type veth peer name v1
             ip link set v0 up
             ip link set v1 up
             ip address add 10.9.0.1/24 dev v0
             ip address add fd99::1/64 dev v0 nodad
             {ndkperf} serve --edge udp:{server} --runs 3 2>{log} &
             until grep -q listening {log}; do sleep 0.05; done
             {ndkperf} connect {server} --edge af-packet:v1 --address {client} --iterations 100 --json
             wait $!",
            log = log.display()
        );
        let mut command = std::process::Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net", "sh", "-c", &script]);
        let output = match command.output() {
            Ok(output) if text(&output.stderr).starts_with("unshare:") => {
                return println!("skipped: {}", text(&output.stderr));
            }
            Ok(output) => output,
            Err(error) => return println!("skipped: unshare: {error}"),
        };
        assert!(output.status.success(), "{output:?}");
        assert_whole(&serde_json::from_slice(&output.stdout).unwrap(), 100, 64 << 10);
    }
}

#[test]
fn a_taken_port_is_told_in_one_line() {
    let network = Network::new();
    let first = network.start("server", "serve --edge udp:127.2.1.1");
    let output = run("serve --edge udp:127.2.1.1");
    assert_eq!(output.status.code(), Some(1));
    assert_one_line(&output, "UDP port 4791 of 127.2.1.1 is taken");
    drop(first);
}

/// Goal: a server that has as many connections as it serves tells who is refused, and serves the next one when there is room.
#[test]
fn a_refused_client_is_told_at_both_ends() {
    let network = Network::new();
    let server = network.start("server", "serve --edge udp:127.2.2.1");
    let all = "connect 127.2.2.1 --edge udp:127.2.2.2 --operations write --size 64 --depth 1";
    let rows = network.path("rows");
    let mut all = command(&format!("{all} --qps 128 --seconds 600 --interval 0.1"))
        .stdout(File::create(&rows).unwrap())
        .spawn()
        .unwrap();
    // All of its connections are there when it measures.
    wait_until(|| std::fs::read_to_string(&rows).unwrap().contains("messages/s"));
    let one = "connect 127.2.2.1 --edge udp:127.2.2.3 --operations write --iterations 10";
    let output = run(one);
    assert!(text(&output.stderr).contains("STATUS_CONNECTION_REFUSED"), "{output:?}");
    wait_until(|| server.log().contains("1 connects refused, the last of 127.2.2.3:"));
    interrupt(&all);
    all.wait().unwrap();
    wait_until(|| run(one).status.success());
}

#[test]
fn a_missing_interface_is_told_in_one_line() {
    let output = run("serve --edge af-packet:no-such-if0 --address 10.0.0.1");
    assert_eq!(output.status.code(), Some(1));
    assert_one_line(&output, "af-packet:no-such-if0");
}

#[test]
fn a_lab_needs_no_root() {
    for flags in [
        "",
        "--ip6 --offload --mtu 1500",
        "--cores 3 --threads 3 --qps 2",
        "--cores 2 --threads 2 --offload --ip6",
        "--edge udp",
        "--edge udp --offload",
        "--edge udp --offload --ip6 --loss 1",
        "--edge tap",
        "--edge tap --ip6 --mtu 1500 --loss 1",
    ] {
        let arguments = format!("lab {flags} --iterations 100 --seed 5 --json");
        let output = run(&arguments);
        let lacks = ["gives an ordinary user no namespaces", "/dev/net/tun"];
        if lacks.iter().any(|lack| text(&output.stderr).contains(lack)) {
            println!("skipped: {arguments}: {}", text(&output.stderr));
            continue;
        }
        assert!(output.status.success(), "{arguments}: {output:?}");
        let report = serde_json::from_slice(&output.stdout).unwrap();
        assert_whole(&report, 100, 64 << 10);
    }
    let output = run("lab --edge tap --offload");
    assert_eq!(output.status.code(), Some(2));
    assert_one_line(&output, "--offload: only af-packet and udp can");
    let output = run("lab --edge udp --cores 2");
    assert_eq!(output.status.code(), Some(2));
    assert_one_line(&output, "--cores: only af-packet has an edge for each");
}
