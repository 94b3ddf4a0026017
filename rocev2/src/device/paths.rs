//! The paths of a device's connections. Their owner, outside of the crate, resolves them and reports the
//! outcome here.

use super::{Device, QpSlot, Tie};
use crate::cm::ConnId;
use crate::env::Instant;
use crate::ids::Qpn;
use crate::path::{Path, PathEvent, PathIndex};
use crate::wire::Hop;
use alloc::vec::Vec;
use core::net::IpAddr;

/// Tries in a row without a response, from which on the path is doubted.
pub(super) const DOUBT_AFTER: u32 = 3;

impl Device {
    /// The next path that came into use, or that is doubted and should be resolved again; the caller
    /// reports the outcome by [`Self::path_update`], if there is one. Each path waits here once, however
    /// long nobody polls.
    pub fn poll_path(&mut self) -> Option<PathEvent> {
        self.paths.poll()
    }

    /// All paths that connections and queue pairs use, with the hops in force.
    pub fn paths(&self) -> impl Iterator<Item = (Path, Hop)> {
        self.paths.iter()
    }

    /// The hop of a path; `None` where it is not in use.
    pub fn path_hop(&self, path: Path) -> Option<Hop> {
        self.paths.find(path).map(|index| self.paths.hop(index))
    }

    /// Sets the hop of a path for each packet from now on. The caller vouches for it: it asked the network
    /// or the operating system. A path that is not in use is ignored.
    pub fn path_update(&mut self, path: Path, hop: Hop) {
        if let Some(index) = self.paths.find(path) {
            self.paths.set(index, hop);
        }
    }

    /// Ends a path for good. Its connections end at once, each with
    /// [`CmEvent::PathLost`](crate::cm::CmEvent::PathLost) and the failure of its queue pair, whose oldest
    /// request ends with [`PathLost`](crate::qp::WcStatus::PathLost). No packet is sent.
    pub fn path_lost(&mut self, now: Instant, path: Path) {
        let Some(index) = self.paths.find(path) else { return };
        self.cm.lose_paths(now, |lost| lost == path);
        for slot in 0..self.qps.len() {
            let Some(entry) = self.qps[slot].as_deref_mut() else { continue };
            if entry.path == Some(index) {
                entry.qp.lose_path(&mut self.completions);
                self.touch(slot);
            }
        }
    }

    /// Sets the device's addresses. The paths from addresses that were removed are lost, and the paths to
    /// them, which led back here.
    pub fn set_addresses(&mut self, now: Instant, addresses: Vec<IpAddr>) {
        let before = core::mem::replace(&mut self.config.addresses, addresses);
        let gone: Vec<_> =
            before.into_iter().filter(|ip| !self.config.addresses.contains(ip)).collect();
        let leads = |path: Path| gone.contains(&path.local) || gone.contains(&path.remote);
        let lost = self.paths().map(|(path, _)| path);
        let lost: Vec<_> = lost.filter(|&path| leads(path)).collect();
        for path in lost {
            self.path_lost(now, path);
        }
        // Released connections use no path, and send no DREQ either.
        self.cm.lose_paths(now, leads);
    }

    /// Adds a connection to its path, until its owner releases it.
    pub(super) fn enter_path(&mut self, conn: ConnId, path: PathIndex) {
        let tie = self.cm.tie_mut(conn).map(|tie| tie.replace(Tie { path, owner: None }));
        debug_assert!(matches!(tie, Some(None)), "a connection begins once");
    }

    /// Removes a connection from its path: its owner has released it.
    pub(super) fn leave_path(&mut self, conn: ConnId) {
        let tie = self.cm.tie_mut(conn).and_then(Option::take);
        if let Some(Tie { path, .. }) = tie {
            self.paths.release(path);
        }
    }
}

impl QpSlot {
    /// Whether it is the QP of this number, and not destroyed.
    pub(super) fn is(&self, qpn: Qpn) -> bool {
        !self.dead && self.qp.qpn() == qpn
    }

    /// Whether its packets have no response.
    pub(super) fn is_stalled(&self) -> bool {
        self.qp.tries() >= DOUBT_AFTER
    }
}
