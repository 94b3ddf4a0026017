//! A flight: all steps, in all places where they can be tried.
#![allow(unsafe_code, reason = "frees memory of the machine")]

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

use ndk_abi::{MDL, NDK_ADAPTER};

use crate::call::{Call, Slots};
use crate::step::{Entry, Family, Place, Step};
use crate::steps::{ONE_ADAPTER, ONE_CONNECTION, StepFn};
use crate::table::Table;
use crate::{Failure, Line, Machine};

/// An open adapter, and the addresses of its interface.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    /// It stays open until the flight has ended, and where that is stuck for ever.
    pub adapter: *mut NDK_ADAPTER,
    /// Its first IPv4 address.
    pub v4: Option<Ipv4Addr>,
    /// Its first IPv6 address that is not link-local.
    pub v6: Option<Ipv6Addr>,
}

/// The numbers of a flight.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Connections at once in the step that makes many, up to [`Config::CONNECTIONS_MAX`].
    pub connections: usize,
    /// Seconds for which the flight waits for any one call or event, up to [`Config::PATIENCE_MAX_S`].
    pub patience_s: u64,
}

impl Config {
    /// 5 MB of memory for the flight itself.
    pub const CONNECTIONS_MAX: usize = 10_000;
    /// A minute.
    pub const PATIENCE_MAX_S: u64 = 60;
}

impl Default for Config {
    fn default() -> Self {
        Self { connections: 64, patience_s: 10 }
    }
}

/// How a flight ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// Each step passed, or could not be tried here.
    Passed,
    /// A step failed. All objects are closed.
    Failed,
    /// The machine ended it before its last step.
    Stopped,
    /// A call has not ended: the adapters must not be closed, and the code stays where it is.
    Stuck,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
            Self::Stuck => "stuck",
        })
    }
}

/// Memory that a step took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) start: *mut u8,
    pub(crate) bytes: usize,
    /// NULL: nothing describes it.
    pub(crate) mdl: *mut MDL,
}

/// The state of a flight that its steps share.
pub(crate) struct Flight {
    pub(crate) machine: &'static dyn Machine,
    pub(crate) sides: [Side; 2],
    pub(crate) config: Config,
    pub(crate) slots: Slots,
    /// The objects of the step that runs.
    pub(crate) objects: Table<Entry>,
    /// Its memory.
    pub(crate) blocks: Table<Block>,
    /// Its calls that have not ended in time.
    pub(crate) late: Table<Call>,
    told: usize,
    has_failed: bool,
    pub(crate) is_stuck: bool,
}

/// Blocks of memory of a step, at most.
const BLOCKS: usize = 64;
/// Calls of a step that are late, at most: each wait in vain ends the step, but for those at its end.
const LATE: usize = 64;
/// Objects of a step beside those of its connections, at most.
const OBJECTS: usize = 512;
/// Objects of a connection: two connectors, two queue pairs.
const OBJECTS_OF_CONNECTION: usize = 4;

/// Runs all steps over one adapter, or over two, and tells the machine each verdict. PASSIVE_LEVEL.
///
/// # Errors
/// [`Failure::Memory`]: no step ran.
pub fn fly(
    machine: &'static dyn Machine,
    client: Side,
    server: Option<Side>,
    config: Config,
) -> Result<Verdict, Failure> {
    let sides = [client, server.unwrap_or(client)];
    let mut flight = Flight::new(machine, sides, config)?;
    let has_ended = flight.one_by_one(server.is_some());
    let verdict = match (flight.is_stuck, flight.has_failed, has_ended) {
        (true, ..) => return Ok(Verdict::Stuck),
        (false, true, _) => Verdict::Failed,
        (false, false, false) => Verdict::Stopped,
        (false, false, true) => Verdict::Passed,
    };
    flight.free();
    Ok(verdict)
}

impl Flight {
    fn new(
        machine: &'static dyn Machine,
        sides: [Side; 2],
        config: Config,
    ) -> Result<Self, Failure> {
        let connections = config.connections.min(Config::CONNECTIONS_MAX);
        let patience_s = config.patience_s.min(Config::PATIENCE_MAX_S);
        let config = Config { connections, patience_s };
        let room = OBJECTS + OBJECTS_OF_CONNECTION * connections;
        // Each object may pend in its close, and some calls may be late beside.
        let slots = Slots::new(machine, room + LATE)?;
        let objects = Table::new(machine, room);
        let blocks = Table::new(machine, BLOCKS);
        let late = Table::new(machine, LATE);
        match (objects, blocks, late) {
            (Ok(objects), Ok(blocks), Ok(late)) => Ok(Self {
                machine,
                sides,
                config,
                slots,
                objects,
                blocks,
                late,
                told: 0,
                has_failed: false,
                is_stuck: false,
            }),
            (objects, blocks, late) => {
                slots.free();
                let freed =
                    [objects.map(Table::free), blocks.map(Table::free), late.map(Table::free)];
                Err(freed.into_iter().find_map(Result::err).unwrap_or(Failure::Memory { bytes: 0 }))
            }
        }
    }

    fn free(self) {
        self.slots.free();
        self.objects.free();
        self.blocks.free();
        self.late.free();
    }

    /// Runs each step in each place; false where the machine ended it.
    fn one_by_one(&mut self, has_two: bool) -> bool {
        let adapters: &[usize] = if has_two { &[0, 1] } else { &[0] };
        for &side in adapters {
            for &(name, step) in ONE_ADAPTER {
                if !self.run(name, step, Place::Adapter(side)) {
                    return false;
                }
            }
        }
        let paths: &[[usize; 2]] = if has_two { &[[0, 0], [0, 1]] } else { &[[0, 0]] };
        for &ends in paths {
            for family in [Family::V4, Family::V6] {
                for &(name, step) in ONE_CONNECTION {
                    if !self.run(name, step, Place::Path { ends, family }) {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Runs one step and tells its verdict; false where none may follow.
    fn run(&mut self, name: &'static str, step: StepFn, place: Place) -> bool {
        if self.machine.is_ending() {
            return false;
        }
        let began = self.machine.now_ns();
        let mut run = Step::new(self, place);
        let (mut result, mut is_tried) = (Ok(()), false);
        if run.can_be_tried() {
            is_tried = true;
            result = step(&mut run);
            let closed = run.finish();
            result = result.and(closed);
        }
        let ms = self.machine.now_ns().saturating_sub(began) / 1_000_000;
        let line = match result {
            Ok(()) if is_tried => Line::of(format_args!("pass {name} {place} {ms} ms")),
            Ok(()) => {
                Line::of(format_args!("skip {name} {place} 0 ms: an adapter has no such address"))
            }
            Err(failure) => Line::of(format_args!("fail {name} {place} {ms} ms: {failure}")),
        };
        self.has_failed |= result.is_err();
        self.machine.tell(self.told, line.as_str());
        self.told += 1;
        !self.is_stuck
    }

    /// Waits until `done`; false once the patience is over.
    pub(crate) fn wait_until(&self, done: &mut dyn FnMut() -> bool) -> bool {
        // A ring that was missed costs no more than this.
        const SLICE_NS: u64 = 50_000_000;
        let deadline = self.machine.now_ns() + self.config.patience_s * 1_000_000_000;
        loop {
            if done() {
                return true;
            }
            let left = deadline.saturating_sub(self.machine.now_ns());
            if left == 0 {
                return false;
            }
            self.machine.wait(left.min(SLICE_NS));
        }
    }

    /// Frees the memory of a step, which nothing uses any more.
    pub(crate) fn free_blocks(&mut self) {
        while let Some(block) = self.blocks.pop() {
            if !block.mdl.is_null() {
                // SAFETY: the step made it, and each object is closed.
                unsafe { self.machine.forget(block.mdl) };
            }
            // SAFETY: as above.
            unsafe { self.machine.free(block.start, block.bytes) };
        }
    }
}
