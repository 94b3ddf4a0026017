//! Messages of many threads to one, in the order in which they were posted.

use super::modelled::AtomicPtr;
use alloc::boxed::Box;
use core::marker::PhantomData;
use core::ptr::null_mut;
use core::sync::atomic::Ordering;

/// The memory of one message, taken before the message is posted, which cannot fail then.
#[derive(Debug)]
pub(crate) struct Letter<T>(Box<Node<T>>);

#[derive(Debug)]
struct Node<T> {
    message: Option<T>,
    older: *mut Self,
}

// SAFETY: a letter is empty, and points nowhere, until it is posted.
#[allow(unsafe_code, reason = "the pointer leads to nodes that nobody else has")]
unsafe impl<T: Send> Send for Letter<T> {}

impl<T> Letter<T> {
    pub(crate) fn new() -> Self {
        Self(Box::new(Node { message: None, older: null_mut() }))
    }
}

/// Messages on their way, newest first. It holds no memory but that of the letters in it.
#[derive(Debug)]
pub(crate) struct Inbox<T> {
    newest: AtomicPtr<Node<T>>,
    /// It owns its messages, as the pointer alone does not say.
    messages: PhantomData<T>,
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self { newest: AtomicPtr::new(null_mut()), messages: PhantomData }
    }
}

// SAFETY: a message goes from one thread to another.
#[allow(unsafe_code, reason = "a node is handed over with the pointer to it")]
unsafe impl<T: Send> Sync for Inbox<T> {}

#[allow(unsafe_code, reason = "a node belongs to whom has the pointer to it")]
impl<T> Inbox<T> {
    /// Posts a message. It waits for nobody: a thread that is interrupted in it holds nobody up.
    pub(crate) fn post(&self, mut letter: Letter<T>, message: T) {
        letter.0.message = Some(message);
        let node = Box::into_raw(letter.0);
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            // SAFETY: ours until the exchange succeeds.
            unsafe { (*node).older = newest };
            // Release: who takes the list sees the message.
            match self.newest.compare_exchange_weak(
                newest,
                node,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => newest = now,
            }
        }
    }

    /// Whether no message waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.newest.load(Ordering::Relaxed).is_null()
    }

    /// Takes all messages that wait. Where there is none, nothing is written: others read what is beside it.
    pub(crate) fn take(&self) -> Taken<T> {
        let none = self.is_empty();
        let mut newest =
            if none { null_mut() } else { self.newest.swap(null_mut(), Ordering::Acquire) };
        let mut taken = Taken::default();
        while !newest.is_null() {
            // SAFETY: the list was given away with the pointer, and nobody else has it.
            let older = core::mem::replace(unsafe { &mut (*newest).older }, taken.0);
            taken.0 = core::mem::replace(&mut newest, older);
        }
        taken
    }
}

impl<T> Drop for Inbox<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// Messages that were taken, oldest first.
#[derive(Debug)]
pub(crate) struct Taken<T>(*mut Node<T>);

// SAFETY: as for a letter.
#[allow(unsafe_code, reason = "the pointer leads to nodes that nobody else has")]
unsafe impl<T: Send> Send for Taken<T> {}

impl<T> Default for Taken<T> {
    fn default() -> Self {
        Self(null_mut())
    }
}

impl<T> Iterator for Taken<T> {
    type Item = T;

    #[allow(unsafe_code, reason = "the boxes were given away as pointers")]
    fn next(&mut self) -> Option<T> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: made by `post` of a box, and taken by us alone.
        let node = unsafe { Box::from_raw(self.0) };
        self.0 = node.older;
        node.message
    }
}

impl<T> Drop for Taken<T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

#[cfg(all(not(loom), test))]
mod tests {
    use super::*;
    use alloc::sync::Arc;
    use alloc::vec::Vec;

    #[test]
    fn messages_come_in_order_and_those_that_nobody_takes_are_freed() {
        let inbox = Inbox::default();
        let message = Arc::new(());
        for number in 0..3 {
            inbox.post(Letter::new(), (number, Arc::clone(&message)));
        }
        let mut taken = inbox.take();
        assert!(inbox.is_empty());
        inbox.post(Letter::new(), (3, Arc::clone(&message)));
        assert_eq!(taken.next().map(|(number, _)| number), Some(0));
        drop(taken);
        assert_eq!(Arc::strong_count(&message), 2);
        drop(inbox);
        assert_eq!(Arc::strong_count(&message), 1);
    }

    #[test]
    fn each_thread_is_heard_in_its_order() {
        const EACH: u32 = if cfg!(miri) { 20 } else { 10_000 };
        let inbox = Inbox::default();
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let inbox = &inbox;
                scope.spawn(move || {
                    (0..EACH).for_each(|number| inbox.post(Letter::new(), (thread, number)));
                });
            }
            let mut heard = [0; 3];
            while heard != [EACH; 3] {
                for (thread, number) in inbox.take() {
                    assert_eq!(core::mem::replace(&mut heard[thread], number + 1), number);
                }
            }
        });
        assert_eq!(Vec::from_iter(inbox.take()), []);
    }
}
