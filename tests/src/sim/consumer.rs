//! One end of a connection: its objects, its life from connect or accept to the last close, and
//! what it may be told on the way.

use super::memory::Region;
use super::ndk::{self, Close, Event};
use super::workload::{Flow, Initiator, Received};
use super::world::{Part, Step, World, require};
use crate::raw::Object;
use driver::abi::*;
use std::collections::VecDeque;
use std::net::SocketAddr;

const US: u64 = 1000;

/// What a request is for, whose end is awaited.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum What {
    /// Somebody waits for it in place.
    Awaited,
    Connect,
    Complete,
    Accept,
    Disconnect,
    Deregister,
    CloseConnector,
    CloseQp,
    CloseCq(usize),
    ClosePd,
    CloseMr(usize),
    /// A connector that nobody wants.
    CloseStray,
    CloseListener,
}

impl What {
    /// Its owner is a host, not an end.
    pub(crate) const fn is_of_host(self) -> bool {
        matches!(self, Self::Awaited | Self::CloseStray | Self::CloseListener)
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

/// One end of a connection.
pub(crate) struct End {
    pub(crate) host: usize,
    pub(crate) peer: Option<usize>,
    pub(crate) phase: Phase,
    pub(crate) pd: Object<NDK_PD>,
    pub(crate) cqs: [Object<NDK_CQ>; 2],
    pub(crate) qp: Object<NDK_QP>,
    pub(crate) connector: Object<NDK_CONNECTOR>,
    /// What is sent from and read into; what is received into; what the peer may reach.
    pub(crate) regions: [Region; 3],
    pub(crate) flow: Flow,
    pub(crate) initiator: VecDeque<Initiator>,
    pub(crate) receives: VecDeque<Received>,
    /// Why it may fail.
    pub(crate) excuse: Option<&'static str>,
    /// When its consumer does something.
    pub(crate) act_at: Option<u64>,
    /// The CQs are open, and armed.
    pub(crate) open_cqs: [bool; 2],
    pub(crate) armed: [bool; 2],
    pub(crate) exposed: bool,
    disconnected: bool,
    to_close: Vec<What>,
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
    /// Both ends of a connection may fail from here on.
    pub(crate) fn excuse(&mut self, end: usize, why: &'static str) {
        self.ends[end].excuse(why);
        if let Some(peer) = self.ends[end].peer {
            self.ends[peer].excuse(why);
        }
    }

    /// A failure needs a reason.
    fn require_excuse(&self, end: usize, what: &str, status: NTSTATUS) -> Step {
        let this = &self.ends[end];
        let may = this.excuse.is_some() || !self.patient;
        require!(may, "end {end}: {what} with {status} for no reason");
        Ok(())
    }

    /// Creates what an end needs, but for its connector.
    fn new_end(&mut self, host: usize, connector: Object<NDK_CONNECTOR>) -> Step<usize> {
        let end = self.ends.len();
        let adapter = self.hosts[host].adapter;
        let flow = Flow::new(&mut self.rng, self.misuse);
        let pd = self.create(host, |token| ndk::create_pd(adapter, token))?;
        let mut cqs = [Object(std::ptr::null_mut()); 2];
        for (which, cq) in cqs.iter_mut().enumerate() {
            let name = end * 2 + which;
            let depth = flow.cq_depths[which];
            *cq = self.create(host, |token| ndk::create_cq(adapter, depth, name, token))?;
        }
        let depths = flow.depths;
        let qp = self.create(host, |token| ndk::create_qp(pd, cqs, depths, end, token))?;
        let region = |world: &mut Self, which: usize, flags| -> Step<Region> {
            let label = 0x1000_0000_0000 + ((end * 4 + which) as u64) * 0x1_0000_0000;
            let slots = [6, depths[0] as usize, 4][which];
            let mut region = Region::new(slots, flow.slot_len, label, &mut world.rng);
            let mr: Object<NDK_MR> = world.create(host, |token| ndk::create_mr(pd, token))?;
            let (mdl, len) = region.mdl();
            let status = world.request(host, |token| ndk::register(mr, mdl, len, flags, token))?;
            require!(status == STATUS_SUCCESS, "a registration ends with {status}");
            (region.mr, region.token) = (mr, mr.token());
            Ok(region)
        };
        let remote = NDK_MR_FLAG_ALLOW_REMOTE_READ | NDK_MR_FLAG_ALLOW_REMOTE_WRITE;
        let regions = [
            region(self, LOCAL, NDK_MR_FLAG_ALLOW_LOCAL_WRITE)?,
            region(self, INBOUND, NDK_MR_FLAG_ALLOW_LOCAL_WRITE)?,
            region(self, EXPOSED, remote)?,
        ];
        self.ends.push(End {
            host,
            peer: None,
            phase: Phase::Connecting,
            pd,
            cqs,
            qp,
            connector,
            regions,
            flow,
            initiator: VecDeque::new(),
            receives: VecDeque::new(),
            excuse: None,
            act_at: None,
            open_cqs: [true; 2],
            armed: [false; 2],
            exposed: true,
            disconnected: false,
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

    /// Starts a connection to a listener.
    pub(crate) fn connect(&mut self, from: usize, to: usize, remote: SocketAddr) -> Step {
        let adapter = self.hosts[from].adapter;
        let connector = self.create(from, |token| ndk::create_connector(adapter, token))?;
        let end = self.new_end(from, connector)?;
        if self.hosts[from].mtu > self.hosts[to].mtu {
            self.ends[end].excuse("the path MTU is too large for the peer");
        }
        let addresses = [SocketAddr::new(self.hosts[from].ip, 0), remote];
        let qp = self.ends[end].qp;
        let limits = [self.ends[end].flow.inbound, self.ends[end].flow.outbound];
        let data = (end as u32).to_le_bytes();
        let token = self.token(end, What::Connect);
        let status = ndk::connect(connector, qp, addresses, limits, &data, token);
        require!(status == STATUS_PENDING, "a connect gives {status}");
        self.note(|_| format!("end {end} on host {from} connects to host {to}"));
        self.maybe_give_up(end);
        Ok(())
    }

    fn token(&mut self, end: usize, what: What) -> usize {
        let token = self.new_token();
        self.tokens.insert(token, (end, what));
        token
    }

    /// Now and then a consumer closes everything while it waits.
    fn maybe_give_up(&mut self, end: usize) {
        if self.rng.below(40) == 0 {
            self.excuse(end, "given up");
            self.ends[end].act_at = Some(self.now + self.rng.u64() % (5000 * US));
        }
    }

    fn soon(&mut self, end: usize) {
        let pace = self.ends[end].flow.pace;
        self.ends[end].act_at = Some(self.now + 1 + self.rng.u64() % pace);
    }

    // ---- what the provider tells ---------------------------------------------------------------

    pub(crate) fn handle_event(&mut self, event: Event) -> Step {
        match event {
            Event::Requested(token, status) => {
                let (end, what) = self.tokens.remove(&token).ok_or("a request ends twice")?;
                self.handle_request(end, what, status)
            }
            Event::Closed(token) => {
                let (end, what) = self.tokens.remove(&token).ok_or("a close ends twice")?;
                self.handle_closed(end, what)
            }
            Event::Notified(name, status) => self.handle_notification(name / 2, name % 2, status),
            Event::Connecting(host, connector) => self.handle_connecting(host, connector),
            Event::Left(end) => self.handle_left(end),
            Event::Created(..) => Err("a creation that nobody waits for".into()),
        }
    }

    fn handle_notification(&mut self, end: usize, which: usize, status: NTSTATUS) -> Step {
        let this = &mut self.ends[end];
        require!(this.open_cqs[which], "end {end}: a notification of a closed CQ");
        require!(this.armed[which], "end {end}: a notification that nobody armed");
        this.armed[which] = false;
        if status != STATUS_SUCCESS {
            require!(this.flow.tiny_cq, "end {end}: its CQ fails with {status}");
        }
        if this.act_at.is_none() {
            self.soon(end);
        }
        Ok(())
    }

    fn handle_connecting(&mut self, host: usize, connector: Object<NDK_CONNECTOR>) -> Step {
        let (limits, data) = ndk::connection_data(connector)
            .map_err(|status| format!("no data in a connect event: {status}"))?;
        // The provider pads nothing: the IP CM format carries no length, so the rest is zero.
        let active =
            data.get(..4).map(|data| u32::from_le_bytes(data.try_into().unwrap_or_default()));
        let active = active.map_or(usize::MAX, |active| active as usize);
        require!(active < self.ends.len(), "private data of nobody: {data:x?}");
        require!(data[4..].iter().all(|&byte| byte == 0), "private data with more: {data:x?}");
        let flow = &self.ends[active].flow;
        require!(
            limits == [flow.outbound.min(16), flow.inbound.min(16)],
            "a request with other read limits: {limits:?}"
        );
        let waits = self.ends[active].phase == Phase::Connecting;
        if let Some(before) = self.ends[active].peer {
            let ended = matches!(
                self.ends[before].phase,
                Phase::Down | Phase::Closing | Phase::Closed | Phase::Crashed
            );
            require!(ended || !waits, "two connect events for end {active}");
        }
        if !waits || self.part == Part::Teardown || self.rng.below(12) == 0 {
            self.excuse(active, "refused");
            if self.rng.below(2) == 0 {
                let _gone_meanwhile = call_reject(connector);
            }
            return self.close(host, What::CloseStray, connector);
        }
        let end = self.new_end(host, connector)?;
        self.ends[end].phase = Phase::Requested;
        self.ends[end].peer = Some(active);
        self.ends[active].peer = Some(end);
        if let Some(excuse) = self.ends[active].excuse.or(self.ends[end].excuse) {
            self.excuse(end, excuse);
        }
        let late = if self.rng.below(10) == 0 { 2_000_000 } else { 500 };
        self.ends[end].act_at = Some(self.now + self.rng.u64() % (late * US));
        Ok(())
    }

    fn handle_left(&mut self, end: usize) -> Step {
        match self.ends[end].phase {
            Phase::Up => {
                self.ends[end].phase = Phase::Down;
                self.require_excuse(end, "a disconnect event", STATUS_SUCCESS)?;
                self.excuse(end, "disconnected");
                self.soon(end);
                Ok(())
            }
            // On its way when the consumer began to close.
            Phase::Closing if self.is_open(end, What::CloseConnector) => Ok(()),
            phase => Err(format!("end {end}: a disconnect event while {phase:?}")),
        }
    }

    fn is_open(&self, end: usize, what: What) -> bool {
        self.ends[end].to_close.contains(&what)
            || self.tokens.values().any(|pending| *pending == (end, what))
    }

    fn handle_request(&mut self, end: usize, what: What, status: NTSTATUS) -> Step {
        self.mark(&(end, status.0));
        let closing = self.ends[end].phase == Phase::Closing;
        match what {
            pending @ (What::Connect | What::Complete | What::Accept) if closing => {
                require!(self.is_open(end, What::CloseConnector), "{pending:?} after the close");
                Ok(())
            }
            What::Connect => self.handle_connected(end, status),
            What::Complete | What::Accept => {
                if status == STATUS_SUCCESS {
                    self.ends[end].phase = Phase::Up;
                    self.report.connections += 1;
                } else {
                    self.ends[end].phase = Phase::Down;
                    self.require_excuse(end, "no connection", status)?;
                    self.excuse(end, "not connected");
                }
                self.soon(end);
                Ok(())
            }
            What::Disconnect => {
                let late = status == STATUS_IO_TIMEOUT && self.calm;
                require!(!late, "end {end}: nobody answers its disconnect");
                if self.ends[end].phase == Phase::Down {
                    self.soon(end);
                }
                let fine = matches!(status, STATUS_SUCCESS | STATUS_IO_TIMEOUT | STATUS_CANCELLED);
                require!(
                    fine || status == STATUS_CONNECTION_INVALID,
                    "a disconnect ends with {status}"
                );
                Ok(())
            }
            What::Deregister => {
                require!(status == STATUS_SUCCESS, "a deregistration ends with {status}");
                self.check_region(end, EXPOSED, |region| region.freeze())
            }
            what => Err(format!("{what:?} ends as a request")),
        }
    }

    fn handle_connected(&mut self, end: usize, status: NTSTATUS) -> Step {
        if status != STATUS_SUCCESS {
            self.ends[end].phase = Phase::Down;
            let excused = self.ends[end].excuse.is_some();
            require!(excused || !self.reliable, "end {end}: a connect fails with {status}");
            self.excuse(end, "not connected");
        } else {
            self.ends[end].phase = Phase::Offered;
            let (_, data) = ndk::connection_data(self.ends[end].connector)
                .map_err(|status| format!("no data of an acceptance: {status}"))?;
            let peer = self.ends[end].peer.ok_or("accepted by nobody")?;
            let expected = (peer as u32).to_le_bytes();
            require!(data.starts_with(&expected), "end {end}: private data {data:x?}");
        }
        self.soon(end);
        Ok(())
    }

    // ---- what the consumer does ----------------------------------------------------------------

    /// The consumer of an end has its turn.
    pub(crate) fn act_as(&mut self, end: usize) -> Step {
        let chaos = self.part == Part::Chaos;
        match self.ends[end].phase {
            Phase::Offered if chaos && self.rng.below(20) == 0 => {
                self.excuse(end, "refused by the connecting side");
                let _gone_meanwhile = call_reject(self.ends[end].connector);
                self.begin_close(end)
            }
            Phase::Offered => {
                let token = self.token(end, What::Complete);
                let status = ndk::complete_connect(self.ends[end].connector, end, token);
                require!(status == STATUS_PENDING, "a confirmation gives {status}");
                self.ends[end].phase = Phase::Completing;
                self.maybe_give_up(end);
                Ok(())
            }
            Phase::Requested => self.answer(end),
            Phase::Up => self.work(end),
            // Given up, unless it only waits for the rest.
            Phase::Connecting | Phase::Accepting | Phase::Completing => {
                if self.ends[end].excuse == Some("given up") {
                    self.begin_close(end)
                } else {
                    Ok(())
                }
            }
            Phase::Down => {
                self.drain(end)?;
                if self.is_open(end, What::Disconnect) && self.rng.below(4) > 0 {
                    return Ok(());
                }
                if self.rng.below(2) == 0 {
                    ndk_flush(self.ends[end].qp);
                }
                self.begin_close(end)
            }
            Phase::Closing => self.close_next(end),
            Phase::Closed | Phase::Crashed => Ok(()),
        }
    }

    fn answer(&mut self, end: usize) -> Step {
        if self.rng.below(20) == 0 {
            self.excuse(end, "refused");
            let _gone_meanwhile = call_reject(self.ends[end].connector);
            return self.begin_close(end);
        }
        let this = &self.ends[end];
        let (connector, qp) = (this.connector, this.qp);
        let limits = [this.flow.inbound, this.flow.outbound];
        let token = self.token(end, What::Accept);
        let data = (end as u32).to_le_bytes();
        let status = ndk::accept(connector, qp, limits, &data, end, token);
        require!(status == STATUS_PENDING, "an accept gives {status}");
        self.ends[end].phase = Phase::Accepting;
        self.maybe_give_up(end);
        Ok(())
    }

    /// Disconnects, once.
    pub(crate) fn disconnect(&mut self, end: usize) -> Step {
        if !std::mem::replace(&mut self.ends[end].disconnected, true) {
            self.excuse(end, "disconnected by a consumer");
            let token = self.token(end, What::Disconnect);
            let status = ndk::disconnect(self.ends[end].connector, token);
            require!(status == STATUS_PENDING, "a disconnect gives {status}");
        }
        Ok(())
    }

    /// Takes the exposed memory away from the peer.
    pub(crate) fn withdraw(&mut self, end: usize) -> Step {
        if std::mem::take(&mut self.ends[end].exposed) {
            self.excuse(end, "the memory was deregistered");
            let token = self.token(end, What::Deregister);
            let status = ndk::deregister(self.ends[end].regions[EXPOSED].mr, token);
            require!(status == STATUS_PENDING, "a deregistration gives {status}");
        }
        Ok(())
    }

    /// Closes everything of an end, in random order and one after the other.
    pub(crate) fn begin_close(&mut self, end: usize) -> Step {
        let phase = self.ends[end].phase;
        if matches!(phase, Phase::Closing | Phase::Closed | Phase::Crashed) {
            return Ok(());
        }
        if phase == Phase::Up && self.rng.below(3) == 0 {
            self.disconnect(end)?;
        }
        self.excuse(end, "closed");
        self.note(|_| format!("end {end} closes"));
        let mut rest = vec![
            What::CloseConnector,
            What::CloseQp,
            What::CloseCq(0),
            What::CloseCq(1),
            What::ClosePd,
            What::CloseMr(LOCAL),
            What::CloseMr(INBOUND),
            What::CloseMr(EXPOSED),
        ];
        while !rest.is_empty() {
            let next = rest.swap_remove(self.rng.below(rest.len() as u32) as usize);
            self.ends[end].to_close.push(next);
        }
        self.ends[end].phase = Phase::Closing;
        self.soon(end);
        Ok(())
    }

    fn close_next(&mut self, end: usize) -> Step {
        self.drain(end)?;
        let Some(what) = self.ends[end].to_close.pop() else { return Ok(()) };
        let this = &mut self.ends[end];
        match what {
            What::CloseConnector => self.close(end, what, self.ends[end].connector),
            What::CloseQp => self.close(end, what, self.ends[end].qp),
            What::CloseCq(which) => {
                let cq = this.cqs[which];
                self.check_delivered(end)?;
                self.ends[end].open_cqs[which] = false;
                self.close(end, what, cq)
            }
            What::ClosePd => self.close(end, what, self.ends[end].pd),
            What::CloseMr(which) => {
                // A deregistration that is under way comes first.
                this.exposed &= which != EXPOSED;
                self.close(end, what, self.ends[end].regions[which].mr)
            }
            what => Err(format!("{what:?} is no close")),
        }?;
        if !self.ends[end].to_close.is_empty() {
            self.soon(end);
        }
        Ok(())
    }

    /// Closes an object of an end or a host.
    pub(crate) fn close(&mut self, owner: usize, what: What, object: impl Close) -> Step {
        let token = self.token(owner, what);
        let status = object.close_as(token);
        require!(status == STATUS_PENDING, "{what:?} gives {status}");
        Ok(())
    }

    fn handle_closed(&mut self, end: usize, what: What) -> Step {
        if what.is_of_host() {
            return Ok(());
        }
        self.mark(&(end, format!("{what:?}")));
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
                for which in [LOCAL, INBOUND, EXPOSED] {
                    self.check_region(end, which, Region::freeze)?;
                }
            }
            What::CloseMr(which) => self.check_region(end, which, Region::freeze)?,
            What::ClosePd => {
                let open = |what| self.is_open(end, what);
                let under = [What::CloseQp, What::CloseMr(0), What::CloseMr(1), What::CloseMr(2)];
                require!(
                    !under.into_iter().any(open),
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
        (LOCAL..=EXPOSED).try_for_each(|which| self.check_region(end, which, Region::freeze))
    }
}

fn call_reject(connector: Object<NDK_CONNECTOR>) -> NTSTATUS {
    connector.reject()
}

fn ndk_flush(qp: Object<NDK_QP>) {
    qp.flush();
}
