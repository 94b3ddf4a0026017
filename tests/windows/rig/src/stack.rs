//! The stack of a kernel's thread: 24 KiB, of which the image's code takes its part, and nobody else.
//!
//! [Windows' size on x64](https://learn.microsoft.com/windows-hardware/drivers/kernel/using-the-kernel-stack). Each host
//! thread has such a stack for the image, with a guard page below, and leaves it where the image calls a stand-in: what
//! that takes is not what Windows would. A thread that runs DPCs has one of its own in this way, too. Under Wine the image
//! stays on the host's stack: Wine handles faults on stacks alone that it knows, and these have 1 MiB at least.

use crate::schedule;

/// Runs code of the image, named for a report.
pub fn inside<R>(what: &'static str, f: impl FnOnce() -> R) -> R {
    schedule::inside(|| imp::inside(what, f))
}

/// Runs code of a stand-in, which the image has called.
pub fn outside<R>(f: impl FnOnce() -> R) -> R {
    imp::outside(|| schedule::outside(f))
}

#[cfg(not(unix))]
mod imp {
    pub(super) fn inside<R>(_what: &'static str, f: impl FnOnce() -> R) -> R {
        f()
    }

    pub(super) fn outside<R>(f: impl FnOnce() -> R) -> R {
        f()
    }
}

#[cfg(unix)]
mod imp {
    use std::arch::naked_asm;
    use std::cell::Cell;
    use std::ffi::{c_int, c_void};
    use std::ptr::null_mut;
    use std::sync::Once;

    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};

    use crate::image;
    use crate::outsider::trap::{self, Trap};
    use crate::outsider::{boundary, kernel};

    const LEN: usize = 24 << 10;
    const GUARD_LEN: usize = 4096;

    /// A host thread's two stacks: the pointers of that which is not in use, and of the other when it was left.
    struct Stacks {
        /// The first address above the guard page; 0: there is no stack yet.
        bottom: Cell<usize>,
        kernel: Cell<usize>,
        host: Cell<usize>,
        is_inside: Cell<bool>,
        what: Cell<&'static str>,
    }

    thread_local! {
        static STACKS: Stacks = const {
            Stacks {
                bottom: Cell::new(0),
                kernel: Cell::new(0),
                host: Cell::new(0),
                is_inside: Cell::new(false),
                what: Cell::new(""),
            }
        };
    }

    pub(super) fn inside<R>(what: &'static str, f: impl FnOnce() -> R) -> R {
        STACKS.with(|stacks| {
            if stacks.is_inside.get() {
                return f();
            }
            stacks.ensure();
            let outer = stacks.what.replace(what);
            let result = stacks.run(true, &stacks.kernel, &stacks.host, f);
            stacks.what.set(outer);
            result
        })
    }

    pub(super) fn outside<R>(f: impl FnOnce() -> R) -> R {
        STACKS.with(|stacks| {
            if !stacks.is_inside.get() {
                return f();
            }
            stacks.run(false, &stacks.host, &stacks.kernel, f)
        })
    }

    impl Stacks {
        /// The stack lives as long as the process: the image's threads end asleep, with its frames on theirs.
        fn ensure(&self) {
            if self.bottom.get() != 0 {
                return;
            }
            static HANDLER: Once = Once::new();
            HANDLER.call_once(handle_faults);
            let rights = ProtFlags::READ | ProtFlags::WRITE;
            let memory =
                unsafe { mmap_anonymous(null_mut(), GUARD_LEN + LEN, rights, MapFlags::PRIVATE) };
            let memory = memory.expect("memory for a stack");
            unsafe { mprotect(memory, GUARD_LEN, MprotectFlags::empty()) }.expect("a guard page");
            self.bottom.set(memory as usize + GUARD_LEN);
            self.kernel.set(self.bottom.get() + LEN);
        }

        /// Runs `f` on one stack, and remembers how far the other is in use meanwhile.
        fn run<F: FnOnce() -> R, R>(
            &self,
            is_inside: bool,
            to: &Cell<usize>,
            from: &Cell<usize>,
            f: F,
        ) -> R {
            extern "sysv64" fn call<F: FnOnce() -> R, R>(job: *mut c_void) {
                let (f, result) = unsafe { &mut *job.cast::<(Option<F>, Option<R>)>() };
                *result = f.take().map(|f| f());
            }
            let mut job = (Some(f), None);
            let before = from.get();
            self.is_inside.set(is_inside);
            let stack = to.get() & !15;
            unsafe { switch(call::<F, R>, (&raw mut job).cast(), stack, from.as_ptr()) };
            self.is_inside.set(!is_inside);
            from.set(before);
            job.1.expect("it has returned")
        }
    }

    /// Calls a function on another stack, and notes the pointer of this one.
    #[unsafe(naked)]
    unsafe extern "sysv64" fn switch(
        function: extern "sysv64" fn(*mut c_void),
        argument: *mut c_void,
        stack: usize,
        here: *mut usize,
    ) {
        naked_asm!(
            "push rbp",
            "mov rbp, rsp",
            "mov [rcx], rsp",
            "mov rsp, rdx",
            "mov rax, rdi",
            "mov rdi, rsi",
            "call rax",
            "mov rsp, rbp",
            "pop rbp",
            "ret",
        )
    }

    fn handle_faults() {
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_fault;
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as usize;
        // The stack that Rust gives each thread for its own handler: the other is full.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        let done = unsafe { libc::sigaction(libc::SIGSEGV, &raw const action, null_mut()) };
        assert_eq!(done, 0, "sigaction");
    }

    /// Continues a thread of an image behind an instruction that a kernel may execute, or, at any other fault, on the host's stack in a
    /// function that tells of it; a fault of the host ends the process when its instruction is repeated.
    extern "C" fn on_fault(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
        let address = unsafe { (*info).si_addr() } as usize;
        STACKS.with(|stacks| {
            if !stacks.is_inside.get() {
                unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
                return;
            }
            let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
            let bottom = stacks.bottom.get();
            let rip = registers[libc::REG_RIP as usize];
            let (teller, at): (Teller, i64) =
                if (bottom.wrapping_sub(GUARD_LEN)..bottom).contains(&address) {
                    (overflowed, rip)
                } else {
                    match trap(registers) {
                        Trap::Done => return,
                        Trap::Assertion => (asserted, rip),
                        Trap::FailFast => (failed_fast, rip),
                        Trap::Fault if registers.contains(&FREED) => {
                            (used_freed_pool, place_of(registers))
                        }
                        Trap::Fault => (faulted, place_of(registers)),
                    }
                };
            registers[libc::REG_RDI as usize] = at;
            registers[libc::REG_RIP as usize] = teller as *const () as i64;
            // As after a call.
            registers[libc::REG_RSP as usize] = ((stacks.host.get() & !15) - 8) as i64;
            stacks.is_inside.set(false);
        });
    }

    /// A register that was read from pool which a consumer has freed.
    const FREED: i64 = i64::from_ne_bytes([kernel::FREED; 8]);

    /// The instruction that stopped; where a call went nowhere, or to the jump by which compilers call a pointer, the place behind the
    /// call.
    fn place_of(registers: &[i64]) -> i64 {
        let [rip, rsp] =
            [libc::REG_RIP, libc::REG_RSP].map(|register| registers[register as usize]);
        let is_jump = || unsafe { (rip as *const [u8; 2]).read() } == [0xFF, 0xE0];
        if image::find(rip as usize).is_none() || is_jump() {
            return unsafe { (rsp as *const i64).read() };
        }
        rip
    }

    fn trap(registers: &mut [i64]) -> Trap {
        if image::find(registers[libc::REG_RIP as usize] as usize).is_none() {
            return Trap::Fault;
        }
        unsafe { trap::emulate(registers) }
    }

    type Teller = extern "C" fn(usize) -> !;

    extern "C" fn asserted(at: usize) -> ! {
        stopped(at, "an assertion does not hold")
    }

    extern "C" fn failed_fast(at: usize) -> ! {
        stopped(at, "it found its memory damaged")
    }

    extern "C" fn used_freed_pool(at: usize) -> ! {
        stopped(at, "it follows a pointer in pool that it has freed itself")
    }

    extern "C" fn faulted(at: usize) -> ! {
        stopped(at, "it faults")
    }

    /// Ends the run: a breach, if it is the image under test that stops.
    fn stopped(at: usize, why: &str) -> ! {
        let of =
            image::find(at).map(|(name, _)| name).filter(|name| !name.starts_with("ndkrocev2"));
        boundary::tell();
        let what = if of.is_some() { "the consumer stops" } else { "BREACH: the image stops" };
        crate::log::verdict(format_args!("{what} at {}: {why}", image::place(at)), false)
    }

    extern "C" fn overflowed(at: usize) -> ! {
        let what = STACKS.with(|stacks| stacks.what.get());
        let at = image::place(at);
        crate::log::verdict(
            format_args!("BREACH: {what} overflows its stack of 24 KiB at {at}"),
            false,
        )
    }
}
