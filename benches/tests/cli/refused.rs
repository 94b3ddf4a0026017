//! A server of which the kernel refuses frames: the client that asks for them takes nothing from another one.

use std::collections::BTreeSet;

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

// ---- what the system refuses -------------------------------------------------------------------

/// What a kernel refuses a program for, call by call. A call that a server makes while it serves stands here or below.
const REFUSALS: &[(&str, &[&str])] = &[
    ("brk", &["ENOMEM"]),
    ("clone3", &["EAGAIN"]),
    ("ioctl", &["ENOMEM"]),
    ("madvise", &["ENOMEM"]),
    ("mmap", &["ENOMEM"]),
    ("mprotect", &["ENOMEM"]),
    ("munmap", &["ENOMEM"]),
    ("openat", &["EMFILE", "ENOMEM"]),
    ("ppoll", &["ENOMEM", "EINTR"]),
    ("read", &["EIO", "EINTR"]),
    ("recvmmsg", &["ENOMEM", "EINTR"]),
    ("recvmsg", &["ENOMEM", "EINTR"]),
    ("sched_getaffinity", &["EPERM"]),
    ("sendmmsg", &["ENOBUFS", "EPERM", "EINTR"]),
    ("sigaltstack", &["ENOMEM"]),
    ("statx", &["ENOMEM"]),
    ("write", &["ENOSPC", "EINTR"]),
];

/// Calls that no kernel refuses.
const GRANTED: &[&str] = &[
    "close",
    "exit",
    "futex",
    "getpid",
    "gettid",
    "lseek",
    "prctl",
    "rseq",
    "rt_sigprocmask",
    "set_robust_list",
];

/// Goal: whatever the system refuses a server while it serves a client, it goes on, and the next clients are served.
/// Method: the calls that it makes for a client are noted; then each in turn is refused, to each thread once, for each reason.
#[test]
fn whatever_the_system_refuses_a_server_others_are_served() {
    let Some((_, trace)) = serve_traced(&[]) else { return println!("skipped: no strace here") };
    let calls: BTreeSet<&str> = trace.lines().filter_map(call_of).collect();
    let (mut tried, mut refused) = (0, 0);
    for call in calls.iter().filter(|call| !GRANTED.contains(call)) {
        let known = REFUSALS.iter().find(|(name, _)| name == call);
        let (_, reasons) = known.unwrap_or_else(|| panic!("{call} is refused for what?"));
        for (reason, nth) in reasons.iter().flat_map(|reason| [(reason, 1), (reason, 3)]) {
            let inject = format!("inject={call}:error={reason}:when={nth}");
            let flags = ["-e", &format!("trace={call}"), "-e", &inject];
            let (served, trace) = serve_traced(&flags).expect("it was there");
            tried += 1;
            refused += usize::from(trace.contains("(INJECTED)"));
            assert!(served, "{call}, call {nth} of a thread: {reason}\n{trace}");
        }
    }
    println!("{refused} of {tried} tries met a refusal");
    assert!(refused * 2 > tried, "{refused} of {tried}: {calls:?}");
}

/// The call that a line of strace tells of, but for what it goes on with.
fn call_of(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(' ')?;
    let (call, _) = rest.trim_start().split_once('(')?;
    let name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (!call.is_empty() && call.bytes().all(name)).then_some(call)
}

/// Whether two clients are served behind one beside which `strace` looks at all threads of their server, and what that wrote. `None`
/// where there is no strace, or where it may not look.
fn serve_traced(flags: &[&str]) -> Option<(bool, String)> {
    let network = Network::new();
    let mut server = network.start("server", "serve --edge udp:127.2.8.1");
    let [trace, said] = ["trace", "strace"].map(|name| network.path(name));
    let id = server.child.id().to_string();
    let mut strace = std::process::Command::new("strace");
    strace.args(["-f", "-p", &id, "-o"]).arg(&trace).args(flags);
    let mut strace = strace.stderr(File::create(&said).unwrap()).spawn().ok()?;
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let threads = std::fs::read_dir(format!("/proc/{id}/task")).unwrap().count();
    let deadline = Instant::now() + LIMIT;
    while read(&said).matches("attached").count() == 0 {
        if strace.try_wait().unwrap().is_some() || Instant::now() > deadline {
            return None;
        }
        thread::sleep(SLICE);
    }
    assert!(threads > 1, "the adapter has one of its own");
    let client = || {
        let client = "connect 127.2.8.1 --edge udp:127.2.8.2 --timeout 5";
        run(&format!("{client} --operations send --size 4k --iterations 100")).status.success()
    };
    // This one may suffer.
    let first = client();
    // It lets go of what it looked at.
    let ended = std::process::Command::new("kill").arg(strace.id().to_string()).status();
    assert!(ended.unwrap().success());
    strace.wait().unwrap();
    let served = client() && client() && server.child.try_wait().unwrap().is_none();
    let told = format!("{}\nthe first was served: {first}\n{}", read(&trace), server.log());
    Some((served, told))
}

/// Goal: a server whose words cannot be written serves.
#[test]
fn a_server_on_a_full_disk_serves() {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let mut server = command("serve --edge udp:127.2.9.1 --runs 2");
    let mut server = server.stdout(full()).stderr(full()).spawn().unwrap();
    let deadline = Instant::now() + LIMIT;
    let mut served = 0;
    while served < 2 && server.try_wait().unwrap().is_none() && Instant::now() < deadline {
        let client = "connect 127.2.9.1 --edge udp:127.2.9.2 --operations send --iterations 10";
        served += usize::from(run(client).status.success());
        thread::sleep(SLICE);
    }
    let ended = server.wait();
    assert!(served == 2 && ended.as_ref().unwrap().success(), "{served} served, {ended:?}");
}
