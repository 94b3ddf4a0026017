//! The other side of the driver, on a host: a [`RingOwner`] for each packet queue, which keeps NetAdapterCx's rules and
//! names each [`Breach`], and a stand-in for the frameworks that finds the driver's callbacks as Windows does.
//!
//! A [`System`] is one adapter that was plugged in. Its owner polls it on one thread.
#![allow(unsafe_code, reason = "calls the driver's callbacks, and shares memory with them")]
#![allow(missing_debug_implementations, reason = "rings are memory")]
#![allow(clippy::missing_panics_doc, reason = "tests panic where something is refused")]

mod framework;
mod owner;
mod ring;
mod rules;

pub use owner::{Hand, Kind, RingOwner, Sizes};
pub use rules::Breach;

use crate::abi::*;
use crate::{Client, create};
use core::ptr::null_mut;
use core::sync::atomic::Ordering;
use framework::{Object, PacketQueue};
use std::sync::{Mutex, PoisonError};
use std::vec::Vec;

/// An adapter of the driver, from plug to unplug.
pub struct System {
    device: PVOID,
    adapter: NETADAPTER,
    sizes: [Sizes; 2],
    queues: [Queue; 2],
    breaches: Vec<Breach>,
}

// SAFETY: the objects belong to the system, and to no thread.
unsafe impl Send for System {}

/// One packet queue, as NetAdapterCx polls it.
struct Queue {
    handle: PVOID,
    /// It is polled when the driver notifies, or the system has something for it.
    asleep: bool,
    /// Polls without a result.
    idle: u32,
}

/// Polls without a result before the system gives the permission to notify and stops to poll.
const IDLE_POLLS: u32 = 2;

impl System {
    /// Loads the driver if it is not yet, and plugs a device in. The sizes are those of the transmit and the receive queue.
    pub fn plug(client: &'static Client, sizes: [Sizes; 2]) -> Self {
        // A driver has one set of statics, so other tests of the process wait.
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        framework::bind();
        create(null_mut(), null_mut(), client).ok().expect("a driver");
        let device = framework::add_device().expect("a device");
        let adapter = *Object::of(device).adapter.get().expect("an adapter");
        let system = Self {
            device,
            adapter,
            sizes,
            queues: Self::prepare(device, sizes),
            breaches: Vec::new(),
        };
        drop(turn);
        system
    }

    /// The adapter's handle.
    pub fn adapter(&self) -> NETADAPTER {
        self.adapter
    }

    /// `EvtDevicePrepareHardware`, then the queues.
    fn prepare(device: PVOID, sizes: [Sizes; 2]) -> [Queue; 2] {
        let object = Object::of(device);
        let (prepare, _) = object.hardware.get().expect("callbacks");
        // SAFETY: the driver's callback, for its device.
        unsafe { prepare(WDFDEVICE(device), null_mut(), null_mut()) }.ok().expect("a start");
        let adapter = *object.adapter.get().expect("an adapter");
        assert!(Object::of(adapter.0).started.load(Ordering::Relaxed), "the adapter runs");
        let create = object.datapath.get().expect("callbacks for queues");
        [(0, Kind::Transmit), (1, Kind::Receive)].map(|(nth, kind)| {
            let handle = framework::create_queue(create[nth], adapter, kind, sizes[nth]);
            let mut queue = Queue { handle: handle.expect("a queue"), asleep: false, idle: 0 };
            queue.owner().start();
            queue
        })
    }

    /// Sends a frame in fragments of `piece` bytes. False: there is no room.
    pub fn send(&mut self, frame: &[u8], piece: usize) -> bool {
        // Data seldom begin where their buffer does.
        const OFFSET: usize = 6;
        self.queues[0].owner().give(frame, piece, OFFSET) && self.queues[0].wake()
    }

    /// Hands over a packet that is to be passed by. False: there is no room.
    pub fn send_ignored(&mut self) -> bool {
        self.queues[0].owner().give_ignored() && self.queues[0].wake()
    }

    /// The oldest frame that was indicated.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        self.queues[1].owner().received()
    }

    /// Hands out up to `most` buffers to receive into.
    pub fn give_buffers(&mut self, most: u32) -> bool {
        self.queues[1].owner().give_buffers(most) && self.queues[1].wake()
    }

    /// Polls both queues once, where they are to be polled. False: both are asleep.
    pub fn poll(&mut self) -> bool {
        let polled = self.queues.each_mut().map(Queue::poll);
        polled.contains(&true)
    }

    /// Polls until both queues sleep. A queue that would still drain something was not notified.
    pub fn settle(&mut self) {
        while self.poll() {}
        for queue in &mut self.queues {
            if queue.advance() {
                queue.owner().note(Breach::NotNotified);
            }
        }
        while self.poll() {}
    }

    /// A notification wakes this thread from now on.
    pub fn wake_this_thread(&mut self) {
        for queue in &mut self.queues {
            let thread = std::thread::current();
            *queue.state().poller.lock().unwrap() = Some(thread);
        }
    }

    /// Notifies the system of a queue, as a driver does that disregards the permission.
    pub fn notify(&mut self, kind: Kind) {
        framework::notify(self.queues[usize::from(kind == Kind::Receive)].handle);
    }

    /// Loses the notifications that came, as a driver does that gives none.
    pub fn lose_notifications(&mut self) {
        for queue in &mut self.queues {
            queue.state().notified.store(false, Ordering::SeqCst);
        }
    }

    /// The breaches of the queues that exist now.
    pub fn breaches(&mut self) -> Vec<Breach> {
        self.queues.iter_mut().flat_map(Queue::breaches).collect()
    }

    /// Packets and fragments that the driver has of the transmit and of the receive queue.
    pub fn outstanding(&mut self) -> [[u32; 2]; 2] {
        self.queues.each_mut().map(|queue| queue.owner().outstanding())
    }

    /// Takes the power and gives it back: the queues go, and others come.
    pub fn power_cycle(&mut self) {
        self.power_down();
        self.queues = Self::prepare(self.device, self.sizes);
    }

    fn power_down(&mut self) {
        for queue in &mut self.queues {
            queue.stop();
            let found = queue.breaches();
            self.breaches.extend(found);
            Object::delete(queue.handle);
        }
        let (_, release) = Object::of(self.device).hardware.get().expect("callbacks");
        // SAFETY: the driver's callback, for its device.
        unsafe { release(WDFDEVICE(self.device), null_mut()) }.ok().expect("a stop");
        assert!(!Object::of(self.adapter.0).started.load(Ordering::Relaxed), "the adapter stopped");
    }

    /// Takes the device away. The result are all breaches of its life.
    pub fn unplug(mut self) -> Vec<Breach> {
        self.power_down();
        Object::delete(self.adapter.0);
        Object::delete(self.device);
        self.breaches
    }
}

impl Queue {
    fn state(&self) -> &PacketQueue {
        Object::of(self.handle).packet_queue()
    }

    fn owner(&mut self) -> &mut RingOwner {
        // SAFETY: the rings' owner is this queue's; the driver has pointers into the rings alone.
        unsafe { &mut *self.state().owner.get() }
    }

    /// Something came for the driver.
    fn wake(&mut self) -> bool {
        if self.asleep {
            self.enable(false);
            self.asleep = false;
        }
        self.idle = 0;
        true
    }

    fn enable(&mut self, enabled: bool) {
        self.state().notified.store(false, Ordering::SeqCst);
        self.state().enabled.store(enabled, Ordering::SeqCst);
        let set = self.state().config.EvtSetNotificationEnabled.expect("its callback");
        // SAFETY: the driver's callback, for its queue, and no other call is in progress.
        unsafe { set(NETPACKETQUEUE(self.handle), enabled.into()) };
    }

    fn advance(&mut self) -> bool {
        let advance = self.state().config.EvtAdvance.expect("its callback");
        let queue = NETPACKETQUEUE(self.handle);
        // SAFETY: as in `enable`.
        self.owner().call(|| unsafe { advance(queue) })
    }

    /// One poll. False: the queue sleeps.
    fn poll(&mut self) -> bool {
        if self.asleep {
            if !self.state().notified.load(Ordering::SeqCst) {
                return false;
            }
            self.wake();
        }
        self.idle = if self.advance() { 0 } else { self.idle + 1 };
        if self.idle >= IDLE_POLLS {
            self.asleep = true;
            self.enable(true);
        }
        true
    }

    /// Cancel, advances until all is back, and the end of notifications.
    fn stop(&mut self) {
        if self.asleep {
            self.enable(false);
        }
        let cancel = self.state().config.EvtCancel.expect("its callback");
        let queue = NETPACKETQUEUE(self.handle);
        // SAFETY: as in `enable`.
        self.owner().cancel(|| unsafe { cancel(queue) });
        self.advance();
    }

    fn breaches(&mut self) -> Vec<Breach> {
        if self.state().unasked.load(Ordering::Relaxed) > 0 {
            self.owner().note(Breach::Unasked);
        }
        self.owner().breaches().to_vec()
    }
}
