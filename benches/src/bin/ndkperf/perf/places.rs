//! The places of a server: those of connections that it serves, and those of connections whose peer has proved nothing yet.
//!
//! Anybody can send a REQ, from any address. That the peer is there shows its RTU, or its first message; until then a connection
//! takes nothing that clients share. Those that wait for it are bounded, and a new one takes the place of the oldest: a peer that is
//! there answers within a round trip, and one that lost its place to so many others before may ask again.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::budget::QUEUE_PAIRS_MAX;

/// Threads at once whose first peer has proved nothing yet.
pub(crate) const UNPROVEN_MAX: usize = 64;

/// The places that are taken.
#[derive(Debug, Default)]
pub(super) struct Places {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    served: u16,
    /// Those that wait for a proof, the oldest first: set where one has lost its place.
    unproven: VecDeque<Arc<AtomicBool>>,
}

impl Places {
    /// Connections that may be served beside those that are.
    pub(super) fn room(&self) -> u16 {
        QUEUE_PAIRS_MAX - self.lock().served
    }

    /// A place for so many connections, of which the first has come. Where all are taken, the oldest is lost.
    pub(super) fn enter(self: &Arc<Self>, connections: u16) -> Place {
        let lost = Arc::default();
        let mut state = self.lock();
        state.unproven.push_back(Arc::clone(&lost));
        if state.unproven.len() > UNPROVEN_MAX
            && let Some(oldest) = state.unproven.pop_front()
        {
            oldest.store(true, Ordering::Relaxed);
        }
        Place { places: Arc::clone(self), connections, lost, proved: Cell::new(false) }
    }

    /// Takes the places of all that wait for a proof.
    pub(super) fn displace_all(&self) {
        self.lock().unproven.drain(..).for_each(|lost| lost.store(true, Ordering::Relaxed));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of the connections of one thread, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    connections: u16,
    lost: Arc<AtomicBool>,
    proved: Cell<bool>,
}

impl Place {
    /// Whether another one has it.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// For others to ask whether it is still held.
    pub(super) fn observe(&self) -> Weak<AtomicBool> {
        Arc::downgrade(&self.lost)
    }

    /// The first peer has proved that it is there. Returns whether its connections can be served.
    pub(super) fn prove(&self) -> bool {
        let mut state = self.places.lock();
        let fits = !self.proved.get() && state.served + self.connections <= QUEUE_PAIRS_MAX;
        if fits {
            self.leave(&mut state);
            state.served += self.connections;
            self.proved.set(true);
        }
        fits
    }

    fn leave(&self, state: &mut State) {
        state.unproven.retain(|lost| !Arc::ptr_eq(lost, &self.lost));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.places.lock();
        self.leave(&mut state);
        if self.proved.get() {
            state.served -= self.connections;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is not proved takes nothing from what is, and the oldest makes way.
    #[test]
    fn the_oldest_without_a_proof_makes_way() {
        let places = Arc::new(Places::default());
        let mut waiting: Vec<Place> = (0..UNPROVEN_MAX).map(|_| places.enter(1)).collect();
        assert!(!waiting.iter().any(Place::is_lost));
        assert_eq!(places.room(), QUEUE_PAIRS_MAX);
        assert!(waiting[0].prove());
        let newest = places.enter(1);
        assert!(!waiting.iter().any(Place::is_lost), "the proof had left a place");
        let one_more = places.enter(1);
        let lost: Vec<bool> = waiting.iter().map(Place::is_lost).collect();
        assert_eq!(lost.iter().position(|lost| *lost), Some(1));
        assert_eq!(lost.iter().filter(|lost| **lost).count(), 1);
        drop(waiting.split_off(2));
        assert_eq!((places.room(), places.lock().unproven.len()), (QUEUE_PAIRS_MAX - 1, 2));
        places.displace_all();
        assert!(newest.is_lost() && one_more.is_lost() && !waiting[0].is_lost());
        assert!(one_more.prove(), "its proof came all the same");
        drop((waiting, newest, one_more));
        assert_eq!((places.room(), places.lock().unproven.len()), (QUEUE_PAIRS_MAX, 0));
    }

    #[test]
    fn no_more_are_served_than_there_are_places() {
        let places = Arc::new(Places::default());
        let (most, one, none) =
            (places.enter(QUEUE_PAIRS_MAX - 1), places.enter(1), places.enter(1));
        assert!(most.prove() && one.prove() && !none.prove());
        assert!(!one.prove(), "once");
        drop(most);
        assert!(none.prove());
        assert_eq!(places.room(), QUEUE_PAIRS_MAX - 2);
    }
}
