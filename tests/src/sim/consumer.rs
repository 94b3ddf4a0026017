//! The life of an end from connect or accept to its close, and what it may be told on the way.

use super::Deed;
use super::end::{EXPOSED, End, Phase, What};
use super::forge::FORGED;
use super::stranger::{GUEST, GUEST_NAME};
use super::world::{Part, Step, World, require};
use crate::kit::numbered::{self, Event, From};
use crate::kit::raw::Object;
use driver::abi::*;
use std::net::{IpAddr, SocketAddr};

const US: u64 = 1000;

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
        let late = status == STATUS_IO_TIMEOUT && self.is_crowded();
        let may = this.excuse.is_some() || !self.patient || late;
        require!(may, "end {end}: {what} with {status} for no reason");
        Ok(())
    }

    /// Starts a connection to a listener.
    pub(crate) fn connect(&mut self, from: usize, to: usize, remote: SocketAddr) -> Step {
        let adapter = self.hosts[from].adapter;
        let foreign = self.is_foreign(from);
        let connector = match foreign {
            true => Object(std::ptr::null_mut()),
            false => self.create(from, |token| numbered::create_connector(adapter, token))?,
        };
        let end = self.new_end(from, connector, None)?;
        if self.hosts[from].mtu > self.hosts[to].mtu {
            self.ends[end].excuse("the path MTU is too large for the peer");
        }
        let (qp, source) = (self.ends[end].qp, self.source(end, to, remote));
        let limits = [self.ends[end].flow.inbound, self.ends[end].flow.outbound];
        let data = (end as u32).to_le_bytes();
        let token = self.token(end, What::Connect);
        if foreign {
            self.note(|_| format!("end {end} on foreign host {from} connects to host {to}"));
            self.connect_foreign(end, remote, limits, &data, token);
            self.maybe_give_up(end);
            return Ok(());
        }
        let status = numbered::connect(connector, qp, source, remote, limits, &data, token);
        require!(status == STATUS_PENDING, "a connect gives {status}");
        self.note(|_| format!("end {end} on host {from} connects to host {to} from {source:?}"));
        self.maybe_give_up(end);
        Ok(())
    }

    /// Where an end connects from: any port, or one that others of its host connect from too.
    fn source(&mut self, end: usize, to: usize, remote: SocketAddr) -> From {
        let host = self.ends[end].host;
        (self.ends[end].to, self.ends[end].remote) = (Some(to), Some(remote.ip()));
        let ips = &self.hosts[host].ips;
        let shared = ips[0];
        let lost = &self.hosts[host].lost;
        let fits = |ip: &&IpAddr| ip.is_ipv4() == remote.is_ipv4() && !lost.contains(ip);
        let mut fits: Vec<_> = ips.iter().filter(fits).collect();
        let local = *fits.swap_remove(self.rng.below(fits.len() as u32) as usize);
        self.ends[end].local = Some(local);
        let Some((endpoint, port)) = self.hosts[host]
            .endpoint
            .filter(|_| shared.is_ipv4() == remote.is_ipv4() && self.rng.below(2) == 0)
            .filter(|_| !self.hosts[host].lost.contains(&shared))
        else {
            return From::Address(SocketAddr::new(local, 0));
        };
        self.ends[end].local = Some(shared);
        self.ends[end].shares = Some(port);
        let same: Vec<usize> = self.same_ends(end).collect();
        // Whichever asks first; the peer's link-layer address may be known to one only.
        let asks = |&other: &usize| self.ends[other].phase == Phase::Connecting;
        let excused: Vec<usize> = same.iter().copied().filter(asks).collect();
        for other in excused.into_iter().chain((!same.is_empty()).then_some(end)) {
            self.ends[other].excuse("another connection has the same addresses and ports");
        }
        From::Endpoint(endpoint)
    }

    /// Ends whose connection has, or may still have, the same addresses and ports.
    fn same_ends(&self, end: usize) -> impl Iterator<Item = usize> {
        let this = &self.ends[end];
        let same = move |&at: &usize| {
            let other = &self.ends[at];
            let gone = matches!(other.phase, Phase::Closed | Phase::Crashed);
            let both = at != end && other.shares.and(this.shares).is_some() && !gone;
            both && (other.host, other.to, other.remote) == (this.host, this.to, this.remote)
        };
        (0..self.ends.len()).filter(same)
    }

    pub(crate) fn token(&mut self, end: usize, what: What) -> usize {
        let token = self.new_token();
        self.tokens.insert(token, (end, what));
        token
    }

    /// Now and then a consumer closes everything while it waits.
    fn maybe_give_up(&mut self, end: usize) {
        if self.rng.below(40) == 0 && !self.lossless {
            self.excuse(end, "given up");
            self.ends[end].act_at = Some(self.now + self.rng.u64() % (5000 * US));
        }
    }

    pub(crate) fn soon(&mut self, end: usize) {
        let pace = self.ends[end].flow.pace;
        self.ends[end].act_at = Some(self.now + 1 + self.rng.u64() % pace);
    }

    // ---- what the provider tells ---------------------------------------------------------------

    pub(crate) fn handle_event(&mut self, event: Event) -> Step {
        match event {
            Event::Requested(token, status) => {
                let (end, what) = self.tokens.remove(&token).ok_or("a request ends twice")?;
                if what == What::AcceptGuest {
                    return self.serve_guest(token, status);
                }
                self.handle_request(end, what, status)
            }
            Event::Closed(token) => {
                let (end, what) = self.tokens.remove(&token).ok_or("a close ends twice")?;
                self.handle_closed(end, what)
            }
            Event::Notified(name, status) => self.handle_notification(name / 2, name % 2, status),
            Event::Connecting(host, connector) => self.handle_connecting(host, connector),
            Event::Left(GUEST_NAME) => Ok(()),
            Event::Left(end) => self.handle_left(end),
            Event::Low(host, status) => self.handle_low(host, status),
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
        let (limits, data, asks) = match self.foreign_data(host, connector) {
            Some(asked) => asked,
            // It was withdrawn before anybody looked.
            None if self.is_foreign(host) => return Ok(()),
            None => {
                let (limits, data) = numbered::connection_data(connector)
                    .map_err(|status| format!("no data in a connect event: {status}"))?;
                let asks =
                    numbered::peer_address(connector).ok_or("a connect event from nowhere")?;
                (limits, data, asks)
            }
        };
        if data.starts_with(&FORGED) {
            self.reject(host, connector);
            return self.close(host, What::CloseStray, connector);
        }
        if data.starts_with(&GUEST) && !self.is_foreign(host) {
            return self.welcome(host, connector);
        }
        // The provider pads nothing: the IP CM format carries no length, so the rest is zero.
        let active =
            data.get(..4).map(|data| u32::from_le_bytes(data.try_into().unwrap_or_default()));
        let active = active.map_or(usize::MAX, |active| active as usize);
        require!(active < self.ends.len(), "private data of nobody: {data:x?}");
        require!(data[4..].iter().all(|&byte| byte == 0), "private data with more: {data:x?}");
        let flow = &self.ends[active].flow;
        require!(
            limits == [flow.outbound.min(32), flow.inbound.min(32)],
            "a request with other read limits: {limits:?}"
        );
        let port = self.ends[active].shares;
        let right = Some(asks.ip()) == self.ends[active].local
            && port.is_none_or(|port| port == asks.port());
        require!(right, "a connect event from {asks}");
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
            if self.rng.below(2) == 0 || self.is_foreign(host) {
                self.reject(host, connector);
            }
            if self.is_foreign(host) {
                return Ok(());
            }
            return self.close(host, What::CloseStray, connector);
        }
        let end = self.new_end(host, connector, Some(active))?;
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
        self.ends[end].moved = self.now;
        match self.ends[end].phase {
            Phase::Up => {
                self.ends[end].phase = Phase::Down;
                self.require_excuse(end, "a disconnect event", STATUS_SUCCESS)?;
                self.excuse(end, "disconnected");
                self.soon(end);
                Ok(())
            }
            // It saw its requests end, on another core than the one that tells of the rest, and its own disconnect came too late.
            Phase::Down if self.is_open(end, What::Disconnect) => Ok(()),
            // On its way when the consumer began to close.
            Phase::Closing if self.is_open(end, What::CloseConnector) => Ok(()),
            phase => Err(format!("end {end}: a disconnect event while {phase:?}")),
        }
    }

    pub(crate) fn is_open(&self, end: usize, what: What) -> bool {
        self.ends[end].to_close.contains(&what)
            || self.tokens.values().any(|pending| *pending == (end, what))
    }

    fn handle_request(&mut self, end: usize, what: What, status: NTSTATUS) -> Step {
        self.mark(&(end, status.0));
        self.ends[end].moved = self.now;
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
                    let End { shares, host, to, .. } = self.ends[end];
                    self.did_connect(end);
                    self.did_spread(end);
                    if self.hosts[host].incarnation > 1 {
                        self.report.trial.connections += 1;
                    }
                    if shares.is_some() {
                        self.did(Deed::SharedEndpoint);
                    }
                    if self.has_foreign_peer(end) {
                        let asked = to.is_some();
                        self.did(if asked { Deed::ForeignPassive } else { Deed::ForeignActive });
                    }
                    if to == Some(host) {
                        self.did(Deed::Loopback);
                    }
                } else {
                    self.ends[end].phase = Phase::Down;
                    self.require_excuse(end, "no connection", status)?;
                    self.excuse(end, "not connected");
                }
                self.soon(end);
                Ok(())
            }
            What::Disconnect => {
                let foreign = self.has_foreign_peer(end) || self.is_foreign(self.ends[end].host);
                let late = status == STATUS_IO_TIMEOUT && self.calm && !foreign;
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

    /// What kind of connection it is that an end has now.
    fn did_connect(&mut self, end: usize) {
        let End { host, peer: Some(peer), local: Some(local), remote: Some(remote), .. } =
            self.ends[end]
        else {
            return;
        };
        let far = &self.hosts[self.ends[peer].host];
        let near = &self.hosts[host];
        for (deed, did) in [
            (Deed::Drift, near.clock.gains != far.clock.gains),
            (Deed::OtherAddress, local != near.ips[0] || remote != far.ips[0]),
            (Deed::OtherFamily, local.is_ipv4() != near.ips[0].is_ipv4()),
            (Deed::SmallMtu, near.mtu.min(far.mtu) == 400),
        ] {
            self.report.deeds[deed as usize] += u64::from(did);
        }
    }

    fn handle_connected(&mut self, end: usize, status: NTSTATUS) -> Step {
        self.count_connect(end, status == STATUS_SUCCESS);
        if status != STATUS_SUCCESS {
            self.ends[end].phase = Phase::Down;
            let excused = self.ends[end].excuse.is_some();
            require!(excused || !self.reliable, "end {end}: a connect fails with {status}");
            let taken = status == STATUS_ADDRESS_ALREADY_EXISTS;
            require!(!taken || excused, "end {end}: its addresses are free, and it gets {status}");
            self.excuse(end, "not connected");
        } else {
            let lives = |other: &End| other.phase == Phase::Up && !other.disconnected;
            let twice = self.same_ends(end).any(|other| lives(&self.ends[other]));
            require!(!twice, "end {end}: the second connection of its addresses and ports");
            self.ends[end].phase = Phase::Offered;
            let (_, data) = match self.foreign_data_of(end) {
                Some(answered) => answered,
                // It is over before anybody looked.
                None if self.is_foreign(self.ends[end].host) => {
                    self.soon(end);
                    return Ok(());
                }
                None => numbered::connection_data(self.ends[end].connector)
                    .map_err(|status| format!("no data of an acceptance: {status}"))?,
            };
            self.check_answer(end, &data)?;
        }
        self.soon(end);
        Ok(())
    }

    /// Who has accepted says so. A host that accepted and went down may have been asked again before
    /// its first answer came, and so may a foreign one that accepted and gave up: it keeps nothing of
    /// the connection, and takes a copy of the request for a new one.
    fn check_answer(&mut self, end: usize, data: &[u8]) -> Step {
        let peer = self.ends[end].peer.ok_or("accepted by nobody")?;
        let told = data.first_chunk().map(|told| u32::from_le_bytes(*told) as usize);
        if told == Some(peer) {
            return Ok(());
        }
        let right =
            told.filter(|&told| self.ends.get(told).is_some_and(|old| old.peer == Some(end)));
        let old = right.filter(|&old| match self.ends[old].phase {
            Phase::Closed => self.is_foreign(self.ends[old].host),
            phase => phase == Phase::Crashed,
        });
        let old = old.ok_or_else(|| format!("end {end}: private data {data:x?}"))?;
        self.excuse(end, "answered by two");
        self.ends[end].peer = Some(old);
        Ok(())
    }

    // ---- what the consumer does ----------------------------------------------------------------

    /// The consumer of an end has its turn.
    pub(crate) fn act_as(&mut self, end: usize) -> Step {
        let chaos = self.part == Part::Chaos;
        match self.ends[end].phase {
            Phase::Offered if chaos && self.rng.below(20) == 0 => {
                self.excuse(end, "refused by the connecting side");
                self.reject(self.ends[end].host, self.ends[end].connector);
                self.begin_close(end)
            }
            Phase::Offered => {
                let token = self.token(end, What::Complete);
                if !self.complete_foreign(end, token) {
                    let status = numbered::complete_connect(self.ends[end].connector, end, token);
                    require!(status == STATUS_PENDING, "a confirmation gives {status}");
                }
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
                    self.flush(end);
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
            self.reject(self.ends[end].host, self.ends[end].connector);
            return self.begin_close(end);
        }
        let this = &self.ends[end];
        let (connector, qp) = (this.connector, this.qp);
        let limits = [this.flow.inbound, this.flow.outbound];
        let token = self.token(end, What::Accept);
        let data = (end as u32).to_le_bytes();
        if !self.accept_foreign(end, limits, &data, token) {
            let status = numbered::accept(connector, qp, limits, &data, end, token);
            require!(status == STATUS_PENDING, "an accept gives {status}");
        }
        self.ends[end].phase = Phase::Accepting;
        self.maybe_give_up(end);
        Ok(())
    }

    /// Refuses a connection; it may be gone meanwhile.
    fn reject(&mut self, host: usize, connector: Object<NDK_CONNECTOR>) {
        if self.reject_foreign(host, connector) {
            return;
        }
        self.hosts[host].note_asked();
        let _gone_meanwhile = connector.reject();
    }

    /// Flushes, which ends the connection as well.
    pub(crate) fn flush(&mut self, end: usize) {
        if self.flush_foreign(end) {
            return;
        }
        let End { host, qp, .. } = self.ends[end];
        self.hosts[host].note_asked();
        if self.ends[end].phase == Phase::Up && self.part != Part::Teardown {
            self.explain("a flush");
        }
        self.ends[end].flushed = true;
        qp.flush();
    }

    /// Disconnects, once.
    pub(crate) fn disconnect(&mut self, end: usize) -> Step {
        if !std::mem::replace(&mut self.ends[end].disconnected, true) {
            self.excuse(end, "disconnected by a consumer");
            let token = self.token(end, What::Disconnect);
            if self.disconnect_foreign(end, token) {
                return Ok(());
            }
            let status = numbered::disconnect(self.ends[end].connector, token);
            require!(status == STATUS_PENDING, "a disconnect gives {status}");
        }
        Ok(())
    }

    /// Takes the exposed memory away from the peer.
    pub(crate) fn withdraw(&mut self, end: usize) -> Step {
        if std::mem::take(&mut self.ends[end].exposed) {
            self.excuse(end, "the memory was deregistered");
            let token = self.token(end, What::Deregister);
            let status = numbered::deregister(self.ends[end].regions[EXPOSED].mr, token);
            require!(status == STATUS_PENDING, "a deregistration gives {status}");
        }
        Ok(())
    }
}
