//! The handles of the kernel that threads may share or send, and the guards that stay where they are, for the compiler to
//! agree.

use super::reserve;
use super::runner::Runner;
use super::sync::{Event, Gate, SpinLock, SpinLockGuard, Turn};
use super::thread::{Jobs, Thread, Worker};
use super::timer::Timer;
use core::cell::Cell;

driver::auto_traits! {
    SpinLock<Cell<u8>>: (Send, Sync);
    SpinLock<*mut u8>: (!Send, !Sync);
    // It lowers the level of the processor on which it was made.
    SpinLockGuard<'static, u8>: (!Send, !Sync);
    Event: (Send, Sync);
    Turn: (Send, Sync);
    Gate: (Send, Sync);
    Thread: (Send, Sync);
    Worker: (Send, Sync);
    Jobs: (Send, Sync);
    Timer: (Send, !Sync);
    Runner: (Send, Sync);
    reserve::Block: (!Send, !Sync);
    reserve::Open: (Send, !Sync);
}
