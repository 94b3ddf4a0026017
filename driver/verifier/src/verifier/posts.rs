//! Work requests, from the post until the consumer takes the completion.

use super::Rule;
use super::memory::{Bytes, Mapping, Memory, Wrong};
use super::state::{After, Object, Room, State};
use crate::layer::{Call, Carried, Kind, Operation, Post, Record, Taken, find};
use driver::abi::*;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

/// The queues of a QP or an SRQ.
pub(super) struct Queues {
    pd: u64,
    /// For receives, for initiator requests.
    cqs: [u64; 2],
    queues: [Queue; 2],
    /// The last initiator request was deferred.
    pub(super) deferred: bool,
    /// The consumer knows that the connection has ended.
    pub(super) broken: bool,
}

#[derive(Default)]
struct Queue {
    /// Posts at this moment.
    entered: u32,
    /// Requests in order.
    posted: VecDeque<usize>,
}

/// A request that was posted.
pub(super) struct Posted {
    pub(super) function: &'static str,
    pub(super) record: Arc<Record>,
    pub(super) cq: u64,
    pub(super) initiates: bool,
    pub(super) regions: Vec<u64>,
    pub(super) bytes: Bytes,
    pd: u64,
    queue: usize,
    context: Carried<c_void>,
    /// Of the bytes of a SEND or WRITE.
    sum: Option<u32>,
    /// The region that ends with the request, if it succeeds.
    ends: Option<u64>,
    /// The region whose state is unknown, if it fails.
    changes: Option<u64>,
}

impl Posted {
    pub(super) fn uses_lam(&self, lam: u64) -> bool {
        self.bytes.iter().any(|&(_, _, of)| of == lam)
    }
}

impl Queues {
    pub(super) fn new(pd: u64, cqs: [u64; 2]) -> Self {
        Self { pd, cqs, queues: Default::default(), deferred: false, broken: false }
    }
}

/// The memory that the elements of a request name.
#[derive(Default)]
struct Named {
    regions: Vec<u64>,
    bytes: Bytes,
    /// The place of every byte is known.
    whole: bool,
}

impl State {
    pub(super) fn queues(&self, id: u64) -> Option<&Queues> {
        match self.objects.get(&id) {
            Some(Object { room: Room::Queues(queues), .. }) => Some(queues),
            _ => None,
        }
    }

    fn queues_mut(&mut self, id: u64) -> Option<&mut Queues> {
        match self.objects.get_mut(&id) {
            Some(Object { room: Room::Queues(queues), .. }) => Some(queues),
            _ => None,
        }
    }

    /// The connection of a QP has ended, as its consumer knows.
    pub(super) fn break_queues(&mut self, id: u64) {
        if let Some(queues) = self.queues_mut(id) {
            (queues.broken, queues.deferred) = (true, false);
        }
    }

    /// A request is going to be posted.
    pub(super) fn post(&mut self, call: &Call, post: &mut Post<'_>) -> After {
        let queue = usize::from(!matches!(post.operation, Operation::Receive));
        let Some(queues) = self.queues_mut(call.object.id) else { return After::Nothing };
        let (pd, cq) = (queues.pd, queues.cqs[queue]);
        queues.queues[queue].entered += 1;
        if queues.queues[queue].entered > 1 {
            let detail = "another post to the queue has not returned";
            self.report(Rule::ConcurrentPosts, call.function, &*call.object, detail);
        }
        let inline = queue == 1 && post.flags & NDK_OP_FLAG_INLINE != 0;
        let elements = if inline { &[] } else { post.sgl };
        let Named { mut regions, bytes, whole } =
            self.elements(call, pd, &post.operation, elements);
        // Behind a fence, a READ before it may bring the bytes.
        let sends = matches!(post.operation, Operation::Send | Operation::Write)
            && post.flags & NDK_OP_FLAG_READ_FENCE == 0;
        let sum = if sends && whole { self.memory.sum(&bytes).and_then(Result::ok) } else { None };
        // Before the request is under way: the peer may end the registration before the call returns.
        let mapped = self.mapped(call, post, &mut regions);
        let before =
            mapped.and_then(|(region, mapping)| Some((region, self.memory.map(region, mapping)?)));
        let reads = matches!(post.operation, Operation::Read);
        let local_invalidate = reads && post.flags & NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE != 0;
        self.last_post += 1;
        let id = self.last_post;
        let posted = Posted {
            function: call.function,
            record: Arc::clone(&call.object),
            cq,
            initiates: queue == 1,
            ends: regions.first().copied().filter(|_| local_invalidate),
            changes: before.as_ref().map(|(region, _)| *region),
            regions,
            bytes,
            pd,
            queue,
            context: Carried(*post.context),
            sum,
        };
        *post.context = std::ptr::without_provenance_mut(id);
        self.posts.insert(id, posted);
        if let Some(queues) = self.queues_mut(call.object.id) {
            queues.queues[queue].posted.push_back(id);
        }
        let deferred = post.flags & NDK_OP_FLAG_DEFER != 0;
        After::Posted { id, queue, deferred, before }
    }

    /// The region whose mapping the request changes, for the requests after it.
    fn mapped(
        &mut self,
        call: &Call,
        post: &Post<'_>,
        regions: &mut Vec<u64>,
    ) -> Option<(u64, Mapping)> {
        match post.operation {
            Operation::FastRegister { mr, pages, len, base } => {
                let region = self.argument(call, mr, Kind::Mr)?;
                regions.push(region);
                let mapping =
                    self.memory.pages(pages, base, len as u64, post.flags, call.object.id);
                Some((region, mapping))
            }
            Operation::Invalidate { object } => {
                let kind = find(object)?.kind;
                let kind = if kind == Kind::Mw { Kind::Mw } else { Kind::Mr };
                Some((self.argument(call, object, kind)?, Mapping::None))
            }
            Operation::Bind { mr, mw, address, len } => {
                let region = self.argument(call, mr, Kind::Mr);
                if let Some(region) =
                    region.and_then(|id| self.memory.left(id, address, len as u64))
                {
                    let detail = format!("the window leaves {region}");
                    self.report(Rule::BeyondRegion, call.function, &*call.object, detail);
                }
                let window = self.argument(call, mw, Kind::Mw)?;
                regions.extend(region);
                self.follow(window, region);
                None
            }
            Operation::Receive | Operation::Send | Operation::Read | Operation::Write => None,
        }
    }

    fn elements(
        &mut self,
        call: &Call,
        pd: u64,
        operation: &Operation<'_>,
        sgl: &[NDK_SGE],
    ) -> Named {
        let receives = matches!(operation, Operation::Receive);
        let writes = receives || matches!(operation, Operation::Read);
        let mut named = Named { whole: true, ..Named::default() };
        for (place, sge) in sgl.iter().enumerate().filter(|(_, sge)| sge.Length > 0) {
            match self.memory.element(pd, sge, writes) {
                Ok((region, bytes)) => {
                    named.regions.extend(region);
                    named.whole &= bytes.is_some();
                    named.bytes.extend(bytes.unwrap_or_default());
                }
                Err(wrong) => {
                    named.whole = false;
                    self.report_element(call, place, sge, wrong, receives);
                }
            }
        }
        named
    }

    fn report_element(
        &mut self,
        call: &Call,
        place: usize,
        sge: &NDK_SGE,
        wrong: Wrong,
        receives: bool,
    ) {
        // A receive uses its memory later, when a fast registration may be another.
        let fast = |region: &Arc<Record>| {
            self.memory.regions.get(&region.id).is_some_and(|region| region.fast)
        };
        let element = format!("element {place}, token {:#x}", sge.MemoryRegionToken);
        let (rule, detail) = match wrong {
            Wrong::Dead(region) | Wrong::Beyond(Some(region)) | Wrong::ReadOnly(region)
                if receives && fast(&region) =>
            {
                return;
            }
            Wrong::NoToken => {
                (Rule::ForeignToken, format!("{element}, is of no region of the adapter"))
            }
            Wrong::OtherDomain => (Rule::ForeignToken, format!("{element}, is of another PD")),
            Wrong::Dead(region) => {
                (Rule::DeadToken, format!("{element}: {region} is not registered"))
            }
            Wrong::Beyond(Some(region)) => {
                (Rule::BeyondRegion, format!("{element}: {} bytes leave {region}", sge.Length))
            }
            Wrong::Beyond(None) => {
                (Rule::BeyondRegion, format!("{element}: {} bytes leave all mappings", sge.Length))
            }
            Wrong::ReadOnly(region) => {
                (Rule::NoLocalWrite, format!("{element}: {region} is read only"))
            }
        };
        self.report(rule, call.function, &*call.object, detail);
    }

    /// A post has returned.
    pub(super) fn posted(
        &mut self,
        object: u64,
        queue: usize,
        id: usize,
        succeeded: bool,
        deferred: bool,
    ) {
        if !succeeded {
            self.posts.remove(&id);
        }
        let Some(queues) = self.queues_mut(object) else { return };
        let ours = &mut queues.queues[queue];
        ours.entered = ours.entered.saturating_sub(1);
        if !succeeded {
            ours.posted.retain(|&posted| posted != id);
        }
        // A failed post starts the deferred ones before it.
        if queue == 1 {
            queues.deferred = deferred && succeeded && !queues.broken;
        }
    }

    /// The consumer takes completions.
    pub(super) fn taken(&mut self, results: &mut [Taken<'_>]) {
        for result in results {
            let id = result.request_context.addr();
            let Some(posted) = self.posts.remove(&id) else { continue };
            *result.request_context = posted.context.get();
            self.retire_silent(&posted, id);
            if result.status.is_success() {
                self.succeed(&posted);
                self.receive(&posted, result);
            } else {
                // Of a shared receive queue one of the queue pairs has failed.
                self.break_queues(posted.record.id);
                if let Some(region) = posted.changes {
                    self.memory.map(region, Mapping::Unknown);
                }
            }
        }
    }

    /// Requests before the one of a completion, which had none of their own, have succeeded.
    fn retire_silent(&mut self, posted: &Posted, id: usize) {
        let shared = posted.record.kind == Kind::Srq;
        let Some(queues) = self.queues_mut(posted.record.id) else { return };
        let queue = &mut queues.queues[posted.queue].posted;
        let Some(place) = queue.iter().position(|&posted| posted == id) else { return };
        if shared {
            queue.remove(place);
            return;
        }
        let silent: Vec<usize> = queue.drain(..=place).collect();
        for id in silent {
            if let Some(posted) = self.posts.remove(&id) {
                self.succeed(&posted);
            }
        }
    }

    fn succeed(&mut self, posted: &Posted) {
        if let Some(region) = posted.ends {
            self.memory.map(region, Mapping::None);
        }
        let Some(sum) = posted.sum.filter(|_| self.is_there(posted)) else { return };
        let (rule, detail) = match self.memory.sum(&posted.bytes) {
            Some(Ok(now)) if now != sum => (Rule::BufferWritten, "the bytes have changed"),
            Some(Err(())) => (Rule::BufferFreed, "the bytes are gone"),
            Some(Ok(_)) | None => return,
        };
        self.report(rule, posted.function, &*posted.record, detail);
    }

    /// All memory of a request is still registered, so that there is something to compare.
    fn is_there(&self, posted: &Posted) -> bool {
        let region = |id: &u64| {
            let region = self.memory.regions.get(id);
            region.is_some_and(|region| region.fast || matches!(region.mapping, Mapping::Live(_)))
        };
        let mapped = |&(_, _, lam): &(usize, usize, u64)| lam == 0 || self.memory.is_mapped(lam);
        posted.regions.iter().all(region) && posted.bytes.iter().all(mapped)
    }

    /// A message may have ended a token.
    fn receive(&mut self, posted: &Posted, result: &Taken<'_>) {
        if posted.initiates {
            return;
        }
        match (result.kind, result.token) {
            (_, Some(token)) => self.memory.invalidate(token),
            (None, None) => self.memory.doubt(posted.pd),
            (Some(_), None) => {}
        }
    }

    /// A QP is closed: its requests have ended, and completions that were not taken only have their contexts.
    pub(super) fn end_posts(&mut self, qp: u64) {
        for posted in self.posts.values_mut().filter(|posted| posted.record.id == qp) {
            posted.regions.clear();
            posted.bytes.clear();
            (posted.sum, posted.ends, posted.changes) = (None, None, None);
        }
    }

    /// The consumer frees memory.
    pub(super) fn freed(&mut self, range: &Range<usize>) {
        const CALL: &str = "a free";
        let used = |posted: &&Posted| Memory::touches(&posted.bytes, range);
        if let Some(posted) = self.posts.values().find(used) {
            let (function, record) = (posted.function, Arc::clone(&posted.record));
            self.report(Rule::BufferFreed, CALL, &*record, format!("{function} uses the memory"));
        }
        let rules = [
            (Rule::BufferFreed, "it uses the memory"),
            (Rule::MdlFreed, "it uses the MDL"),
            (Rule::LamFreed, "this is its structure"),
        ];
        for ((rule, detail), user) in rules.into_iter().zip(self.memory.users(range)) {
            if let Some(user) = user {
                self.report(rule, CALL, &user, detail);
            }
        }
    }
}
