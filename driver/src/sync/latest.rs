//! A value with one writer and many readers, none of whom waits.

use super::modelled::{AtomicPtr, AtomicUsize, fence};
use alloc::boxed::Box;
use core::marker::PhantomData;
use core::sync::atomic::Ordering;

/// A value that the core replaces now and then, while consumers copy it.
///
/// A value that was replaced lives on behind the new one until a replacement finds no reader.
#[derive(Debug)]
pub(crate) struct Latest<T> {
    current: AtomicPtr<Node<T>>,
    readers: AtomicUsize,
    /// It owns its values, as the pointer alone does not say.
    values: PhantomData<T>,
}

/// The memory of a value, taken before the value is known.
#[derive(Debug)]
pub(crate) struct Room<T>(Box<Node<T>>);

#[derive(Debug)]
struct Node<T> {
    value: Option<T>,
    older: AtomicPtr<Self>,
}

impl<T> Room<T> {
    pub(crate) fn new() -> Self {
        Self(Box::new(Node { value: None, older: AtomicPtr::new(core::ptr::null_mut()) }))
    }
}

impl<T> Default for Latest<T> {
    fn default() -> Self {
        let (current, readers) = (AtomicPtr::new(core::ptr::null_mut()), AtomicUsize::new(0));
        Self { current, readers, values: PhantomData }
    }
}

#[allow(unsafe_code, reason = "readers and the one writer agree on who frees")]
impl<T: Clone + Send> Latest<T> {
    /// A copy; `None` while there is no value.
    pub(crate) fn get(&self) -> Option<T> {
        self.readers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let current = self.current.load(Ordering::Acquire);
        // SAFETY: of the two fences one is first. If it is this one, the writer sees this reader and
        // frees nothing; else this load saw what the writer put in place of what it frees.
        let value = unsafe { current.as_ref() }.and_then(|node| node.value.clone());
        self.readers.fetch_sub(1, Ordering::Release);
        value
    }

    /// Replaces the value.
    ///
    /// # Safety
    /// Only one thread replaces.
    pub(crate) unsafe fn set(&self, Room(mut node): Room<T>, value: T) {
        let older = self.current.load(Ordering::Relaxed);
        (node.value, node.older) = (Some(value), AtomicPtr::new(older));
        let node = Box::into_raw(node);
        self.current.store(node, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.readers.load(Ordering::Acquire) == 0 {
            // SAFETY: ours, and only we look at `older`.
            let older = unsafe { &(*node).older }.swap(core::ptr::null_mut(), Ordering::Relaxed);
            // SAFETY: nobody reads what was replaced, and nobody can begin to.
            unsafe { free(older) };
        }
    }
}

impl<T> Drop for Latest<T> {
    #[allow(unsafe_code, reason = "the last owner frees")]
    fn drop(&mut self) {
        // SAFETY: nobody else has the value any more.
        unsafe { free(self.current.load(Ordering::Relaxed)) };
    }
}

/// Frees a chain of values.
///
/// # Safety
/// The chain came from [`Latest::set`], and no thread reaches it any more.
#[allow(unsafe_code, reason = "the boxes were given away as pointers")]
unsafe fn free<T>(mut chain: *mut Node<T>) {
    while !chain.is_null() {
        // SAFETY: the caller's promise.
        let node = unsafe { Box::from_raw(chain) };
        chain = node.older.load(Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_value_is_read_while_others_replace_it() {
        let latest = Latest::default();
        assert_eq!(latest.get(), None);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for value in 0..200_u32 {
                    // SAFETY: the only thread that replaces.
                    #[allow(unsafe_code, reason = "the one writer")]
                    unsafe {
                        latest.set(Room::new(), Box::new(value));
                    };
                }
            });
            let mut last = 0;
            while last < 199 {
                let value = latest.get().map_or(0, |value| *value);
                assert!(value >= last);
                last = value;
            }
        });
        assert_eq!(latest.get(), Some(Box::new(199)));
    }
}
