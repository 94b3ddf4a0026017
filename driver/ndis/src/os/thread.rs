//! System threads, and a work queue for one.
#![allow(unsafe_code, reason = "calls the kernel")]

use super::sync::{Event, SpinLock, wait};
use crate::abi::imports::{
    KeSetPriorityThread, ObReferenceObjectByHandle, ObfDereferenceObject, PsCreateSystemThread,
    PsTerminateSystemThread, ZwClose,
};
use crate::abi::*;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering};

/// A running system thread. The code that started it signals it to end and then joins it.
pub(crate) struct Thread {
    object: PVOID,
}

// SAFETY: a reference to a kernel object belongs to no thread.
unsafe impl Send for Thread {}
// SAFETY: as above.
unsafe impl Sync for Thread {}

type Body = Box<dyn FnOnce() + Send>;

impl Thread {
    /// Starts a thread at PASSIVE_LEVEL. PASSIVE_LEVEL.
    pub(crate) fn start(body: impl FnOnce() + Send + 'static) -> Result<Self, NTSTATUS> {
        let body: Box<Body> = Box::new(Box::new(body));
        let context: PVOID = Box::into_raw(body).cast();
        let (mut handle, nothing) = (null_mut(), null_mut());
        // Otherwise the handle would be one of the process that this thread happens to run in.
        let mut attributes = OBJECT_ATTRIBUTES::kernel(null_mut());
        // SAFETY: the thread takes the boxed body over if it starts.
        let started = unsafe {
            PsCreateSystemThread(
                &mut handle,
                THREAD_ALL_ACCESS,
                (&raw mut attributes).cast(),
                nothing,
                nothing,
                thread_entry,
                context,
            )
        };
        if let Err(status) = started.ok() {
            // SAFETY: no thread took it.
            drop(unsafe { Box::from_raw(context.cast::<Body>()) });
            return Err(status);
        }
        let mut object = null_mut();
        // SAFETY: the handle was just made; a reference to its thread cannot fail.
        let status = unsafe {
            ObReferenceObjectByHandle(
                handle,
                THREAD_ALL_ACCESS,
                null_mut(),
                KernelMode,
                &mut object,
                null_mut(),
            )
        };
        assert!(status.is_success(), "a thread's own handle");
        // SAFETY: the handle is ours and no longer needed.
        let _ = unsafe { ZwClose(handle) };
        Ok(Self { object })
    }

    /// IRQL <= DISPATCH_LEVEL.
    pub(crate) fn set_priority(&self, priority: i32) {
        // SAFETY: a thread's object, of which we hold a reference.
        unsafe { KeSetPriorityThread(self.object, priority) };
    }

    /// Waits for the thread's end. PASSIVE_LEVEL.
    pub(crate) fn join(self) {
        wait(self.object, None);
        // SAFETY: the reference that `start` took.
        unsafe { ObfDereferenceObject(self.object) };
    }
}

/// # Safety
/// `context` is a boxed [`Body`] that the thread owns from here on.
unsafe extern "system" fn thread_entry(context: PVOID) {
    // SAFETY: by the contract above.
    let body = unsafe { Box::from_raw(context.cast::<Body>()) };
    body();
    // SAFETY: nothing of ours is left on this stack.
    let _ = unsafe { PsTerminateSystemThread(STATUS_SUCCESS) };
}

/// Threads that take jobs out of one queue and run them at PASSIVE_LEVEL: one thread runs them one after the other, several
/// side by side.
pub(crate) struct Worker {
    queue: Arc<Queue>,
    threads: heapless::Vec<Thread, THREADS_MAX>,
}

struct Queue {
    jobs: SpinLock<VecDeque<Job>>,
    /// Jobs that may wait, for which there is memory from the start.
    room: usize,
    news: Event,
    ending: AtomicBool,
}

/// A job at PASSIVE_LEVEL.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// The job that a thread takes of those that wait.
#[derive(Clone, Copy)]
pub(crate) enum Order {
    /// The first that came: each has its turn.
    Oldest,
    /// The last that came, which waits for the end of one job at most, however many wait.
    Newest,
}

/// The queue of a [`Worker`], for any thread.
#[derive(Clone)]
pub(crate) struct Jobs(Arc<Queue>);

impl Worker {
    /// A thread for each of `orders`, [`THREADS_MAX`] at most, and a queue with room for so many jobs. PASSIVE_LEVEL.
    pub(crate) fn start(orders: &[Order], room: usize) -> Result<Self, NTSTATUS> {
        let mut jobs = VecDeque::new();
        jobs.try_reserve_exact(room).map_err(|_| STATUS_INSUFFICIENT_RESOURCES)?;
        let queue = Arc::new(Queue {
            jobs: SpinLock::new(jobs),
            room,
            news: Event::synchronization(),
            ending: AtomicBool::new(false),
        });
        let mut worker = Self { queue, threads: heapless::Vec::new() };
        for order in orders.iter().copied() {
            let queue = Arc::clone(&worker.queue);
            let thread = Thread::start(move || run(&queue, order))?;
            // A drop of the worker ends it, also where the next one does not start.
            assert!(worker.threads.push(thread).is_ok(), "more threads than there is room for");
        }
        Ok(worker)
    }

    pub(crate) fn jobs(&self) -> Jobs {
        Jobs(Arc::clone(&self.queue))
    }
}

impl Drop for Worker {
    /// Runs the queued jobs, then ends the threads. PASSIVE_LEVEL, not from a job.
    fn drop(&mut self) {
        self.queue.ending.store(true, Ordering::Release);
        self.queue.news.set();
        for thread in core::mem::take(&mut self.threads) {
            thread.join();
        }
    }
}

impl Jobs {
    /// Queues a job; returns false where the queue is full. IRQL <= DISPATCH_LEVEL.
    #[must_use]
    pub(crate) fn push(&self, job: Job) -> bool {
        let refused = self.0.push(job);
        self.0.news.set();
        // Dropped with no lock held.
        refused.is_none()
    }
}

impl Queue {
    /// Returns the job where there is no room.
    fn push(&self, job: Job) -> Option<Job> {
        let mut jobs = self.jobs.lock();
        if jobs.len() == self.room {
            return Some(job);
        }
        jobs.push_back(job);
        None
    }

    fn take(&self, order: Order) -> Option<Job> {
        let mut jobs = self.jobs.lock();
        match order {
            Order::Oldest => jobs.pop_front(),
            Order::Newest => jobs.pop_back(),
        }
    }

    fn is_empty(&self) -> bool {
        self.jobs.lock().is_empty()
    }
}

fn run(queue: &Queue, order: Order) {
    loop {
        while let Some(job) = queue.take(order) {
            // News wake one thread, which wakes the next before it may be long at its job.
            if !queue.is_empty() {
                queue.news.set();
            }
            job();
        }
        if queue.ending.load(Ordering::Acquire) && queue.is_empty() {
            return queue.news.set();
        }
        queue.news.wait();
    }
}

pub(crate) const THREADS_MAX: usize = 8;
