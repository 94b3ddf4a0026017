//! The end that connects, and measures: one thread of it, with its queue pairs and its CQ.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use driver::abi::STATUS_IO_TIMEOUT;
use hdrhistogram::Histogram;
use ndk_consumer::{Host, Pd, ReadLimits};

use super::Mismatches;
use super::budget::{Budget, RECEIVES_MAX, SPARE};
use super::control::{Control, Parameters};
use super::gate::Gate;
use super::group::Group;
use super::holder::Holder;
use super::lanes::{Lane, Lanes};
use super::link::{Inbox, Link};
use super::outcome::{QueuePair, latencies};
use super::pingpong::PingPong;
use super::plan::{Limit, Plan};
use super::ring::ControlSender;
use super::sender::Sender;
use crate::completions::{Completions, never};
use crate::connection::{Connection, Depths};
use crate::failure::Failure;
use crate::receives::SharedReceives;
use crate::stop;

/// What the threads of a run share.
pub(super) struct Run<'a> {
    pub(super) host: &'a Host,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) plan: &'a Plan,
    pub(super) gate: &'a Gate,
}

/// What came of one thread.
pub(super) struct Report {
    pub(super) queue_pairs: Vec<QueuePair>,
    pub(super) latency_ns: Histogram<u64>,
    pub(super) mismatches: Mismatches,
    pub(super) path_mtu: Option<u16>,
    pub(super) unconfirmed: bool,
    pub(super) interrupted: bool,
    /// Processor time of the process, from when all threads began to when this one had all.
    pub(super) cpu: Duration,
    pub(super) failure: Option<Failure>,
}

/// One thread from connect to disconnect; `moved` is told now and then how many messages are through.
pub(super) fn run(run: &Run<'_>, thread: u16, moved: &AtomicU64) -> Report {
    let mut report = Report {
        queue_pairs: Vec::new(),
        latency_ns: latencies(),
        mismatches: Mismatches::default(),
        path_mtu: None,
        unconfirmed: false,
        interrupted: false,
        cpu: Duration::ZERO,
        failure: None,
    };
    match Client::connect(run, thread) {
        Ok(client) => client.measure(moved, &mut report),
        Err(failure) => {
            run.gate.pass(false);
            let failure = failure.during(format!("connecting to {}", run.remote));
            report.failure = Some(failure);
        }
    }
    report
}

struct Client<'a> {
    run: &'a Run<'a>,
    thread: u16,
    load: Load,
    path_mtu: Option<u16>,
}

/// What goes over its queue pairs.
enum Load {
    Stream(Lanes),
    PingPong(Box<PingPong>),
}

impl<'a> Client<'a> {
    fn connect(run: &'a Run<'a>, thread: u16) -> Result<Self, Failure> {
        let Run { host, plan, .. } = *run;
        let pd = host.adapter().create_pd()?;
        let first = plan.parameters(0);
        // An end that only sends needs none, and leaves it to the server to refuse.
        let holds = plan.bidirectional || first.is_ping_pong();
        let budget = holds.then(|| Budget::new(&first, RECEIVES_MAX)).transpose();
        let budget = budget.map_err(|too_much| Failure::Arguments(too_much.to_string()))?;
        let (receive, receive_len) = match budget {
            Some(budget) => (budget.receives as u32, budget.receive_len),
            None => (SPARE, Control::LEN),
        };
        let depths = Depths {
            receive,
            initiator: u32::from(plan.depth) + ControlSender::SLOTS,
            inline_len: if plan.is_inline() { plan.size } else { 0 },
        };
        let entries = u32::from(plan.qps) * (depths.receive + depths.initiator);
        let mut completions = Completions::new(host.adapter(), entries, plan.waits)?;
        completions.stop_when(stop::requested);
        let room = (receive as usize, receive_len);
        let inboxes = Inbox::each(&pd, plan.qps.into(), room, plan.srq)?;
        let group = Group::new(plan);
        let shared = |_| SharedReceives::new(&pd, u32::from(plan.qps) * receive);
        let shared = group.map(shared).transpose()?;
        let ends = Ends { pd: &pd, depths, completions: &completions, group, shared };
        let mut links = Vec::new();
        for (place, inbox) in (0..plan.qps).zip(inboxes) {
            let parameters = plan.parameters(thread * plan.qps + place);
            links.push((ends.connect(run, inbox, parameters, place)?, parameters));
        }
        let local = links.first().map(|(link, _)| link.connection.local_address()).transpose()?;
        let path_mtu = local.and_then(|local| host.path_mtu(local));
        let load = if let (Some(budget), true) = (budget, first.is_ping_pong()) {
            let (link, own) = links.remove(0);
            let both = [own, own.of_server()];
            let inline = plan.is_inline();
            Load::PingPong(Box::new(PingPong::new(&pd, link, completions, both, inline, budget)?))
        } else {
            let lane = |(link, own)| lane(plan, &pd, link, own, budget);
            let lanes = links.into_iter().map(lane).collect::<Result<_, _>>()?;
            Load::Stream(Lanes::new(lanes, completions))
        };
        Ok(Self { run, thread, load, path_mtu })
    }

    fn measure(mut self, moved: &AtomicU64, report: &mut Report) {
        report.path_mtu = self.path_mtu;
        let warmed = self.load.warm_up(self.run.plan, self.thread);
        let go = self.run.gate.pass(warmed.is_ok());
        let sent = warmed.and_then(|()| match go {
            true => self.load.send(self.run.plan, self.thread, moved),
            false => Ok(false),
        });
        report.cpu = self.run.gate.cpu();
        let ended = sent.and_then(|interrupted| {
            report.interrupted = interrupted;
            self.load.end()?;
            report.unconfirmed = !self.load.disconnect()?;
            self.load.judged()
        });
        self.load.report(self.thread, report);
        match ended {
            Ok(mismatches) => report.mismatches = mismatches,
            Err(failure) => {
                let messages = report.queue_pairs.iter().map(|pair| pair.ours.messages).sum();
                let failure = self.explained(failure, self.run.remote.ip(), messages);
                report.failure = Some(failure.during(self.run.plan.name()));
            }
        }
    }

    /// Where small packets were answered and large ones never, says so: the ends of a path may have a larger
    /// MTU than what lies between them.
    fn explained(&mut self, failure: Failure, peer: IpAddr, messages: u64) -> Failure {
        let silent = matches!(&failure, Failure::Completion { status: STATUS_IO_TIMEOUT, .. });
        let ready = silent && self.load.is_ready();
        let Some(path_mtu) = self.path_mtu.filter(|_| ready) else { return failure };
        let payload = self.run.plan.size.min(path_mtu.into());
        if messages > 0 || payload <= Control::LEN as u32 {
            return failure;
        }
        // IP, UDP, BTH and ICRC; then the 256 bytes of a CM message and its DETH, which were answered.
        let around = if peer.is_ipv4() { 20 } else { 40 } + 8 + 12 + 4;
        let (answered, unanswered) = (around + 8 + 256, around + 16 + payload);
        if unanswered <= answered {
            return failure;
        }
        Failure::Hole { source: Box::new(failure), answered, unanswered, path_mtu }
    }
}

/// What the connections of a thread have in common.
struct Ends<'a> {
    pd: &'a Arc<Pd>,
    depths: Depths,
    completions: &'a Completions,
    group: Option<Group>,
    shared: Option<Rc<SharedReceives>>,
}

impl Ends<'_> {
    /// Connects one queue pair, and tells the server what is to go over it.
    fn connect(
        &self,
        run: &Run<'_>,
        inbox: Inbox,
        parameters: Parameters,
        place: u16,
    ) -> Result<Link, Failure> {
        let Self { pd, depths, completions, group, shared } = self;
        let adapter = run.host.adapter();
        let (connector, place) = (adapter.create_connector()?, place.into());
        let connection =
            Connection::new(pd, connector, *depths, completions, place, shared.as_ref())?;
        let mut link = Link::new(pd, connection, inbox)?;
        let info = adapter.info()?;
        let inbound = if run.plan.bidirectional { info.MaxInboundReadLimit } else { 0 };
        let limits = ReadLimits { inbound, outbound: info.MaxOutboundReadLimit };
        let group = group.map(|group| group.encode());
        let private_data = group.as_ref().map_or(&[][..], |bytes| bytes);
        link.connection.connect(run.local, run.remote, limits, private_data, completions)?;
        link.send(Control::Start(parameters))?;
        Ok(link)
    }
}

fn lane(
    plan: &Plan,
    pd: &Arc<Pd>,
    link: Link,
    parameters: Parameters,
    budget: Option<Budget>,
) -> Result<Lane, Failure> {
    let holder = budget.map(|budget| Holder::new(pd, parameters.of_server(), budget));
    let holder = holder.transpose()?;
    let sender = Some(Sender::new(pd, parameters, plan.is_inline())?);
    Ok(Lane { link, sender, holder })
}

impl Load {
    /// Waits until the server is ready, and sends what does not count.
    fn warm_up(&mut self, plan: &Plan, thread: u16) -> Result<(), Failure> {
        match self {
            Self::Stream(lanes) => {
                lanes.wait_ready()?;
                // From here on the user's wish ends it as its limit would, with what is under way.
                lanes.stop_when(never);
                if plan.warmup.is_some() {
                    lanes.invite()?;
                    let limit = |place| plan.warmup_of(thread * plan.qps + place as u16);
                    lanes.send(limit, |_| stop::requested())?;
                }
            }
            Self::PingPong(load) => {
                load.greet(true)?;
                load.stop_when(never);
                if let Some(limit) = plan.warmup_of(thread) {
                    load.ping(limit, |_| stop::requested())?;
                }
            }
        }
        Ok(())
    }

    /// Moves all messages; whether the user has ended it.
    fn send(&mut self, plan: &Plan, thread: u16, moved: &AtomicU64) -> Result<bool, Failure> {
        let mut interrupted = false;
        let mut asked = || {
            interrupted |= stop::requested();
            interrupted
        };
        match self {
            Self::Stream(lanes) => {
                if plan.warmup.is_none() {
                    lanes.invite()?;
                }
                let before = received(&lanes.lanes);
                let limit = |place| Some(plan.limit_of(thread * plan.qps + place as u16));
                lanes.send(limit, |lanes| {
                    moved.store(sent(lanes) + received(lanes) - before, Ordering::Relaxed);
                    asked()
                })?;
            }
            Self::PingPong(load) => load.ping(plan.limit_of(thread), |messages| {
                moved.store(messages, Ordering::Relaxed);
                asked()
            })?,
        }
        Ok(interrupted)
    }

    fn end(&mut self) -> Result<(), Failure> {
        match self {
            Self::Stream(lanes) => lanes.end().and_then(|()| lanes.settle()),
            Self::PingPong(load) => load.end(),
        }
    }

    /// Whether the server has confirmed all ends.
    fn disconnect(&self) -> Result<bool, Failure> {
        match self {
            Self::Stream(lanes) => {
                let mut confirmed = true;
                for lane in &lanes.lanes {
                    confirmed &= lane.link.connection.disconnect()?;
                }
                Ok(confirmed)
            }
            Self::PingPong(load) => load.connection().disconnect(),
        }
    }

    fn is_ready(&mut self) -> bool {
        match self {
            Self::Stream(lanes) => lanes.senders().all(|sender| sender.is_ready()),
            Self::PingPong(load) => load.is_ready(),
        }
    }

    /// What was wrong in either direction, of all queue pairs.
    fn judged(&self) -> Result<Mismatches, Failure> {
        let lanes = match self {
            Self::Stream(lanes) => &lanes.lanes,
            Self::PingPong(load) => return load.judged(),
        };
        let mut all = Mismatches::default();
        for lane in lanes {
            let ours = lane.sender.as_ref().map_or(Ok(Mismatches::default()), Sender::judged)?;
            let theirs = lane.holder.as_ref().map_or(Mismatches::default(), Holder::mismatches);
            all = all.with(ours).with(theirs);
        }
        Ok(all)
    }

    fn report(&self, thread: u16, report: &mut Report) {
        let lanes = match self {
            Self::Stream(lanes) => &lanes.lanes,
            Self::PingPong(load) => {
                let ours = load.flow();
                report.queue_pairs.push(QueuePair { thread, ours, ..QueuePair::default() });
                add(&mut report.latency_ns, load.latency_ns());
                return;
            }
        };
        for lane in lanes {
            let ours = lane.sender.as_ref().map(Sender::flow).unwrap_or_default();
            let theirs = lane.holder.as_ref().map(Holder::flow).unwrap_or_default();
            report.queue_pairs.push(QueuePair { thread, ours, theirs });
            if let Some(sender) = &lane.sender {
                add(&mut report.latency_ns, sender.latency_ns());
            }
        }
    }
}

impl Plan {
    fn warmup_of(&self, number: u16) -> Option<Limit> {
        self.parameters(number).warmup
    }

    /// Whether our messages are copied at the post.
    fn is_inline(&self) -> bool {
        self.size <= self.posting.inline
    }
}

/// Puts the latencies of one thread or queue pair to those of others.
pub(super) fn add(all: &mut Histogram<u64>, more: &Histogram<u64>) {
    all.add(more).expect("the bounds are the same");
}

fn sent(lanes: &[Lane]) -> u64 {
    lanes.iter().filter_map(|lane| lane.sender.as_ref()).map(|sender| sender.flow().messages).sum()
}

fn received(lanes: &[Lane]) -> u64 {
    lanes.iter().filter_map(|lane| lane.holder.as_ref()).map(Holder::done).sum()
}
