//! The calls through pointers in the image, for [`super::chains`]: who may call whom.
//!
//! Rust makes one where it has a trait object or a boxed closure. The rows follow those: the provider sees Windows as
//! `Platform` and the NIC as `Edge`, an edge sees the driver as `Lower`, and everybody wakes by the waker of the runner.

use super::chains::{Join, Recursion};

/// The driver's `Platform`.
const PLATFORM: &str = "ndis_driver::os::impl$1::";
/// Of these, what maps memory.
const MAP: &str = "ndis_driver::os::impl$1::map";
/// The poll core's `Edge`.
const EDGE: &str = "netadapter_glue::ndis::impl$3::";
/// Of these, what tells the edge of its waker, and of a sleep.
const SLEEP: &str = "netadapter_glue::ndis::impl$3::announce_sleep";
const SET_WAKER: &str = "netadapter_glue::ndis::impl$3::set_waker";
/// Of a turn, on each kind of core, what takes received units, and what fills buffers.
const RECEIVE: [&str; 2] =
    ["driver::turn::impl$2::turn::closure$0", "driver::turn::impl$3::turn::closure$0"];
const FILL: [&str; 2] =
    ["driver::turn::impl$2::turn::closure$1", "driver::turn::impl$3::turn::closure$1"];
/// The edge's `Lower`.
const LOWER: &str = "ndis_driver::lower::lists::impl$9::";
/// The waker's table.
const WAKER: &str = "core::ops::function::FnOnce::call_once<ndis_driver::os::runner::WAKER";
/// The ends of the driver's boxed closures and of its `Platform`: jobs, replies that nobody gave.
const DROP: &str = "core::ptr::drop_in_place<ndis_driver::upper::";
const DROP_REPLY: &str = "core::ptr::drop_in_place<ndis_driver::os::";
/// The end of its `Lower`.
const DROP_LOWER: &str = "core::ptr::drop_in_place<ndis_driver::lower::";
/// The end of the edge.
const DROP_EDGE: &str = "core::ptr::drop_in_place<netadapter_glue::";
/// Where the text of a performance counter's instance goes.
const NAME: &str = "ndis_driver::counters::impl$1::write_str";
/// A reply that somebody waits for.
const REPLY: &str = "core::ops::function::FnOnce::call_once<ndis_driver::os::runner::impl$7::new";
const CLOSED: &str = "core::ops::function::FnOnce::call_once<ndis_driver::upper::ndk::impl$1";
/// The NetAdapterCx client's owner of the edge, and its end.
const RESIDENT: &str = "netadapter_client::resident::impl$2::poll";
const DROP_RESIDENT: &str = "core::ptr::drop_in_place<netadapter_client::resident::";

pub(crate) const JOINS: &[Join] = &[
    // The provider, in the poll core and in the calls of consumers.
    Join { from: "driver::", to: &[PLATFORM, WAKER], through: &[] },
    Join { from: "driver::turn::PollCore", to: &[PLATFORM, WAKER, EDGE], through: &[] },
    Join {
        from: "driver::turn::PollCore::several",
        to: &["netadapter_glue::ndis::impl$3::link", SET_WAKER, WAKER, DROP_EDGE],
        through: &[],
    },
    Join { from: "once_cell::", to: &[PLATFORM], through: &[] },
    // The NetAdapterCx client: its calls of the frameworks, and notifications, end a chain; its queues call the resident.
    Join { from: "netadapter_client::", to: &[], through: &[] },
    Join { from: "netadapter_client::queue::", to: &[RESIDENT, DROP_RESIDENT], through: &[] },
    Join { from: "netadapter_client::driver::clean_adapter", to: &[DROP_RESIDENT], through: &[] },
    // A callback of a consumer ends a chain, as Windows' functions do: what it calls of NDK begins another. The home's
    // own are replies.
    Join {
        from: "driver::turn::desk::Desk::run_upcalls",
        to: &[REPLY, CLOSED, DROP, DROP_REPLY],
        through: &[],
    },
    Join {
        from: "driver::turn::dispatch::run<driver::adapter",
        to: &[PLATFORM, REPLY, CLOSED, DROP, DROP_REPLY],
        through: &[],
    },
    Join {
        from: "driver::turn::dispatch::run<driver::platform",
        to: &[REPLY, DROP, DROP_REPLY],
        through: &[],
    },
    // Work for which memory is set aside: a request, and below it what is boxed, or mapped.
    Join {
        from: "driver::turn::desk::Desk::handle_control",
        to: &["driver::turn::dispatch::impl$0::handle_control::closure$0"],
        through: &["ndis_driver::os::impl$1::with_memory"],
    },
    Join {
        from: "ndis_driver::os::impl$1::with_memory",
        to: &["driver::platform::with_memory::closure$0<"],
        through: &[],
    },
    Join { from: "driver::platform::with_memory::", to: &[MAP], through: &[] },
    Join { from: "driver::bytes::mapping::", to: &[MAP], through: &[] },
    Join { from: "driver::bytes::names::", to: &[MAP], through: &[] },
    Join { from: "core::ops::function::FnOnce::call_once<driver::", to: &[MAP], through: &[] },
    Join {
        from: "ndis_driver::os::impl$1::undisturbed",
        to: &["driver::shard::impl$1::push_undisturbed::closure$0"],
        through: &[],
    },
    // The edge.
    Join { from: "netadapter_glue::ndis::", to: &[LOWER, WAKER], through: &[] },
    Join { from: "netadapter_glue::ndis::Port::sent", to: &[WAKER], through: &[] },
    Join { from: "netadapter_glue::ndis::ports::Ports::sent", to: &[WAKER], through: &[] },
    Join {
        from: "netadapter_glue::ndis::impl$3::receive",
        to: &[LOWER, RECEIVE[0], RECEIVE[1]],
        through: &[],
    },
    Join {
        from: "netadapter_glue::ndis::impl$3::transmit",
        to: &[LOWER, FILL[0], FILL[1]],
        through: &[],
    },
    Join { from: "netadapter_glue::ndis::send::impl$1::fill", to: &FILL, through: &[] },
    // The driver: it wakes, waits for replies, and drops what it has boxed.
    Join {
        from: "ndis_driver::os::runner::",
        to: &[PLATFORM, SLEEP, SET_WAKER, WAKER, DROP, DROP_REPLY, DROP_EDGE],
        through: &[],
    },
    Join {
        from: "ndis_driver::upper::",
        to: &[PLATFORM, LOWER, WAKER, DROP, DROP_REPLY],
        through: &[],
    },
    Join { from: "ndis_driver::lower::", to: &[LOWER, WAKER], through: &[] },
    // Threads: the runner's, and those of workers, whose jobs are closures.
    Join {
        from: "ndis_driver::os::thread::thread_entry",
        to: &[
            "core::ops::function::FnOnce::call_once<ndis_driver::os::runner::impl$4::start",
            "core::ops::function::FnOnce::call_once<ndis_driver::os::thread::impl$3::start",
        ],
        through: &[],
    },
    Join {
        from: "core::ops::function::FnOnce::call_once<ndis_driver::",
        to: &[PLATFORM, SLEEP, WAKER, DROP, DROP_REPLY],
        through: &[],
    },
    Join {
        from: "core::ops::function::FnOnce::call_once<ndis_driver::os::thread::impl$3::start",
        to: &["core::ops::function::FnOnce::call_once<ndis_driver::upper::"],
        through: &[],
    },
    Join {
        from: "core::ops::function::FnOnce::call_once<ndis_driver::upper::ndk::impl$1",
        to: &[REPLY],
        through: &[],
    },
    Join { from: "ndis_driver::os::thread::", to: &[DROP, DROP_REPLY], through: &[] },
    // The ends of what is boxed or counted.
    Join { from: "core::ptr::drop_in_place<", to: &[DROP, DROP_REPLY, WAKER], through: &[] },
    Join { from: "alloc::sync::Arc", to: &[DROP, DROP_REPLY, WAKER], through: &[] },
    Join {
        from: "core::ptr::drop_in_place<ndis_driver::upper::ndk::",
        to: &["core::ptr::drop_in_place<ndis_driver::os::runner::"],
        through: &[],
    },
    Join {
        from: "alloc::sync::Arc::drop_slow<ndis_driver::os::thread::Queue",
        to: &[DROP],
        through: &[],
    },
    // The jobs of a worker.
    Join {
        from: "core::ptr::drop_in_place<alloc::collections::vec_deque::VecDeque<alloc::boxed::Box<dyn$<core::ops::function::FnOnce<",
        to: &[DROP],
        through: &[],
    },
    Join {
        from: "netadapter_glue::ndis::impl$2::drop",
        to: &[
            "ndis_driver::lower::lists::impl$9::free",
            "ndis_driver::lower::lists::impl$9::give_back",
        ],
        through: &[],
    },
    Join {
        from: "alloc::sync::Arc::drop_slow<netadapter_glue::ndis::",
        to: &[DROP_LOWER],
        through: &[],
    },
    // The end of a runner has taken the core, which holds the edge and wakers, before the last waker goes.
    Join {
        from: "alloc::sync::Arc::drop_slow<ndis_driver::os::runner::Host",
        to: &[],
        through: &[],
    },
    // Windows' own: functions that are looked up by their names, and callbacks that nobody sets.
    Join { from: "DriverEntry", to: &[], through: &[] },
    Join { from: "ndis_driver::os::pool::", to: &[], through: &[] },
    Join { from: "ndis_driver::os::reserve::", to: &[], through: &[] },
    Join { from: "tracelogging::", to: &[], through: &[] },
    // Text: the names of performance counters' instances, of numbers and addresses. The rest would be words of a panic,
    // which ends the system.
    Join {
        from: "core::fmt::",
        to: &["core::net::display_buffer::", NAME, "core::fmt::Write::write_char"],
        through: &[],
    },
    Join { from: "core::fmt::write", to: &["core::net::", "core::fmt::num::", NAME], through: &[] },
    Join { from: "core::net::", to: &["core::net::display_buffer::", NAME], through: &[] },
    Join { from: "core::num::", to: &[], through: &[] },
    Join { from: "core::option::", to: &[], through: &[] },
    Join { from: "rocev2::", to: &[], through: &[] },
    Join { from: "etherparse::", to: &[], through: &[] },
];

pub(crate) const RECURSIONS: &[Recursion] = &[
    // A panic stops the system, and may use what is left of the stack to tell a debugger why.
    Recursion { from: "core::panicking::", to: "ndis_driver::os::panic", times: 0 },
    // An address within a socket's address, within the name.
    Recursion { from: "core::net::", to: "core::fmt::write", times: 2 },
    // A halt has taken the parts of an adapter before the last count of it goes.
    Recursion {
        from: "core::ptr::drop_in_place<alloc::boxed::Box<ndis_driver::upper::adapter::Running",
        to: "ndis_driver::os::runner::impl$3::drop",
        times: 0,
    },
    // The end of a runner has taken the core out of its host before the last waker goes.
    Recursion {
        from: "alloc::sync::Arc::drop_slow<ndis_driver::os::runner::Host",
        to: "core::ptr::drop_in_place<driver::turn::PollCore",
        times: 0,
    },
    // An adapter that has halted has left its NIC.
    Recursion {
        from: "alloc::sync::Arc::drop_slow<ndis_driver::lower::lists::Attachment",
        to: "alloc::sync::Arc::drop_slow<ndis_driver::lower::binding::Binding",
        times: 0,
    },
];
