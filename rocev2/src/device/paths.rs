//! The paths of a device's connections. Their owner, outside of the crate, resolves them and reports the
//! outcome here.

use super::engine::Engine;
use super::{Device, Engines};
use crate::cm::{ConnId, Tie};
use crate::env::Instant;
use crate::path::{Path, PathEvent, PathIndex};
use crate::wire::Hop;
use alloc::vec::Vec;
use core::net::IpAddr;

/// Tries in a row without a response, from which on the path is doubted.
pub(super) const DOUBT_AFTER: u32 = 3;

impl Engine {
    /// The next path of this core that came into use, or that is doubted and should be resolved again; the caller
    /// reports the outcome by [`Device::path_update`], if there is one. Each path waits here once, however
    /// long nobody polls.
    pub fn poll_path(&mut self) -> Option<PathEvent> {
        self.paths.poll()
    }

    /// Sets the hop of a path. The packets of a peer that was its own hop come from the new one, too.
    fn set_hop(&mut self, index: PathIndex, hop: Hop) {
        let before = self.paths.hop(index);
        if !self.paths.set(index, hop) {
            return;
        }
        for entry in self.qps.iter_mut().flatten().filter(|entry| entry.path == Some(index)) {
            entry.qp.follow(before, hop);
            (entry.flow, entry.heard) = (None, None);
        }
    }

    /// The queue pairs that use a path fail.
    fn lose_path(&mut self, path: Path) {
        let Some(index) = self.paths.find(path) else { return };
        for slot in 0..self.qps.len() {
            let Some(entry) = self.qps[slot].as_deref_mut() else { continue };
            if entry.path == Some(index) {
                entry.qp.lose_path(&mut self.completions);
                self.touch(slot);
            }
        }
    }
}

impl<E: Engines> Device<E> {
    /// All paths that connections use, and queue pairs of the first core, with the hops in force.
    pub fn paths(&mut self) -> impl Iterator<Item = (Path, Hop)> {
        self.engines.first().paths.iter()
    }

    /// The hop of a path; `None` where it is not in use.
    pub fn path_hop(&mut self, path: Path) -> Option<Hop> {
        let paths = &self.engines.first().paths;
        paths.find(path).map(|index| paths.hop(index))
    }

    /// Sets the hop of a path for each packet from now on. The caller vouches for it: it asked the network
    /// or the operating system. A path that is not in use is ignored.
    pub fn path_update(&mut self, path: Path, hop: Hop) {
        self.engines.for_each(&mut |engine| {
            if let Some(index) = engine.paths.find(path) {
                engine.set_hop(index, hop);
            }
        });
    }

    /// Ends a path for good. Its connections end at once, each with
    /// [`CmEvent::PathLost`](crate::cm::CmEvent::PathLost) and the failure of its queue pair, whose oldest
    /// request ends with [`PathLost`](crate::qp::WcStatus::PathLost). No packet is sent.
    pub fn path_lost(&mut self, now: Instant, path: Path) {
        self.front.cm.lose_paths(now, |lost| lost == path);
        self.engines.for_each(&mut |engine| engine.lose_path(path));
    }

    /// Sets the device's addresses. The paths from addresses that were removed are lost, and the paths to
    /// them, which led back here.
    pub fn set_addresses(&mut self, now: Instant, addresses: Vec<IpAddr>) {
        let mut gone = self.engines.first().config.addresses.clone();
        gone.retain(|ip| !addresses.contains(ip));
        let leads = |path: Path| gone.contains(&path.local) || gone.contains(&path.remote);
        let mut lost = Vec::new();
        self.engines.for_each(&mut |engine| {
            engine.config.addresses.clone_from(&addresses);
            lost.extend(engine.paths.iter().map(|(path, _)| path).filter(|path| leads(*path)));
        });
        for path in lost {
            self.path_lost(now, path);
        }
        // Released connections use no path, and send no DREQ either.
        self.front.cm.lose_paths(now, leads);
    }

    /// Adds a connection to its path, until its owner releases it.
    pub(super) fn enter_path(&mut self, conn: ConnId, path: PathIndex) {
        let tie = self.front.cm.tie_mut(conn).map(|tie| tie.replace(Tie { path, owner: None }));
        debug_assert!(matches!(tie, Some(None)), "a connection begins once");
    }

    /// Removes a connection from its path: its owner has released it.
    pub(super) fn leave_path(&mut self, conn: ConnId) {
        let tie = self.front.cm.tie_mut(conn).and_then(Option::take);
        if let Some(Tie { path, .. }) = tie {
            self.engines.first().paths.release(path);
        }
    }
}
