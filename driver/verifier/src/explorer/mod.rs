//! The explorer: it makes of one provider the many that the contract allows.

mod choice;
mod limits;
mod queue;

pub use choice::{Choice, Way};
pub use limits::Limits;

use crate::layer::{self, Ask, Call, End, Layer, Pending, Then, Upcall, find, in_callback, lock};
use choice::{Class, Dice};
use driver::abi::*;
use driver::negotiate;
use ndk_consumer::{Opener, Waited};
use queue::Queue;
use rand_chacha::rand_core::Rng as _;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Longest wait for an end inside a call.
const INLINE_BOUND: Duration = Duration::from_millis(50);

/// The highest interface version of the provider that is played.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Versions {
    /// The seed chooses among those that serve the consumer.
    #[default]
    Serving,
    /// The seed chooses among 1.2, 2.0 and 2.1, and a consumer that asks for more is refused.
    Any,
    /// This one.
    Highest(NDK_VERSION),
}

/// The part of the contract that is explored.
#[derive(Clone, Copy, Debug)]
pub struct Explore {
    /// All choices follow from it.
    pub seed: u64,
    /// The limits of the adapters.
    pub limits: Limits,
    /// Their versions.
    pub versions: Versions,
    /// How many of a hundred creations are refused.
    pub refused: u32,
    /// The longest delay of a callback, in ticks.
    pub late: u8,
    /// The provider runs in turns, on the thread that waits: there is no thread, and [`Explorer::turn`] makes the callbacks
    /// that wait. Else the provider runs by itself.
    pub stepped: bool,
}

impl Explore {
    /// The choices of a seed, with the limits of the provider and no refusal.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let (limits, versions) = (Limits::default(), Versions::default());
        Self { seed, limits, versions, refused: 0, late: 4, stepped: false }
    }
}

/// An opener whose adapters end calls in every way.
pub struct Explorer {
    core: Arc<Core>,
    opened: AtomicU64,
}

impl Explorer {
    /// Explores with the adapters that `inner` opens.
    #[must_use]
    pub fn new(inner: Arc<dyn Opener>, config: Explore) -> Arc<Self> {
        let dice = Dice::new(config.seed, config.refused, config.late);
        let core = Core {
            inner,
            config,
            dice: Mutex::new(dice),
            trace: Mutex::default(),
            infos: Mutex::default(),
            queue: Queue::new(!config.stepped),
        };
        Arc::new(Self { core: Arc::new(core), opened: AtomicU64::new(0) })
    }

    /// The choices so far. On one thread, in their order; with threads the order among functions is that of the
    /// calls, and the choices of each function are the same for the same seed.
    #[must_use]
    pub fn trace(&self) -> Vec<Choice> {
        lock(&self.core.trace).clone()
    }

    /// A turn of a provider that is stepped has passed. `run_until` calls it; where the provider's owner takes the turns, as
    /// a simulator does, that has to, outside of callbacks.
    pub fn turn(&self) {
        self.core.queue.turn();
    }

    /// The version that the provider of this seed has before a consumer that asks for `asked`.
    fn highest(&self, asked: NDK_VERSION) -> NDK_VERSION {
        const ALL: [NDK_VERSION; 3] = [
            NDK_VERSION { Major: 1, Minor: 2 },
            NDK_VERSION { Major: 2, Minor: 0 },
            NDK_VERSION { Major: 2, Minor: 1 },
        ];
        let config = &self.core.config;
        let serves = |version: &&NDK_VERSION| {
            config.versions == Versions::Any
                || version.Major == asked.Major && version.Minor >= asked.Minor
        };
        let choices: Vec<&NDK_VERSION> = ALL.iter().filter(serves).collect();
        let drawn = choice::rng(config.seed, "version").next_u32() as usize;
        match config.versions {
            Versions::Highest(version) => version,
            Versions::Any | Versions::Serving => {
                // The provider refuses what none serves.
                choices.get(drawn % choices.len().max(1)).map_or(asked, |version| **version)
            }
        }
    }

    /// The version that an adapter tells. By the rule, a provider also serves the consumers of 1.x, at 1.2.
    fn told(&self, asked: NDK_VERSION) -> Result<NDK_VERSION, NTSTATUS> {
        let highest = self.highest(asked);
        let all = negotiate(asked).ok_or(NDIS_STATUS_BAD_VERSION)?;
        let told = if asked.Major < highest.Major { all } else { all.min(highest) };
        if told.Major == asked.Major && told.Minor >= asked.Minor {
            Ok(told)
        } else {
            Err(NDIS_STATUS_BAD_VERSION)
        }
    }
}

impl Drop for Explorer {
    fn drop(&mut self) {
        self.core.queue.end();
    }
}

// SAFETY: as the wrapped opener's; a front is valid as long as its object, and longer.
unsafe impl Opener for Explorer {
    fn open(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NTSTATUS> {
        let told = self.told(version)?;
        let number = self.opened.fetch_add(1, Ordering::Relaxed) + 1;
        let core: Weak<Core> = Arc::downgrade(&self.core);
        let record = layer::open(core, &*self.core.inner, version, number, Some(told))?;
        let info = record.info().map(|info| self.core.config.limits.apply(&info));
        let info = info.map(|info| NDK_ADAPTER_INFO { Version: told, ..info });
        lock(&self.core.infos).insert(record.id, info.unwrap_or_default());
        Ok(record.as_ptr().cast())
    }

    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) {
        let Some(record) = find(adapter) else { return };
        self.core.drain();
        // SAFETY: the caller's promise.
        unsafe { layer::close(&record, &*self.core.inner) };
        self.core.drain();
        lock(&self.core.infos).remove(&record.id);
    }

    fn run_until(&self, patience: Duration, done: &mut dyn FnMut() -> bool) -> Option<Waited> {
        if !self.core.config.stepped {
            // Callbacks come by threads of which the provider's wait knows nothing.
            return None;
        }
        self.core.inner.run_until(patience, &mut || {
            self.core.queue.turn();
            done()
        })
    }

    fn keep(&self, memory: Arc<dyn Any + Send + Sync>) {
        self.core.inner.keep(memory);
    }
}

struct Core {
    inner: Arc<dyn Opener>,
    config: Explore,
    dice: Mutex<Dice>,
    trace: Mutex<Vec<Choice>>,
    /// The capabilities that each adapter tells.
    infos: Mutex<BTreeMap<u64, NDK_ADAPTER_INFO>>,
    queue: Arc<Queue>,
}

impl Core {
    fn choose(&self, pending: &Pending) -> Way {
        let class = match pending.call.function {
            "NdkConnect"
            | "NdkConnectWithSharedEndpoint"
            | "NdkCompleteConnect"
            | "NdkCompleteConnectEx"
            | "NdkAccept"
            | "NdkAcceptEx"
            | "NdkDisconnect" => Class::Remote,
            _ => Class::Own { creates: pending.is_creation() },
        };
        let choice = lock(&self.dice).draw(pending.call.function, class);
        lock(&self.trace).push(choice);
        choice.way
    }

    /// Waits inside a call for its end; not for long.
    fn wait(&self, pending: &Pending) -> Option<End> {
        if self.config.stepped {
            self.inner.run_until(INLINE_BOUND, &mut || pending.has_come());
            pending.wait(Duration::ZERO)
        } else {
            pending.wait(INLINE_BOUND)
        }
    }

    /// Makes the call and waits for its end; then returns it, or calls back first.
    fn meet(
        &self,
        pending: &Pending,
        inline: bool,
        start: &mut dyn FnMut() -> NTSTATUS,
    ) -> NTSTATUS {
        pending.meet();
        let status = start();
        if status != STATUS_PENDING {
            return status;
        }
        let Some(end) = self.wait(pending) else { return STATUS_PENDING };
        let overtakes = pending.is_close() && !self.queue.is_idle();
        if inline && pending.may_end_inline() && !overtakes {
            return end.status;
        }
        match pending.upcall(&end) {
            Some(upcall) => self.deliver(upcall),
            None => return end.status,
        }
        STATUS_PENDING
    }

    fn refuse(&self, pending: &Pending, later: bool) -> NTSTATUS {
        let end = End { status: STATUS_INSUFFICIENT_RESOURCES, made: None };
        match pending.upcall(&end) {
            Some(upcall) if later => {
                self.queue.push(1, upcall);
                STATUS_PENDING
            }
            _ => STATUS_INSUFFICIENT_RESOURCES,
        }
    }

    /// Makes all callbacks that wait.
    fn drain(&self) {
        if self.config.stepped {
            while !self.queue.is_idle() {
                self.queue.turn();
            }
        } else {
            self.queue.drain();
        }
    }

    /// Puts the capabilities that an adapter tells into the consumer's room.
    fn tell(&self, call: &Call, info: *mut NDK_ADAPTER_INFO, size: *mut ULONG) -> Then {
        let told = *lock(&self.infos).get(&call.object.id)?;
        let (info, size) = (layer::Carried(info), layer::Carried(size));
        Some(Box::new(move |end: &End| {
            if end.status == STATUS_SUCCESS {
                // SAFETY: the provider has stored the length of its answer.
                let len = unsafe { size.get().read() } as usize;
                let len = len.min(size_of::<NDK_ADAPTER_INFO>());
                let (from, to) = ((&raw const told).cast::<u8>(), info.get().cast::<u8>());
                // SAFETY: the provider has filled so many bytes of the consumer's.
                unsafe { from.copy_to_nonoverlapping(to, len) };
            }
        }))
    }
}

impl Layer for Core {
    fn asked(&self, call: &Call, ask: &mut Ask<'_>) -> Result<Then, NTSTATUS> {
        if let Ask::Info { info, size } = ask {
            return Ok(self.tell(call, *info, *size));
        }
        let info = lock(&self.infos).get(&call.object.adapter).copied();
        match info {
            Some(info) => limits::check(&info, ask).map(|()| None),
            None => Ok(None),
        }
    }

    fn conduct(&self, pending: &Pending, start: &mut dyn FnMut() -> NTSTATUS) -> NTSTATUS {
        if !pending.may_call_back() {
            return start();
        }
        let way = self.choose(pending);
        pending.set_way(way);
        match way {
            Way::Refused | Way::RefusedLater => self.refuse(pending, way == Way::RefusedLater),
            Way::Inline | Way::Before if !in_callback() => {
                self.meet(pending, way == Way::Inline, start)
            }
            Way::Inline | Way::Before | Way::Pending | Way::Elsewhere | Way::Late(_) => start(),
        }
    }

    fn finished(&self, pending: &Pending, end: End) -> Option<End> {
        let end = pending.hand_over(end)?;
        let ticks = match pending.way() {
            Some(Way::Elsewhere) => 0,
            Some(Way::Late(ticks)) => ticks,
            _ => return Some(end),
        };
        if let Some(upcall) = pending.upcall(&end) {
            self.queue.push(ticks, upcall);
        }
        None
    }

    fn deliver(&self, upcall: Upcall) {
        // Nothing overtakes a callback that waits.
        if self.queue.is_idle() { upcall.run() } else { self.queue.push(0, upcall) }
    }
}
