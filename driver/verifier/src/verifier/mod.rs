//! The verifier: it lets every call through that harms nobody else, and reports the rules that the consumer breaks.

mod callbacks;
mod memory;
mod posts;
mod rule;
mod state;

pub use rule::{Report, Rule};

use crate::layer::{
    self, Ask, Call, End, Layer, Record, Taken, Then, Upcall, find, in_callback, lock,
};
use driver::abi::*;
use ndk_consumer::{Opener, Waited};
use state::{After, Room, State};
use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

/// Called with the verifier's name and each report when it is made, on the thread that broke the rule or on the
/// verifier's own.
pub type Sink = Arc<dyn Fn(&str, &Report) + Send + Sync>;

/// How strict the verifier is, and who listens.
#[derive(Clone)]
pub struct Verify {
    /// Tells the verifiers of a process apart, for the listener. No part of a report, so that a seed replays equal ones.
    pub name: String,
    /// A callback that runs longer is reported.
    pub callback_bound: Duration,
    /// A close that pends longer is reported, with what it waits for.
    pub close_bound: Duration,
    /// The listener to reports. Without one, as by default, they are only kept for [`Verifier::reports`].
    pub sink: Option<Sink>,
}

impl Default for Verify {
    /// A second for both, no name and no listener.
    fn default() -> Self {
        let bound = Duration::from_secs(1);
        Self { name: String::new(), callback_bound: bound, close_bound: bound, sink: None }
    }
}

impl fmt::Debug for Verify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, callback_bound, close_bound, sink } = self;
        f.debug_struct("Verify")
            .field("name", name)
            .field("callback_bound", callback_bound)
            .field("close_bound", close_bound)
            .field("sink", &sink.is_some())
            .finish()
    }
}

/// An opener whose consumers are watched.
pub struct Verifier {
    inner: Arc<dyn Opener>,
    judge: Arc<Judge>,
    opened: AtomicU64,
}

impl Verifier {
    /// Watches the consumers of the adapters that `inner` opens.
    #[must_use]
    pub fn new(inner: Arc<dyn Opener>, config: Verify) -> Arc<Self> {
        let tick = config.callback_bound.min(config.close_bound) / 4;
        let judge = Arc::new_cyclic(|this| Judge {
            this: Weak::clone(this),
            config,
            state: Mutex::new(State::new()),
            reports: Mutex::default(),
        });
        let watched = Arc::downgrade(&judge);
        let tick = tick.clamp(Duration::from_millis(1), Duration::from_millis(50));
        // It ends with the verifier.
        thread::spawn(move || {
            while let Some(judge) = watched.upgrade() {
                judge.look();
                drop(judge);
                thread::sleep(tick);
            }
        });
        Arc::new(Self { inner, judge, opened: AtomicU64::new(0) })
    }

    /// The reports so far, each rule once for a function and an object.
    #[must_use]
    pub fn reports(&self) -> Vec<Report> {
        lock(&self.judge.reports).clone()
    }

    /// The consumer frees `len` bytes at `address`: for an allocator that knows of the verifier, such as the pool of
    /// a kernel's stand-in. To be called before the memory has another use.
    pub fn freed(&self, address: *const u8, len: usize) {
        let range = address.addr()..address.addr() + len;
        self.judge.judge(|state| state.freed(&range));
    }
}

// SAFETY: as the wrapped opener's; a front is valid as long as its object, and longer.
unsafe impl Opener for Verifier {
    fn open(&self, version: NDK_VERSION) -> Result<*mut NDK_ADAPTER, NTSTATUS> {
        let number = self.opened.fetch_add(1, Ordering::Relaxed) + 1;
        let judge: Weak<Judge> = Arc::downgrade(&self.judge);
        let record = layer::open(judge, &*self.inner, version, number, None)?;
        self.judge.judge(|state| state.add(&record, Vec::new(), Room::None));
        Ok(record.as_ptr().cast())
    }

    unsafe fn close(&self, adapter: *mut NDK_ADAPTER) {
        let Some(record) = find(adapter) else { return };
        if in_callback() {
            self.judge.judge(State::wait);
        }
        self.judge.judge(|state| state.close_adapter(&record));
        // SAFETY: the caller's promise.
        unsafe { layer::close(&record, &*self.inner) };
        self.judge.judge(|state| state.forget(&record));
    }

    fn run_until(&self, patience: Duration, done: &mut dyn FnMut() -> bool) -> Option<Waited> {
        if in_callback() {
            self.judge.judge(State::wait);
            // The thread is the provider's, and a wait on it would not end.
            return Some(Waited::Ended);
        }
        self.inner.run_until(patience, done)
    }

    fn keep(&self, memory: Arc<dyn Any + Send + Sync>) {
        self.inner.keep(memory);
    }
}

/// The rules, and what they need to know.
struct Judge {
    this: Weak<Self>,
    config: Verify,
    state: Mutex<State>,
    reports: Mutex<Vec<Report>>,
}

impl Judge {
    /// Works on the state; then hands out the reports.
    fn judge<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        let (result, reports) = {
            let mut state = lock(&self.state);
            let result = work(&mut state);
            (result, std::mem::take(&mut state.reports))
        };
        for report in reports {
            lock(&self.reports).push(report.clone());
            if let Some(sink) = &self.config.sink {
                sink(&self.config.name, &report);
            }
        }
        result
    }

    /// Looks at what lasts too long.
    fn look(&self) {
        let (callback, close) = (self.config.callback_bound, self.config.close_bound);
        self.judge(|state| {
            state.look_at_callbacks(callback);
            state.look_at_closes(close);
        });
    }
}

impl Layer for Judge {
    fn asked(&self, call: &Call, ask: &mut Ask<'_>) -> Result<Then, NTSTATUS> {
        let after = self.judge(|state| state.asked(call, ask));
        if let After::Nothing = after {
            return Ok(None);
        }
        let (this, function) = (Weak::clone(&self.this), call.function);
        let record = Arc::clone(&call.object);
        Ok(Some(Box::new(move |end: &End| {
            if let Some(judge) = this.upgrade() {
                judge.judge(|state| state.ended(function, &record, after, end));
            }
        })))
    }

    fn stale(&self, call: &Call) {
        let rule = match call.function {
            function if function.starts_with("NdkClose") => Rule::ClosedTwice,
            "NdkSend"
            | "NdkSendAndInvalidate"
            | "NdkReceive"
            | "NdkSrqReceive"
            | "NdkRead"
            | "NdkWrite"
            | "NdkBind"
            | "NdkFastRegister"
            | "NdkInvalidate" => Rule::PostAfterClose,
            _ => Rule::CallAfterClose,
        };
        let detail = "it was closed before";
        self.judge(|state| state.report(rule, call.function, &*call.object, detail));
    }

    fn mistaken(&self, call: &Call) {
        let rule = Rule::WrongObject;
        self.judge(|state| {
            state.report(rule, call.function, &*call.object, "it is of another type")
        });
    }

    fn deliver(&self, upcall: Upcall) {
        let id = self.judge(|state| state.begin(&upcall));
        upcall.run();
        self.judge(|state| state.finish(id, self.config.callback_bound));
    }

    fn taken(&self, _: &Call, results: &mut [Taken<'_>]) {
        self.judge(|state| state.taken(results));
    }

    fn incoming(&self, listener: &Record, connector: &Arc<Record>) {
        let antecedents = vec![listener.adapter, listener.id];
        self.judge(|state| state.add(connector, antecedents, Room::None));
    }
}
