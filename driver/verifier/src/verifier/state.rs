//! The objects of a consumer, as the verifier knows them.

use super::callbacks::Running;
use super::memory::{Chain, Mapping, Memory};
use super::posts::{Posted, Queues};
use super::{Report, Rule};
use crate::layer::{Ask, Call, End, Kind, Record, find, in_callback};
use driver::abi::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// The close of an adapter, which stands in no table.
const CLOSE_ADAPTER: &str = "CloseNDKAdapter";

/// An object that is not closed.
pub(super) struct Object {
    pub(super) record: Arc<Record>,
    /// The objects that wait for its close with theirs.
    pub(super) antecedents: Vec<u64>,
    /// Requests that have not ended.
    requests: Vec<&'static str>,
    /// The close that the consumer has called, and when.
    closing: Option<(&'static str, Instant)>,
    pub(super) room: Room,
}

/// Facts about some kinds of objects.
pub(super) enum Room {
    None,
    /// The thread that takes completions.
    Cq(Option<ThreadId>),
    /// Of a QP or an SRQ.
    Queues(Box<Queues>),
}

/// The verifier's part in the end of a call.
pub(super) enum After {
    Nothing,
    Counted,
    Made {
        antecedents: Vec<u64>,
        room: Room,
        fast: bool,
    },
    Registered {
        chain: Chain,
        len: SIZE_T,
        flags: ULONG,
    },
    Deregistered,
    Initialized,
    Built {
        chain: Chain,
        lam: usize,
    },
    Polled,
    /// With the mapping that the region of the request had before.
    Posted {
        id: usize,
        queue: usize,
        deferred: bool,
        before: Option<(u64, Mapping)>,
    },
    Closed,
}

impl After {
    /// The call counts as a request of its object until it ends.
    const fn counts(&self) -> bool {
        matches!(
            self,
            Self::Counted
                | Self::Made { .. }
                | Self::Registered { .. }
                | Self::Deregistered
                | Self::Initialized
        )
    }
}

/// Everything, under one lock.
pub(super) struct State {
    pub(super) objects: BTreeMap<u64, Object>,
    /// Those of them whose close pends, and was not looked at.
    closing: BTreeSet<u64>,
    /// Requests whose completions were not taken, by what the provider has for their contexts.
    pub(super) posts: BTreeMap<usize, Posted>,
    pub(super) last_post: usize,
    pub(super) memory: Memory,
    pub(super) running: BTreeMap<u64, Running>,
    pub(super) last_running: u64,
    told: BTreeSet<(Rule, &'static str, String)>,
    /// Those that were not handed out yet.
    pub(super) reports: Vec<Report>,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            objects: BTreeMap::new(),
            closing: BTreeSet::new(),
            posts: BTreeMap::new(),
            last_post: 0,
            memory: Memory::new(),
            running: BTreeMap::new(),
            last_running: 0,
            told: BTreeSet::new(),
            reports: Vec::new(),
        }
    }

    /// Reports each rule once for a function and an object.
    pub(super) fn report(
        &mut self,
        rule: Rule,
        call: &'static str,
        object: &(impl Display + ?Sized),
        detail: impl Into<String>,
    ) {
        let object = object.to_string();
        if self.told.insert((rule, call, object.clone())) {
            self.reports.push(Report { rule, call, object, detail: detail.into() });
        }
    }

    /// There is a new object.
    pub(super) fn add(&mut self, record: &Arc<Record>, antecedents: Vec<u64>, room: Room) {
        let (id, record) = (record.id, Arc::clone(record));
        let object = Object { record, antecedents, requests: Vec::new(), closing: None, room };
        self.objects.insert(id, object);
    }

    pub(super) fn asked(&mut self, call: &Call, ask: &mut Ask<'_>) -> After {
        if call.uncompleted {
            let detail = "its callback is NULL, and it may pend";
            self.report(Rule::NoCompletion, call.function, &*call.object, detail);
        }
        if is_newer(call) {
            let NDK_VERSION { Major, Minor } = call.object.version();
            let detail = format!("the adapter runs at {Major}.{Minor}");
            self.report(Rule::NewerFunction, call.function, &*call.object, detail);
        }
        let after = self.after(call, ask);
        if after.counts()
            && let Some(object) = self.objects.get_mut(&call.object.id)
        {
            object.requests.push(call.function);
        }
        after
    }

    fn after(&mut self, call: &Call, ask: &mut Ask<'_>) -> After {
        match ask {
            Ask::Plain | Ask::Moderate | Ask::Reject { .. } => After::Nothing,
            Ask::Info { .. } => {
                if in_callback() {
                    let detail = "a callback calls it";
                    self.report(Rule::PassiveInCallback, call.function, &*call.object, detail);
                }
                After::Nothing
            }
            Ask::Create => Self::made(call, Room::None, false),
            Ask::CreateCq { .. } => Self::made(call, Room::Cq(None), false),
            Ask::CreateMr { fast } => Self::made(call, Room::None, *fast),
            Ask::CreateSrq { .. } => {
                let queues = Queues::new(call.object.id, [0; 2]);
                Self::made(call, Room::Queues(Box::new(queues)), false)
            }
            Ask::CreateQp(ask) => {
                let cqs = ask.cqs.map(|cq| self.argument(call, cq, Kind::Cq));
                let srq = (!ask.srq.is_null()).then(|| self.argument(call, ask.srq, Kind::Srq));
                let mut antecedents = vec![call.object.id];
                antecedents.extend(cqs.iter().flatten());
                antecedents.extend(srq.flatten());
                let queues = Queues::new(call.object.id, cqs.map(Option::unwrap_or_default));
                After::Made { antecedents, room: Room::Queues(Box::new(queues)), fast: false }
            }
            Ask::BuildLam { mdl, len, lam } => {
                // SAFETY: the consumer's chain.
                After::Built { chain: unsafe { Chain::read(*mdl, *len) }, lam: lam.addr() }
            }
            Ask::ReleaseLam { lam } => {
                self.release(call, *lam);
                After::Nothing
            }
            Ask::Register { mdl, len, flags } => {
                // SAFETY: the consumer's chain.
                let chain = unsafe { Chain::read(*mdl, *len) };
                After::Registered { chain, len: *len, flags: *flags }
            }
            Ask::Deregister => {
                self.end_region(call);
                After::Deregistered
            }
            Ask::Initialize { .. } => After::Initialized,
            Ask::Connect { qp, endpoint, .. } => {
                let qp = self.argument(call, *qp, Kind::Qp);
                let shared = !endpoint.is_null();
                let shared = shared.then(|| self.argument(call, *endpoint, Kind::SharedEndpoint));
                self.follow(call.object.id, qp.into_iter().chain(shared.flatten()));
                After::Counted
            }
            Ask::Accept { qp, .. } => {
                let qp = self.argument(call, *qp, Kind::Qp);
                self.follow(call.object.id, qp);
                After::Counted
            }
            Ask::Request => {
                if call.function == "NdkDisconnect" {
                    self.break_queues_of(call.object.id);
                }
                After::Counted
            }
            Ask::Resize { .. } | Ask::Modify { .. } => After::Counted,
            Ask::Poll { null } => self.poll(call, *null),
            Ask::Post(post) => self.post(call, post),
            Ask::Flush => {
                self.break_queues(call.object.id);
                After::Nothing
            }
            Ask::Close => {
                self.close(call);
                After::Closed
            }
        }
    }

    fn made(call: &Call, room: Room, fast: bool) -> After {
        After::Made { antecedents: vec![call.object.id], room, fast }
    }

    /// An object that the consumer passes beside the one of the call.
    pub(super) fn argument<T>(&mut self, call: &Call, object: *mut T, kind: Kind) -> Option<u64> {
        let record = find(object)?;
        if record.kind != kind {
            let detail = format!("it is passed for a {kind}");
            self.report(Rule::WrongObject, call.function, &*record, detail);
            return None;
        }
        if !record.is_open() {
            let detail = format!("it is passed for a call on {}", call.object);
            self.report(Rule::CallAfterClose, call.function, &*record, detail);
        }
        Some(record.id)
    }

    /// An object has further antecedents.
    pub(super) fn follow(&mut self, id: u64, antecedents: impl IntoIterator<Item = u64>) {
        if let Some(object) = self.objects.get_mut(&id) {
            object.antecedents.extend(antecedents);
        }
    }

    fn release(&mut self, call: &Call, lam: *mut NDK_LOGICAL_ADDRESS_MAPPING) {
        let Some(id) = self.memory.lam(lam) else { return };
        let user = self.posts.values().find(|posted| posted.uses_lam(id));
        let user = user.map(|posted| format!("{} on {} uses it", posted.function, posted.record));
        if let Some(user) = user {
            self.report(Rule::LamReleased, call.function, &*call.object, user);
        }
        // Nobody reaches a region by a connection that has ended.
        let reached = |qp| self.queues(qp).is_some_and(|queues| !queues.broken);
        let region = self.memory.regions_over(id).find(|&(_, qp)| reached(qp));
        if let Some(detail) = region.map(|(region, _)| format!("{region} is registered over it")) {
            self.report(Rule::LamUnderRegion, call.function, &*call.object, detail);
        }
        self.memory.release(id);
    }

    /// A region is deregistered or closed.
    fn end_region(&mut self, call: &Call) {
        let id = call.object.id;
        let in_flight = |posted: &&Posted| {
            let queues = self.queues(posted.record.id);
            posted.initiates && posted.regions.contains(&id) && queues.is_some_and(|q| !q.broken)
        };
        if let Some(posted) = self.posts.values().find(in_flight) {
            let detail = format!("{} on {} uses it", posted.function, posted.record);
            self.report(Rule::RegionEnded, call.function, &*call.object, detail);
        }
    }

    fn poll(&mut self, call: &Call, null: bool) -> After {
        if null {
            self.report(Rule::NoResults, call.function, &*call.object, "the array is NULL");
        }
        let this = std::thread::current().id();
        let room = self.objects.get_mut(&call.object.id).map(|object| &mut object.room);
        let Some(Room::Cq(polling)) = room else { return After::Nothing };
        match *polling {
            Some(other) if other != this => {
                let detail = "another thread is in such a call";
                self.report(Rule::ConcurrentPolls, call.function, &*call.object, detail);
                After::Nothing
            }
            Some(_) => After::Nothing,
            None => {
                *polling = Some(this);
                After::Polled
            }
        }
    }

    fn close(&mut self, call: &Call) {
        match call.object.kind {
            Kind::Mr => self.end_region(call),
            Kind::Connector => self.break_queues_of(call.object.id),
            Kind::Qp if self.queues(call.object.id).is_some_and(|queues| queues.deferred) => {
                let detail = "the last post was deferred";
                self.report(Rule::DeferredLeft, call.function, &*call.object, detail);
            }
            _ => {}
        }
        if let Some(object) = self.objects.get_mut(&call.object.id) {
            object.closing = Some((call.function, Instant::now()));
            self.closing.insert(object.record.id);
        }
    }

    /// A connection has ended, as one end knows: nobody waits for its requests any more.
    pub(super) fn break_queues_of(&mut self, connector: u64) {
        let object = self.objects.get(&connector);
        for id in object.map(|object| object.antecedents.clone()).unwrap_or_default() {
            self.break_queues(id);
        }
    }

    pub(super) fn ended(
        &mut self,
        call: &'static str,
        record: &Arc<Record>,
        after: After,
        end: &End,
    ) {
        let id = record.id;
        if after.counts()
            && let Some(Object { requests, .. }) = self.objects.get_mut(&id)
            && let Some(place) = requests.iter().position(|request| *request == call)
        {
            requests.swap_remove(place);
        }
        let succeeded = end.status.is_success();
        match after {
            After::Nothing | After::Counted => {}
            After::Made { antecedents, room, fast } => {
                if let Some(made) = &end.made {
                    self.describe(made, id, fast);
                    self.add(made, antecedents, room);
                }
            }
            After::Registered { chain, len, flags } if succeeded => {
                self.memory.register(id, chain, len, flags);
            }
            After::Deregistered if succeeded => {
                self.memory.map(id, Mapping::None);
            }
            After::Initialized if succeeded => self.memory.name(id),
            After::Built { chain, lam } if succeeded => {
                let lam = std::ptr::with_exposed_provenance(lam);
                // SAFETY: the provider has filled the consumer's structure.
                unsafe { self.memory.build_lam(record.adapter, chain, lam) };
            }
            After::Registered { .. }
            | After::Deregistered
            | After::Initialized
            | After::Built { .. } => {}
            After::Polled => {
                let room = self.objects.get_mut(&id).map(|object| &mut object.room);
                if let Some(Room::Cq(polling)) = room {
                    *polling = None;
                }
            }
            After::Posted { id, queue, deferred, before } => {
                self.posted(record.id, queue, id, succeeded, deferred);
                if let Some((region, mapping)) = before
                    && !succeeded
                {
                    self.memory.map(region, mapping);
                }
            }
            After::Closed if succeeded => self.forget(record),
            After::Closed => {
                if let Some(object) = self.objects.get_mut(&id) {
                    object.closing = None;
                    self.closing.remove(&id);
                }
            }
        }
    }

    /// A region or domain is new.
    fn describe(&mut self, made: &Arc<Record>, parent: u64, fast: bool) {
        match made.kind {
            Kind::Mr => self.memory.add_region(made, parent, fast),
            Kind::Pd => self.memory.add_domain(made.id, made.privileged_token()),
            _ => {}
        }
    }

    /// An object is closed.
    pub(super) fn forget(&mut self, record: &Record) {
        self.objects.remove(&record.id);
        self.closing.remove(&record.id);
        self.memory.forget(record.id);
        match record.kind {
            Kind::Qp => self.end_posts(record.id),
            Kind::Cq => self.posts.retain(|_, posted| posted.cq != record.id),
            Kind::Adapter => self.posts.retain(|_, posted| posted.record.adapter != record.id),
            _ => {}
        }
    }

    /// An adapter is closed, which waits for all of its objects, but not for mappings.
    pub(super) fn close_adapter(&mut self, adapter: &Record) {
        for lam in self.memory.lams_of(adapter.id) {
            let lam_name = format!("mapping {lam}");
            self.report(Rule::Leak, CLOSE_ADAPTER, &lam_name, "it was not released");
            self.memory.release(lam);
        }
        if let Some(object) = self.objects.get_mut(&adapter.id) {
            object.closing = Some((CLOSE_ADAPTER, Instant::now()));
            self.closing.insert(object.record.id);
        }
    }

    /// The close of an adapter pends for objects that nobody closes.
    fn leak(&mut self, adapter: u64) {
        let open = |object: &&Object| {
            let Record { adapter: of, kind, .. } = &*object.record;
            *of == adapter && *kind != Kind::Adapter && object.record.is_open()
        };
        let open = self.objects.values().filter(open).map(|object| Arc::clone(&object.record));
        for record in open.collect::<Vec<_>>() {
            let detail = "its adapter's close waits for its close";
            self.report(Rule::Leak, CLOSE_ADAPTER, &*record, detail);
        }
    }

    /// Tells what closes wait for that pend longer than `bound`.
    pub(super) fn look_at_closes(&mut self, bound: Duration) {
        let late = |&id: &u64| {
            let (call, since) = self.objects.get(&id)?.closing?;
            (since.elapsed() > bound).then_some((id, call))
        };
        let late: Vec<_> = self.closing.iter().filter_map(late).collect();
        for (id, call) in late {
            let holders = self.holders(id);
            let Some(object) = self.objects.get(&id) else { continue };
            self.closing.remove(&id);
            let record = Arc::clone(&object.record);
            if record.kind == Kind::Adapter {
                self.leak(id);
                continue;
            }
            let detail = match holders.is_empty() {
                true => "its close pends, and for nothing of the consumer's".to_string(),
                false => format!("its close waits for {}", holders.join(", ")),
            };
            self.report(Rule::CloseHeldBack, call, &*record, detail);
        }
    }

    fn holders(&self, id: u64) -> Vec<String> {
        let successors = self.objects.values().filter(|object| object.antecedents.contains(&id));
        let successors = successors.map(|object| match object.closing {
            Some(_) => format!("{}, which is closing", object.record),
            None => format!("{}, which is open", object.record),
        });
        let requests = self.objects.get(&id).into_iter().flat_map(|object| &object.requests);
        let callbacks = self
            .running
            .values()
            .filter(|running| running.object.as_ref().is_some_and(|object| object.id == id));
        let callbacks = callbacks.map(|running| format!("the callback of {}", running.name));
        successors.chain(requests.map(ToString::to_string)).chain(callbacks).collect()
    }
}

/// Whether the function came with a later version than that of the adapter.
fn is_newer(call: &Call) -> bool {
    let version = call.object.version();
    match call.function {
        "NdkSendAndInvalidate" | "NdkGetCqResultsEx" => {
            version < NDK_VERSION { Major: 1, Minor: 2 }
        }
        "NdkCompleteConnectEx" | "NdkAcceptEx" => version < NDK_VERSION { Major: 2, Minor: 1 },
        _ => false,
    }
}
