//! Any order of calls of the dispatch tables by a consumer that keeps the rules of memory, and no other.
//!
//! It has two connected providers. What it names in a call is mostly what the call asks for, and else any object of either
//! provider, or none. An object is named until its close has ended, and memory lives as long as the providers.

mod account;
mod calls;
mod posts;

use super::hosts::Hosts;
use account::{Account, Kind};
use arbitrary::{Arbitrary, Unstructured};
use calls::Create;
use driver::ProviderConfig;
use ndk_consumer::{Buffer, Mdl};
use posts::Work;

/// Calls in one run, at most.
const STEPS: usize = 96;
/// Deadlines of two providers whose consumer closes everything, at most.
const TIMERS: usize = 2_000;
/// Bytes of the memory of each host.
const SIZE: usize = 16 << 10;

#[derive(Arbitrary, Debug)]
struct Step {
    host: bool,
    call: Call,
}

#[derive(Arbitrary, Debug)]
enum Call {
    Create(Create),
    Close { kind: Kind, at: u8 },
    Listen { at: u8, port: u8 },
    Pause { at: u8, pause: bool },
    Connect { at: u8, qp: u8, from: u8, to: u8, limits: [u8; 2], data: u8 },
    CompleteConnect { at: u8 },
    Accept { at: u8, qp: u8, limits: [u8; 2], data: u8 },
    Reject { at: u8 },
    Disconnect { at: u8 },
    Query { at: u8 },
    Register { at: u8, len: Len, flags: u8 },
    Deregister { at: u8 },
    InitializeFast { at: u8, pages: u16 },
    BuildLam { len: Len },
    ReleaseLam { at: u8 },
    Resize { at: u8, depth: u16 },
    Arm { at: u8, how: u8 },
    Moderate { at: u8, interval_us: u32, count: u32 },
    ModifySrq { at: u8, threshold: u16 },
    Post { qp: u8, work: Work },
    Flush { qp: u8 },
    Results { at: u8 },
    Turn { core: u8 },
    Round,
    Settle,
    Lose { at: u8 },
    Jump,
    Advance { code: u8 },
}

/// A length of memory: mostly one that there is.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Len {
    Inside(u16),
    Any(u64),
}

impl Len {
    fn bytes(self) -> usize {
        match self {
            Self::Inside(len) => usize::from(len) % (SIZE + 1),
            Self::Any(len) => len as usize,
        }
    }
}

struct Run {
    hosts: Hosts,
    account: Account,
    memory: [Buffer; 2],
    /// They live as long as any region over them may.
    mdls: Vec<Mdl>,
    lams: [Vec<(Vec<driver::abi::NDK_LOGICAL_ADDRESS>, Vec<u64>)>; 2],
}

/// Calls of both hosts, time, and frames that are lost.
pub fn tables(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let Ok([v6, several, ready]) = <[bool; 3]>::arbitrary(&mut u) else { return };
    let cores = if several { [2, 3] } else { [1, 1] };
    let mut run = Run {
        hosts: Hosts::new(v6, cores, limit),
        account: Account::default(),
        memory: [0, 1].map(|_| Buffer::new(SIZE)),
        mdls: Vec::new(),
        lams: Default::default(),
    };
    if ready {
        run.make_ready();
    }
    for _ in 0..STEPS {
        if u.is_empty() {
            break;
        }
        let Ok(step) = Step::arbitrary(&mut u) else { break };
        run.take(usize::from(step.host), step.call);
        run.account.read();
    }
    run.finish();
}

/// Few of everything, so that limits are reached.
fn limit(config: &mut ProviderConfig) {
    let limits = &mut config.limits;
    (limits.queue_depth, limits.srq_depth, limits.cq_depth) = (32, 32, 64);
    (limits.qps, limits.mrs, limits.objects) = (8, 24, 40);
}

impl Run {
    /// A connection that stands, and a region on each side.
    fn make_ready(&mut self) {
        for host in [0, 1] {
            for create in [
                Create::Pd,
                Create::Cq { depth: 64, near: None },
                Create::Mr { pd: 0, fast: false },
                Create::Mr { pd: 0, fast: true },
                Create::Mw { pd: 0 },
            ] {
                self.create(host, create);
                self.settle();
            }
            self.create(
                host,
                Create::Qp { pd: 0, cqs: [0, 0], srq: None, depths: [16, 16], inline: 64 },
            );
            self.settle();
            self.register(host, 0, SIZE, 7);
            self.initialize(host, 1, 4);
        }
        self.create(1, Create::Listener);
        self.create(0, Create::Connector);
        self.settle();
        self.listen(1, 0, 0);
        self.settle();
        self.connect(0, 0, [0, 0, 0], [4, 4], 3);
        self.settle();
        self.accept(1, 0, 0, [4, 4], 5);
        self.settle();
        self.complete_connect(0, 0);
        self.settle();
    }

    fn settle(&mut self) {
        self.hosts.settle();
        self.account.read();
    }

    fn take(&mut self, host: usize, call: Call) {
        match call {
            Call::Create(create) => self.create(host, create),
            Call::Close { kind, at } => self.close(host, kind, at),
            Call::Listen { at, port } => self.listen(host, at, port),
            Call::Pause { at, pause } => self.pause(host, at, pause),
            Call::Connect { at, qp, from, to, limits, data } => {
                self.connect(host, at, [qp, from, to], limits, data);
            }
            Call::CompleteConnect { at } => self.complete_connect(host, at),
            Call::Accept { at, qp, limits, data } => self.accept(host, at, qp, limits, data),
            Call::Reject { at } => self.reject(host, at),
            Call::Disconnect { at } => self.disconnect(host, at),
            Call::Query { at } => self.query(host, at),
            Call::Register { at, len, flags } => self.register(host, at, len.bytes(), flags),
            Call::Deregister { at } => self.deregister(host, at),
            Call::InitializeFast { at, pages } => self.initialize(host, at, pages),
            Call::BuildLam { len } => self.build_lam(host, len.bytes()),
            Call::ReleaseLam { at } => self.release_lam(host, at),
            Call::Resize { at, depth } => self.resize(host, at, depth),
            Call::Arm { at, how } => self.arm(host, at, how),
            Call::Moderate { at, interval_us, count } => {
                self.moderate(host, at, interval_us, count)
            }
            Call::ModifySrq { at, threshold } => self.modify_srq(host, at, threshold),
            Call::Post { qp, work } => self.post(host, qp, &work),
            Call::Flush { qp } => self.flush(host, qp),
            Call::Results { at } => self.results(host, at),
            Call::Turn { core } => {
                let core = usize::from(core) % self.hosts.cores(host);
                self.hosts.turn(host, core);
            }
            Call::Round => {
                self.hosts.round();
            }
            Call::Settle => self.hosts.settle(),
            Call::Lose { at } => {
                let wire = &mut self.hosts.wire[host];
                wire.remove(usize::from(at) % wire.len().max(1));
            }
            Call::Jump => {
                self.hosts.jump();
                self.hosts.round();
            }
            Call::Advance { code } => self.hosts.advance(1 << (code % 36)),
        }
    }

    /// Everything is closed, and every request has ended.
    fn finish(mut self) {
        for host in [0, 1] {
            while !self.lams[host].is_empty() {
                self.release_lam(host, 0);
            }
        }
        for _ in 0..TIMERS {
            self.settle();
            // Creations end, and connections come, meanwhile.
            self.close_all();
            self.settle();
            if self.account.is_settled() || !self.hosts.jump() {
                break;
            }
        }
        self.account.finish();
        self.hosts.finish();
    }

    fn close_all(&mut self) {
        for (host, kind) in [0, 1].into_iter().flat_map(|host| Kind::ALL.map(|kind| (host, kind))) {
            while self.account.open_count(host, kind) > 0 {
                self.close(host, kind, 0);
            }
        }
    }
}
