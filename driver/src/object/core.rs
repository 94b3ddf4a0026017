//! The life of every object: antecedents and successors, asynchronous close. It knows no kind.
//!
//! A close is finished once no successor is open and nothing of the object is pending; its
//! completion is the last that the consumer hears of it, and an antecedent is finished only after
//! that callback has returned (ndkpi, Object Lifetime Requirements).

use super::id::{ObjectId, Place};
use crate::abi::NDK_VERSION;
use crate::cx::growth;
use crate::object::done::CloseDone;
use slotmap::SlotMap;

/// Antecedents of an object. The widest, an accepted connector, has three.
pub(crate) type Parents = heapless::Vec<ObjectId, 4>;

/// The lives of all objects of a core.
#[derive(Default)]
pub(crate) struct Lifetimes {
    lives: SlotMap<ObjectId, Life>,
}

/// The life of an object.
struct Life {
    place: Place,
    /// The version at which its adapter was opened.
    version: NDK_VERSION,
    /// Antecedents, each of which counts this object as a successor.
    parents: Parents,
    /// An antecedent that changes in the object's life, beside those that stay.
    bound: Option<ObjectId>,
    /// Successors that are still open.
    children: u32,
    /// The close that was asked for.
    closing: Option<CloseDone>,
    /// The close completion is on its way.
    finishing: bool,
}

impl Lifetimes {
    /// Objects that exist.
    pub(crate) fn len(&self) -> usize {
        self.lives.len()
    }

    /// The memory that one more may take.
    pub(crate) fn growth(&self) -> usize {
        growth(&self.lives)
    }

    /// Where the core keeps an object that exists.
    pub(crate) fn place(&self, id: ObjectId) -> Option<Place> {
        self.lives.get(id).map(|life| life.place)
    }

    /// The version at which an object's adapter was opened.
    pub(crate) fn version(&self, id: ObjectId) -> Option<NDK_VERSION> {
        self.lives.get(id).map(|life| life.version)
    }

    /// Whether an object exists and no close was asked for.
    pub(crate) fn is_open(&self, id: ObjectId) -> bool {
        self.lives.get(id).is_some_and(|life| life.closing.is_none())
    }

    /// Enters an object, which `make` keeps in the table of its kind.
    pub(crate) fn insert(
        &mut self,
        version: NDK_VERSION,
        make: impl FnOnce(ObjectId) -> Place,
    ) -> ObjectId {
        self.lives.insert_with_key(|id| Life {
            place: make(id),
            version,
            parents: Parents::new(),
            bound: None,
            children: 0,
            closing: None,
            finishing: false,
        })
    }

    /// Makes `parent` an antecedent of `child`.
    pub(crate) fn add_parent(&mut self, child: ObjectId, parent: ObjectId) {
        let Some(life) = self.lives.get_mut(child) else { return };
        let added = life.parents.push(parent);
        debug_assert!(added.is_ok());
        self.add_child(parent);
    }

    fn add_child(&mut self, parent: ObjectId) {
        if let Some(parent) = self.lives.get_mut(parent) {
            parent.children += 1;
        }
    }

    /// Undoes [`Self::add_parent`]. An antecedent whose close is finished by it is returned.
    #[must_use]
    pub(crate) fn remove_parent(&mut self, child: ObjectId, parent: ObjectId) -> Option<ObjectId> {
        let life = self.lives.get_mut(child)?;
        let index = life.parents.iter().position(|&id| id == parent)?;
        life.parents.swap_remove(index);
        self.drop_child(parent)
    }

    /// Makes `parent` the one antecedent of `child` that changes. The one before is returned if its close
    /// is finished by it.
    #[must_use]
    pub(crate) fn bind(&mut self, child: ObjectId, parent: Option<ObjectId>) -> Option<ObjectId> {
        let life = self.lives.get_mut(child)?;
        let before = core::mem::replace(&mut life.bound, parent);
        if before == parent {
            return None;
        }
        let finished = before.and_then(|before| self.drop_child(before));
        if let Some(parent) = parent {
            self.add_child(parent);
        }
        finished
    }

    /// A successor is gone. An object whose close is finished by it is returned.
    #[must_use]
    pub(crate) fn drop_child(&mut self, parent: ObjectId) -> Option<ObjectId> {
        let life = self.lives.get_mut(parent)?;
        life.children -= 1;
        self.finish(parent)
    }

    /// Notes that a close was asked for; the place of the object, unless that was noted before.
    pub(crate) fn close(&mut self, id: ObjectId, done: CloseDone) -> Option<Place> {
        let life = self.lives.get_mut(id)?;
        if life.closing.is_some() {
            return None;
        }
        life.closing = Some(done);
        Some(life.place)
    }

    /// The object, once, if its close can be completed.
    #[must_use]
    pub(crate) fn finish(&mut self, id: ObjectId) -> Option<ObjectId> {
        let life = self.lives.get_mut(id)?;
        let ends = life.closing.is_some() && life.children == 0 && !life.finishing;
        life.finishing |= ends;
        ends.then_some(id)
    }

    /// Forgets an object: how its close ends, and those that it was a successor of.
    pub(crate) fn remove(
        &mut self,
        id: ObjectId,
    ) -> Option<(Option<CloseDone>, impl Iterator<Item = ObjectId> + use<>)> {
        let life = self.lives.remove(id)?;
        Some((life.closing, life.parents.into_iter().chain(life.bound)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::id::{AdapterKey, At, CqKey};
    use alloc::boxed::Box;
    use slotmap::Key as _;

    fn open(lifetimes: &mut Lifetimes, place: Place) -> ObjectId {
        lifetimes.insert(NDK_VERSION::default(), |_| place)
    }

    fn done() -> CloseDone {
        CloseDone::Signal(Box::new(|| {}))
    }

    #[test]
    fn a_close_waits_for_the_last_successor_and_is_finished_once() {
        let mut lifetimes = Lifetimes::default();
        let parent = open(&mut lifetimes, Place::Adapter(AdapterKey::null()));
        let place = Place::Cq(At { core: 0, key: CqKey::null() });
        let [first, second] = [(); 2].map(|()| open(&mut lifetimes, place));
        lifetimes.add_parent(first, parent);
        assert_eq!(lifetimes.bind(second, Some(parent)), None);
        assert_eq!(lifetimes.close(parent, done()), Some(Place::Adapter(AdapterKey::null())));
        assert_eq!(lifetimes.close(parent, done()), None, "asked for before");
        assert_eq!(lifetimes.finish(parent), None, "two successors");
        assert_eq!(lifetimes.remove_parent(first, parent), None, "one successor");
        assert_eq!(lifetimes.bind(second, Some(parent)), None, "still the same");
        assert_eq!(lifetimes.bind(second, None), Some(parent));
        assert_eq!(lifetimes.finish(parent), None, "finished already");
    }
}
