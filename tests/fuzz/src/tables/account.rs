//! What the consumer has, and what it is owed.

use arbitrary::Arbitrary;
use driver::abi::{NDK_OBJECT_HEADER, NTSTATUS, STATUS_PENDING};
use std::collections::{BTreeMap, BTreeSet};
use tests::kit::numbered::{Event, next_event};
use tests::kit::raw::Object;

/// A kind of object.
#[derive(Arbitrary, Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Kind {
    Cq,
    Pd,
    Mr,
    Mw,
    Srq,
    Qp,
    Connector,
    Listener,
    Endpoint,
}

impl Kind {
    pub(super) const ALL: [Self; 9] = [
        Self::Pd,
        Self::Cq,
        Self::Mr,
        Self::Mw,
        Self::Srq,
        Self::Qp,
        Self::Endpoint,
        Self::Listener,
        Self::Connector,
    ];
}

/// An object, open or closing.
#[derive(Clone, Copy, Debug)]
struct Held {
    host: usize,
    kind: Kind,
    object: *mut NDK_OBJECT_HEADER,
    closing: bool,
}

/// What a request ends with.
#[derive(Debug)]
enum Owed {
    Creation(usize, Kind),
    End,
    Close(*mut NDK_OBJECT_HEADER),
}

/// What the consumer has, and what it is owed.
#[derive(Default)]
pub(super) struct Account {
    held: Vec<Held>,
    owed: BTreeMap<usize, Owed>,
    /// Work requests that were posted and have not completed; silent ones need not.
    posted: BTreeSet<usize>,
    last: usize,
}

impl Account {
    fn token(&mut self, owed: Owed) -> usize {
        self.last += 1;
        self.owed.insert(self.last, owed);
        self.last
    }

    /// The token of a creation; the object is there when that has ended.
    pub(super) fn creates(&mut self, host: usize, kind: Kind) -> usize {
        self.token(Owed::Creation(host, kind))
    }

    /// The token of a request.
    pub(super) fn requests(&mut self) -> usize {
        self.token(Owed::End)
    }

    /// A call with a token has returned.
    pub(super) fn returned(&mut self, token: usize, status: NTSTATUS) {
        if status != STATUS_PENDING {
            // Not pending: the callback does not come.
            match self.owed.remove(&token) {
                Some(Owed::Close(object)) => self.forget(object),
                Some(Owed::Creation(..)) => assert!(!status.is_success(), "it creates later"),
                Some(Owed::End) => {}
                None => panic!("a callback and a status"),
            }
        }
    }

    /// Posts a work request under a number of its own.
    pub(super) fn posts(&mut self, post: impl FnOnce(usize) -> NTSTATUS) {
        self.last += 1;
        if post(self.last).is_success() {
            self.posted.insert(self.last);
        }
    }

    /// A work request has completed.
    pub(super) fn completed(&mut self, id: usize) {
        assert!(self.posted.remove(&id), "{id} completed twice, or was not posted");
    }

    /// An object of this kind, open or closing.
    pub(super) fn this<T>(&self, host: usize, kind: Kind, at: u8) -> Option<Object<T>> {
        let mine = || self.held.iter().filter(|held| held.host == host && held.kind == kind);
        let at = usize::from(at) % mine().count().max(1);
        mine().nth(at).map(|held| Object(held.object.cast()))
    }

    /// An argument: mostly an object of this kind, else any that there is, or none.
    pub(super) fn argument<T>(&self, host: usize, kind: Kind, at: u8) -> Object<T> {
        let other = match at {
            0..0xf0 => return self.this(host, kind, at).unwrap_or(Object(std::ptr::null_mut())),
            0xf0..0xf8 => self.held.get(usize::from(at - 0xf0)),
            0xf8..0xff => self.held.iter().rev().nth(usize::from(at - 0xf8)),
            0xff => None,
        };
        Object(other.map_or(std::ptr::null_mut(), |held| held.object.cast()))
    }

    pub(super) fn open_count(&self, host: usize, kind: Kind) -> usize {
        self.open(host, kind).count()
    }

    fn open(&self, host: usize, kind: Kind) -> impl Iterator<Item = &Held> {
        let is = move |held: &&Held| held.host == host && held.kind == kind && !held.closing;
        self.held.iter().filter(is)
    }

    /// The token for the close of an open object, and the object.
    pub(super) fn closes(
        &mut self,
        host: usize,
        kind: Kind,
        at: u8,
    ) -> Option<(usize, *mut NDK_OBJECT_HEADER)> {
        let at = usize::from(at) % self.open_count(host, kind).max(1);
        let object = self.open(host, kind).nth(at)?.object;
        let held = self.held.iter_mut().find(|held| held.object == object);
        held.expect("it is open").closing = true;
        Some((self.token(Owed::Close(object)), object))
    }

    fn forget(&mut self, object: *mut NDK_OBJECT_HEADER) {
        let at = self.held.iter().position(|held| held.object == object);
        self.held.remove(at.expect("it was open"));
    }

    /// Reads what the providers have told.
    pub(super) fn read(&mut self) {
        while let Some(event) = next_event() {
            match event {
                Event::Created(token, created) => {
                    let Some(Owed::Creation(host, kind)) = self.owed.remove(&token) else {
                        panic!("a creation that nobody waits for");
                    };
                    if let Ok(object) = created {
                        self.held.push(Held { host, kind, object, closing: false });
                    }
                }
                Event::Requested(token, _) => {
                    let owed = self.owed.remove(&token);
                    assert!(matches!(owed, Some(Owed::End)), "a request that nobody waits for");
                }
                Event::Closed(token) => {
                    let Some(Owed::Close(object)) = self.owed.remove(&token) else {
                        panic!("a close that nobody waits for");
                    };
                    self.forget(object);
                }
                Event::Connecting(host, connector) => {
                    let (kind, object) = (Kind::Connector, connector.0.cast());
                    self.held.push(Held { host, kind, object, closing: false });
                }
                Event::Notified(..) | Event::Left(_) | Event::Low(..) => {}
            }
        }
    }

    /// Nothing is owed.
    pub(super) fn is_settled(&self) -> bool {
        self.owed.is_empty() && self.held.is_empty()
    }

    pub(super) fn finish(&self) {
        assert!(self.owed.is_empty(), "requests without an end: {:?}", self.owed);
        assert!(self.held.is_empty(), "objects that stay: {:?}", self.held);
    }
}
