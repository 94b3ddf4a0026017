//! The wire: every frame goes to every other port, whose NIC filters.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

type Deliver = Box<dyn Fn(&[u8]) + Send + Sync>;

static PORTS: Mutex<Vec<(usize, &'static Deliver)>> = Mutex::new(Vec::new());
static NEXT: AtomicUsize = AtomicUsize::new(1);
static FRAMES: AtomicUsize = AtomicUsize::new(0);
/// Drops one frame of so many; 0: none.
static LOSS: AtomicUsize = AtomicUsize::new(0);

/// A new port; its number.
pub fn plug(deliver: Deliver) -> usize {
    let port = NEXT.fetch_add(1, Ordering::Relaxed);
    PORTS.lock().unwrap().push((port, Box::leak(Box::new(deliver))));
    port
}

pub fn unplug(port: usize) {
    PORTS.lock().unwrap().retain(|(number, _)| *number != port);
}

/// Loses one frame of `every`.
pub fn lose(every: usize) {
    LOSS.store(every, Ordering::Relaxed);
}

pub fn send(from: usize, frame: &[u8]) {
    let count = FRAMES.fetch_add(1, Ordering::Relaxed);
    let loss = LOSS.load(Ordering::Relaxed);
    if loss > 0 && count % loss == loss - 1 {
        return;
    }
    let ports = PORTS.lock().unwrap().clone();
    for (port, deliver) in ports {
        if port != from {
            deliver(frame);
        }
    }
}

/// Frames that passed.
pub fn frames() -> usize {
    FRAMES.load(Ordering::Relaxed)
}
