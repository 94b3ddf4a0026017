//! A kernel's pool as this thread's provider meets it: it refuses what a [`Plan`] says, and there are the reserves of
//! the Windows driver. An allocation inside [`reserved`] comes out of the bytes that were set aside; any other that the
//! pool refuses comes out of the standing reserve as long as that has room, and fails else.

use std::cell::Cell;

/// Bytes of the standing reserve behind its head, as in `driver/ndis/src/os/reserve.rs`.
const STANDING: usize = (256 << 10) - 64;

/// The allocations that the pool refuses, of those inside the provider, reservations included.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Plan {
    /// None.
    Nothing,
    /// This one, from 1.
    One(usize),
    /// This one and all after it.
    From(usize),
}

/// What a provider asked for under a plan.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Allocations and reservations.
    pub times: usize,
    /// Those that were refused.
    pub refused: usize,
    /// Bytes out of the standing reserve.
    pub standing: usize,
    /// Bytes by which work exceeded what was set aside for it, at most.
    pub overrun: usize,
}

/// The state of a thread's pool.
#[derive(Clone, Copy)]
struct Pool {
    plan: Plan,
    /// Whether the provider runs, not its consumer.
    inside: bool,
    /// Bytes set aside for the work that runs, and those used of them.
    aside: Option<(usize, usize)>,
    asked: Asked,
}

const NOTHING: Asked = Asked { times: 0, refused: 0, standing: 0, overrun: 0 };

thread_local! {
    // Made without an allocation and never dropped: the allocator itself uses it.
    static POOL: Cell<Pool> = const {
        Cell::new(Pool { plan: Plan::Nothing, inside: false, aside: None, asked: NOTHING })
    };
}

fn change<T>(what: impl FnOnce(&mut Pool) -> T) -> T {
    let mut pool = POOL.get();
    let value = what(&mut pool);
    POOL.set(pool);
    value
}

/// The pool refuses by `plan` from here on. Returns what was asked for under the plan before.
pub fn follow(plan: Plan) -> Asked {
    change(|pool| {
        pool.plan = plan;
        std::mem::replace(&mut pool.asked, NOTHING)
    })
}

/// Runs the provider's code.
pub fn provider<T>(work: impl FnOnce() -> T) -> T {
    within(true, work)
}

/// Runs the consumer's code, in a callback.
pub fn consumer<T>(work: impl FnOnce() -> T) -> T {
    within(false, work)
}

fn within<T>(inside: bool, work: impl FnOnce() -> T) -> T {
    let before = change(|pool| std::mem::replace(&mut pool.inside, inside));
    let value = work();
    change(|pool| pool.inside = before);
    value
}

/// Runs `work` with so many bytes set aside; false, and nothing was run, where the pool refuses them.
pub fn reserved(bytes: usize, work: &mut dyn FnMut()) -> bool {
    let granted = change(|pool| {
        pool.asked.times += 1;
        let refused = pool.is_refused() || pool.is_short();
        pool.asked.refused += usize::from(refused);
        (!refused).then(|| pool.aside.replace((bytes, 0)))
    });
    let Some(outer) = granted else { return false };
    work();
    change(|pool| pool.aside = outer);
    true
}

/// Whether half of the standing reserve is used, so that no new work shall begin.
pub fn is_short() -> bool {
    POOL.get().is_short()
}

/// Whether an allocation gets its memory.
pub(super) fn grants(bytes: usize) -> bool {
    change(|pool| !pool.inside || pool.grants(bytes))
}

impl Pool {
    /// Whether the plan refuses what was asked for last.
    fn is_refused(&self) -> bool {
        match self.plan {
            Plan::Nothing => false,
            Plan::One(number) => self.asked.times == number,
            Plan::From(number) => self.asked.times >= number,
        }
    }

    fn is_short(&self) -> bool {
        self.asked.standing > STANDING / 2
    }

    fn grants(&mut self, bytes: usize) -> bool {
        if let Some((aside, used)) = &mut self.aside {
            // No part is given back before the last one is.
            *used += bytes.next_multiple_of(16);
            self.asked.overrun = self.asked.overrun.max(used.saturating_sub(*aside));
            return true;
        }
        self.asked.times += 1;
        if !self.is_refused() {
            return true;
        }
        self.asked.refused += 1;
        let fits = self.asked.standing + bytes <= STANDING;
        self.asked.standing += if fits { bytes } else { 0 };
        fits
    }
}
