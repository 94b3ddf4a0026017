//! What a storage target does, against Linux's verbs (`lab/storage.c`): it READs what a command names and answers
//! with a SEND that ends the command's key. rxe refuses a second copy of a READ whose key has ended, and breaks the
//! connection: so a READ that is only late must not be sent again, and none may be on its way when its key ends.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use driver::abi::*;
use driver::{Provider, ProviderConfig};
use ndk_consumer::{Adapter, Buffer, Connector, Opener, Qp, QpConfig, ReadLimits, Remote};
use netadapter_glue::fault::{FaultInjector, Faults};
use netadapter_glue::qemu::QemuDgram;
use netadapter_glue::{Edge, EdgeError, Received, Slot, fill_one, forward_edge};
use tests::kit::PATIENCE;

use tests::lab::{Job, Lab, Side, judge, within};

const PORT: u16 = 7174;
/// As the guest's program is told.
const QUEUES: usize = 4;
const SLOTS: usize = 8;
const LENGTH: usize = 32 << 10;
/// Bytes of a command and of its answer.
const COMMAND: usize = 24;
/// READs that rxe serves at once.
const LIMITS: ReadLimits = ReadLimits { inbound: 1, outbound: 16 };
/// Added to a slot's number: what ends.
const RECEIVE: usize = 0;
const READ: usize = 1000;
const ANSWER: usize = 2000;
/// A processor that lets a thread wait for longer lets the guest's wait, too, of which there is but one.
const WAIT_MAX: Duration = Duration::from_millis(40);

/// Goal: reordering of what we send ends no connection, no NAK but that of a missing packet comes, and what we say
/// was sent again is what another sees twice.
/// Method: 2 % and 5 %, a seed each; `STORAGE_SEEDS=20` for more, and longer ones.
#[test]
fn reordered_reads_meet_no_dead_key() {
    let Some(mut lab) = start("reordered_reads") else { return };
    let mut resent = 0;
    for seed in 0..seeds() {
        for percent in [2.0, 5.0] {
            let faults = Faults { seed, reorder: percent / 100.0, ..Faults::default() };
            let target = Target::start(&lab, |edge| Box::new(FaultInjector::new(edge, faults)));
            let job = target.serve(&mut lab, rounds(), || ());
            finish(&job, &format!("{percent} % reordered, seed {seed}"));
            resent += target.told(&format!("{percent} % reordered, seed {seed}")).resent;
        }
    }
    // A READ's rest that is asked for may overtake the READ: the one then passes for the other's copy.
    let agrees = |twice: u64| 100 * twice.abs_diff(resent) <= resent.max(100);
    assert!(end(&mut lab).is_none_or(agrees), "we say {resent}");
}

/// Goal: where nothing is lost, nothing is sent again in vain.
/// Method: no faults. A machine that gives the guest no processor makes it lose frames, of either direction, as its own counts of
/// IP packets show: that link is not clean, and another try is made; nor is one whose guest answers nothing for so long that a
/// packet is sent again without evidence, which takes half a second.
#[test]
fn a_clean_link_carries_nothing_in_vain() {
    clean("clean", 0);
}

/// Goal: the same of at most a packet in a thousand while the guest's processor is kept busy, which shows in some thousands alone.
/// Method: shells that count for ever beside the guest's program.
#[test]
fn a_busy_guest_is_sent_little_in_vain() {
    clean("busy", 3);
}

fn clean(name: &str, busy: usize) {
    let Some(mut lab) = start(name) else { return };
    let rounds = if busy > 0 { 12 * rounds() } else { rounds() };
    (0..busy).for_each(|_| drop(lab.guest.start("while :; do :; done")));
    if let Some(Counted { sent, needless, .. }) =
        (0..4).find_map(|_| count_clean(&mut lab, name, rounds))
    {
        let most = if busy > 0 { sent / 1000 } else { 0 };
        assert!(needless <= most, "{name}: {needless} of {sent}");
    } else {
        println!("skipped: {name}: this machine is so busy that the guest lost frames, four times");
    }
    end(&mut lab);
}

/// `None` where a packet was lost, to the guest or behind its IP, or threads waited too long for a processor.
fn count_clean(lab: &mut Lab, what: &str, rounds: usize) -> Option<Counted> {
    let before = ip_packets(lab);
    let target = Target::start(lab, |edge| Box::new(edge));
    let (job, waited) = longest_wait(|| target.serve(lab, rounds, || ()));
    finish(&job, what);
    let counted = target.told(what);
    let after = ip_packets(lab);
    let [came, left] = [0, 1].map(|way| after[way] - before[way]);
    println!("{what}: {came} came to the guest, {left} left it; a thread waited {waited:?}");
    let arrived = [came, left] == [counted.sent, counted.received];
    let answers = counted.timed_out == 0;
    (arrived && answers && counted.gaps == 0 && waited < WAIT_MAX).then_some(counted)
}

/// The longest that a thread which wants to run each millisecond has waited for a processor meanwhile.
fn longest_wait<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    const PAUSE: Duration = Duration::from_millis(1);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            while !done.load(Ordering::Relaxed) {
                let before = Instant::now();
                thread::sleep(PAUSE);
                longest = longest.max(before.elapsed() - PAUSE);
            }
            longest
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        (result, watch.join().expect("it only sleeps"))
    })
}

/// IP packets that came to the guest, and that left it, until now.
fn ip_packets(lab: &mut Lab) -> [u64; 2] {
    let (_, lines) = lab.guest.start("grep ^Ip: /proc/net/snmp").wait();
    let mut lines = lines.lines().map(|line| line.split_whitespace());
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let counts: BTreeMap<_, _> = names.zip(values).collect();
    ["InReceives", "OutRequests"].map(|name| counts[name].parse().expect("a number"))
}

/// Goal: the cable is out for ten seconds under load, with requests of both sides under way, and nobody notices but
/// by the clock.
#[test]
fn ten_seconds_without_a_cable_end_nothing() {
    let Some(mut lab) = start("cable_out") else { return };
    let out = Arc::new(AtomicBool::new(false));
    let cable = Arc::clone(&out);
    let target = Target::start(&lab, |edge| Box::new(Cable { edge, out: cable }));
    let job = target.serve(&mut lab, 3 * rounds(), || {
        // Every queue is in the middle of its work.
        let at_work = || target.answered.load(Ordering::Relaxed) > rounds() * SLOTS * QUEUES / 2;
        assert!(within(PATIENCE, || at_work().then_some(())).is_some(), "the guest does nothing");
        out.store(true, Ordering::Relaxed);
        thread::sleep(Duration::from_secs(10));
        out.store(false, Ordering::Relaxed);
    });
    finish(&job, "the cable was out");
    assert!(target.told("the cable was out").resent > 0, "nothing was under way");
    end(&mut lab);
}

fn start(name: &str) -> Option<Lab> {
    let mut lab = Lab::start(name)?;
    // The guest's fq_codel drops what waits for this process.
    lab.guest.run("tc qdisc replace dev eth0 root pfifo limit 20000");
    lab.compile("storage").then_some(lab)
}

/// `STORAGE_SEEDS`, if somebody wants to see more.
fn more() -> Option<u64> {
    std::env::var("STORAGE_SEEDS").ok()?.parse().ok()
}

fn seeds() -> u64 {
    more().unwrap_or(1)
}

/// Commands in each slot.
fn rounds() -> usize {
    if more().is_some() { 20 } else { 4 }
}

fn finish(job: &Job, what: &str) {
    let (status, log) = job.wait();
    assert_eq!(status, 0, "{what}: the guest says\n{log}");
    assert_eq!(log.matches("commands answered").count(), QUEUES, "{what}: {log}");
}

/// Judges all that the guest saw: no refusal but that of a missing packet. How many of our requests tshark saw twice,
/// if it is there.
fn end(lab: &mut Lab) -> Option<u64> {
    lab.guest.end();
    let kinds = judge(&lab.nic_capture(), &["icrc", "twice"]);
    println!("{kinds:?}");
    let count = |kind: &str| kinds.get(kind).copied().unwrap_or(0);
    assert!(count("READ_REQUEST") > 0 && count("SEND_ONLY_INVALIDATE") > 0, "{kinds:?}");
    for kind in ["NAK_1", "NAK_2", "NAK_3", "NAK_4"] {
        assert_eq!(count(kind), 0, "{kind} in {kinds:?}");
    }
    kinds.get("twice_10.0.0.2").map(|twice| *twice as u64)
}

/// A link that can be unplugged: what is sent then is lost, and so is what arrives.
struct Cable<E> {
    edge: E,
    out: Arc<AtomicBool>,
}

impl<E: Edge> Edge for Cable<E> {
    forward_edge!(self => self.edge);

    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, EdgeError> {
        let out = self.out.load(Ordering::Relaxed);
        self.edge.receive(budget, &mut |units| {
            if !out {
                sink(units);
            }
        })
    }

    fn transmit(
        &mut self,
        budget: usize,
        fill: &mut dyn FnMut(&mut [Slot<'_>]) -> usize,
    ) -> Result<usize, EdgeError> {
        if !self.out.load(Ordering::Relaxed) {
            return self.edge.transmit(budget, fill);
        }
        let mut lost = vec![0; self.edge.link().max_unit_len];
        let units = (0..budget).take_while(|_| fill_one(fill, &mut lost).is_some()).count();
        Ok(units)
    }
}

/// What a provider counted of its packets.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    sent: u64,
    received: u64,
    /// Sequence NAKs of the peer.
    gaps: u64,
    /// Of requests, for whatever reason.
    resent: u64,
    /// Of those, for silence.
    timed_out: u64,
    needless: u64,
}

/// A provider at our end of the lab's link.
struct Target {
    provider: Arc<Provider>,
    adapter: Arc<Adapter>,
    /// Commands, of all queues.
    answered: AtomicUsize,
}

impl Target {
    fn start(lab: &Lab, wrap: impl FnOnce(QemuDgram) -> Box<dyn Edge + Send>) -> Self {
        let (here, there) = lab.sockets.of(Side::Ours);
        let edge =
            QemuDgram::bind(here, there, [2, 0, 0, 0, 0, 2], 1500).expect("the link is there");
        let config = ProviderConfig::new(vec!["10.0.0.2".parse().expect("an address")]);
        let provider = Provider::start(wrap(edge), config).expect("the provider starts");
        let provider = Arc::new(provider);
        let opener = Arc::clone(&provider) as Arc<dyn Opener>;
        let adapter = Adapter::open(opener).expect("the adapter opens");
        Self { provider, adapter, answered: AtomicUsize::new(0) }
    }

    /// Prints and returns what was counted.
    fn told(&self, what: &str) -> Counted {
        let counters = self.provider.counters();
        let (mut counted, mut causes) = (Counted::default(), Vec::new());
        for (name, count) in counters.iter() {
            match name {
                "sent_pkts" => counted.sent += count,
                "rcvd_pkts" => counted.received += count,
                "packet_seq_err" => counted.gaps += count,
                "needless_resends" => counted.needless += count,
                _ if name.starts_with("resent_") && name.ends_with("_pkts") => {
                    counted.resent += count;
                    counted.timed_out += if name == "resent_timer_pkts" { count } else { 0 };
                    causes.extend((count > 0).then_some((name, count)));
                }
                _ => {}
            }
        }
        println!("{what}: {counted:?} {causes:?}");
        counted
    }

    /// Serves the guest's program until all of its commands are answered, and calls `meanwhile` beside that.
    fn serve(&self, lab: &mut Lab, rounds: usize, meanwhile: impl FnOnce()) -> Job {
        let local = SocketAddr::new("10.0.0.2".parse().expect("an address"), PORT);
        let listener = self.adapter.listen(local).unwrap();
        let job = lab
            .guest
            .start(&format!("/lab/storage 10.0.0.2 {PORT} {QUEUES} {SLOTS} {rounds} {LENGTH}"));
        let queues: Vec<Queue> = (0..QUEUES)
            .map(|_| {
                let Some(connector) = listener.next(PATIENCE) else {
                    panic!("nobody connects; the guest says {:?}", job.wait())
                };
                Queue::accept(&self.adapter, connector)
            })
            .collect();
        thread::scope(|scope| {
            for queue in &queues {
                scope.spawn(|| queue.serve(rounds * SLOTS, &self.answered, &job));
            }
            meanwhile();
        });
        for queue in &queues {
            assert!(queue.connector.wait_disconnected(PATIENCE), "the guest says {}", job.output());
        }
        job
    }
}

/// One connection of the target.
struct Queue {
    connector: Connector,
    side: tests::kit::Side,
    qp: Arc<Qp>,
}

impl Queue {
    fn accept(adapter: &Arc<Adapter>, connector: Connector) -> Self {
        let mut side = tests::kit::Side::new(adapter);
        let config = QpConfig {
            receive_depth: 2 * SLOTS as u32,
            initiator_depth: 2 * SLOTS as u32,
            ..QpConfig::default()
        };
        let qp = side.pd.create_qp(&side.cq, &side.cq, config).unwrap();
        side.qp = Arc::clone(&qp);
        let write = NDK_MR_FLAG_ALLOW_LOCAL_WRITE;
        side.mr = side.pd.register(Buffer::new(SLOTS * (LENGTH + 2 * COMMAND)), write).unwrap();
        let queue = Self { connector, side, qp };
        (0..SLOTS).for_each(|slot| queue.receive(slot));
        queue.connector.accept(&queue.qp, LIMITS, b"").wait().unwrap();
        queue
    }

    fn receive(&self, slot: usize) {
        let place = slot * COMMAND;
        let element = self.side.mr.sge(place..place + COMMAND);
        self.qp.receive(RECEIVE + slot, &[element]).unwrap();
    }

    fn data(slot: usize) -> usize {
        2 * SLOTS * COMMAND + slot * LENGTH
    }

    /// Answers `commands` commands, each after its data has come, and is right.
    fn serve(&self, commands: usize, all: &AtomicUsize, job: &Job) {
        let mut answered = 0;
        while answered < commands {
            for result in self.side.results(1) {
                let guest = job.output();
                assert_eq!(
                    result.Status, STATUS_SUCCESS,
                    "{:?}; the guest says {guest}",
                    result.Type
                );
                match result.RequestContext.addr() {
                    context @ ANSWER.. => {
                        assert_eq!(result.Type, NdkOperationTypeSend, "{context}");
                        answered += 1;
                        all.fetch_add(1, Ordering::Relaxed);
                    }
                    context @ READ..ANSWER => self.answer(context - READ),
                    context => self.read(context - RECEIVE),
                }
            }
        }
    }

    /// A command came into receive `place`: reads what it names into the slot that it names.
    fn read(&self, place: usize) {
        let command = self.side.bytes(place * COMMAND, COMMAND);
        self.receive(place);
        let slot = word(&command[12..16]) as usize;
        assert!(slot < SLOTS, "{command:02x?}");
        // Kept for the answer, which is the command once more.
        self.side.mr.buffer().write((SLOTS + slot) * COMMAND, &command);
        let address = u64::from_be_bytes(command[..8].try_into().expect("eight bytes"));
        let remote = Remote { address, token: word(&command[8..12]) };
        let start = Self::data(slot);
        self.qp.read(READ + slot, &[self.side.mr.sge(start..start + LENGTH)], remote, 0).unwrap();
    }

    fn answer(&self, slot: usize) {
        let place = (SLOTS + slot) * COMMAND;
        let command = self.side.bytes(place, COMMAND);
        let number = command[23];
        let data = self.side.bytes(Self::data(slot), LENGTH);
        let wrong = (0..LENGTH)
            .find(|&at| data[at] != (at * 7 + at / 256).to_le_bytes()[0].wrapping_add(number));
        assert_eq!(wrong, None, "what was read into slot {slot} is not command {number}'s");
        let message = [self.side.mr.sge(place..place + COMMAND)];
        let token = word(&command[8..12]);
        self.qp.send_and_invalidate(ANSWER + slot, &message, 0, token).unwrap();
    }
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().expect("four bytes"))
}
