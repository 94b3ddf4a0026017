//! The scheduling of the core's thread where there is one processor.
#![expect(unsafe_code, reason = "a system call that `rustix` does not bind")]

use std::io;

/// Has the calling thread let others go on when it is woken, until they sleep or their time is up (`SCHED_BATCH`, sched(7)).
///
/// The thread that wakes the core has more for it: the rest of a burst of packets, or of posts. A core that interrupts that
/// takes a few of them, sleeps, and is woken for the next. Of a stream of READs of 64 KiB over one processor, 4.5 context switches a
/// message become 1.2. Its price is time, where the processor is kept by a thread that does not wait for us.
pub(super) fn let_wakers_finish() -> io::Result<()> {
    // SAFETY: `sched_param` is plain data.
    let param: libc::sched_param = unsafe { core::mem::zeroed() };
    // SAFETY: thread 0 is the calling one, and `param` is read during the call only.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const param) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_user_may_ask_for_it() {
        let policy = std::thread::spawn(|| {
            let_wakers_finish().unwrap();
            // SAFETY: asks about the calling thread.
            unsafe { libc::sched_getscheduler(0) }
        });
        assert_eq!(policy.join().unwrap(), libc::SCHED_BATCH);
    }
}
