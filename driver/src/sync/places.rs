//! Places that are counted: of objects, of messages, of mappings.

use super::modelled::AtomicUsize;
use core::sync::atomic::Ordering;

/// No place is free, of the control ring for one: the caller reports insufficient resources.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Full;

/// Takes one of `places`. Acquire pairs with the Release that returned the place, so that the free ring
/// entry is visible.
pub(crate) fn take(places: &AtomicUsize) -> Result<(), Full> {
    let less = |places: usize| places.checked_sub(1);
    places.fetch_update(Ordering::Acquire, Ordering::Relaxed, less).map(drop).map_err(|_| Full)
}
