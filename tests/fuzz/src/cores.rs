//! Connections between the cores of two devices, whose frames come to any core, late, twice, or not at all.

use super::frames;
use super::hosts::Hosts;
use arbitrary::{Arbitrary, Unstructured};
use driver::abi::*;
use ndk_consumer::{Buffer, Mdl, NdkObject, Remote};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use tests::kit::numbered::{self, Event, From, QpParts, next_event};
use tests::kit::raw::{Object, Post};
use tests::kit::{ALL_ACCESS, PORT};

/// Operations in one run, at most.
const STEPS: usize = 96;
/// Deadlines until everything has completed, at most.
const TIMERS: usize = 2_000;
/// Bytes of a message, at most: several packets.
const LEN: usize = 1024;
/// Work requests of a queue.
const DEPTH: u32 = 16;
/// Connections, at most one for each two cores.
const PAIRS: usize = 4;
/// Bytes of a host: for each connection what it sends, and where the peer's bytes come to.
const SIZE: usize = PAIRS * 2 * LEN;

#[derive(Arbitrary, Debug)]
enum Step {
    Post {
        pair: u8,
        host: bool,
        what: What,
        len: u16,
    },
    Turn {
        host: bool,
        core: u8,
    },
    /// A frame comes to its own core, or to another.
    Deliver {
        host: bool,
        at: u8,
        core: Option<u8>,
    },
    Repeat {
        host: bool,
        at: u8,
        core: Option<u8>,
    },
    Lose {
        host: bool,
        at: u8,
    },
    /// One byte from the BTH on changed, and the ICRC made right: the QPN, the PSN, a length.
    Alter {
        host: bool,
        at: u8,
        byte: u8,
        by: u8,
    },
    Round,
    Settle,
    Jump,
    Advance {
        code: u8,
    },
    Disconnect {
        pair: u8,
        host: bool,
    },
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum What {
    /// With a receive for it.
    Send,
    Write,
    Read,
}

/// One end of a connection.
#[derive(Clone, Copy)]
struct End {
    cq: Object<NDK_CQ>,
    qp: Object<NDK_QP>,
    connector: Object<NDK_CONNECTOR>,
}

struct Run {
    hosts: Hosts,
    ends: Vec<[End; 2]>,
    memory: [Buffer; 2],
    mdls: [Mdl; 2],
    mrs: Vec<Object<NDK_MR>>,
    pds: Vec<Object<NDK_PD>>,
    last: usize,
    /// Work requests that have not completed.
    posted: BTreeSet<usize>,
    /// Requests that have not ended, and objects that were created.
    owed: BTreeSet<usize>,
    created: BTreeMap<usize, *mut NDK_OBJECT_HEADER>,
    incoming: Option<Object<NDK_CONNECTOR>>,
    /// Nothing was altered and nobody disconnected: each request succeeds.
    honest: bool,
}

/// Connections of several cores.
pub fn cores(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let Ok((v6, near, far)) = <(bool, u8, u8)>::arbitrary(&mut u) else { return };
    let mut run = Run::new(v6, [2 + usize::from(near) % 3, 1 + usize::from(far) % 4]);
    for _ in 0..STEPS {
        if u.is_empty() {
            break;
        }
        let Ok(step) = Step::arbitrary(&mut u) else { break };
        run.take(&step);
        run.collect();
    }
    run.finish();
}

impl Run {
    fn new(v6: bool, cores: [usize; 2]) -> Self {
        let memory = [0, 1].map(|_| Buffer::new(SIZE));
        let mdls = memory.each_ref().map(|memory| Mdl::new(memory.as_ptr(), SIZE));
        let mut run = Self {
            hosts: Hosts::new(v6, cores, |config| config.retry_count = 7),
            ends: Vec::new(),
            memory,
            mdls,
            mrs: Vec::new(),
            pds: Vec::new(),
            last: 0,
            posted: BTreeSet::new(),
            owed: BTreeSet::new(),
            created: BTreeMap::new(),
            incoming: None,
            honest: true,
        };
        for host in [0, 1] {
            let on = run.hosts.adapters[host];
            let pd = run.create(|token| numbered::create_pd(on, token));
            let mr = run.create(|token| numbered::create_mr(pd, false, token));
            let mdl = run.mdls[host].as_mut_ptr();
            run.request(|token| numbered::register(mr, mdl, SIZE, ALL_ACCESS, token));
            run.pds.push(pd);
            run.mrs.push(mr);
            // Each byte tells its host and its place.
            let bytes: Vec<u8> = (0..SIZE).map(|at| (at * 7 + host) as u8).collect();
            run.memory[host].write(0, &bytes);
        }
        run.connect(cores);
        run
    }

    fn connect(&mut self, cores: [usize; 2]) {
        let at = SocketAddr::new(self.hosts.addresses[1], PORT);
        let from = From::Address(SocketAddr::new(self.hosts.addresses[0], 0));
        let on = self.hosts.adapters;
        let listener = self.create(|token| numbered::create_listener(on[1], 1, token));
        self.request(|token| numbered::listen(listener, at, token));
        for pair in 0..PAIRS {
            let [near, far] = [0, 1].map(|host| self.queues(host, pair % cores[host]));
            let connector = self.create(|token| numbered::create_connector(on[0], token));
            let asked = self.owe();
            let status = numbered::connect(connector, near.1, from, at, [4, 4], &[], asked);
            assert_eq!(status, STATUS_PENDING);
            self.settle();
            let incoming = self.incoming.take().expect("a connect event");
            let accepted = self.owe();
            let status = numbered::accept(incoming, far.1, [4, 4], &[], 0, accepted);
            assert_eq!(status, STATUS_PENDING);
            self.settle();
            self.request(|token| numbered::complete_connect(connector, 0, token));
            let end = |(cq, qp), connector| End { cq, qp, connector };
            self.ends.push([end(near, connector), end(far, incoming)]);
        }
        assert!(self.owed.is_empty(), "a connection that does not come to stand");
        self.close(listener);
    }

    /// A CQ of a core, and a queue pair on it.
    fn queues(&mut self, host: usize, core: usize) -> (Object<NDK_CQ>, Object<NDK_QP>) {
        let (on, pd) = (self.hosts.adapters[host], self.pds[host]);
        let cq = self.create(|token| numbered::create_cq(on, 4 * DEPTH, Some(core), 0, token));
        let parts = QpParts { cqs: [cq; 2], depths: [DEPTH; 2], srq: None, inline: 0 };
        (cq, self.create(|token| numbered::create_qp(pd, &parts, 0, token)))
    }

    fn owe(&mut self) -> usize {
        self.last += 1;
        self.owed.insert(self.last);
        self.last
    }

    fn create<T>(&mut self, make: impl FnOnce(usize) -> NTSTATUS) -> Object<T> {
        let token = self.owe();
        assert_eq!(make(token), STATUS_PENDING);
        self.settle();
        Object(self.created.remove(&token).expect("it is created").cast())
    }

    fn request(&mut self, make: impl FnOnce(usize) -> NTSTATUS) {
        let token = self.owe();
        assert_eq!(make(token), STATUS_PENDING);
        self.settle();
        assert!(!self.owed.contains(&token), "a request does not end");
    }

    fn close<T: NdkObject>(&mut self, object: Object<T>) {
        let token = self.owe();
        if numbered::close(object, token) != STATUS_PENDING {
            self.owed.remove(&token);
        }
    }

    fn settle(&mut self) {
        self.hosts.settle();
        self.collect();
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Post { pair, host, what, len } => {
                self.post(usize::from(pair) % PAIRS, host.into(), what, usize::from(len) % LEN);
            }
            Step::Turn { host, core } => {
                let host = usize::from(host);
                self.hosts.turn(host, usize::from(core) % self.hosts.cores(host));
            }
            Step::Deliver { host, at, core } => {
                let host = usize::from(host);
                let wire = &mut self.hosts.wire[host];
                let frame = wire.remove(usize::from(at) % wire.len().max(1));
                self.deliver(host, core, frame);
            }
            Step::Repeat { host, at, core } => {
                let host = usize::from(host);
                let wire = &self.hosts.wire[host];
                let frame = wire.get(usize::from(at) % wire.len().max(1)).cloned();
                self.deliver(host, core, frame);
            }
            Step::Lose { host, at } => {
                let wire = &mut self.hosts.wire[usize::from(host)];
                wire.remove(usize::from(at) % wire.len().max(1));
            }
            Step::Alter { host, at, byte, by } => self.alter(host.into(), at, byte, by),
            Step::Round => {
                self.hosts.round();
            }
            Step::Settle => self.hosts.settle(),
            Step::Jump => {
                self.hosts.jump();
                self.hosts.round();
            }
            Step::Advance { code } => self.hosts.advance(1 << (code % 24)),
            Step::Disconnect { pair, host } => {
                self.honest = false;
                let connector = self.ends[usize::from(pair) % PAIRS][usize::from(host)].connector;
                let token = self.owe();
                if numbered::disconnect(connector, token) != STATUS_PENDING {
                    self.owed.remove(&token);
                }
            }
        }
    }

    fn deliver(&mut self, host: usize, core: Option<u8>, frame: Option<Vec<u8>>) {
        let core = core.map(|core| usize::from(core) % self.hosts.cores(host));
        frame.into_iter().for_each(|frame| self.hosts.deliver(host, core, frame));
    }

    fn alter(&mut self, host: usize, at: u8, byte: u8, by: u8) {
        let wire = &mut self.hosts.wire[host];
        let index = usize::from(at) % wire.len().max(1);
        let Some(frame) = wire.get_mut(index).filter(|frame| frame.len() >= 74) else { return };
        let at = frames::l4(frame) + 8 + usize::from(byte);
        if at < frame.len() {
            self.honest = false;
            frame[at] ^= by;
            frames::seal_icrc(frame);
        }
    }

    /// From a connection's own bytes to the place for them at the peer, or from the peer's bytes to our place.
    fn post(&mut self, pair: usize, host: usize, what: What, len: usize) {
        let peer = 1 - host;
        let token = self.mrs[host].token();
        let place = |host: usize, part: usize| {
            self.memory[host].as_ptr().wrapping_add((2 * pair + part) * LEN)
        };
        let sge = |place: *mut u8, token| [NDK_SGE::from_virtual(place.cast(), len as u32, token)];
        let remote = |part| Remote {
            address: place(peer, part).addr() as u64,
            token: self.mrs[peer].token(),
        };
        let (own, other) = (self.ends[pair][host].qp, self.ends[pair][peer].qp);
        let (ours, theirs) = (sge(place(host, 0), token), sge(place(host, 1), token));
        // For the longest, as it may wait for a later SEND, where this one finds no place in its queue.
        let token = self.mrs[peer].token();
        let room = [NDK_SGE::from_virtual(place(peer, 1).cast(), LEN as u32, token)];
        self.last += 2;
        let ids = [self.last - 1, self.last];
        let post = match what {
            What::Send => {
                // One that has no receive would wait for ever.
                if !other.post(ids[0], Post::Receive(&room), 0).is_success() {
                    return;
                }
                self.posted.insert(ids[0]);
                Post::Send(&ours)
            }
            What::Write => Post::Write(&ours, remote(1)),
            What::Read => Post::Read(&theirs, remote(0)),
        };
        if own.post(ids[1], post, 0).is_success() {
            self.posted.insert(ids[1]);
        }
    }

    /// Takes events and completions, each of which is owed.
    fn collect(&mut self) {
        while let Some(event) = next_event() {
            match event {
                Event::Created(token, created) => {
                    assert!(self.owed.remove(&token), "created twice");
                    self.created.insert(token, created.expect("it is created"));
                }
                Event::Requested(token, _) | Event::Closed(token) => {
                    assert!(self.owed.remove(&token), "a request that nobody waits for");
                }
                Event::Connecting(_, connector) => self.incoming = Some(connector),
                Event::Notified(..) | Event::Left(_) | Event::Low(..) => {}
            }
        }
        for end in self.ends.iter().flatten() {
            for result in numbered::results(end.cq) {
                let id = result.RequestContext.addr();
                assert!(self.posted.remove(&id), "{id} completed twice, or was not posted");
                let good = result.Status.is_success();
                assert!(good || !self.honest, "{id} ends with {}", result.Status);
            }
        }
    }

    fn finish(mut self) {
        // A receive whose SEND found no room waits until its queue pair is closed.
        for _ in 0..TIMERS {
            self.settle();
            if self.posted.is_empty() || !self.hosts.jump() {
                break;
            }
        }
        self.check_bytes();
        for end in std::mem::take(&mut self.ends).into_iter().flatten() {
            self.close(end.connector);
            self.close(end.qp);
            self.close(end.cq);
        }
        let (mrs, pds) = (std::mem::take(&mut self.mrs), std::mem::take(&mut self.pds));
        mrs.into_iter().for_each(|mr| self.close(mr));
        pds.into_iter().for_each(|pd| self.close(pd));
        for _ in 0..TIMERS {
            self.settle();
            if self.owed.is_empty() || !self.hosts.jump() {
                break;
            }
        }
        assert!(self.owed.is_empty(), "requests without an end: {:?}", self.owed);
        self.hosts.finish();
    }

    /// What each connection sends is as it was; where the peer's bytes come to, there are those, or what was there before.
    fn check_bytes(&self) {
        if !self.honest {
            return;
        }
        for host in [0, 1] {
            let mut bytes = vec![0; SIZE];
            self.memory[host].read(0, &mut bytes);
            for (at, byte) in bytes.into_iter().enumerate() {
                let own = (at * 7 + host) as u8;
                let theirs = ((at - at / LEN % 2 * LEN) * 7 + 1 - host) as u8;
                let is_place = at / LEN % 2 == 1;
                assert!(byte == own || is_place && byte == theirs, "byte {at} of host {host}");
            }
        }
    }
}
