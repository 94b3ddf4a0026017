//! A NIC on the switch, to which the image may bind as a protocol.

pub mod calls;
pub mod faults;
pub mod host;
pub mod odd;
pub mod offload;
pub mod scaling;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use faults::{Fate, Faults};
use offload::{Counts, Offloads};

use super::nbl::{self, Nbl};
use super::{
    ADAPTER_NOT_FOUND, BUFFER_TOO_SHORT, Completion, FAILURE, Header, INVALID_LENGTH,
    NOT_SUPPORTED, PENDING, RESOURCES, SUCCESS, driver, eventually, member, oid, set_member,
    switch, within,
};
use crate::ntos::irql::{self, DISPATCH, PASSIVE};
use crate::ntos::{Pointer, UnicodeString, lock, mdl, pool};

pub struct Nic {
    pub guid: String,
    name: UnicodeString,
    pub mac: [u8; 6],
    pub mtu: u32,
    pub index: u32,
    binding: Mutex<Binding>,
    wire: Mutex<Sender<Event>>,
    port: AtomicUsize,
    filter: AtomicUsize,
    /// When calls of the image end: at once, later, or before they return although they pend.
    pub ends: AtomicU8,
    /// Requests of the image end with this status; 0: as they would.
    pub aborts: AtomicI32,
    /// Sends stay in its queue until this is over.
    holds: AtomicBool,
    held: Mutex<Vec<usize>>,
    /// Received frames lie in MDLs that nobody has mapped.
    pub unmapped: AtomicBool,
    /// Tags travel beside received frames, not in them.
    pub strips: AtomicBool,
    /// Received frames lie in pieces of a few bytes, behind one that is not theirs.
    pub crumbles: AtomicBool,
    pub offloads: Mutex<Offloads>,
    pub counts: Counts,
    pub faults: Faults,
    pub above: host::Above,
    /// The most lists that the image has given back by one call of its own accord.
    pub most_given_back: AtomicUsize,
    /// Which processors its frames come to; empty: one.
    pub scaling: Mutex<scaling::Table>,
    /// Whether it merges segments of TCP, over IPv4 and over IPv6.
    merging: Mutex<[bool; 2]>,
    /// A protocol has told what frames its offloads work on.
    encapsulation: AtomicBool,
    /// How often it was offered.
    offers: AtomicUsize,
    /// Lists that it put on the wire.
    sent: AtomicUsize,
    /// Indications so far: those that the image may keep, and those that it may not.
    pub indications: [AtomicUsize; 2],
    bind_done: Completion,
    unbind_done: Completion,
    event_done: Completion,
    powered: AtomicBool,
    /// Held over calls that bring frames or sends that are over.
    serving: Mutex<()>,
    /// Calls that end later and have not returned.
    later: AtomicUsize,
    /// 0: its own.
    luid: AtomicU64,
    /// The processors of its receive-side scaling, with their distances; `None`: NDIS does not tell them.
    pub processors: Mutex<Option<Vec<(u8, u16)>>>,
}

unsafe impl Send for Nic {}
unsafe impl Sync for Nic {}

#[derive(Default)]
struct Binding {
    /// Between the call of the bind handler and its end.
    binds: bool,
    context: usize,
    open: bool,
    running: bool,
    bound: bool,
}

enum Event {
    Frame(Vec<u8>),
    /// A frame of this host, which NDIS brings back.
    Looped(Vec<u8>),
    Sent(usize),
    Stop,
}

static NICS: Mutex<Vec<&'static Nic>> = Mutex::new(Vec::new());
static NEXT: AtomicUsize = AtomicUsize::new(0);

pub const AT_ONCE: u8 = 0;
pub const LATER: u8 = 1;
pub const WITHIN: u8 = 2;

const MEDIUM_ETHERNET: i32 = 0;
const SPEED: u64 = 25_000_000_000;
const FLAG_DISPATCH: u32 = 1;
const FLAG_RESOURCES: u32 = 2;
/// Frames of one indication.
const BURST: usize = 8;
const NET_EVENT_SET_POWER: i32 = 0;
const NET_EVENT_QUERY_POWER: i32 = 1;
const NET_EVENT_PAUSE: i32 = 8;
const NET_EVENT_RESTART: i32 = 9;

pub fn all() -> Vec<&'static Nic> {
    NICS.lock().unwrap().clone()
}

/// Binds and unbinds come one at a time.
static TURN: Mutex<()> = Mutex::new(());
static ENUMERATIONS: AtomicUsize = AtomicUsize::new(0);
static ASKED: AtomicUsize = AtomicUsize::new(0);
/// How soon an adapter asks that does.
const ASKS_WITHIN: Duration = Duration::from_secs(2);

/// Offers every NIC that is not bound, from another thread, as NDIS does.
pub fn bind_all() {
    ENUMERATIONS.fetch_add(1, Ordering::SeqCst);
    std::thread::spawn(|| {
        for nic in all() {
            nic.bind();
        }
        ENUMERATIONS.fetch_sub(1, Ordering::SeqCst);
    });
}

/// Waits until every offer was made.
pub fn settle() {
    eventually("the end of binds", || ENUMERATIONS.load(Ordering::SeqCst) == 0);
}

/// How often the image has asked to be offered the NICs.
pub fn asked() -> usize {
    ASKED.load(Ordering::SeqCst)
}

/// Waits until the image has asked more often than that, and every offer was made. One that was
/// attached, or refused what it needs for that, before it restarted does not ask: for it the wait is short.
pub fn settle_after(before: usize) {
    within(ASKS_WITHIN, || asked() > before || all().iter().any(|nic| nic.is_bound()));
    settle();
}

/// The image asks to be offered the NICs.
pub fn ask() {
    bind_all();
    ASKED.fetch_add(1, Ordering::SeqCst);
}

pub fn unbind_all() {
    settle();
    for nic in all() {
        nic.unbind();
        // The image is unloaded next: no call may be on its way back.
        eventually("the return of late calls", || nic.later.load(Ordering::SeqCst) == 0);
        nic.rest();
    }
}

/// Unplugs every NIC: the next run begins with none.
pub fn remove_all() {
    for nic in std::mem::take(&mut *NICS.lock().unwrap()) {
        switch::unplug(nic.port.load(Ordering::SeqCst));
        let _ = nic.wire.lock().unwrap().send(Event::Stop);
    }
}

impl Nic {
    /// A new NIC on the switch, bound if the image is a protocol already.
    pub fn plug_in(mtu: u32) -> &'static Self {
        Self::plug_in_with(mtu, Offloads::PLAIN)
    }

    /// The same with these offloads.
    pub fn plug_in_with(mtu: u32, offloads: Offloads) -> &'static Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed) as u8 + 1;
        let guid = format!("{{6E646B72-6F63-6576-3200-0000000000{number:02X}}}");
        let (wire, events) = channel();
        let nic: &'static Self = Box::leak(Box::new(Self {
            name: UnicodeString::leak(&format!("\\DEVICE\\{guid}")),
            guid,
            mac: [2, 0, 0, 0, 1, number],
            mtu,
            index: 100 + u32::from(number),
            binding: Mutex::default(),
            wire: Mutex::new(wire),
            port: AtomicUsize::new(0),
            filter: AtomicUsize::new(0),
            ends: AtomicU8::new(if number.is_multiple_of(2) { LATER } else { AT_ONCE }),
            aborts: AtomicI32::new(0),
            holds: AtomicBool::new(false),
            held: Mutex::default(),
            unmapped: AtomicBool::new(false),
            strips: AtomicBool::new(true),
            crumbles: AtomicBool::new(false),
            offloads: Mutex::new(offloads),
            counts: Counts::default(),
            faults: Faults::default(),
            above: host::Above::default(),
            most_given_back: AtomicUsize::new(0),
            scaling: Mutex::default(),
            merging: Mutex::new([offloads.merges; 2]),
            encapsulation: AtomicBool::new(false),
            offers: AtomicUsize::new(usize::from(number)),
            sent: AtomicUsize::new(0),
            indications: [const { AtomicUsize::new(0) }; 2],
            bind_done: Completion::new(),
            unbind_done: Completion::new(),
            event_done: Completion::new(),
            powered: AtomicBool::new(true),
            serving: Mutex::new(()),
            later: AtomicUsize::new(0),
            luid: AtomicU64::new(0),
            processors: Mutex::new(Some((0..4).map(|number| (number, 0)).collect())),
        }));
        std::thread::spawn(move || nic.serve(&events));
        let port = switch::plug(Box::new(move |frame| nic.hear(frame)));
        nic.port.store(port, Ordering::SeqCst);
        NICS.lock().unwrap().push(nic);
        if driver::registered().protocol.is_some() {
            nic.bind();
        }
        nic
    }

    /// Whether the offer of it was accepted, and frames may pass.
    pub fn is_bound(&self) -> bool {
        let binding = self.binding.lock().unwrap();
        binding.bound && binding.running
    }

    fn find(handle: Pointer) -> Option<&'static Self> {
        all().into_iter().find(|nic| std::ptr::eq(std::ptr::from_ref(*nic).cast(), handle))
    }

    /// The NIC of a binding handle that is open.
    pub fn opened(handle: Pointer, function: &str) -> Option<&'static Self> {
        match Self::find(handle) {
            Some(nic) if nic.binding.lock().unwrap().open => Some(nic),
            _ => {
                breach!("{function} with a binding handle that is not open");
                None
            }
        }
    }

    fn handle(&self) -> Pointer {
        std::ptr::from_ref(self) as Pointer
    }

    pub fn bind(&self) {
        let _turn = TURN.lock().unwrap();
        let Some((protocol, context)) = driver::registered().protocol else { return };
        {
            let mut binding = self.binding.lock().unwrap();
            if binding.bound || binding.binds {
                return;
            }
            binding.binds = true;
        }
        self.bind_done.begin();
        let mut parameters = self.bind_parameters();
        let returned = irql::run_at(PASSIVE, "ProtocolBindAdapterEx", || unsafe {
            protocol.bind.expect("checked")(
                context as Pointer,
                self.handle(),
                parameters.as_mut_ptr().cast(),
            )
        });
        lock::none_held("ProtocolBindAdapterEx");
        let status = self.bind_done.wait("ProtocolBindAdapterEx", returned);
        let mut binding = self.binding.lock().unwrap();
        binding.binds = false;
        if status != SUCCESS {
            if binding.open {
                breach!("a bind failed with {status:#x} and left the adapter open");
            }
            say!("NIC {}: not bound, {status:#x}", self.index);
            return;
        }
        if !binding.open {
            breach!("a bind succeeded without an open adapter");
        }
        drop(binding);
        self.restart();
        self.binding.lock().unwrap().bound = true;
        say!("NIC {}: bound", self.index);
    }

    pub fn unbind(&self) {
        let _turn = TURN.lock().unwrap();
        let Some((protocol, _)) = driver::registered().protocol else { return };
        {
            let binding = self.binding.lock().unwrap();
            if !binding.bound {
                return;
            }
        }
        self.pause();
        let context = self.binding.lock().unwrap().context;
        self.unbind_done.begin();
        let returned = irql::run_at(PASSIVE, "ProtocolUnbindAdapterEx", || unsafe {
            protocol.unbind.expect("checked")(self.handle(), context as Pointer)
        });
        let status = self.unbind_done.wait("ProtocolUnbindAdapterEx", returned);
        if status != SUCCESS {
            breach!("ProtocolUnbindAdapterEx ended with {status:#x}");
        }
        let mut binding = self.binding.lock().unwrap();
        if binding.open {
            breach!("an unbind ended and left the adapter open");
        }
        self.expect_as_it_was();
        *binding = Binding::default();
        say!("NIC {}: unbound", self.index);
    }

    pub fn restart(&self) {
        self.binding.lock().unwrap().running = true;
        self.event(NET_EVENT_RESTART, "NetEventRestart", 0);
    }

    /// The system sleeps or wakes. Without power nothing may be asked of the NIC.
    pub fn set_power(&self, awake: bool) {
        let state = if awake { 1 } else { 4 };
        if awake {
            self.powered.store(true, Ordering::SeqCst);
        } else {
            self.event(NET_EVENT_QUERY_POWER, "NetEventQueryPower", state);
        }
        self.event(NET_EVENT_SET_POWER, "NetEventSetPower", state);
        self.powered.store(awake, Ordering::SeqCst);
        self.rest();
        let edge = self.handle() as usize;
        if !awake {
            let rests = || nbl::borrowed(edge) + nbl::lent(edge) == 0;
            eventually("the end of lists in flight on a NIC without power", rests);
        }
    }

    /// Keeps sends in its queue from now on, or lets them go.
    pub fn hold(&self, holds: bool) {
        self.holds.store(holds, Ordering::SeqCst);
        if !holds {
            let held = std::mem::take(&mut *self.held.lock().unwrap());
            held.into_iter().for_each(|list| unsafe { self.put_on_wire(list as *mut Nbl) });
        }
    }

    pub fn held(&self) -> usize {
        self.held.lock().unwrap().len()
    }

    /// Calls that showed the image frames.
    pub fn indicated(&self) -> usize {
        self.indications.iter().map(|kind| kind.load(Ordering::SeqCst)).sum()
    }

    pub fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }

    unsafe fn put_on_wire(&self, list: *mut Nbl) {
        let left = (*list).leftovers();
        if !left.is_empty() {
            breach!("a list is sent with what a NIC left in its out-of-band values {left:?}");
        }
        let frames = self.divide(list);
        (*list).status = SUCCESS;
        match self.faults.meet(&frames) {
            Fate::Carried => {
                self.sent.fetch_add(1, Ordering::Relaxed);
                let info = (*list).info[nbl::VLAN];
                let wire = |frame: Vec<u8>| if info == 0 { frame } else { tagged(&frame, info) };
                let port = self.port.load(Ordering::SeqCst);
                for frame in frames {
                    self.loop_back(&frame);
                    switch::send(port, &wire(frame));
                }
            }
            Fate::Lost => {}
            Fate::Refused => (*list).status = INVALID_LENGTH,
        }
        let _ = self.wire.lock().unwrap().send(Event::Sent(list as usize));
    }

    unsafe fn cancel(&self, id: usize) {
        let (cancelled, left): (Vec<_>, Vec<_>) = std::mem::take(&mut *self.held.lock().unwrap())
            .into_iter()
            .partition(|&list| (*(list as *mut Nbl)).info[nbl::CANCEL] == id);
        self.held.lock().unwrap().extend(left);
        for list in cancelled {
            (*(list as *mut Nbl)).status = ABORTED;
            let _ = self.wire.lock().unwrap().send(Event::Sent(list));
        }
    }

    /// Ends a call of the image: now, later, or before it returns.
    fn end(&'static self, status: i32, complete: impl FnOnce() + Send + 'static) -> i32 {
        match self.ends.load(Ordering::SeqCst) {
            AT_ONCE => return status,
            WITHIN => complete(),
            _ => {
                self.later.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(2));
                    complete();
                    self.later.fetch_sub(1, Ordering::SeqCst);
                });
            }
        }
        PENDING
    }

    /// Waits for a call with frames that has begun. One that begins later sees why it must not.
    pub fn rest(&self) {
        drop(self.serving.lock().unwrap());
    }

    /// Afterwards the image has completed every send and returned every receive.
    pub fn pause(&self) {
        let edge = self.handle() as usize;
        self.event(NET_EVENT_PAUSE, "NetEventPause", 0);
        let sends = nbl::borrowed(edge);
        if sends > 0 {
            breach!("{sends} sends are in flight after a pause");
        }
        self.binding.lock().unwrap().running = false;
        // What was on its way to the image when it was told comes back at once.
        self.rest();
        if nbl::lent(edge) > 0 {
            breach!("{} received lists are held after a pause", nbl::lent(edge));
        }
    }

    fn event(&self, code: i32, what: &'static str, mut value: i32) {
        let Some((protocol, _)) = driver::registered().protocol else { return };
        // NET_PNP_EVENT_NOTIFICATION, revision 1.
        let mut notification = [0_u64; 0xA8 / 8];
        let start = notification.as_mut_ptr().cast::<u8>();
        unsafe {
            set_member(start, 0, Header::new(0x80, 1, 0xA4));
            set_member(start, 8, code);
            if value != 0 {
                set_member(start, 0x10, &raw mut value);
                set_member(start, 0x18, 4_u32);
            }
        }
        let context = self.binding.lock().unwrap().context;
        self.event_done.begin();
        let returned = irql::run_at(PASSIVE, what, || unsafe {
            protocol.pnp_event.expect("checked")(context as Pointer, start)
        });
        lock::none_held(what);
        let status = self.event_done.wait(what, returned);
        if status != SUCCESS {
            breach!("{what} ended with {status:#x}");
        }
    }

    /// The link goes down or comes up.
    pub fn set_link(&self, up: bool) {
        let Some((protocol, _)) = driver::registered().protocol else { return };
        let mut state = link_state(up);
        // NDIS_STATUS_LINK_STATE.
        let status = protocol.status.expect("checked");
        self.indicate_status(status, 0x4001_0017, state.as_mut_ptr().cast(), 40);
    }

    fn indicate_status(
        &self,
        status: unsafe extern "win64" fn(Pointer, Pointer),
        code: i32,
        buffer: Pointer,
        len: u32,
    ) {
        let mut indication = [0_u64; 112 / 8];
        let start = indication.as_mut_ptr().cast::<u8>();
        unsafe {
            set_member(start, 0, Header::new(0x98, 1, 112));
            set_member(start, 8, self.handle());
            set_member(start, 0x14, code);
            set_member(start, 0x30, buffer);
            set_member(start, 0x38, len);
        }
        let context = self.binding.lock().unwrap().context;
        irql::run_at(DISPATCH, "ProtocolStatusEx", || unsafe {
            status(context as Pointer, start);
        });
    }

    /// `NDIS_BIND_PARAMETERS`, revision 1.
    /// Of another revision each time: the first is that of NDIS 6.0, the last that of 6.30 and later, and the one behind
    /// it does not exist yet. A later one has members behind those of an earlier one, which are not for this driver.
    fn bind_parameters(&self) -> [u64; 0x180 / 8] {
        const LENS: [usize; 5] = [0xF8, 0x100, 0x118, 0x138, 0x180];
        let mut parameters = [0xDEAD_DEAD_DEAD_DEAD_u64; 0x180 / 8];
        parameters[..0xF8 / 8].fill(0);
        let start = parameters.as_mut_ptr().cast::<u8>();
        let revision = self.offers.fetch_add(1, Ordering::Relaxed) % LENS.len();
        unsafe {
            set_member(start, 0, Header::new(0x86, revision as u8 + 1, LENS[revision]));
            set_member(start, 8, &raw const self.name);
            set_member(start, 0x10, &raw const self.name);
            set_member(start, 0x20, MEDIUM_ETHERNET);
            set_member(start, 0x24, self.mtu);
            for speed in [0x28, 0x30, 0x38, 0x40] {
                set_member(start, speed, SPEED);
            }
            set_member(start, 0x48, 1_i32); // MediaConnectStateConnected
            set_member(start, 0x4C, 2_i32); // full duplex
            set_member(start, 0x50, self.mtu);
            set_member(start, 0x60, 0x2F_u32);
            set_member(start, 0x64, 32_u32);
            set_member(start, 0x68, 6_u16);
            set_member(start, 0x6A, self.mac);
            set_member(start, 0x8C, 14_i32); // NdisPhysicalMedium802_3
            set_member(start, 0x90, scaling::capabilities());
            set_member(start, 0x98, self.luid());
            set_member(start, 0xA0, self.index);
            set_member(start, 0xA8, self.luid());
            set_member(start, 0xB0, self.index);
            set_member(start, 0xB4, 2_i32);
            set_member(start, 0xBC, 1_i32);
            set_member(start, 0xC0, 6_u16);
            set_member(start, 0xC2, 1_u8);
            let offloads = *self.offloads.lock().unwrap();
            set_member(start, 0xE0, offloads.config(*self.merging.lock().unwrap()));
            set_member(start, 0xF0, &raw const self.name);
        }
        parameters
    }

    pub fn luid(&self) -> u64 {
        match self.luid.load(Ordering::SeqCst) {
            0 => 6 << 48 | u64::from(self.index) << 24,
            luid => luid,
        }
    }

    /// Shows itself under the identifier of another interface.
    pub fn pose_as(&self, luid: u64) {
        self.luid.store(luid, Ordering::SeqCst);
    }

    /// Takes a frame off the wire if the packet filter lets it in.
    fn hear(&self, frame: &[u8]) {
        if !self.powered.load(Ordering::SeqCst) {
            return;
        }
        if host::lets_in(self.filter.load(Ordering::SeqCst), self.mac, frame) {
            let _ = self.wire.lock().unwrap().send(Event::Frame(frame.to_vec()));
        }
        self.show_host(frame);
    }

    /// The NIC's interrupts: completes sends, indicates receives.
    fn serve(&self, events: &Receiver<Event>) {
        let mut resources = false;
        while let Ok(first) = events.recv() {
            let mut sent = Vec::new();
            let (mut frames, mut looped) = (Vec::new(), Vec::new());
            for event in std::iter::once(first).chain(events.try_iter().take(BURST - 1)) {
                match event {
                    Event::Frame(frame) => frames.push(frame),
                    Event::Looped(frame) => looped.push(frame),
                    Event::Sent(list) => sent.push(list as *mut Nbl),
                    Event::Stop => return,
                }
            }
            let _serving = self.serving.lock().unwrap();
            self.complete(&sent);
            resources = !resources;
            self.indicate(&frames, resources, false);
            self.indicate(&looped, resources, true);
        }
    }

    fn complete(&self, sent: &[*mut Nbl]) {
        let Some((protocol, _)) = driver::registered().protocol else { return };
        if sent.is_empty() {
            return;
        }
        let context = self.binding.lock().unwrap().context;
        let lists = unsafe { nbl::join(sent) };
        for &list in sent {
            unsafe { (*list).litter() };
            nbl::give_back(list);
        }
        irql::run_at(DISPATCH, "ProtocolSendNetBufferListsComplete", || unsafe {
            protocol.send_complete.expect("checked")(context as Pointer, lists, FLAG_DISPATCH);
        });
        lock::none_held("ProtocolSendNetBufferListsComplete");
    }

    fn indicate(&self, frames: &[Vec<u8>], resources: bool, looped: bool) {
        if frames.is_empty() || !self.is_receiving() {
            return;
        }
        let strips = self.strips.load(Ordering::SeqCst);
        let untag = |frame: &Vec<u8>| if strips { untagged(frame) } else { (frame.clone(), 0) };
        let shown = self.show(&frames.iter().map(untag).collect::<Vec<_>>());
        let lists: Vec<_> =
            shown.iter().enumerate().map(|(place, shown)| self.list_of(place, shown)).collect();
        if looped {
            lists.iter().for_each(|&list| unsafe { (*list).mark_looped() });
        }
        self.indicate_lists(&lists, resources);
    }

    fn is_receiving(&self) -> bool {
        self.binding.lock().unwrap().running && self.powered.load(Ordering::SeqCst)
    }

    fn indicate_lists(&self, lists: &[*mut Nbl], resources: bool) {
        let Some((protocol, _)) = driver::registered().protocol else { return };
        let context = self.binding.lock().unwrap().context;
        let edge = self.handle() as usize;
        self.indications[usize::from(resources)].fetch_add(1, Ordering::Relaxed);
        let mut flags = FLAG_DISPATCH;
        if resources {
            flags |= FLAG_RESOURCES;
        } else {
            lists.iter().for_each(|&list| nbl::lend(list, edge));
        }
        let chain = unsafe { nbl::join(lists) };
        let locks = lock::taken();
        odd::INDICATES.set(true);
        irql::run_at(DISPATCH, "ProtocolReceiveNetBufferLists", || unsafe {
            protocol.receive.expect("checked")(
                context as Pointer,
                chain,
                0,
                lists.len() as u32,
                flags,
            );
        });
        odd::INDICATES.set(false);
        *self.above.locks.lock().unwrap() += lock::taken() - locks;
        lock::none_held("ProtocolReceiveNetBufferLists");
        if resources {
            lists.iter().for_each(|&list| unsafe { nbl::unmake(list) });
        }
    }

    /// A list of a received frame: whole, or in MDLs that end within a header.
    fn list_of(&self, place: usize, shown: &offload::Shown) -> *mut Nbl {
        let crumbles = self.crumbles.load(Ordering::SeqCst);
        let pieces = if crumbles { [1, 3, 13, 41] } else { [usize::MAX, 600, 37, 18] };
        let unmapped = self.unmapped.load(Ordering::SeqCst);
        let flags = if unmapped { mdl::PARTIAL } else { mdl::NON_PAGED };
        // A frame may have no byte.
        let piece = pieces[place % 4].min(shown.frame.len().max(1));
        let apart = crumbles || shown.frame.is_empty();
        let list = nbl::make_behind(apart, &shown.frame, piece, flags, self.handle());
        unsafe {
            (*list).info[nbl::VLAN] = shown.tag;
            (*list).info[nbl::CHECKSUM] = shown.verdict;
            (*list).info[nbl::URO] = shown.info();
            (*list).info[nbl::HASH] = 0x5EED;
        }
        list
    }

    /// Its offloads change, and the image is told.
    pub fn set_offloads(&self, offloads: Offloads) {
        let Some((protocol, _)) = driver::registered().protocol else { return };
        *self.offloads.lock().unwrap() = offloads;
        let mut nothing = [0_u32; 0xD8 / 4];
        unsafe { set_member(nothing.as_mut_ptr().cast(), 0, Header::new(0xA7, 6, 0xD8)) };
        let config = offloads.config(*self.merging.lock().unwrap());
        let config = if config.is_null() { nothing.as_mut_ptr().cast() } else { config };
        self.indicate_status(protocol.status.expect("checked"), 0x4002_0006, config, 0xD8);
    }

    /// Answers a request of the image, now or later.
    pub unsafe fn oid_request(&'static self, request: Pointer) -> i32 {
        if !self.powered.load(Ordering::SeqCst) {
            breach!("a request to a NIC without power");
        }
        let status = match self.aborts.load(Ordering::SeqCst) {
            SUCCESS => self.answer(request),
            status => status,
        };
        let (protocol, _) = driver::registered().protocol.expect("an open binding has a protocol");
        let context = self.binding.lock().unwrap().context;
        let request = request as usize;
        self.end(status, move || {
            irql::run_at(DISPATCH, "ProtocolOidRequestComplete", || unsafe {
                protocol.oid_complete.expect("checked")(
                    context as Pointer,
                    request as Pointer,
                    status,
                );
            });
        })
    }

    unsafe fn answer(&self, request: Pointer) -> i32 {
        let kind = member::<i32>(request, 4);
        let code = member::<u32>(request, 0x20);
        let buffer = member::<Pointer>(request, 0x28);
        let len = member::<u32>(request, 0x30) as usize;
        if kind == oid::SET {
            set_member(request, 0x34, len as u32);
            return match code {
                oid::GEN_CURRENT_PACKET_FILTER if len == 4 => {
                    let filter = buffer.cast::<u32>().read_unaligned() as usize;
                    self.filter.store(filter, Ordering::SeqCst);
                    self.above.filters.lock().unwrap().push(filter);
                    SUCCESS
                }
                oid::GEN_CURRENT_PACKET_FILTER => INVALID_LENGTH,
                oid::ETHERNET_MULTICAST_LIST if len.is_multiple_of(6) => SUCCESS,
                oid::ETHERNET_MULTICAST_LIST => INVALID_LENGTH,
                oid::TCP_OFFLOAD_PARAMETERS if len >= 0x1A => {
                    self.set_merging(member::<[u8; 2]>(buffer, 0x16));
                    SUCCESS
                }
                oid::TCP_OFFLOAD_PARAMETERS => INVALID_LENGTH,
                oid::GEN_RECEIVE_SCALE_PARAMETERS if len >= 0x28 => self.set_scaling(buffer, len),
                oid::GEN_RECEIVE_SCALE_PARAMETERS => INVALID_LENGTH,
                oid::OFFLOAD_ENCAPSULATION if len >= 0x1C => {
                    member::<Header>(buffer, 0).check(
                        "NDIS_OFFLOAD_ENCAPSULATION",
                        0xA8,
                        &[(1, 0x1C)],
                    );
                    // On, over Ethernet, for both versions of IP.
                    let on = [4, 0x10].map(|ip| member::<[u32; 3]>(buffer, ip));
                    if on != [[1, 2, 14]; 2] {
                        breach!("OID_OFFLOAD_ENCAPSULATION asks for {on:?}");
                    }
                    self.encapsulation.store(true, Ordering::SeqCst);
                    SUCCESS
                }
                oid::OFFLOAD_ENCAPSULATION => INVALID_LENGTH,
                _ => NOT_SUPPORTED,
            };
        }
        let value: Vec<u8> = match code {
            oid::GEN_CURRENT_PACKET_FILTER => {
                self.filter.load(Ordering::SeqCst).to_le_bytes()[..4].to_vec()
            }
            oid::GEN_MAXIMUM_FRAME_SIZE => self.mtu.to_le_bytes().to_vec(),
            oid::ETHERNET_CURRENT_ADDRESS | oid::ETHERNET_PERMANENT_ADDRESS => self.mac.to_vec(),
            oid::GEN_LINK_STATE => {
                link_state(true).iter().flat_map(|word| word.to_le_bytes()).collect()
            }
            _ => return NOT_SUPPORTED,
        };
        set_member(request, 0x38, value.len() as u32);
        if len < value.len() {
            return BUFFER_TOO_SHORT;
        }
        buffer.copy_from(value.as_ptr(), value.len());
        set_member(request, 0x34, value.len() as u32);
        SUCCESS
    }
}

/// `NDIS_LINK_STATE`.
fn link_state(up: bool) -> [u64; 5] {
    let mut state = [0_u64; 5];
    let start = state.as_mut_ptr().cast::<u8>();
    unsafe {
        set_member(start, 0, Header::new(0x80, 1, 40));
        set_member(start, 4, if up { 1_i32 } else { 2 });
        set_member(start, 8, 2_i32);
        set_member(start, 0x10, if up { SPEED } else { 0 });
        set_member(start, 0x18, if up { SPEED } else { 0 });
    }
    state
}

/// `NDIS_STATUS_REQUEST_ABORTED`, also of a send.
pub const ABORTED: i32 = 0xC001_000C_u32.cast_signed();

/// The frame with the tag that travels beside it.
fn tagged(frame: &[u8], info: usize) -> Vec<u8> {
    let tci = ((info & 7) << 13 | (info >> 3 & 1) << 12 | info >> 4 & 0xFFF) as u16;
    [&frame[..12], &[0x81, 0], &tci.to_be_bytes(), &frame[12..]].concat()
}

/// The frame without its tag, and what travels beside it.
fn untagged(frame: &[u8]) -> (Vec<u8>, usize) {
    if frame.get(12..16).is_none_or(|tag| tag[..2] != [0x81, 0]) {
        return (frame.to_vec(), 0);
    }
    let tci = usize::from(u16::from_be_bytes([frame[14], frame[15]]));
    let info = tci >> 13 | (tci >> 12 & 1) << 3 | (tci & 0xFFF) << 4;
    ([&frame[..12], &frame[16..]].concat(), info)
}
