//! What loss costs: packets sent for each packet needed, between us and rxe and between each and its like, over
//! the same bad network.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Instant;

use pcap_file::pcap::PcapReader;
use rocev2::wire::{Operation, Packet};

use crate::LISTENING;
use tests::lab::{Guest, Job, Lab, Process, Side, Sockets, judge, ndkperf};

/// Each direction loses 3 %, and lets 5 % overtake what came within the 2 ms before.
const NETEM: &str = "limit 20000 delay 2ms reorder 5% loss 3%";
/// So few because rxe waits half a second for what it has to ask for again.
const PINGS: &str = "-p 7174 -V -C 8 -S 65535";
/// What each operation needs: an iteration WRITEs and READs 65535 bytes in packets of 1024.
const NEEDED: usize = 8 * 64;

/// Goal: all data of rping comes through a bad network right, whoever is at its ends, and this is what it costs:
/// `cargo test -p tests --test interop -- loss_table --nocapture` prints the table.
/// Method: a guest between the two ends forwards, loses and reorders (netem), and its NICs' captures tell what
/// each end sent. The server of rping is the requester: it READs from the client, then WRITEs to it.
#[test]
fn sys_07_loss_table() {
    let Some(mut lab) = Lab::start("loss_table") else { return };
    let right = Sockets::new("loss_table_right");
    let mut switch = Guest::boot_switch(&lab.path("switch"), [&lab.sockets, &right], NETEM);
    let logs = [lab.path("ndkperf-1.log"), lab.path("ndkperf-2.log")];
    let mut other = Guest::boot(&lab.path("other"), &right, Side::Ours);
    println!("{NEEDED} packets needed of each operation, netem {NETEM}");
    println!("requester responder  WRITE sent/needed  READ sent/needed  lost %  seconds");

    // Linux with itself is the measure; what it makes of the network is not ours to assert.
    let linux =
        measure(&switch, End::Rxe(Side::Ours, &mut other), End::Rxe(Side::Guest, &mut lab.guest));
    other.end();
    let ours = |side| match side {
        Side::Guest => End::Ours(side, &lab.sockets, &logs[0]),
        Side::Ours => End::Ours(side, &right, &logs[1]),
    };
    measure(&switch, ours(Side::Ours), End::Rxe(Side::Guest, &mut lab.guest)).unwrap();
    measure(&switch, End::Rxe(Side::Guest, &mut lab.guest), ours(Side::Ours)).unwrap();
    lab.guest.end();
    let both = measure(&switch, ours(Side::Ours), ours(Side::Guest)).unwrap();
    if let Ok(linux) = linux {
        assert!(both.writes < linux.writes && both.reads < linux.reads, "{both:?}, {linux:?}");
    }
    switch.end();
    for nic in [0, 1] {
        judge(&switch.nic_capture(nic), &["icrc", "tshark"]);
    }
}

/// Prints a row of the table. An error is what the side that failed says.
fn measure(switch: &Guest, mut requester: End<'_>, mut responder: End<'_>) -> Result<Sent, String> {
    let sides = [requester.side(), responder.side()];
    let before = sides.map(|side| Traffic::of(switch, side));
    let began = Instant::now();
    let server = format!("10.0.0.{}", sides[0].number());
    let mut serving = requester.rping(true, &server);
    requester.wait_for_listener(&mut serving);
    let connected = responder.rping(false, &server).end();
    let served = if connected.is_ok() { serving.end() } else { Ok(()) };
    let seconds = began.elapsed().as_secs_f64();
    let [requests, responses] = [0, 1].map(|end| Traffic::of(switch, sides[end]) - before[end]);
    let sent = Sent { writes: requests.writes, reads: responses.reads };
    let ratio = |sent: usize| sent as f64 / NEEDED as f64;
    let (came, left) = (requests.came + responses.came, requests.left + responses.left);
    println!(
        "{:9} {:9}  {:17.3}  {:16.3}  {:6.2}  {seconds:7.1}",
        requester.name(),
        responder.name(),
        ratio(sent.writes),
        ratio(sent.reads),
        100.0 * (1.0 - left as f64 / came as f64),
    );
    if let Err(error) = connected.and(served) {
        // Linux with itself may wait for ever for what was lost.
        requester.stop();
        responder.stop();
        return Err(error);
    }
    assert!(left < came, "nothing was lost");
    assert!(sent.writes >= NEEDED && sent.reads >= NEEDED, "the captures are not whole");
    Ok(sent)
}

/// Packets of data that a row took: the requester's of its WRITEs, the responder's of READs.
#[derive(Debug)]
struct Sent {
    writes: usize,
    reads: usize,
}

/// Who is at an end of the link.
enum End<'a> {
    Rxe(Side, &'a mut Guest),
    /// With where its output goes.
    Ours(Side, &'a Sockets, &'a Path),
}

impl End<'_> {
    fn name(&self) -> &'static str {
        match self {
            Self::Rxe(..) => "rxe",
            Self::Ours(..) => "ours",
        }
    }

    fn side(&self) -> Side {
        let (Self::Rxe(side, _) | Self::Ours(side, ..)) = self;
        *side
    }

    /// Starts rping's server at `address`, or the client that connects to it.
    fn rping(&mut self, serve: bool, address: &str) -> Running {
        match self {
            Self::Rxe(_, guest) => {
                let role = if serve { "-s" } else { "-c" };
                Running::Job(guest.start(&format!("rping {role} -a {address} {PINGS}")))
            }
            Self::Ours(side, sockets, log) => {
                let role = if serve { "serve" } else { "connect" };
                let arguments = format!("{role} -a {address} {PINGS}");
                Running::Process(ndkperf(&arguments, sockets, *side, log.to_path_buf()))
            }
        }
    }

    fn wait_for_listener(&mut self, server: &mut Running) {
        match (self, server) {
            (Self::Rxe(_, guest), _) => guest.run(LISTENING),
            (Self::Ours(..), Running::Process(process)) => process.wait_for("listening"),
            (Self::Ours(..), Running::Job(_)) => unreachable!("ours is a process"),
        }
    }
}

impl End<'_> {
    /// Ends what runs on in a guest.
    fn stop(&mut self) {
        if let Self::Rxe(_, guest) = self {
            guest.run("kill -9 $(pidof rping) || true");
        }
    }
}

enum Running {
    Job(Job),
    Process(Process),
}

impl Running {
    /// Waits for the end. An error is what was printed.
    fn end(mut self) -> Result<(), String> {
        let (status, log) = match &mut self {
            Self::Job(job) => job.ended()?,
            Self::Process(process) => process.wait(),
        };
        if status == 0 { Ok(()) } else { Err(log) }
    }
}

/// RoCE packets of one end, so far.
#[derive(Clone, Copy, Debug)]
struct Traffic {
    /// That came to the switch, and that left it on the other side.
    came: usize,
    left: usize,
    /// Of those that came, how many carry a WRITE's data, and how many a READ's.
    writes: usize,
    reads: usize,
}

impl Traffic {
    fn of(switch: &Guest, side: Side) -> Self {
        let (near, far) = if side == Side::Guest { (0, 1) } else { (1, 0) };
        let [came, left] = [near, far].map(|nic| sent_by(side, &switch.nic_capture(nic)));
        let count = |what| came.iter().filter(|operation| **operation == what).count();
        let (writes, reads) = (count(Operation::Write), count(Operation::ReadResponse));
        Self { came: came.len(), left: left.len(), writes, reads }
    }
}

impl std::ops::Sub for Traffic {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            came: self.came - before.came,
            left: self.left - before.left,
            writes: self.writes - before.writes,
            reads: self.reads - before.reads,
        }
    }
}

/// What the packets in a capture do that come from the address of `side`.
fn sent_by(side: Side, capture: &Path) -> Vec<Operation> {
    let source = IpAddr::V4(Ipv4Addr::new(10, 0, 0, side.number()));
    let file = File::open(capture).expect("QEMU writes it from the start");
    let mut reader = PcapReader::new(file).expect("a pcap");
    let mut operations = Vec::new();
    while let Some(Ok(record)) = reader.next_packet() {
        match Packet::parse(&record.data) {
            Ok(packet) if packet.encap.src == source => {
                operations.push(packet.bth.opcode.operation())
            }
            _ => {}
        }
    }
    operations
}
