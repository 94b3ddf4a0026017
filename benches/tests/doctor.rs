//! `ndkperf doctor` as its users run it: between processes over the sockets of a QEMU network, and over the interfaces of a
//! network namespace. The staged faults are in `src/bin/ndkperf/doctor/tests.rs`.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

#[test]
fn a_healthy_path_to_a_server_ends_with_0() {
    let network = Network::new();
    let _server = network.serve();
    let output = doctor(&format!("10.0.0.1 {} --json", network.edge(2)));
    let report = document(&output);
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    assert_eq!((&report["schema"], &report["healthy"]), (&"ndkperf-doctor".into(), &true.into()));
    let steps: Vec<(&str, &str)> = list(&report["steps"])
        .iter()
        .map(|step| (step["step"].as_str().unwrap(), step["state"].as_str().unwrap()))
        .collect();
    let names = ["address", "neighbour", "pings", "connection", "path MTU", "transfer", "marks"];
    let names = names.into_iter().chain(["order", "counters"]);
    assert_eq!(steps, names.map(|name| (name, "ok")).collect::<Vec<_>>(), "{report:#}");
    assert!(report["counters"]["sent_pkts"].as_u64().unwrap() > 100, "{report:#}");
}

#[test]
fn a_fault_ends_with_1_and_says_what_mends_it() {
    let network = Network::new();
    let _server = network.serve();
    let output = doctor(&format!("10.0.0.9 {}", network.edge(2)));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for words in ["fault   neighbour", "no-neighbour: no host answers for 10.0.0.9", "to mend it: "]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert_eq!(output.stderr, b"ndkperf: no-neighbour\n");
}

#[test]
fn a_path_that_cannot_be_examined_ends_with_2() {
    let edge = "--edge af-packet:no-such-if0 --address 10.0.0.1";
    for arguments in [format!("10.0.0.2 {edge}"), format!("10.0.0.1 {edge}"), "10.0.0.2".into()] {
        let output = doctor(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {output:?}");
        assert!(output.stderr.starts_with(b"ndkperf: ") && output.stdout.is_empty());
    }
}

#[test]
fn a_connect_to_a_silent_peer_names_the_doctor() {
    let network = Network::new();
    for (command, flag) in [("connect 10.0.0.9", ""), ("rping connect -a 10.0.0.9", " --rping")] {
        let edge = network.edge(2);
        let output = ndkperf(&format!("{command} {edge}")).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        let hint = format!("`ndkperf doctor 10.0.0.9 {edge}{flag}` examines the path");
        assert!(told.contains(&hint), "{told}");
    }
}

/// Goal: what holds in memory holds over the kernel's interfaces: a healthy path, a link with a smaller MTU between the ends,
/// and a kernel in the place of a provider.
#[test]
fn a_namespace_has_a_healthy_path_a_hole_and_a_peer_without_roce() {
    for (name, setup, code) in [
        ("healthy", "join rdma0 rdma1", None),
        (
            "hole",
            "bridge br0 rdma0 s0; bridge br1 rdma1 s1; join m0 m1 1500; \
                  ip link set m0 master br0; ip link set m1 master br1",
            Some("mtu-hole"),
        ),
        ("kernel", "join rdma0 rdma1; ip addr add 10.0.0.1/24 dev rdma0", Some("no-roce")),
    ] {
        let server = if name == "kernel" { ":" } else { SERVER };
        let script = format!("set -e\n{FUNCTIONS}\n{setup}\n{server}\nset +e\n{DOCTOR}");
        let output = Command::new("unshare")
            .args(["--user", "--map-root-user", "--net", "sh", "-c", &script])
            .env("NDKPERF", env!("CARGO_BIN_EXE_ndkperf"))
            .output();
        let Ok(output) = output.inspect_err(|error| println!("skipped: unshare: {error}")) else {
            return;
        };
        let Ok(report) = serde_json::from_slice::<Value>(&output.stdout) else {
            println!("skipped: {name}: {}", String::from_utf8_lossy(&output.stderr));
            continue;
        };
        let codes: Vec<&str> = list(&report["findings"])
            .iter()
            .filter_map(|finding| finding["code"].as_str())
            .collect();
        assert_eq!(codes, code.into_iter().collect::<Vec<_>>(), "{name}: {report:#}");
    }
}

const FUNCTIONS: &str = r#"
join() { ip link add "$1" mtu "${3:-4200}" type veth peer name "$2" mtu "${3:-4200}"
         ip link set "$1" up; ip link set "$2" up; }
bridge() { join "$2" "$3"; ip link add "$1" mtu 4200 type bridge
           ip link set "$1" up; ip link set "$3" master "$1"; }
"#;
const SERVER: &str = r#"
"$NDKPERF" serve --edge af-packet:rdma0 --address 10.0.0.1 > /dev/null 2>&1 &
server=$!
trap 'kill $server' EXIT
sleep 1"#;
const DOCTOR: &str =
    r#""$NDKPERF" doctor 10.0.0.1 --edge af-packet:rdma1 --address 10.0.0.2 --json"#;

/// A directory for sockets.
struct Network(TempDir);

impl Network {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// The arguments of host 1 or 2.
    fn edge(&self, host: u8) -> String {
        let [own, peer] = [host, 3 - host].map(|host| self.path(&host.to_string()));
        format!("--edge qemu-dgram:{}:{} --address 10.0.0.{host}", own.display(), peer.display())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A server at host 1 that listens.
    fn serve(&self) -> Server {
        let mut server = ndkperf(&format!("serve {}", self.edge(1)))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = File::create(self.path("log")).unwrap();
        let mut lines = BufReader::new(server.stderr.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert!(line.contains("listening on"), "{line}");
        // The rest of what it says must go somewhere.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut { log }));
        Server(server)
    }
}

/// A process that does not outlive its test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn doctor(arguments: &str) -> Output {
    ndkperf(&format!("doctor {arguments}")).output().unwrap()
}

fn ndkperf(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ndkperf"));
    command.args(arguments.split_whitespace()).stdin(Stdio::null());
    command
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
