//! Floods of frames, silent neighbours, and connects beside them.

use super::super::known::KNOWN_MAX;
use super::super::queries::{DOUBTS_MAX, HINTS_MAX, STRANGERS_BURST, STRANGERS_INTERVAL_NS};
use super::*;

const MS: u64 = 1_000_000;

/// The addresses of one family: ours is the first.
fn address(v6: bool, number: u32) -> IpAddr {
    if v6 {
        IpAddr::V6(Ipv6Addr::from_bits((0xfd00 << 112) + 1 + u128::from(number)))
    } else {
        IpAddr::from((0x0a00_0001 + number).to_be_bytes())
    }
}

/// The first host that a stranger has invented.
const INVENTED: u32 = 1 << 20;
/// The second address of a stranger.
const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 10];

/// A host, and a link where those answer whose numbers are up to `live`, a millisecond later.
struct Scene {
    host: Neighbours,
    v6: bool,
    live: u32,
    now_ns: u64,
    /// Answers on their way.
    answers: Vec<(u64, Vec<u8>)>,
    /// Queries that have left.
    asked: u64,
    results: Vec<(u64, Resolution)>,
}

impl Scene {
    fn new(v6: bool, live: u32) -> Self {
        let host = Neighbours::new(MACS[0], &[address(v6, 0)]);
        Self { host, v6, live, now_ns: 0, answers: Vec::new(), asked: 0, results: Vec::new() }
    }

    fn connect(&mut self, number: u32) {
        self.host.resolve(self.now_ns, address(self.v6, 0), address(self.v6, number));
    }

    /// The stranger claims an address by a query for ours, or to all.
    fn claim(&mut self, ip: IpAddr, mac: [u8; 6], to_all: bool) {
        let mut frame = [0; FRAME_MAX_LEN];
        let target = if to_all { ip } else { address(self.v6, 0) };
        let len = if to_all && self.v6 {
            message::answer(&mut frame, mac, ip, None, MACS[0])
        } else {
            message::query(&mut frame, mac, ip, target, None)
        };
        self.host.handle_frame(self.now_ns, &frame[..len]);
    }

    /// A packet of `number` has opened a path, from an address where nobody answers.
    fn open_path(&mut self, number: u32) {
        let source = Link { mac: STRANGER, vlan: None };
        let (own, peer) = (address(self.v6, 0), address(self.v6, number));
        self.host.confirm(self.now_ns, own, peer, source);
    }

    fn step(&mut self, ns: u64) {
        self.now_ns += ns;
        let now_ns = self.now_ns;
        let (host, results) = (&mut self.host, &mut self.results);
        self.answers.retain(|(at, answer)| {
            let waits = *at > now_ns;
            if !waits {
                host.handle_frame(now_ns, answer);
            }
            waits
        });
        host.handle_timeout(now_ns);
        results.extend(core::iter::from_fn(|| host.poll_event()).map(|result| (now_ns, result)));
        for frame in frames(host) {
            self.asked += u64::from(is_question(&frame));
            self.answer(&frame);
        }
    }

    fn answer(&mut self, frame: &[u8]) {
        let Some(Message::Query { target, .. }) = message::parse(frame) else { return };
        if (1..=self.live).any(|number| address(self.v6, number) == target) {
            let mut bytes = [0; FRAME_MAX_LEN];
            let own = address(self.v6, 0);
            let len = message::answer(&mut bytes, MACS[1], target, Some(own), MACS[0]);
            self.answers.push((self.now_ns + MS, bytes[..len].to_vec()));
        }
    }

    /// When the connect to `number` had its result, and whether it found the host.
    fn result(&self, number: u32) -> Option<(u64, bool)> {
        let ip = address(self.v6, number);
        let (at, result) = self.results.iter().find(|(_, result)| result.ip == ip)?;
        Some((*at, result.result == Ok(Link { mac: MACS[1], vlan: None })))
    }
}

/// Goal: whatever a stranger claims, a connect finds its neighbour, and what we send for him is bounded.
/// Method: 64 and 10,000 hosts that he invented, at 43 and 5,000 frames a second, over both families. Each host asks for our
/// address from two places; in a second pass it opens a path, and announces itself to all, too.
#[test]
fn a_flood_of_claims_refuses_no_connect() {
    for (per_second, hosts) in [(43, 64), (43, 10_000), (5_000, 64), (5_000, 10_000)] {
        for (v6, kinds) in [(false, 2), (true, 2), (false, 4), (true, 4)] {
            outlast(v6, &Flood { per_second, hosts, kinds });
        }
    }
}

struct Flood {
    /// Frames.
    per_second: u64,
    /// Hosts that are invented.
    hosts: u32,
    /// Frames of a host, each of another kind.
    kinds: u64,
}

impl Flood {
    /// One frame of it.
    fn send(&self, scene: &mut Scene, count: u64) {
        let number = INVENTED + (count / self.kinds) as u32 % self.hosts;
        let ip = address(scene.v6, number);
        match count % self.kinds {
            0 => scene.claim(ip, STRANGER, false),
            1 => scene.claim(ip, OTHER_MAC, false),
            2 => scene.open_path(number),
            _ => scene.claim(ip, OTHER_MAC, true),
        }
    }
}

/// That during 20 seconds of a flood each connect, two a second, finds its neighbour. The frames come in bursts.
fn outlast(v6: bool, flood: &Flood) {
    let (seconds, burst) = (20, 128);
    let connects = 2 * seconds as u32;
    let mut scene = Scene::new(v6, connects);
    let (mut began, mut sent) = (Vec::new(), 0);
    while scene.now_ns < seconds * SECOND {
        let bursts = 1 + scene.now_ns * flood.per_second / (burst * SECOND);
        (sent..bursts * burst).for_each(|count| flood.send(&mut scene, count));
        sent = bursts * burst;
        if scene.now_ns >= began.len() as u64 * SECOND / 2 {
            began.push(scene.now_ns);
            scene.connect(began.len() as u32);
        }
        scene.step(MS);
    }
    scene.step(MS);
    for (number, began) in (1..).zip(&began) {
        let in_time = |(at, found)| found && at <= began + 3 * MS;
        assert!(scene.result(number).is_some_and(in_time), "connect {number}");
    }
    let begun = STRANGERS_BURST + (seconds + 1) * SECOND / STRANGERS_INTERVAL_NS;
    let repeated = HINTS_MAX as u64 * 4 * (seconds + 1);
    let most = begun + repeated + u64::from(connects);
    assert!(scene.asked <= most, "{} frames, of {most} at most", scene.asked);
}

/// Neighbours that are silent together, as behind a switch that restarts, refuse no connect to another one; nor do connects to
/// dead hosts.
#[test]
fn silent_neighbours_refuse_no_connect() {
    for v6 in [false, true] {
        let (silent, dead, live) = (500, 600, 700);
        let mut scene = Scene::new(v6, silent);
        for number in 1..=silent {
            scene.connect(number);
        }
        scene.step(MS);
        scene.step(MS);
        assert_eq!(scene.host.known.len(), silent as usize);
        (scene.live, scene.now_ns) = (0, 5 * SECOND);
        for number in 1..=silent {
            scene.host.doubt(scene.now_ns, address(v6, 0), address(v6, number), None);
        }
        assert_eq!(scene.host.queries.len(), DOUBTS_MAX);
        (silent + 1..=dead).for_each(|number| scene.connect(number));
        scene.step(MS);
        scene.live = live;
        let began = scene.now_ns;
        scene.connect(live);
        scene.step(MS);
        scene.step(MS);
        assert_eq!(scene.result(live), Some((began + 2 * MS, true)));
    }
}

/// Claims about neighbours that are known, and answer, have us ask 64 times a second at most.
#[test]
fn claims_about_neighbours_are_probed_at_a_bounded_rate() {
    for v6 in [false, true] {
        let (known, seconds) = (300, 5);
        let mut scene = Scene::new(v6, known);
        (1..=known).for_each(|number| scene.connect(number));
        (0..2).for_each(|_| scene.step(MS));
        (scene.asked, scene.now_ns) = (0, 5 * SECOND);
        for ms in 0..seconds * 1000 {
            let number = 1 + (ms as u32) % known;
            scene.claim(address(v6, number), STRANGER, ms % 2 == 0);
            scene.step(MS);
        }
        let most = STRANGERS_BURST + seconds * SECOND / STRANGERS_INTERVAL_NS + 1;
        assert!(scene.asked > 64 && scene.asked <= most, "{} probes", scene.asked);
        assert_eq!(scene.host.lookup(scene.now_ns, address(v6, 1)), Some(at(1)));
    }
}

/// The query of a connect leaves before the answers to a flood of queries.
#[test]
fn a_connect_does_not_wait_behind_answers() {
    for (v6, first) in [(false, [8, 6]), (true, [0x86, 0xdd])] {
        let mut scene = Scene::new(v6, 0);
        (0..2000).for_each(|number| scene.claim(address(v6, INVENTED + number), STRANGER, false));
        scene.connect(1);
        let sent = frames(&mut scene.host);
        assert_eq!(sent.len(), 1 + ANSWERS_MAX);
        assert!(is_question(&sent[0]) && sent[0][12..14] == first);
    }
}

/// Each connect has one result. Those beyond the places wait for their turn, and find the host that lives.
#[test]
fn connects_wait_for_their_turn() {
    let (places, more) = (CONNECTS_MAX as u32, 100);
    let mut scene = Scene::new(false, 0);
    for number in 1..=places + more {
        scene.connect(INVENTED + number);
    }
    scene.live = 1;
    scene.connect(1);
    while scene.host.poll_timeout().is_some() {
        scene.step(50 * MS);
        assert!(scene.host.queries.len() <= CONNECTS_MAX);
    }
    let results = (1..=places + more).map(|number| scene.result(INVENTED + number));
    assert!(results.into_iter().all(|result| result.is_some_and(|(_, found)| !found)));
    assert_eq!(scene.results.len(), (places + more + 1) as usize);
    let (at, found) = scene.result(1).unwrap();
    assert!(found && at <= 3 * SECOND, "{at}");
}

/// A place that an answer has freed is a reason to wake for the connect that waits for it, where no timer is left.
#[test]
fn a_place_that_an_answer_frees_is_taken_at_once() {
    let last = CONNECTS_MAX as u32 + 1;
    let mut scene = Scene::new(false, last);
    (1..=last).for_each(|number| scene.connect(number));
    frames(&mut scene.host);
    for number in 1..last {
        let (ip, mut frame) = (address(false, number), [0; FRAME_MAX_LEN]);
        let len = message::answer(&mut frame, MACS[1], ip, Some(address(false, 0)), MACS[0]);
        scene.host.handle_frame(0, &frame[..len]);
    }
    assert_eq!((scene.host.queries.len(), scene.host.poll_timeout()), (0, Some(0)));
    (0..2).for_each(|_| scene.step(MS));
    assert_eq!(scene.result(last), Some((2 * MS, true)));
}

/// A query that a frame has caused becomes that of a connect, whose result is owed: it takes the place of one.
#[test]
fn a_connect_takes_over_a_hint() {
    let mut scene = Scene::new(false, 0);
    for number in 1..=HINTS_MAX as u32 + 1 {
        scene.open_path(number);
    }
    assert_eq!(scene.host.queries.len(), HINTS_MAX, "one is beyond the places");
    assert_eq!(scene.host.poll_event(), None, "of which nothing is told");
    frames(&mut scene.host);
    scene.connect(1);
    let asked = frames(&mut scene.host);
    assert!(asked.len() == 1 && asked[0][0] == 0xff, "all hosts, not where a frame has led us");
    scene.open_path(HINTS_MAX as u32 + 1);
    assert_eq!(scene.host.queries.len(), HINTS_MAX + 1, "its place is free again");
    for number in 0..EVENTS_MAX as u32 + 1 {
        scene.host.events.report(Class::Hint, address(false, 5000 + number), Err(Unreachable));
    }
    while scene.host.poll_timeout().is_some() {
        scene.now_ns += SECOND / 4;
        scene.host.handle_timeout(scene.now_ns);
        frames(&mut scene.host);
    }
    scene.step(0);
    assert_eq!(scene.result(1).map(|(_, found)| found), Some(false));
    assert_eq!(scene.results.len(), EVENTS_MAX + 1, "and no other's");
}

/// Hosts that ask are not remembered, and those that answer where a frame has led us displace no neighbour.
#[test]
fn invented_hosts_displace_no_neighbour() {
    for v6 in [false, true] {
        let mut scene = Scene::new(v6, 1);
        scene.connect(1);
        (0..2).for_each(|_| scene.step(MS));
        for number in 0..10_000 {
            let ip = address(v6, INVENTED + number);
            scene.claim(ip, STRANGER, false);
            assert_eq!(scene.host.lookup(scene.now_ns, ip), None);
            scene.open_path(INVENTED + number);
            let mut frame = [0; FRAME_MAX_LEN];
            let own = address(v6, 0);
            let len = message::answer(&mut frame, STRANGER, ip, Some(own), MACS[0]);
            scene.host.handle_frame(scene.now_ns, &frame[..len]);
            scene.step(20 * MS);
        }
        assert_eq!(scene.host.known.len(), KNOWN_MAX);
        assert_eq!(scene.host.lookup(scene.now_ns, address(v6, 1)), Some(at(1)));
        scene.live = 2;
        scene.connect(2);
        (0..2).for_each(|_| scene.step(MS));
        assert_eq!(scene.host.lookup(scene.now_ns, address(v6, 2)), Some(at(1)));
        assert_eq!(scene.host.known.len(), KNOWN_MAX, "a connect finds room for its neighbour");
        assert_eq!(scene.host.lookup(scene.now_ns, address(v6, 1)), None, "the oldest");
    }
}

/// Connects of a host that has forgotten its address wait no longer, and others go on.
#[test]
fn who_waits_is_asked_from_an_address_that_is_left() {
    let mut scene = Scene::new(false, 0);
    let gone = ip("10.9.0.1");
    scene.host.set_addresses(&[address(false, 0), gone]);
    for number in 0..CONNECTS_MAX as u32 + 1 {
        scene.host.resolve(0, gone, address(false, INVENTED + number));
    }
    scene.host.set_addresses(&[address(false, 0)]);
    scene.step(0);
    let from = |frame: Vec<u8>| match message::parse(&frame) {
        Some(Message::Query { from, .. }) => from,
        _ => None,
    };
    while scene.host.poll_timeout().is_some() {
        scene.now_ns += SECOND / 4;
        scene.host.handle_timeout(scene.now_ns);
        let asked: Vec<_> = frames(&mut scene.host).into_iter().filter_map(from).collect();
        assert!(asked.iter().all(|from| *from == address(false, 0)));
    }
    scene.step(0);
    assert_eq!(scene.results.len(), CONNECTS_MAX + 1);
}

#[test]
fn queries_and_events_are_bounded() {
    let mut host = host(0);
    for i in 0..100_000_u32 {
        host.resolve(0, ip("10.0.0.1"), IpAddr::from((0x0b00_0000 + i).to_be_bytes()));
    }
    assert_eq!((host.queries.len(), host.queries.connects()), (1024, 1024 + WAITING_MAX));
    let refused = core::iter::from_fn(|| host.poll_event()).count();
    assert!(refused > 0 && refused <= 100_000 - 1024 - WAITING_MAX);
    for i in 0..2000_u32 {
        host.doubt(0, ip("10.0.0.1"), IpAddr::from((0x0c00_0000 + i).to_be_bytes()), None);
    }
    assert_eq!(host.queries.len(), 1024 + STRANGERS_BURST as usize);
    assert_eq!(host.poll_event(), None);
}
