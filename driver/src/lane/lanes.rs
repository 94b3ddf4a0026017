//! The lanes of all cores, as the desk has them.

use super::Lane;
use crate::sync::{Borrowed, Loan};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use rocev2::ids::Qpn;
use rocev2::{Engine, Engines};

/// The lane of the first core, which the desk has, and the others, which it borrows.
pub(crate) struct Lanes {
    /// Its own.
    pub(crate) own: Box<Lane>,
    others: Vec<Other>,
    /// One of the others is borrowed.
    borrows: bool,
}

/// The lane of another core.
struct Other {
    loan: Arc<Loan<Box<Lane>>>,
    borrowed: Option<Borrowed<Box<Lane>>>,
}

impl Lanes {
    pub(crate) fn new(own: Box<Lane>, others: &[Arc<Loan<Box<Lane>>>]) -> Self {
        let other = |loan: &Arc<_>| Other { loan: Arc::clone(loan), borrowed: None };
        Self { own, others: others.iter().map(other).collect(), borrows: false }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        1 + self.others.len()
    }

    /// The lane of a core. That of another one is borrowed, once its turn has ended, until [`Self::give_back`].
    #[inline]
    pub(crate) fn lane(&mut self, core: u8) -> &mut Lane {
        if core == 0 { &mut self.own } else { self.borrow(core) }
    }

    #[inline(never)]
    fn borrow(&mut self, core: u8) -> &mut Lane {
        self.borrows = true;
        let Other { loan, borrowed } = &mut self.others[usize::from(core) - 1];
        let lane = borrowed.get_or_insert_with(|| Arc::clone(loan).borrow());
        lane.now = self.own.now;
        lane
    }

    /// Calls `each` with its own lane and with those that are borrowed.
    pub(crate) fn for_each_here(&mut self, mut each: impl FnMut(&mut Lane)) {
        each(&mut self.own);
        self.others
            .iter_mut()
            .filter_map(|other| other.borrowed.as_mut())
            .for_each(|lane| each(lane));
    }

    /// Gives back what is borrowed. The cores look at what was done.
    pub(crate) fn give_back(&mut self) {
        if core::mem::take(&mut self.borrows) {
            self.give_all_back();
        }
    }

    #[inline(never)]
    fn give_all_back(&mut self) {
        for (core, other) in (1..).zip(&mut self.others) {
            if other.borrowed.take().is_some() {
                self.own.shard.tell_changed(core);
            }
        }
    }
}

impl Engines for Lanes {
    #[inline(always)]
    fn first(&mut self) -> &mut Engine {
        &mut self.own.engine
    }

    fn of(&mut self, qpn: Qpn) -> Option<&mut Engine> {
        let core = qpn.core(self.len());
        // A core's number is small.
        (core < self.len()).then(|| &mut *self.lane(core as u8).engine)
    }

    fn for_each(&mut self, each: &mut dyn FnMut(&mut Engine)) {
        (0..self.len()).for_each(|core| each(&mut self.lane(core as u8).engine));
    }
}
