//! Listeners: the endpoints that take requests, and their backlogs.

use super::slab::{Key, Slab};
use super::{CmError, ListenerId};
use alloc::collections::BTreeMap;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The decision of a listener about a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Admission {
    /// The request is taken.
    Room(ListenerId),
    /// The backlog is full. The request is put off in silence: the peer repeats it, and there may be room then.
    Later(ListenerId),
    /// So many repeated requests were put off that each further one is refused at once.
    Full,
    /// There is no listener, or it is paused.
    Nobody,
}

#[derive(Debug)]
struct Listener {
    local: SocketAddr,
    backlog: usize,
    /// Requests that wait for accept or reject.
    pending: usize,
    /// Repeated requests put off since the last one that was taken.
    put_off: usize,
    paused: bool,
}

/// All listeners, by ID and by local endpoint.
#[derive(Debug)]
pub(super) struct Listeners {
    slab: Slab<Listener>,
    by_local: BTreeMap<SocketAddr, Key>,
}

impl Listeners {
    pub(super) const fn new() -> Self {
        Self { slab: Slab::new(), by_local: BTreeMap::new() }
    }

    pub(super) fn insert(
        &mut self,
        local: SocketAddr,
        backlog: usize,
    ) -> Result<ListenerId, CmError> {
        let local = plain(local);
        if self.by_local.contains_key(&local) {
            return Err(CmError::AddressInUse);
        }
        let listener = Listener { local, backlog, pending: 0, put_off: 0, paused: false };
        let key = self.slab.insert(listener).ok_or(CmError::Full)?;
        self.by_local.insert(local, key);
        Ok(ListenerId(key))
    }

    pub(super) fn remove(&mut self, id: ListenerId) -> bool {
        let Some(listener) = self.slab.remove(id.0) else { return false };
        self.by_local.remove(&listener.local);
        true
    }

    pub(super) fn pause(&mut self, id: ListenerId, paused: bool) {
        if let Some(listener) = self.slab.get_mut(id.0) {
            listener.paused = paused;
        }
    }

    /// Decides about a request for `local`.
    pub(super) fn admit(&self, local: SocketAddr) -> Admission {
        let Some(key) = self.find(local) else { return Admission::Nobody };
        let Some(listener) = self.slab.get(key) else { return Admission::Nobody };
        if listener.paused {
            return Admission::Nobody;
        }
        if listener.pending < listener.backlog {
            return Admission::Room(ListenerId(key));
        }
        if listener.put_off < listener.backlog {
            Admission::Later(ListenerId(key))
        } else {
            Admission::Full
        }
    }

    /// Notes that a repeated request was put off: those of a flood come once, and refuse nobody.
    pub(super) fn put_off(&mut self, id: ListenerId) {
        if let Some(listener) = self.slab.get_mut(id.0) {
            listener.put_off = listener.put_off.saturating_add(1);
        }
    }

    /// Takes a place in the backlog.
    pub(super) fn take_place(&mut self, id: ListenerId) {
        if let Some(listener) = self.slab.get_mut(id.0) {
            listener.pending += 1;
            listener.put_off = 0;
        }
    }

    /// Frees a place in the backlog: the consumer has accepted or rejected. The listener may be gone.
    pub(super) fn leave_place(&mut self, id: ListenerId) {
        if let Some(listener) = self.slab.get_mut(id.0) {
            listener.pending -= 1;
        }
    }

    /// A listener on the address itself comes before one on all addresses.
    fn find(&self, local: SocketAddr) -> Option<Key> {
        let any = match local.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let any = SocketAddr::new(any, local.port());
        self.by_local.get(&plain(local)).or_else(|| self.by_local.get(&any)).copied()
    }
}

/// Removes IPv6 flow information and scope, which no message carries.
pub(super) const fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local() -> SocketAddr {
        "10.0.0.1:445".parse().unwrap()
    }

    #[test]
    fn the_backlog_puts_off_then_refuses() {
        let mut listeners = Listeners::new();
        let id = listeners.insert(local(), 2).unwrap();
        for _ in 0..2 {
            assert_eq!(listeners.admit(local()), Admission::Room(id));
            listeners.take_place(id);
        }
        for _ in 0..2 {
            assert_eq!([(); 3].map(|()| listeners.admit(local())), [Admission::Later(id); 3]);
            listeners.put_off(id);
        }
        assert_eq!(listeners.admit(local()), Admission::Full);
        listeners.leave_place(id);
        assert_eq!(listeners.admit(local()), Admission::Room(id));
        listeners.take_place(id);
        assert_eq!(listeners.admit(local()), Admission::Later(id));
    }

    #[test]
    fn a_paused_listener_takes_no_request() {
        let mut listeners = Listeners::new();
        let id = listeners.insert(local(), 2).unwrap();
        listeners.pause(id, true);
        assert_eq!(listeners.admit(local()), Admission::Nobody);
        listeners.pause(id, false);
        assert_eq!(listeners.admit(local()), Admission::Room(id));
    }

    #[test]
    fn the_nearer_address_is_asked_first() {
        let mut listeners = Listeners::new();
        let any = listeners.insert("0.0.0.0:445".parse().unwrap(), 2).unwrap();
        assert_eq!(listeners.admit(local()), Admission::Room(any));
        let near = listeners.insert(local(), 2).unwrap();
        assert_eq!(listeners.admit(local()), Admission::Room(near));
        assert!(listeners.remove(near));
        assert!(!listeners.remove(near));
        assert_eq!(listeners.admit(local()), Admission::Room(any));
        assert_eq!(listeners.admit("[::1]:445".parse().unwrap()), Admission::Nobody);
    }
}
