//! A host that resolves addresses on a link with one that lives, a stranger, and any number that the stranger invents.

use arbitrary::{Arbitrary, Unstructured};
use netadapter_glue::neighbour::ask::Question;
use netadapter_glue::neighbour::{FRAME_MAX_LEN, Link, Neighbours};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Operations in one run, at most.
const STEPS: usize = 48;
/// Connects to dead hosts in one run, at most: some of them wait for their turn.
const DEAD_MAX: u32 = 1200;
const SECOND: u64 = 1_000_000_000;
/// Frames of one query, at most: it may be sent to all hosts, then to a place that was heard, then to all again.
const QUERY_FRAMES: u64 = 8 + 3 + 8;

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
const LIVE: [u8; 6] = [2, 0, 0, 0, 0, 2];

#[derive(Arbitrary, Debug)]
enum Step {
    /// A connect to the host that lives.
    Connect,
    /// Connects to hosts that are dead.
    ConnectDead {
        count: u8,
    },
    /// A path that a packet has opened.
    Confirm {
        host: u8,
        from: u8,
        vlan: Option<u8>,
    },
    /// A path that is silent.
    Doubt {
        host: u8,
        from: Option<u8>,
    },
    /// A packet from elsewhere.
    Hint {
        host: u8,
        from: Option<u8>,
    },
    /// Frames of one kind, each with the address of the host after that of the one before.
    Frames {
        kind: Kind,
        host: u8,
        count: u8,
        mac: u8,
        vlan: Option<u8>,
    },
    /// One frame of which bytes are replaced.
    Damaged {
        kind: Kind,
        host: u8,
        changes: [Option<(u8, u8)>; 4],
        cut: u8,
    },
    /// Another address of ours comes or goes.
    Readdress {
        has: bool,
    },
    /// The host that lives answers, or is out of reach.
    Reach {
        live: bool,
    },
    Advance {
        ms: u16,
    },
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Kind {
    /// A query for our address.
    Query,
    /// An answer to us.
    Answer,
    /// A query to all for another address.
    Other,
}

struct Run {
    host: Neighbours,
    live: Neighbours,
    v6: bool,
    reach: bool,
    now_ns: u64,
    dead: u32,
    /// Connects that wait for a result, and until when the one to the living host has it.
    owed: BTreeMap<IpAddr, u64>,
    /// Frames that came, and queries that a step of ours has begun.
    came: u64,
    begun: u64,
    /// Answers and queries that left.
    answered: u64,
    asked: u64,
}

/// Any order of connects, doubts, frames and time.
pub fn neighbour(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let Ok(v6) = bool::arbitrary(&mut u) else { return };
    let mut run = Run::new(v6);
    for _ in 0..STEPS {
        if u.is_empty() {
            break;
        }
        let Ok(step) = Step::arbitrary(&mut u) else { break };
        run.take(&step);
        run.settle();
        run.check();
    }
    run.finish();
}

impl Run {
    fn new(v6: bool) -> Self {
        let host = Neighbours::new(OWN, &[address(v6, 0)]);
        let live = Neighbours::new(LIVE, &[address(v6, 1)]);
        Self {
            host,
            live,
            v6,
            reach: true,
            now_ns: 0,
            dead: 0,
            owed: BTreeMap::new(),
            came: 0,
            begun: 0,
            answered: 0,
            asked: 0,
        }
    }

    fn address(&self, number: u32) -> IpAddr {
        address(self.v6, number)
    }

    fn take(&mut self, step: &Step) {
        let (now_ns, own) = (self.now_ns, self.address(0));
        match *step {
            Step::Connect => self.connect(1),
            Step::ConnectDead { count } => {
                for _ in 0..count {
                    if self.dead < DEAD_MAX {
                        self.dead += 1;
                        self.connect(0x10_0000 + self.dead);
                    }
                }
            }
            Step::Confirm { host, from, vlan } => {
                self.host.confirm(now_ns, own, self.address(host.into()), place(from, vlan));
            }
            Step::Doubt { host, from } => {
                self.begun += 1;
                let from = from.map(|from| place(from, None));
                self.host.doubt(now_ns, own, self.address(host.into()), from);
            }
            Step::Hint { host, from } => {
                let from = from.map(|from| place(from, None));
                self.host.hint(now_ns, own, self.address(host.into()), from);
            }
            Step::Frames { kind, host, count, mac, vlan } => {
                for number in 0..=u32::from(count) {
                    let ip = self.address(u32::from(host) + number);
                    let frame = self.frame(kind, ip, place(mac, vlan));
                    self.deliver(&frame);
                }
            }
            Step::Damaged { kind, host, changes, cut } => {
                let mut frame = self.frame(kind, self.address(host.into()), place(host, None));
                for (at, value) in changes.into_iter().flatten() {
                    if let Some(byte) = frame.get_mut(usize::from(at)) {
                        *byte = value;
                    }
                }
                frame.truncate(frame.len().saturating_sub(cut.into()));
                self.deliver(&frame);
            }
            Step::Readdress { has } => {
                let more = self.address(0x20_0000);
                let addresses = [own, more];
                self.host.set_addresses(&addresses[..1 + usize::from(has)]);
            }
            Step::Reach { live } => {
                if self.reach != live {
                    // Nobody promises when a host is found that was out of reach.
                    self.owed.remove(&self.address(1));
                }
                self.reach = live;
            }
            Step::Advance { ms } => self.advance(now_ns + u64::from(ms) * 1_000_000),
        }
    }

    /// The result is there within three seconds of the connect's turn.
    fn connect(&mut self, number: u32) {
        let ip = self.address(number);
        let turns = 1 + self.owed.len() as u64 / 1024;
        if self.reach || number != 1 {
            self.owed.entry(ip).or_insert(self.now_ns + 3 * turns * SECOND);
        }
        // A stale place is confirmed besides.
        self.begun += 2;
        self.host.resolve(self.now_ns, self.address(0), ip);
    }

    /// A frame by which the host at `place` says that it has `ip`.
    fn frame(&self, kind: Kind, ip: IpAddr, place: Link) -> Vec<u8> {
        let (own_ip, other) = (self.address(0), self.address(0x30_0000));
        let mut buffer = [0; FRAME_MAX_LEN];
        let ask = |ip, own_ip| Question::Place { own_ip, ip, at: None };
        let len = match kind {
            Kind::Query => ask(own_ip, ip).write(&mut buffer, place.mac, place.vlan),
            Kind::Other => ask(other, ip).write(&mut buffer, place.mac, place.vlan),
            Kind::Answer => {
                let len = ask(ip, own_ip).write(&mut buffer, OWN, place.vlan);
                let mut host = Neighbours::new(place.mac, &[ip]);
                host.handle_frame(0, &buffer[..len]);
                // Our own address has no question for itself.
                host.poll_transmit(&mut buffer).unwrap_or(0)
            }
        };
        buffer[..len].to_vec()
    }

    fn deliver(&mut self, frame: &[u8]) {
        self.came += 1;
        self.host.handle_frame(self.now_ns, frame);
    }

    /// Takes what the host sends and tells, until it has no more; who lives answers at once.
    fn settle(&mut self) {
        let mut buffer = [0; FRAME_MAX_LEN];
        while let Some(len) = self.host.poll_transmit(&mut buffer) {
            let frame = &buffer[..len];
            assert_eq!(frame[6..12], OWN, "the source of a frame is ours");
            let is_query = is_query(frame);
            self.asked += u64::from(is_query);
            self.answered += u64::from(!is_query);
            let mut answer = [0; FRAME_MAX_LEN];
            if self.reach && self.live.handle_frame(self.now_ns, frame) {
                while let Some(len) = self.live.poll_transmit(&mut answer) {
                    // A host that has no VLAN gets no frame with a tag.
                    if answer[12..14] != [0x81, 0] {
                        self.deliver(&answer[..len]);
                    }
                }
            }
        }
        while let Some(event) = self.host.poll_event() {
            let waits = self.owed.len();
            let was_owed = self.owed.remove(&event.ip).is_some();
            // A connect that waits for its turn shares the result of an older query.
            if was_owed && event.ip == self.address(1) && self.reach && waits < 1024 {
                assert!(event.result.is_ok(), "a host that lives is found");
            }
        }
    }

    /// Lets time pass, with each timer when it is due.
    fn advance(&mut self, until: u64) {
        while let Some(due) = self.host.poll_timeout().filter(|due| *due <= until) {
            self.now_ns = self.now_ns.max(due);
            self.host.handle_timeout(self.now_ns);
            self.settle();
        }
        self.now_ns = until;
    }

    fn check(&self) {
        let live = self.owed.get(&self.address(1));
        assert!(live.is_none_or(|until| self.now_ns <= *until), "a connect waits too long");
        let strangers = 64 + self.now_ns.div_ceil(SECOND) * 64;
        let most = QUERY_FRAMES * (self.begun + strangers);
        assert!(self.asked <= most, "{} queries, of {most} at most", self.asked);
        assert!(self.answered <= self.came, "an answer without a question");
    }

    /// All queries end, and each connect has a result.
    fn finish(&mut self) {
        self.advance(self.now_ns + 10 * SECOND);
        self.check();
        assert_eq!(self.host.poll_timeout(), None, "a query without an end");
        assert_eq!(self.owed, BTreeMap::new(), "connects without a result");
    }
}

/// Ours is the first, the living host's the second.
fn address(v6: bool, number: u32) -> IpAddr {
    if v6 {
        IpAddr::from((0xfd00_u128 << 112 | (1 + u128::from(number))).to_be_bytes())
    } else {
        IpAddr::from((0x0a00_0001 + number).to_be_bytes())
    }
}

/// 1 is that of the living host. Few VLANs, so that some meet.
fn place(mac: u8, vlan: Option<u8>) -> Link {
    Link { mac: [2, 0, 0, 0, 0, 1 + mac % 8], vlan: vlan.map(|vlan| 1 + u16::from(vlan) % 4) }
}

/// Whether a frame is an ARP request or a neighbour solicitation.
fn is_query(frame: &[u8]) -> bool {
    let tag = if frame[12..14] == [0x81, 0] { 4 } else { 0 };
    let frame = &frame[tag..];
    match [frame[12], frame[13]] {
        [0x08, 0x06] => frame[21] == 1,
        [0x86, 0xdd] => frame[54] == 135,
        _ => false,
    }
}
