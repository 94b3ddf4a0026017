//! A server of which the kernel refuses frames: the client that asks for them takes nothing from another one.

use super::*;

/// Seconds of the client that must not suffer; the other one comes after the first two.
const SECONDS: usize = 5;

/// A bridge between a server and two clients that send packets of up to 4200 bytes. The server's port takes 1500. A TAP refuses nothing, so
/// there it is the port of the client that asks for long frames, and the bridge that drops them.
const SCRIPT: &str = r#"
set -e
port() { ip link add "$1" mtu 4200 type veth peer name "$1b" mtu "$2"
         ip link set "$1" up; ip link set "$1b" master br0 up; }
connect() { timeout 60 "$NDKPERF" connect 10.0.0.1 --edge "af-packet:$1" --address "$2" --no-verify \
                --no-address-probe --operations $3; }
ip link set lo up
ip link add br0 mtu 4200 type bridge
ip link set br0 up
case $KIND in
    tap) ip tuntap add srv mode tap; ip link set srv mtu 4200 master br0 up; port cli 1500; edge="tap:srv --address 10.0.0.1" ;;
    udp) port srv 1500; port cli 4200; ip address add 10.0.0.1/24 dev srv; edge=udp:10.0.0.1 ;;
    af-packet) port srv 1500; port cli 4200; edge="af-packet:srv --address 10.0.0.1" ;;
esac
port oth 4200
"$NDKPERF" serve --edge $edge 2>"$LOG" &
trap "kill $!" EXIT
until grep -q listening "$LOG"; do sleep 0.05; done
connect oth 10.0.0.3 "write --size 64 --depth 4 --seconds $LENGTH --interval 1 --json" &
other=$!
sleep 2
connect cli 10.0.0.2 "read --size 4k --depth 1 --seconds 0.1 --qp-timeout 17" >/dev/null 2>&1 && exit 3
connect cli 10.0.0.2 "write --size 64 --iterations 100" >/dev/null
wait $other
"#;

/// Runs beside a busy machine, of which one shows that the rate stays.
const ATTEMPTS: usize = 3;

#[test]
fn a_client_of_refused_frames_takes_nothing_from_another_over_packet_sockets() {
    expect_service("af-packet", true);
}

/// The same with the error queue of the socket on, by which alone Linux tells that the interface refuses a datagram.
#[test]
fn a_client_of_refused_frames_takes_nothing_from_another_over_udp() {
    expect_service("udp", true);
}

#[test]
fn a_client_of_lost_frames_takes_nothing_from_another_over_a_tap() {
    expect_service("tap", false);
}

/// Goal: beside a client whose READs the kernel refuses, another one moves messages as before, and new connections come, of the client
/// itself, too; the user of the server is told, once.
/// Method: no second of the other client is empty, and the best beside has at least 0.9 of the messages of the worse one of the two
/// alone. Other programs may keep the machine from the latter.
fn expect_service(kind: &str, told: bool) {
    let mut keeps_rate = false;
    for _ in 0..ATTEMPTS {
        let Some(messages) = messages_of_each_second(kind, told) else { return };
        let (alone, beside) = messages.split_at(2);
        assert!(beside.iter().all(|count| *count > 0), "{kind}: {messages:?}");
        let (alone, beside) = (alone.iter().min().unwrap(), beside.iter().max().unwrap());
        println!("{kind}: messages of each second: {messages:?}");
        keeps_rate = beside * 10 >= alone * 9;
        if keeps_rate {
            break;
        }
    }
    assert!(keeps_rate, "{kind}: {ATTEMPTS} times the best second beside had less");
}

/// What the other client moves; `None` where there are no networks for a user.
fn messages_of_each_second(kind: &str, told: bool) -> Option<Vec<u64>> {
    let network = Network::new();
    let log = network.path("server");
    let mut command = std::process::Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "sh", "-c", SCRIPT]);
    command.env("NDKPERF", env!("CARGO_BIN_EXE_ndkperf")).env("KIND", kind).env("LOG", &log);
    let output = command.env("LENGTH", SECONDS.to_string()).output();
    let output = output.inspect_err(|error| println!("skipped: unshare: {error}")).ok()?;
    let said = text(&output.stderr);
    if ["unshare:", "RTNETLINK", "Error:", "open:", "ioctl"]
        .iter()
        .any(|lack| said.starts_with(lack))
    {
        println!("skipped: {said}");
        return None;
    }
    let log = std::fs::read_to_string(log).unwrap_or_default();
    assert!(output.status.success(), "{kind}: {output:?}\n{log}");
    assert_eq!(log.matches("refused by the kernel").count(), usize::from(told), "{kind}: {log}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let intervals = operations(&report)[0]["intervals"].as_array().unwrap();
    let messages = intervals.iter().map(|interval| interval["messages"].as_u64().unwrap());
    Some(messages.take(SECONDS).collect())
}
