//! What the ends of a host share: a receive queue with its memory, and an endpoint to connect from.

use super::Deed;
use super::end::What;
use super::memory::{Place, Region};
use super::meter::counted;
use super::world::{Step, World, require};
use crate::kit::numbered;
use crate::kit::raw::Object;
use driver::abi::*;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// A shared receive queue, and the memory that it receives into.
pub(crate) struct Pool {
    pd: Object<NDK_PD>,
    pub(crate) srq: Object<NDK_SRQ>,
    pub(crate) region: Region,
    depth: usize,
    threshold: u32,
    armed: bool,
    /// Receives are posted only when it is told that they run low.
    by_notice: bool,
    /// Posted and not ended, by their numbers, which are in the order of the posts.
    receives: BTreeMap<usize, Place>,
    posted: usize,
    /// When receives are posted again.
    pub(crate) act_at: Option<u64>,
}

impl Pool {
    /// Receives that have not been read yet, at most.
    pub(crate) const fn slots(&self) -> usize {
        2 * self.depth
    }

    /// Whether receives are to be posted.
    pub(crate) fn is_due(&self, now: u64) -> bool {
        self.act_at.is_some_and(|at| at <= now)
    }

    /// A receive has ended: where it was.
    pub(crate) fn take(&mut self, id: usize) -> Option<Place> {
        self.receives.remove(&id)
    }

    /// Bytes of a receive.
    pub(crate) const fn slot_len(&self) -> usize {
        self.region.slot_len()
    }
}

impl World {
    /// Creates what the ends of a host may share, or not.
    pub(crate) fn share(&mut self, host: usize) -> Step {
        let (adapter, ip) = (self.hosts[host].adapter, self.hosts[host].ips[0]);
        if self.rng.below(3) == 0 {
            let local = SocketAddr::new(ip, 0);
            let endpoint = self.create(host, |token| numbered::share(adapter, local, token))?;
            let local = numbered::shared_address(endpoint).ok_or("an endpoint without address")?;
            require!(local.ip() == ip && local.port() != 0, "an endpoint at {local}");
            self.hosts[host].endpoint = Some((endpoint, local.port()));
        }
        if self.rng.below(3) > 0 {
            return Ok(());
        }
        let depth = 2 << self.rng.below(5);
        let by_notice = self.rng.below(2) == 0;
        let threshold = u32::from(by_notice) + self.rng.below(depth);
        let pd = self.create(host, |token| numbered::create_pd(adapter, token))?;
        let (size, near) = ([depth, threshold], self.some_core(host));
        let create = |token| numbered::create_srq(pd, size, near, host, token);
        let srq = self.create(host, create)?;
        let label = 0x2000_0000_0000 + (host as u64) * 0x1_0000_0000;
        let slot_len = 64 << self.rng.below(9);
        let mut region = Region::new(2 * depth as usize, slot_len, label, &mut self.rng);
        self.register(host, pd, &mut region, NDK_MR_FLAG_ALLOW_LOCAL_WRITE)?;
        self.hosts[host].pool = Some(Pool {
            pd,
            srq,
            region,
            depth: depth as usize,
            threshold,
            armed: threshold > 0,
            by_notice,
            receives: BTreeMap::new(),
            posted: 0,
            act_at: None,
        });
        self.fill(host, depth as usize)
    }

    /// Closes what the ends of a host share.
    pub(crate) fn unshare(&mut self, host: usize) -> Step {
        if let Some((endpoint, _)) = self.hosts[host].endpoint.take() {
            self.close(host, What::CloseStray, endpoint)?;
        }
        if let Some(pool) = &mut self.hosts[host].pool {
            pool.act_at = None;
            let Pool { pd, srq, region: Region { mr, .. }, .. } = *pool;
            self.close(host, What::CloseSrq, srq)?;
            self.close(host, What::CloseStray, pd)?;
            self.close(host, What::CloseStray, mr)?;
        }
        Ok(())
    }

    /// Posts receives until `wanted` are there.
    fn fill(&mut self, host: usize, wanted: usize) -> Step {
        let Some(pool) = &mut self.hosts[host].pool else { return Ok(()) };
        while pool.receives.len() < wanted {
            let len = pool.region.slot_len();
            let Some(place) = pool.region.take(len, &mut self.rng) else { return Ok(()) };
            let sgl = pool.region.sgl(&place, &mut self.rng);
            let id = pool.posted + 1;
            let (status, allocations) = counted(|| pool.srq.receive(id, &sgl));
            require!(allocations == 0, "host {host}: a receive makes {allocations} allocations");
            if status == STATUS_NO_MORE_ENTRIES {
                let queued = pool.receives.len();
                require!(queued >= pool.depth, "host {host}: no room with {queued} receives");
                pool.region.release(&place);
                return Ok(());
            }
            require!(status == STATUS_SUCCESS, "host {host}: a receive is refused with {status}");
            pool.region.expect(&place, None);
            pool.posted = id;
            pool.receives.insert(id, place);
        }
        Ok(())
    }

    /// An end that uses the pool has its turn.
    pub(crate) fn fill_some(&mut self, host: usize, lazy: bool) -> Step {
        let Some(pool) = &self.hosts[host].pool else { return Ok(()) };
        if pool.by_notice {
            return Ok(());
        }
        let most = pool.slots();
        let wanted = if lazy { self.rng.below(most as u32 + 1) as usize } else { most };
        self.fill(host, wanted)
    }

    pub(crate) fn handle_low(&mut self, host: usize, status: NTSTATUS) -> Step {
        require!(status == STATUS_SUCCESS, "host {host}: its receives are low with {status}");
        let at = self.now + 1 + u64::from(self.rng.below(500_000));
        let Some(pool) = &mut self.hosts[host].pool else {
            return Err(format!("host {host}: a notification of no queue"));
        };
        require!(pool.armed, "host {host}: its receives are low, and nobody asked");
        pool.armed = false;
        pool.act_at = Some(at);
        self.did(Deed::Low);
        Ok(())
    }

    /// Posts receives, and asks to be told again.
    pub(crate) fn refill(&mut self, host: usize) -> Step {
        let Some(pool) = &mut self.hosts[host].pool else { return Ok(()) };
        pool.act_at = None;
        let most = pool.slots();
        self.fill(host, most)?;
        let Some(pool) = &mut self.hosts[host].pool else { return Ok(()) };
        let (srq, threshold) = (pool.srq, pool.threshold);
        pool.armed = threshold > 0;
        let status = self.request(host, |token| numbered::arm_srq(srq, threshold, token))?;
        require!(status == STATUS_SUCCESS, "host {host}: a change of its queue ends with {status}");
        Ok(())
    }

    /// Compares a pool's memory with what it must hold.
    pub(crate) fn check_pool(
        &mut self,
        host: usize,
        how: impl FnOnce(&mut Region) -> Step,
    ) -> Step {
        let Some(pool) = &mut self.hosts[host].pool else { return Ok(()) };
        how(&mut pool.region).map_err(|what| format!("host {host}, shared receives: {what}"))
    }

    /// All completions have been read: what is left was posted last, but for what queue pairs hold
    /// back for the rest of a message; and nobody waits in vain for a notification.
    pub(crate) fn check_pools(&mut self) -> Step {
        for host in 0..self.hosts.len() {
            let Some(pool) = &self.hosts[host].pool else { continue };
            let ended = (1..=pool.posted).rev().find(|id| !pool.receives.contains_key(id));
            let skipped = pool.receives.range(..ended.unwrap_or(0)).count();
            let users = self.ends.iter().filter(|end| end.host == host && end.pooled).count();
            require!(skipped <= users, "host {host}: {skipped} receives were passed over");
            let low = pool.receives.len() < pool.threshold as usize;
            require!(
                !pool.armed || !low || ended.is_none(),
                "host {host}: {} receives are left, and nobody was told",
                pool.receives.len()
            );
        }
        Ok(())
    }
}
