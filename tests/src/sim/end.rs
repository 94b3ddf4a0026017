//! One end of a connection: its objects, and how they are made and closed.

use super::flow::{Flow, Initiator, Received};
use super::grant::{GRANTS, Grant};
use super::memory::Region;
use super::world::{Part, Step, World, require};
use crate::kit::numbered;
use crate::kit::raw::Object;
use driver::abi::*;
use ndk_consumer::NdkObject;
use std::collections::VecDeque;
use std::net::IpAddr;

/// Requests of an end beside a stranger that has gaps: enough for gaps of its own.
const BUDGET: u32 = 200;

/// What a request is for, whose end is awaited.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum What {
    /// Somebody waits for it in place.
    Awaited,
    Connect,
    Complete,
    Accept,
    /// The acceptance of a stranger, for a host.
    AcceptGuest,
    Disconnect,
    Deregister,
    CloseConnector,
    CloseQp,
    CloseCq(usize),
    ClosePd,
    CloseMr(usize),
    CloseMw(usize),
    /// Something of a host: a connector that nobody wants, a listener, what ends share.
    CloseStray,
    /// A shared receive queue.
    CloseSrq,
}

impl What {
    /// Its owner is a host, not an end.
    pub(crate) const fn is_of_host(self) -> bool {
        matches!(self, Self::Awaited | Self::AcceptGuest | Self::CloseStray | Self::CloseSrq)
    }
}

/// How far an end is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    Connecting,
    /// The peer has accepted.
    Offered,
    Completing,
    /// The peer has asked.
    Requested,
    Accepting,
    Up,
    /// Over, or never begun.
    Down,
    Closing,
    Closed,
    /// Its host went down under it.
    Crashed,
}

impl Phase {
    /// It is to be connected.
    pub(crate) const fn connects(self) -> bool {
        match self {
            Self::Connecting
            | Self::Offered
            | Self::Completing
            | Self::Requested
            | Self::Accepting => true,
            Self::Up | Self::Down | Self::Closing | Self::Closed | Self::Crashed => false,
        }
    }
}

/// One end of a connection.
pub(crate) struct End {
    pub(crate) host: usize,
    /// Where it connects to, and from which port if that is a shared endpoint's: the host may have
    /// another endpoint before its request arrives.
    pub(crate) to: Option<usize>,
    /// Its address, and that of the peer, where it connects.
    pub(crate) local: Option<IpAddr>,
    pub(crate) remote: Option<IpAddr>,
    pub(crate) shares: Option<u16>,
    /// Its receives are those of the host's pool, and the last one that it was given.
    pub(crate) pooled: bool,
    pub(crate) last_pooled: usize,
    pub(crate) peer: Option<usize>,
    pub(crate) phase: Phase,
    pub(crate) pd: Object<NDK_PD>,
    pub(crate) cqs: [Object<NDK_CQ>; 2],
    /// The cores that its consumer wants them on.
    pub(crate) near: [Option<usize>; 2],
    pub(crate) qp: Object<NDK_QP>,
    pub(crate) connector: Object<NDK_CONNECTOR>,
    /// What is sent from and read into; what is received into; what the peer may reach.
    pub(crate) regions: Vec<Region>,
    /// What lies in the regions behind those.
    pub(crate) grants: Vec<Grant>,
    pub(crate) flow: Flow,
    pub(crate) initiator: VecDeque<Initiator>,
    pub(crate) receives: VecDeque<Received>,
    /// Why it may fail.
    pub(crate) excuse: Option<&'static str>,
    /// An address of it, or of its peer, is gone.
    pub(crate) cut_off: bool,
    /// When it was made, and when something of it ended last.
    pub(crate) made: u64,
    pub(crate) moved: u64,
    /// When its consumer does something.
    pub(crate) act_at: Option<u64>,
    /// The CQs are open, and armed.
    pub(crate) open_cqs: [bool; 2],
    pub(crate) armed: [bool; 2],
    pub(crate) exposed: bool,
    pub(crate) disconnected: bool,
    /// It answers nothing any more, and its peer is not told.
    pub(crate) flushed: bool,
    pub(crate) to_close: Vec<What>,
}

/// The places of [`End::regions`].
pub(crate) const LOCAL: usize = 0;
pub(crate) const INBOUND: usize = 1;
pub(crate) const EXPOSED: usize = 2;

impl End {
    /// Nothing is outstanding but receives.
    pub(crate) fn is_settled(&self) -> bool {
        match self.phase {
            Phase::Up => self.initiator.is_empty() && self.flow.finished,
            Phase::Closed | Phase::Crashed => true,
            _ => false,
        }
    }

    /// For a violation's report.
    pub(crate) fn describe(&self) -> String {
        let (requests, receives) = (&self.initiator, self.receives.len());
        let front: Vec<_> = requests.iter().take(3).collect();
        format!(
            "{:?} {:?} {front:?} {} requests {receives} receives",
            self.phase,
            self.excuse,
            requests.len()
        )
    }

    pub(crate) fn excuse(&mut self, why: &'static str) {
        self.excuse.get_or_insert(why);
    }
}

impl World {
    /// Creates what an end needs, but for its connector; `asker` is who wants to be connected with it.
    pub(crate) fn new_end(
        &mut self,
        host: usize,
        connector: Object<NDK_CONNECTOR>,
        asker: Option<usize>,
    ) -> Step<usize> {
        let end = self.ends.len();
        let adapter = self.hosts[host].adapter;
        let mut flow = Flow::new(&mut self.rng, self.misuse);
        let foreign = self.is_foreign(host);
        if foreign {
            flow.be_foreign();
        }
        if self.storage {
            flow.hurry();
        }
        if self.has_gaps() {
            flow.hurry();
            flow.budget = BUDGET;
        }
        // Long messages need long memory on both sides.
        match asker {
            Some(asker) => flow.follow(&self.ends[asker].flow),
            None if self.trial.is_none() && !self.storage => flow.draw_bulk(&mut self.rng),
            None => {}
        }
        flow.fit_cqs();
        self.foreign_qp(host, end, flow.depths);
        let pool = self.hosts[host].pool.as_ref().filter(|_| self.rng.below(2) == 0);
        let srq = pool.map(|pool| pool.srq);
        if let Some(pool) = pool {
            flow.use_pool(pool.slots());
        }
        let (mut pd, mut qp) = (Object(std::ptr::null_mut()), Object(std::ptr::null_mut()));
        let mut cqs = [Object(std::ptr::null_mut()); 2];
        let near = self.some_cores(host);
        if !foreign {
            pd = self.create(host, |token| numbered::create_pd(adapter, token))?;
            for (which, cq) in cqs.iter_mut().enumerate() {
                let name = end * 2 + which;
                let (depth, near) = (flow.cq_depths[which], near[which]);
                let create = |token| numbered::create_cq(adapter, depth, near, name, token);
                *cq = self.create(host, create)?;
            }
            let inline = flow.inline_len as u32;
            let parts = numbered::QpParts { cqs, depths: flow.depths, srq, inline };
            qp = self.create(host, |token| numbered::create_qp(pd, &parts, end, token))?;
        }
        let remote = NDK_MR_FLAG_ALLOW_REMOTE_READ | NDK_MR_FLAG_ALLOW_REMOTE_WRITE;
        let mut regions = Vec::new();
        let [local, exposed] = flow.slots;
        for (slots, flags) in [
            (local, NDK_MR_FLAG_ALLOW_LOCAL_WRITE),
            (flow.depths[0] as usize, NDK_MR_FLAG_ALLOW_LOCAL_WRITE),
            (exposed, remote),
        ] {
            let mut region = self.new_region(end, regions.len(), slots, flow.slot_len);
            self.register(host, pd, &mut region, flags)?;
            regions.push(region);
        }
        let grants = match flow.bulk {
            true => Vec::new(),
            false => self.new_grants(end, host, pd, &mut regions, flow.slot_len)?,
        };
        self.ends.push(End {
            grants,
            host,
            to: None,
            local: None,
            remote: None,
            shares: None,
            pooled: srq.is_some(),
            last_pooled: 0,
            peer: None,
            phase: Phase::Connecting,
            pd,
            cqs,
            near,
            qp,
            connector,
            regions,
            flow,
            initiator: VecDeque::new(),
            receives: VecDeque::new(),
            excuse: None,
            cut_off: false,
            made: self.now,
            moved: self.now,
            act_at: None,
            open_cqs: [true; 2],
            armed: [false; 2],
            exposed: true,
            disconnected: false,
            flushed: false,
            to_close: Vec::new(),
        });
        if self.ends[end].flow.tiny_cq {
            self.ends[end].excuse("a CQ that is too small");
        }
        // SMB Direct does, and has no RNR retry at all.
        if self.rng.below(4) > 0 {
            self.post_receives(end)?;
        }
        Ok(end)
    }

    /// Memory of an end: where it lies is said by its label, which no two have in common.
    pub(crate) fn new_region(
        &mut self,
        end: usize,
        which: usize,
        slots: usize,
        slot_len: usize,
    ) -> Region {
        let label = 0x1000_0000_0000 + ((end * 8 + which) as u64) * 0x1_0000_0000;
        Region::new(slots, slot_len, label, &mut self.rng)
    }

    /// Registers a region.
    pub(crate) fn register(
        &mut self,
        host: usize,
        pd: Object<NDK_PD>,
        region: &mut Region,
        flags: u32,
    ) -> Step {
        if let Some(token) = self.foreign_key(host, region, flags, false) {
            region.token = token;
            region.mr = Object(std::ptr::without_provenance_mut(token as usize));
            return Ok(());
        }
        let mr: Object<NDK_MR> =
            self.create(host, |token| numbered::create_mr(pd, false, token))?;
        let (mdl, len) = region.mdl();
        let status = self.request(host, |token| numbered::register(mr, mdl, len, flags, token))?;
        require!(status == STATUS_SUCCESS, "a registration ends with {status}");
        (region.mr, region.token) = (mr, mr.token());
        Ok(())
    }

    /// Closes everything of an end, in random order and one after the other.
    pub(crate) fn begin_close(&mut self, end: usize) -> Step {
        let phase = self.ends[end].phase;
        if matches!(phase, Phase::Closing | Phase::Closed | Phase::Crashed) {
            return Ok(());
        }
        if self.is_foreign(self.ends[end].host) {
            return self.close_foreign(end);
        }
        if phase == Phase::Up && self.rng.below(3) == 0 {
            self.disconnect(end)?;
        }
        self.excuse(end, "closed");
        if phase == Phase::Up && self.part != Part::Teardown {
            self.explain("a close");
        }
        self.note(|_| format!("end {end} closes"));
        let mut rest = vec![
            What::CloseConnector,
            What::CloseQp,
            What::CloseCq(0),
            What::CloseCq(1),
            What::ClosePd,
        ];
        let this = &self.ends[end];
        rest.extend((0..this.regions.len()).map(What::CloseMr));
        let windows = this.grants.iter().enumerate().filter(|(_, grant)| grant.window.is_some());
        rest.extend(windows.map(|(at, _)| What::CloseMw(at)));
        while !rest.is_empty() {
            let next = rest.swap_remove(self.rng.below(rest.len() as u32) as usize);
            self.ends[end].to_close.push(next);
        }
        self.ends[end].phase = Phase::Closing;
        self.soon(end);
        Ok(())
    }

    pub(crate) fn close_next(&mut self, end: usize) -> Step {
        self.drain(end)?;
        let Some(what) = self.ends[end].to_close.pop() else { return Ok(()) };
        if self.ends[end].pooled && what == What::CloseCq(0) && self.is_open(end, What::CloseQp) {
            // Nobody would know which of the pool's receives it was given.
            self.ends[end].to_close.insert(0, what);
            self.soon(end);
            return Ok(());
        }
        let this = &mut self.ends[end];
        match what {
            What::CloseConnector => self.close(end, what, self.ends[end].connector),
            What::CloseQp => self.close(end, what, self.ends[end].qp),
            What::CloseCq(which) => {
                let cq = this.cqs[which];
                if !self.may_be_abroad(end) {
                    self.check_delivered(end)?;
                }
                self.ends[end].open_cqs[which] = false;
                self.close(end, what, cq)
            }
            What::ClosePd => self.close(end, what, self.ends[end].pd),
            What::CloseMr(which) => {
                // A deregistration that is under way comes first.
                this.exposed &= which != EXPOSED;
                self.close(end, what, self.ends[end].regions[which].mr)
            }
            What::CloseMw(at) => match this.grants[at].window {
                Some(window) => self.close(end, what, window),
                None => Err(format!("end {end}: {what:?} of no window")),
            },
            what => Err(format!("{what:?} is no close")),
        }?;
        if !self.ends[end].to_close.is_empty() {
            self.soon(end);
        }
        Ok(())
    }

    /// Closes an object of an end or a host.
    pub(crate) fn close<T: NdkObject>(
        &mut self,
        owner: usize,
        what: What,
        object: Object<T>,
    ) -> Step {
        let token = self.token(owner, what);
        let status = numbered::close(object, token);
        require!(status == STATUS_PENDING, "{what:?} gives {status}");
        Ok(())
    }

    pub(crate) fn handle_closed(&mut self, end: usize, what: What) -> Step {
        if what == What::CloseSrq {
            return self.check_pool(end, Region::freeze);
        }
        if what.is_of_host() {
            return Ok(());
        }
        self.mark(&(end, format!("{what:?}")));
        self.ends[end].moved = self.now;
        match what {
            What::CloseConnector => {
                let pending = |pending| self.is_open(end, pending);
                let requests = [What::Connect, What::Complete, What::Accept, What::Disconnect];
                require!(
                    !requests.into_iter().any(pending),
                    "end {end}: a request outlives its connector"
                );
            }
            What::CloseQp => {
                self.check_ended(end)?;
                self.freeze_all(end)?;
            }
            What::CloseMr(which) => {
                self.check_region(end, which, Region::freeze)?;
                self.forget_pages(end, which);
            }
            // The only way into the memory under it.
            What::CloseMw(at) => self.check_region(end, GRANTS + at, Region::freeze)?,
            What::ClosePd => {
                let this = &self.ends[end];
                let regions = (0..this.regions.len()).map(What::CloseMr);
                let windows = (0..this.grants.len()).map(What::CloseMw);
                let mut under = regions.chain(windows).chain([What::CloseQp]);
                require!(
                    !under.any(|what| self.is_open(end, what)),
                    "end {end}: the PD closes before what is under it"
                );
            }
            What::CloseCq(_) => {
                require!(!self.is_open(end, What::CloseQp), "end {end}: a CQ closes before its QP");
            }
            _ => {}
        }
        let idle = !self.tokens.values().any(|(owner, what)| *owner == end && !what.is_of_host());
        if idle && self.ends[end].to_close.is_empty() {
            self.ends[end].phase = Phase::Closed;
            self.ends[end].act_at = None;
        }
        Ok(())
    }

    /// The host of an end has gone.
    pub(crate) fn crash_end(&mut self, end: usize) -> Step {
        self.excuse(end, "a host went down");
        let this = &mut self.ends[end];
        if this.phase != Phase::Closed {
            this.phase = Phase::Crashed;
        }
        this.act_at = None;
        self.freeze_all(end)
    }

    fn freeze_all(&mut self, end: usize) -> Step {
        let mut all = 0..self.ends[end].regions.len();
        all.try_for_each(|which| self.check_region(end, which, Region::freeze))
    }
}
