//! Memory that a peer may reach for a while: fast-register regions and windows. Their owner maps
//! them again and again, to other addresses and bounds and with other rights; either side ends them.
//!
//! The owner tells the peer with a SEND behind the request that maps or binds, so a peer that has
//! received it finds the key in force. While a key is dead its memory must not change at all.

use super::Deed;
use super::end::{EXPOSED, LOCAL};
use super::flow::{Bytes, Data, Kind, NOWHERE};
use super::memory::{Place, Region};
use super::world::{Step, World, require};
use crate::kit::numbered;
use crate::kit::raw::{Object, Post};
use driver::abi::*;
use ndk_consumer::Remote;
use std::ops::Range;

/// The place of the first grant's memory in [`super::end::End::regions`].
pub(crate) const GRANTS: usize = 3;

/// The rights of a peer.
pub(crate) const READ: usize = 0;
pub(crate) const WRITE: usize = 1;

/// Who uses a grant.
const PEER: usize = 0;
const OWNER: usize = 1;

/// How far a grant is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    /// Its key is dead.
    Closed,
    /// It was mapped, and nobody may use it yet.
    Mapping,
    Open,
    /// Its end was posted.
    Ending,
}

/// A key that names memory for a while.
pub(crate) struct Grant {
    /// `None`: the region itself, which is a fast-register region.
    pub(crate) window: Option<Object<NDK_MW>>,
    pages: Vec<NDK_LOGICAL_ADDRESS>,
    lam: Option<Vec<u64>>,
    /// As the peer names it.
    token: u32,
    stage: Stage,
    /// How often it was mapped.
    times: usize,
    /// What it names.
    slots: Range<usize>,
    rights: [bool; 2],
    /// The owner may receive into it.
    sink: bool,
    /// Requests that have not ended.
    users: [usize; 2],
    /// SENDs that the peer had posted when the last of its requests ended.
    released: usize,
    /// Somebody used it against the rules: it is never mapped again.
    spoiled: bool,
    /// Its owner ended it while the peer used it.
    rude: bool,
}

impl World {
    // ---- making --------------------------------------------------------------------------------

    /// Gives an end a fast-register region, a window, both or none.
    pub(crate) fn new_grants(
        &mut self,
        end: usize,
        host: usize,
        pd: Object<NDK_PD>,
        regions: &mut Vec<Region>,
        slot_len: usize,
    ) -> Step<Vec<Grant>> {
        let mut grants = Vec::new();
        if self.rng.below(2) == 0 || self.storage {
            let mut region = self.new_region(end, regions.len(), 4, slot_len);
            if let Some(token) = self.foreign_key(host, &region, 0, true) {
                region.token = token;
                region.mr = Object(std::ptr::without_provenance_mut(token as usize));
                // A foreign adapter names pages by where they lie in the buffer.
                let pages = (0..region.pages())
                    .map(|page| NDK_LOGICAL_ADDRESS { QuadPart: (page * PAGE_SIZE) as i64 });
                grants.push(Grant { pages: pages.collect(), ..Grant::new(token) });
                regions.push(region);
                return self.new_window(end, host, pd, regions, slot_len, grants);
            }
            let mr: Object<NDK_MR> =
                self.create(host, |token| numbered::create_mr(pd, true, token))?;
            let (mdl, len) = region.mdl();
            let (pages, lam) = numbered::build_lam(self.hosts[host].adapter, mdl, len)
                .map_err(|status| format!("no logical addresses: {status}"))?;
            let most = pages.len() as u32;
            let status = self.request(host, |token| numbered::initialize(mr, most, token))?;
            require!(status == STATUS_SUCCESS, "an initialization ends with {status}");
            (region.mr, region.token) = (mr, mr.token());
            grants.push(Grant { pages, lam: Some(lam), ..Grant::new(region.token) });
            regions.push(region);
        }
        self.new_window(end, host, pd, regions, slot_len, grants)
    }

    fn new_window(
        &mut self,
        end: usize,
        host: usize,
        pd: Object<NDK_PD>,
        regions: &mut Vec<Region>,
        slot_len: usize,
        mut grants: Vec<Grant>,
    ) -> Step<Vec<Grant>> {
        if self.rng.below(2) == 0 {
            let mut region = self.new_region(end, regions.len(), 4, slot_len);
            self.register(host, pd, &mut region, NDK_MR_FLAG_ALLOW_LOCAL_WRITE)?;
            let (window, token) = match self.foreign_key(host, &region, 0, true) {
                Some(token) => (Object(std::ptr::without_provenance_mut(token as usize)), token),
                None => {
                    let window: Object<NDK_MW> =
                        self.create(host, |token| numbered::create_mw(pd, token))?;
                    (window, window.token())
                }
            };
            grants.push(Grant { window: Some(window), ..Grant::new(token) });
            regions.push(region);
        }
        Ok(grants)
    }

    /// The region of a grant is closed.
    pub(crate) fn forget_pages(&mut self, end: usize, which: usize) {
        let adapter = self.hosts[self.ends[end].host].adapter;
        let grant = which.checked_sub(GRANTS).map(|grant| &mut self.ends[end].grants[grant]);
        if let Some(lam) = grant.and_then(|grant| grant.lam.take()) {
            numbered::release_lam(adapter, lam);
        }
    }

    // ---- the peer's side -----------------------------------------------------------------------

    /// Memory of a peer that may be used, a region and a place in it; it counts as used.
    pub(crate) fn reach(
        &mut self,
        peer: usize,
        len: usize,
        right: usize,
    ) -> Option<(usize, Place)> {
        let open = |grant: &Grant| grant.stage == Stage::Open && grant.rights[right];
        let grants = &self.ends[peer].grants;
        let choices: Vec<usize> = (0..grants.len()).filter(|&at| open(&grants[at])).collect();
        let other = u32::from(!self.storage || choices.is_empty());
        let choice = self.rng.below(choices.len() as u32 + other) as usize;
        let Some(&grant) = choices.get(choice) else {
            let place = self.ends[peer].regions[EXPOSED].take(len, &mut self.rng)?;
            return Some((EXPOSED, place));
        };
        let slots = self.ends[peer].grants[grant].slots.clone();
        let place = self.ends[peer].regions[GRANTS + grant].take_of(slots, len, &mut self.rng)?;
        self.ends[peer].grants[grant].users[PEER] += 1;
        Some((GRANTS + grant, place))
    }

    /// Memory of a peer is not used any more.
    pub(crate) fn let_go(&mut self, peer: usize, which: usize, place: &Place) {
        self.ends[peer].regions[which].release(place);
        self.stop_use(peer, which);
    }

    /// A request that used memory of a peer has ended.
    pub(crate) fn stop_use(&mut self, peer: usize, which: usize) {
        if let Some(grant) = which.checked_sub(GRANTS) {
            let sends = self.ends[peer].peer.map_or(0, |user| self.ends[user].flow.sends.len());
            let grant = &mut self.ends[peer].grants[grant];
            grant.users[PEER] -= 1;
            grant.released = sends;
        }
    }

    /// A request that used memory of its own has ended.
    pub(crate) fn stop_own_use(&mut self, end: usize, which: usize) {
        if let Some(grant) = which.checked_sub(GRANTS) {
            self.ends[end].grants[grant].users[OWNER] -= 1;
        }
    }

    /// How a peer's memory is named.
    pub(crate) fn remote(&self, peer: usize, which: usize, place: &Place) -> Remote {
        let end = &self.ends[peer];
        let grant = which.checked_sub(GRANTS).map(|grant| end.grants[grant].token);
        let region = &end.regions[which];
        Remote { address: region.address(place), token: grant.unwrap_or(region.token) }
    }

    /// An address that a peer does not offer.
    pub(crate) fn forbidden(&mut self, peer: usize, place: &Place) -> Remote {
        let first = Place { slot: 0, range: place.range.clone() };
        let Remote { address, token } = self.remote(peer, EXPOSED, &first);
        match self.rng.below(4) {
            0 => Remote { address, token: token ^ 1 << self.rng.below(32) },
            // Further than any region is long.
            1 => Remote { address: address.wrapping_add(1 << 31), token },
            2 => Remote { address: u64::MAX - 3, token },
            // Registered, and not for peers.
            _ => self.remote(peer, LOCAL, &first),
        }
    }

    /// A use of a grant that is against the rules, now and as long as nobody maps it again.
    pub(crate) fn misuse(&mut self, peer: usize, right: usize) -> Option<Remote> {
        let grants = self.ends[peer].grants.len() as u32;
        let at = if grants > 0 { self.rng.below(grants) as usize } else { return None };
        let region = &self.ends[peer].regions[GRANTS + at];
        let grant = &self.ends[peer].grants[at];
        let span = region.span(grant.slots.clone());
        let place = |range| Place { slot: 0, range };
        let start = match grant.stage {
            Stage::Closed if grant.times > 0 => span.start,
            Stage::Open if self.rng.below(2) == 0 => span.end,
            Stage::Open if !grant.rights[right] => span.start,
            // A window whose bounds are not those of its region.
            Stage::Open => span.start - 1,
            Stage::Closed | Stage::Mapping | Stage::Ending => return None,
        };
        let remote = self.remote(peer, GRANTS + at, &place(start..start));
        self.ends[peer].grants[at].spoiled = true;
        Some(remote)
    }

    /// Ends a grant of the peer, with a SEND.
    pub(crate) fn end_of_peer(&mut self, end: usize, peer: usize) -> Step {
        let idle = |grant: &Grant| grant.stage == Stage::Open && grant.users[OWNER] == 0;
        let Some(at) = self.ends[peer].grants.iter().position(idle) else { return Ok(()) };
        let grant = &self.ends[peer].grants[at];
        let how = Data::SendInvalidate(grant.token);
        // Requests are executed in their order; but an answer to a READ may be under way.
        let fence = if grant.users[PEER] > 0 { NDK_OP_FLAG_READ_FENCE } else { 0 };
        let flags = self.flags(end) | fence;
        let number = self.ends[end].flow.sends.len();
        if self.send(end, how, (LOCAL, NOWHERE), Vec::new(), flags)? {
            let grant = &mut self.ends[peer].grants[at];
            grant.stage = Stage::Ending;
            let time = grant.times;
            self.ends[end].flow.ended.insert(number, (at, time));
        }
        Ok(())
    }

    /// An end has received a SEND of its peer: what it told or ended.
    pub(crate) fn hear(
        &mut self,
        end: usize,
        peer: usize,
        number: usize,
        result: &NDK_RESULT_EX,
    ) -> Step {
        let right = match self.ends[peer].flow.ended.remove(&number) {
            Some(ended) => {
                self.did(Deed::PeerInvalidates);
                self.close_grant(end, ended)?;
                let token = self.ends[end].grants[ended.0].token as usize;
                result.Type == NdkOperationTypeReceiveAndInvalidate
                    && result.TypeSpecificCompletionOutput == token
            }
            None => result.Type == NdkOperationTypeReceive,
        };
        require!(right, "end {end}: SEND {number} is received as {:?}", result.Type);
        if let Some((at, time)) = self.ends[peer].flow.announced.remove(&number) {
            self.open_grant(peer, at, time);
        }
        Ok(())
    }

    // ---- the owner's side ----------------------------------------------------------------------

    /// An owner does something with one of its grants.
    pub(crate) fn tend(&mut self, end: usize, peer: usize) -> Step {
        let this = &self.ends[end];
        if this.grants.is_empty() {
            return Ok(());
        }
        let at = self.rng.below(this.grants.len() as u32) as usize;
        let grant = &this.grants[at];
        let fast = grant.window.is_none();
        match grant.stage {
            Stage::Closed => self.map(end, at, 0),
            // A foreign owner has to have heard since that the peer is done with it.
            Stage::Open if self.is_foreign(this.host) && this.flow.delivered <= grant.released => {
                Ok(())
            }
            Stage::Open if grant.users[PEER] == 0 => match self.rng.below(4) {
                0 if fast => self.send_and_end(end, peer, at),
                1 if fast && grant.sink => self.read_and_end(end, peer, at),
                2 => {
                    if self.end_grant(end, at)? {
                        self.map(end, at, 0)?;
                    }
                    Ok(())
                }
                _ => self.end_grant(end, at).map(drop),
            },
            Stage::Open | Stage::Mapping | Stage::Ending => Ok(()),
        }
    }

    /// Whether a grant was there that the peer uses, and was ended.
    pub(crate) fn end_used(&mut self, end: usize) -> Step<bool> {
        // One that somebody misuses is not mapped again: the misuse could find itself allowed.
        let used =
            |grant: &Grant| grant.stage == Stage::Open && grant.users[PEER] > 0 && !grant.spoiled;
        match self.ends[end].grants.iter().position(used) {
            Some(at) => self.end_under_way(end, at).map(|()| true),
            None => Ok(false),
        }
    }

    /// Ends a grant that the peer uses, and maps it again for nobody: from the end on nothing may
    /// change, whatever the key names then.
    fn end_under_way(&mut self, end: usize, at: usize) -> Step {
        self.excuse(end, "an invalidation under way");
        self.did(Deed::EndUnderWay);
        let grant = &mut self.ends[end].grants[at];
        (grant.spoiled, grant.rude) = (true, true);
        if self.end_grant(end, at)? {
            self.post_map(end, at, 0)?;
        }
        self.ends[end].grants[at].stage = Stage::Ending;
        Ok(())
    }

    /// Maps a grant, and tells the peer.
    fn map(&mut self, end: usize, at: usize, fence: u32) -> Step {
        if self.ends[end].grants[at].spoiled || !self.post_map(end, at, fence)? {
            return Ok(());
        }
        let time = self.ends[end].grants[at].times;
        let number = self.ends[end].flow.sends.len();
        if self.send_new(end, 1, 0)? {
            self.ends[end].flow.announced.insert(number, (at, time));
        }
        Ok(())
    }

    /// Maps a grant to something else than before; false: there is no room.
    fn post_map(&mut self, end: usize, at: usize, fence: u32) -> Step<bool> {
        let first = self.rng.below(4) as usize;
        let slots = first..first + 1 + self.rng.below(4 - first as u32) as usize;
        let (rights, sink) = (1 + self.rng.below(3), self.rng.below(2) == 0);
        let mut rights = [rights & 1 != 0, rights & 2 != 0];
        if self.ends[end].grants[at].rude && self.ends[end].grants[at].window.is_some() {
            // Key and addresses are those of before, and a late WRITE would be a right one.
            rights = [true, false];
        }
        let mut flags = self.flags(end) | fence;
        for (granted, flag) in [
            (rights[READ], NDK_OP_FLAG_ALLOW_REMOTE_READ),
            (rights[WRITE], NDK_OP_FLAG_ALLOW_REMOTE_WRITE),
            (sink, NDK_OP_FLAG_ALLOW_LOCAL_WRITE),
        ] {
            flags |= if granted { flag } else { 0 };
        }
        let sink = sink || rights[WRITE];
        let region = &self.ends[end].regions[GRANTS + at];
        let (span, mr) = (region.span(slots.clone()), region.mr);
        let grant = &self.ends[end].grants[at];
        let (time, window) = (grant.times + 1, grant.window);
        let kind = Kind::Map(at, time);
        let posted = if let Some(mw) = window {
            let place = Place { slot: first, range: span.clone() };
            let address = self.ends[end].regions[GRANTS + at].address(&place);
            self.post_plain(end, Post::Bind { mr, mw, address, len: span.len() }, kind, flags)?
        } else {
            let offset = (span.start % PAGE_SIZE) as u32;
            let page = u64::from(self.rng.u32()) * PAGE_SIZE as u64;
            let base = 0x3000_0000_0000 + page + u64::from(offset);
            let pages = grant.pages[span.start / PAGE_SIZE..span.end.div_ceil(PAGE_SIZE)].to_vec();
            let fbo = if self.rng.below(2) == 0 { 0 } else { offset };
            let len = span.len();
            let what = Post::FastRegister { mr, pages: &pages, fbo, len, base };
            let posted = self.post_plain(end, what, kind, flags)?;
            if posted {
                self.ends[end].regions[GRANTS + at].rename(base, span.start);
            }
            posted
        };
        if posted {
            let grant = &mut self.ends[end].grants[at];
            (grant.times, grant.stage) = (time, Stage::Mapping);
            (grant.slots, grant.rights, grant.sink) = (slots, rights, sink);
        }
        Ok(posted)
    }

    /// Ends a grant; false: there is no room.
    fn end_grant(&mut self, end: usize, at: usize) -> Step<bool> {
        let window = self.ends[end].grants[at].window;
        let region = Post::InvalidateMr(self.ends[end].regions[GRANTS + at].mr);
        let what = window.map_or(region, Post::InvalidateMw);
        let (kind, flags) = (Kind::End(at, self.ends[end].grants[at].times), self.flags(end));
        let posted = self.post_plain(end, what, kind, flags)?;
        if posted {
            self.ends[end].grants[at].stage = Stage::Ending;
        }
        Ok(posted)
    }

    /// Sends from a fast-register region, and ends it behind that.
    fn send_and_end(&mut self, end: usize, peer: usize, at: usize) -> Step {
        let slots = self.ends[end].grants[at].slots.clone();
        let region = &mut self.ends[end].regions[GRANTS + at];
        let len = region.slot_len().min(self.receive_len(peer));
        let region = &mut self.ends[end].regions[GRANTS + at];
        let Some(place) = region.take_of(slots, len, &mut self.rng) else { return Ok(()) };
        let (data, flags) = (region.model(&place).to_vec(), self.flags(end));
        if self.send(end, Data::Send, (GRANTS + at, place), data, flags)? {
            self.ends[end].grants[at].users[OWNER] += 1;
            self.end_grant(end, at)?;
        }
        Ok(())
    }

    /// Reads into a fast-register region, whose mapping ends with the request.
    fn read_and_end(&mut self, end: usize, peer: usize, at: usize) -> Step {
        let slots = self.ends[end].grants[at].slots.clone();
        let region = &mut self.ends[end].regions[GRANTS + at];
        let len = region.slot_len().min(self.ends[peer].regions[EXPOSED].slot_len());
        let len = 1 + self.rng.below(len as u32) as usize;
        let Some(source) = self.ends[peer].regions[EXPOSED].take(len, &mut self.rng) else {
            return Ok(());
        };
        let region = &mut self.ends[end].regions[GRANTS + at];
        let Some(place) = region.take_of(slots, len, &mut self.rng) else {
            self.ends[peer].regions[EXPOSED].release(&source);
            return Ok(());
        };
        let data = self.ends[peer].regions[EXPOSED].model(&source).to_vec();
        self.ends[end].regions[GRANTS + at].expect(&place, Some(data.clone()));
        let how = Data::Read(self.remote(peer, EXPOSED, &source));
        let kind = Kind::Read(EXPOSED, source.clone(), Bytes(data), false);
        let flags = self.flags(end) | NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE;
        if !self.post(end, how, kind, (GRANTS + at, place), flags)? {
            self.ends[peer].regions[EXPOSED].release(&source);
            return Ok(());
        }
        let time = self.ends[end].grants[at].times;
        if let Some(request) = self.ends[end].initiator.back_mut() {
            request.ends = Some((at, time));
        }
        let grant = &mut self.ends[end].grants[at];
        grant.users[OWNER] += 1;
        grant.stage = Stage::Ending;
        if self.rng.below(2) == 0 {
            self.map(end, at, NDK_OP_FLAG_READ_FENCE)?;
        }
        Ok(())
    }

    /// A key is in force, for this time.
    pub(crate) fn open_grant(&mut self, end: usize, at: usize, time: usize) {
        let grant = &mut self.ends[end].grants[at];
        if grant.stage == Stage::Mapping && grant.times == time {
            grant.stage = Stage::Open;
            let window = grant.window.is_some();
            self.did(if window { Deed::Bind } else { Deed::FastRegister });
        }
    }

    /// A key is dead, unless it was mapped again meanwhile: nothing reaches its memory.
    pub(crate) fn close_grant(&mut self, end: usize, (at, time): (usize, usize)) -> Step {
        let grant = &mut self.ends[end].grants[at];
        let rude = grant.rude;
        if grant.stage == Stage::Ending && grant.times == time {
            grant.stage = Stage::Closed;
        }
        let how = if rude { Region::freeze } else { |region: &mut Region| region.check() };
        self.check_region(end, GRANTS + at, how)
    }
}

impl Grant {
    const fn new(token: u32) -> Self {
        Self {
            window: None,
            pages: Vec::new(),
            lam: None,
            token,
            stage: Stage::Closed,
            times: 0,
            slots: 0..1,
            rights: [false; 2],
            sink: false,
            users: [0; 2],
            released: 0,
            spoiled: false,
            rude: false,
        }
    }
}
