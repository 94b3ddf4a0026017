//! Two connection managers and a bad network between them.

use super::*;

/// A frame under way.
struct Flight {
    arrives: Instant,
    to: usize,
    transmit: CmTransmit,
}

/// The events of one side, in short.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Outcome {
    Pending,
    Connected,
    Failed,
    TimedOut,
}

struct Side {
    cm: Cm,
    conn: Option<ConnId>,
    outcome: Outcome,
    /// Connections that were begun and not yet closed.
    open: usize,
    /// The consumer's next step, and its time.
    plan: Option<(Instant, Deed)>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Deed {
    Accept,
    Reject,
    Confirm,
    Disconnect,
    Release,
}

struct Faults {
    loss: u32,
    duplicate: u32,
    jitter_ms: u32,
}

struct World {
    now: Instant,
    rng: Rng,
    faults: Faults,
    sides: [Side; 2],
    flights: Vec<Flight>,
    /// Whether the passive consumer is willing, and the active one, once connected.
    willing: [bool; 2],
}

const ACTIVE: usize = 0;
const PASSIVE: usize = 1;

impl World {
    fn new(seed: u64, faults: Faults) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let mut rng = Rng::from_seed(bytes);
        let mut side = |ca_guid| Side {
            cm: *Cm::boxed(CmConfig { ca_guid, ..config() }, rng.fork(), Arc::default()),
            conn: None,
            outcome: Outcome::Pending,
            open: 0,
            plan: None,
        };
        let sides = [side(D_GUID), side(P_GUID)];
        let willing = [rng.below(8) != 0, rng.below(8) != 0];
        Self { now: Instant::default(), rng, faults, sides, flights: Vec::new(), willing }
    }

    fn start(&mut self) {
        let server = "10.0.0.2:445".parse().unwrap();
        self.sides[PASSIVE].cm.listen(server, 4).unwrap();
        let local = "10.0.0.1:50000".parse().unwrap();
        let bench = Bench::v4(config());
        let params = Connect { local, remote: server, ..bench.connect_values() };
        let conn = self.sides[ACTIVE].cm.connect(self.now, &params, D_QP.starting_psn).unwrap();
        self.sides[ACTIVE].conn = Some(conn);
        self.sides[ACTIVE].open = 1;
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.below(100) < percent
    }

    fn send(&mut self, from: usize) {
        while let Some(transmit) = self.sides[from].cm.poll_transmit() {
            let copies = 1 + u32::from(self.chance(self.faults.duplicate));
            for _ in 0..copies {
                if !self.chance(self.faults.loss) {
                    let delay = ms(u64::from(1 + self.rng.below(self.faults.jitter_ms)));
                    let arrives = self.now + delay;
                    self.flights.push(Flight { arrives, to: 1 - from, transmit });
                }
            }
        }
    }

    fn receive(&mut self) {
        let now = self.now;
        let (due, rest) = self.flights.drain(..).partition(|flight| flight.arrives <= now);
        self.flights = rest;
        let due: Vec<Flight> = due;
        for Flight { to, transmit, .. } in due {
            let packet = Packet {
                encap: transmit.layers.encap,
                bth: Bth::new(Opcode::UdSendOnly, Qpn::GSI, Psn::new(0)),
                ext: Ext::Deth(Deth { qkey: GSI_QKEY, src_qpn: Qpn::GSI }),
                payload: &transmit.payload,
            };
            self.sides[to].cm.handle_packet(now, &packet, false);
        }
    }

    /// Takes the events of a side and plans what its consumer does, some time later.
    fn consume(&mut self, at: usize) {
        while let Some(event) = self.sides[at].cm.poll_event() {
            let willing = self.willing[at];
            let side = &mut self.sides[at];
            let (outcome, deed) = match event {
                CmEvent::ConnectRequest { conn, .. } => {
                    // Of an attempt whose refusal got lost more than once.
                    if let Some(old) = side.conn.replace(conn) {
                        side.cm.release(self.now, old);
                    }
                    side.open += 1;
                    (Outcome::Pending, if willing { Deed::Accept } else { Deed::Reject })
                }
                CmEvent::Connected { .. } => {
                    (Outcome::Pending, if willing { Deed::Confirm } else { Deed::Reject })
                }
                CmEvent::Established { .. } => (Outcome::Connected, Deed::Disconnect),
                CmEvent::Refused { .. } => (Outcome::Failed, Deed::Release),
                CmEvent::PathLost { .. } => unreachable!("no path is lost here"),
                CmEvent::TimedOut { .. } => (Outcome::TimedOut, Deed::Release),
                CmEvent::PeerDisconnected { .. } => (Outcome::Connected, Deed::Release),
                CmEvent::DisconnectDone { .. } => (side.outcome, Deed::Release),
                CmEvent::Closed { .. } => {
                    side.open -= 1;
                    continue;
                }
            };
            side.outcome = outcome;
            let delay = ms(u64::from(self.rng.below(20_000)));
            self.sides[at].plan = Some((self.now + delay, deed));
        }
    }

    fn act(&mut self, at: usize) {
        let now = self.now;
        let side = &mut self.sides[at];
        let Some((_, deed)) = side.plan.take_if(|(when, _)| *when <= now) else { return };
        let conn = side.conn.unwrap();
        let done = match deed {
            Deed::Accept => yes(&mut side.cm, now, conn),
            Deed::Reject => side.cm.reject(now, conn, &[]).inspect(|()| {
                side.outcome = Outcome::Failed;
                side.plan = Some((now, Deed::Release));
            }),
            Deed::Confirm => side.cm.confirm(now, conn).inspect(|()| {
                side.outcome = Outcome::Connected;
                side.plan = Some((now + secs(15), Deed::Disconnect));
            }),
            Deed::Disconnect => side.cm.disconnect(now, conn),
            Deed::Release => {
                side.cm.release(now, conn);
                Ok(())
            }
        };
        // The other side was faster: an event that says so is on its way to the consumer.
        assert!(matches!(done, Ok(()) | Err(CmError::State)), "{done:?}");
    }

    /// Runs until both sides have nothing left to do.
    fn run(&mut self, limit: Duration) {
        let end = self.now + limit;
        while self.now < end {
            for at in [ACTIVE, PASSIVE] {
                self.sides[at].cm.handle_timeout(self.now, |_| ());
                self.consume(at);
                self.act(at);
                self.consume(at);
                self.send(at);
            }
            self.receive();
            for at in [ACTIVE, PASSIVE] {
                self.consume(at);
                self.send(at);
            }
            let timers = self.sides.iter().filter_map(|side| side.cm.poll_timeout());
            let plans = self.sides.iter().filter_map(|side| side.plan.map(|(when, _)| when));
            let flights = self.flights.iter().map(|flight| flight.arrives);
            let Some(next) = timers.chain(plans).chain(flights).min() else { return };
            self.now = self.now.max(next);
        }
        panic!("still busy after {limit:?}");
    }

    fn outcomes(&self) -> [Outcome; 2] {
        [self.sides[ACTIVE].outcome, self.sides[PASSIVE].outcome]
    }

    fn assert_nothing_left(&self, seed: u64) {
        for side in &self.sides {
            let left = (side.open, side.cm.conns.held(), side.cm.conns.lingering());
            assert_eq!(left, (0, 0, 0), "seed {seed}");
        }
    }
}

fn simulate(seed: u64, faults: Faults) -> World {
    let mut world = World::new(seed, faults);
    world.start();
    world.run(secs(600));
    world.assert_nothing_left(seed);
    world
}

/// Goal: over a network that only delays, both sides come to the same end, whatever their consumers
/// decide and however long they take.
/// Method: 300 seeds, delays up to 50 ms, consumers that take up to 20 s for each step.
#[test]
fn both_sides_agree_without_loss() {
    for seed in 0..300 {
        let world = simulate(seed, Faults { loss: 0, duplicate: 30, jitter_ms: 50 });
        let expected = match world.willing {
            [true, true] => Outcome::Connected,
            [_, false] | [false, _] => Outcome::Failed,
        };
        assert_eq!(world.outcomes(), [expected; 2], "seed {seed}");
    }
}

/// Goal: under heavy loss and duplication each attempt ends in bounded time, on both sides, and the
/// sides agree unless one of them gave up.
/// Method: 500 seeds, 30 % loss and duplication, reordering by delays of up to 800 ms.
#[test]
fn both_sides_agree_under_loss_unless_one_gives_up() {
    let mut agreed = 0;
    for seed in 0..500 {
        let world = simulate(seed, Faults { loss: 30, duplicate: 30, jitter_ms: 800 });
        let outcomes = world.outcomes();
        let gave_up = outcomes.contains(&Outcome::TimedOut) || world.sides[PASSIVE].conn.is_none();
        match outcomes {
            [active, passive] if active == passive => agreed += 1,
            outcomes => assert!(gave_up, "seed {seed}: {outcomes:?}"),
        }
    }
    assert!(agreed >= 480, "only {agreed} of 500 agreed");
}

/// Goal: with no network at all, everything ends in bounded time.
#[test]
fn a_partition_ends_in_time() {
    let world = simulate(1, Faults { loss: 100, duplicate: 0, jitter_ms: 1 });
    assert_eq!(world.outcomes(), [Outcome::TimedOut, Outcome::Pending]);
}
