//! What is done with the image, one story each. A story begins and ends with nothing loaded.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use driver::abi::*;
use ndkperf::{Adapter, Buffer, Connector, Cq, Listener, Mr, Pd, Qp, QpConfig, ReadLimits};

use crate::Host;
use crate::log::breaches;
use crate::ndis::nic::{self, Nic};
use crate::ndis::oid;
use crate::ndis::vnic::{self, Opener, Vnic};
use crate::ndis::{config, driver as registration, eventually, nbl, switch, work};
use crate::ntos::pool::Resource;
use crate::ntos::{dispatcher, dpc, etw, mdl, pool};
use crate::{netio, rping};

type Scenario = fn(&dyn Host, &[String]);

/// By name.
pub const ALL: &[(&str, Scenario)] = &[
    ("load", load),
    ("start", start),
    ("bind-late", bind_late),
    ("bind-self", bind_self),
    ("pass-through", pass_through),
    ("traffic", traffic),
    ("disable", disable),
    ("unbind", unbind),
    ("halt-open", halt_open),
    ("lossy", lossy),
    ("refused", refused),
    ("refused-pool", refused_pool),
    ("rping-connect", rping_connect),
    ("rping-serve", rping_serve),
];

/// Runs a story by its name, with its arguments, and ends the process with the verdict.
pub fn run(arguments: &[String], host: &dyn Host) -> ! {
    std::panic::set_hook(Box::new(|panic| {
        crate::log::verdict(format_args!("panic: {panic}"), false);
    }));
    let (name, arguments) = arguments.split_first().expect("the name of a scenario");
    let Some((_, scenario)) = ALL.iter().find(|(known, _)| known == name) else {
        crate::log::verdict(format_args!("no such scenario: {name}"), false);
    };
    let since = Instant::now();
    scenario(host, arguments);
    let sound = breaches() == 0;
    crate::log::verdict(
        format_args!(
            "{name}: {} breaches, {} frames, {} ms",
            breaches(),
            switch::frames(),
            since.elapsed().as_millis()
        ),
        sound,
    )
}

const LIMITS: ReadLimits = ReadLimits { inbound: 8, outbound: 8 };
const ALL_ACCESS: u32 = NDK_MR_FLAG_ALLOW_REMOTE_READ | NDK_MR_FLAG_ALLOW_REMOTE_WRITE;
const PATIENCE: Duration = Duration::from_secs(60);
const PORT: u16 = 7174;
/// Whether ndkperf's consumer can call the image: elsewhere the tables that it knows have the calling
/// convention of the host, which is not the image's.
const IS_CONSUMER: bool = cfg!(windows);

/// Loads and unloads.
fn load(host: &dyn Host, _: &[String]) {
    for _ in 0..3 {
        host.load().expect("DriverEntry succeeds");
        let registered = registration::registered();
        assert!(registered.miniport.is_some() && registered.protocol.is_some());
        finish(host);
    }
}

/// An adapter on a NIC: link state, requests, statistics; then all away.
fn start(host: &dyn Host, _: &[String]) {
    host.load().expect("DriverEntry succeeds");
    let nic = Nic::plug_in(9000);
    let vnic = add(0, nic);
    expect_link(vnic, true);
    // The driver tells the link before it has answered the offer of the NIC.
    eventually("the NIC is bound", || nic.is_bound());
    requests(vnic);
    nic.set_link(false);
    expect_link(vnic, false);
    nic.set_link(true);
    expect_link(vnic, true);
    vnic.pause();
    assert_eq!(vnic.restart(), 0);
    if IS_CONSUMER {
        let adapter = Adapter::open(Arc::new(Opener(vnic))).expect("an NDK adapter");
        let info = adapter.info().expect("its information");
        assert_eq!(info.RdmaTechnology, NdkRoCEv2);
    }
    vnic.remove();
    finish(host);
}

/// The adapter starts first, its NIC comes later, goes, and comes again.
fn bind_late(host: &dyn Host, _: &[String]) {
    host.load().expect("DriverEntry succeeds");
    let nic = Nic::plug_in(1500);
    let other = Nic::plug_in(1500);
    let vnic = add(0, nic);
    expect_link(vnic, true);
    assert!(!other.is_bound(), "bound to a NIC that LowerAdapter does not name");
    nic.unbind();
    expect_link(vnic, false);
    nic.bind();
    expect_link(vnic, true);
    // And the other way round: the NIC is there before the driver is.
    vnic.remove();
    host.unload();
    host.load().expect("DriverEntry succeeds");
    let vnic = add(0, nic);
    expect_link(vnic, true);
    vnic.remove();
    finish(host);
}

/// An adapter does not bind to itself, even if it is told to.
fn bind_self(host: &dyn Host, _: &[String]) {
    host.load().expect("DriverEntry succeeds");
    let nic = Nic::plug_in(1500);
    nic.pose_as(Vnic::next_luid());
    let vnic = add(0, nic);
    nic::settle();
    assert!(!nic.is_bound(), "bound to itself");
    vnic.remove();
    finish(host);
}

/// TCP/IP's own frames pass in both directions; RoCE does not reach TCP/IP.
fn pass_through(host: &dyn Host, _: &[String]) {
    let pair = Net::plug(host, 1500);
    let [a, b] = pair.vnics;
    for len in [60, 61, 590, 1514] {
        let mut frame = vec![0_u8; len];
        frame[..6].copy_from_slice(&b.mac());
        frame[6..12].copy_from_slice(&a.mac());
        frame[12..14].copy_from_slice(&[0x88, 0xB5]);
        for (place, byte) in frame[14..].iter_mut().enumerate() {
            *byte = (place * 7 + len) as u8;
        }
        a.send(&frame);
        eventually("a frame of TCP/IP", || b.heard.lock().unwrap().contains(&frame));
    }
    if IS_CONSUMER {
        let pair = pair.open_adapters();
        pair.connect().exchange(50, 1000);
        assert_silent(&pair);
        pair.end(host);
    } else {
        pair.end(host);
    }
}

fn assert_silent(pair: &Net) {
    for vnic in pair.vnics {
        let roce = vnic.heard.lock().unwrap().iter().filter(|frame| is_roce(frame)).count();
        assert_eq!(roce, 0, "RoCE frames reached TCP/IP");
    }
}

fn is_roce(frame: &[u8]) -> bool {
    frame.len() > 42 && frame[12..14] == [8, 0] && frame[23] == 17 && frame[36..38] == [0x12, 0xB7]
}

/// Two adapters connect and exchange 10,000 verified messages of each kind: [COUNT SIZE].
fn traffic(host: &dyn Host, arguments: &[String]) {
    let net = Net::start(host, 9000);
    let connection = net.connect();
    if let [count, size] = arguments {
        connection.exchange(count.parse().expect("a count"), size.parse().expect("a size"));
    } else {
        connection.exchange(10_000, 700);
        connection.exchange(200, 60_000);
    }
    let mut statistics = [0_u8; 248];
    let answer = oid::ask(net.vnics[0], oid::QUERY, oid::NDK_STATISTICS, &mut statistics, true);
    assert_eq!((answer.status, answer.done), (0, 248));
    let mut endpoints = [0_u8; 4096];
    let answer = oid::ask(net.vnics[0], oid::QUERY, oid::NDK_CONNECTIONS, &mut endpoints, false);
    assert_eq!(answer.status, 0);
    say!("connections: {}", u32::from_le_bytes(endpoints[8..12].try_into().unwrap()));
    drop(connection);
    net.end(host);
}

/// The same on a wire that loses one frame of 50.
fn lossy(host: &dyn Host, _: &[String]) {
    let net = Net::start(host, 1500);
    let connection = net.connect();
    switch::lose(50);
    connection.exchange(300, 5000);
    switch::lose(0);
    drop(connection);
    net.end(host);
}

/// NDK is switched off under an open consumer, and on again.
fn disable(host: &dyn Host, _: &[String]) {
    let net = Net::start(host, 1500);
    let connection = net.connect();
    connection.exchange(50, 1000);
    let vnic = net.vnics[0];
    set_ndk(vnic, false);
    eventually("NetEventNDKDisable", || {
        vnic.ndk_disables.load(std::sync::atomic::Ordering::SeqCst) == 1
    });
    let refused = vnic.open_ndk(NDK_VERSION { Major: 1, Minor: 2 });
    assert_eq!(refused.err(), Some(NDIS_STATUS_ADAPTER_NOT_READY));
    // The consumers let go; only then is it off.
    drop(connection);
    let net = net.close_adapters();
    set_ndk(vnic, true);
    eventually("NetEventNDKEnable", || {
        vnic.ndk_enables.load(std::sync::atomic::Ordering::SeqCst) == 1
    });
    let net = net.open_adapters();
    let connection = net.connect();
    connection.exchange(50, 1000);
    drop(connection);
    net.end(host);
}

/// The NIC goes away under a connection; the connection breaks, everything closes, it comes back.
fn unbind(host: &dyn Host, _: &[String]) {
    let net = Net::start(host, 1500);
    let connection = net.connect();
    connection.exchange(50, 1000);
    net.nics[0].unbind();
    expect_link(net.vnics[0], false);
    drop(connection);
    net.nics[0].bind();
    expect_link(net.vnics[0], true);
    let connection = net.connect();
    connection.exchange(50, 1000);
    drop(connection);
    net.end(host);
}

/// `rping -c` to a peer on the other side of a UDP port: PORT PEER COUNT SIZE.
fn rping_connect(host: &dyn Host, arguments: &[String]) {
    let peer: IpAddr = arguments[1].parse().expect("an address");
    let end = End::start(host, &arguments[0]);
    let (from, to) = (SocketAddr::new(address(1), 0), SocketAddr::new(peer, PORT));
    let options = rping_options(&arguments[2..]);
    let pings = rping::connect(&end.adapter, from, to, options);
    let pings = pings.unwrap_or_else(|failure| panic!("rping -c: {failure}"));
    say!("{pings} pings verified, as their client");
    end.stop(host);
}

/// `rping -s` for a peer on the other side of a UDP port: PORT COUNT SIZE.
fn rping_serve(host: &dyn Host, arguments: &[String]) {
    let end = End::start(host, &arguments[0]);
    let options = rping_options(&arguments[1..]);
    let listener = end.adapter.listen(SocketAddr::new(address(1), PORT)).expect("a listener");
    say!("listening");
    let connector = listener.next(PATIENCE).expect("a connect event");
    let pings = rping::serve(&end.adapter, connector, options);
    let pings = pings.unwrap_or_else(|failure| panic!("rping -s: {failure}"));
    say!("{pings} pings verified, as their server");
    drop(listener);
    end.stop(host);
}

fn rping_options(arguments: &[String]) -> rping::Options {
    rping::Options {
        count: Some(arguments[0].parse().expect("a count")),
        size: arguments[1].parse().expect("a size"),
        verbose: false,
        validate: true,
        patience: PATIENCE,
    }
}

/// One adapter whose wire leads out of this process.
struct End {
    vnic: &'static Vnic,
    adapter: Arc<Adapter>,
}

impl End {
    fn start(host: &dyn Host, port: &str) -> Self {
        switch::bridge(port.parse().expect("a port"));
        host.load().expect("DriverEntry succeeds");
        let nic = Nic::plug_in(1500);
        let vnic = add(1, nic);
        expect_link(vnic, true);
        let adapter = Adapter::open(Arc::new(Opener(vnic))).expect("an NDK adapter");
        Self { vnic, adapter }
    }

    fn stop(self, host: &dyn Host) {
        drop(self.adapter);
        self.vnic.remove();
        finish(host);
    }
}

/// Each object that starting asks for is refused once; each time all of it is undone.
fn refused(host: &dyn Host, _: &[String]) {
    refuse_each(host, Resource::Object);
}

/// The same for each allocation of pool.
fn refused_pool(host: &dyn Host, _: &[String]) {
    refuse_each(host, Resource::Pool);
}

fn refuse_each(host: &dyn Host, kind: Resource) {
    let nic = Nic::plug_in(1500);
    for count in 0.. {
        pool::refuse_after(kind, Some(count));
        let failed = start_once(host, nic);
        let (asked, was_refused) = pool::asked();
        pool::refuse_after(kind, None);
        clean(&format!("with request {count} refused"));
        if !was_refused {
            say!("{asked} requests, each refused once, each time verified to be undone");
            assert!(!failed, "nothing was refused, and it failed");
            return;
        }
    }
}

/// True if something did not start.
fn start_once(host: &dyn Host, nic: &'static Nic) -> bool {
    if let Err(status) = host.load() {
        say!("DriverEntry: {status:#x}");
        return true;
    }
    let vnic = Vnic::add(&keywords(nic), address(0));
    let failed = match vnic {
        Ok(vnic) => {
            netio::announce(vnic);
            nic::settle();
            vnic.remove();
            false
        }
        Err(status) => {
            say!("MiniportInitializeEx: {status:#x}");
            true
        }
    };
    host.unload();
    failed
}

/// An adapter is removed under a consumer, which lets go a while later: `MiniportHaltEx` waits.
fn halt_open(host: &dyn Host, _: &[String]) {
    let net = Net::start(host, 1500);
    let connection = net.connect();
    connection.exchange(50, 1000);
    let vnics = net.vnics;
    let consumer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(connection);
        drop(net);
    });
    let since = Instant::now();
    vnics[0].remove();
    assert!(since.elapsed() >= Duration::from_millis(200), "halted under an open consumer");
    consumer.join().expect("the consumer closes");
    vnics[1].remove();
    finish(host);
}

/// Two adapters on two NICs of the switch.
struct Net {
    vnics: [&'static Vnic; 2],
    nics: [&'static Nic; 2],
    adapters: Option<[Arc<Adapter>; 2]>,
}

struct Side {
    cq: Arc<Cq>,
    mr: Arc<Mr>,
    qp: Arc<Qp>,
    _pd: Arc<Pd>,
}

struct Connection {
    sides: [Side; 2],
    _connectors: [Connector; 2],
    _listener: Arc<Listener>,
}

impl Net {
    fn start(host: &dyn Host, mtu: u32) -> Self {
        Self::plug(host, mtu).open_adapters()
    }

    fn plug(host: &dyn Host, mtu: u32) -> Self {
        host.load().expect("DriverEntry succeeds");
        let nics = [Nic::plug_in(mtu), Nic::plug_in(mtu)];
        let vnics = [0, 1].map(|number| {
            let vnic = add(number, nics[number]);
            expect_link(vnic, true);
            vnic
        });
        Self { vnics, nics, adapters: None }
    }

    fn open_adapters(self) -> Self {
        let adapters =
            self.vnics.map(|vnic| Adapter::open(Arc::new(Opener(vnic))).expect("an NDK adapter"));
        Self { adapters: Some(adapters), ..self }
    }

    fn close_adapters(mut self) -> Self {
        self.adapters = None;
        self
    }

    fn side(&self, number: usize) -> Side {
        let adapter = &self.adapters.as_ref().expect("open")[number];
        let cq = adapter.create_cq(512).expect("a CQ");
        let pd = adapter.create_pd().expect("a PD");
        let mr = pd.register(Buffer::new(1 << 20), ALL_ACCESS).expect("an MR");
        let qp = pd.create_qp(&cq, &cq, QpConfig::default()).expect("a QP");
        Side { cq, mr, qp, _pd: pd }
    }

    fn connect(&self) -> Connection {
        let adapters = self.adapters.as_ref().expect("open");
        let listener = adapters[1].listen(SocketAddr::new(address(1), PORT)).expect("a listener");
        let sides = [self.side(0), self.side(1)];
        let active = adapters[0].create_connector().expect("a connector");
        let (from, to) = (SocketAddr::new(address(0), 0), SocketAddr::new(address(1), PORT));
        let request = active.connect(&sides[0].qp, from, to, LIMITS, b"caller");
        let passive = listener.next(PATIENCE).expect("a connect event");
        assert_eq!(passive.connection_data().expect("its data").private_data[..6], *b"caller");
        let accept = passive.accept(&sides[1].qp, LIMITS, b"callee");
        request.wait().expect("the connect succeeds");
        active.complete_connect().wait().expect("the connection completes");
        accept.wait().expect("the accept succeeds");
        say!("connected");
        Connection { sides, _connectors: [active, passive], _listener: listener }
    }

    fn end(self, host: &dyn Host) {
        let vnics = self.vnics;
        drop(self.adapters);
        vnics.into_iter().for_each(Vnic::remove);
        finish(host);
    }
}

impl Connection {
    /// SENDs, WRITEs and READs, `count` of each, of up to `len` bytes, every one verified.
    fn exchange(&self, count: usize, len: usize) {
        let since = Instant::now();
        let [here, there] = &self.sides;
        // Where each kind lies in both regions.
        const SEND: usize = 0;
        const WRITE: usize = 1 << 18;
        const READ: usize = 1 << 19;
        for number in 0..count {
            let len = 1 + number * 7919 % len;
            let bytes: Vec<u8> = (0..len).map(|place| (place * 31 + number * 17) as u8).collect();
            here.mr.buffer().write(SEND, &bytes);
            here.mr.buffer().write(WRITE, &bytes);
            there.mr.buffer().write(READ, &bytes);
            there.qp.receive(2, &[there.mr.sge(SEND..SEND + len)]).expect("a receive");
            here.qp
                .write(3, &[here.mr.sge(WRITE..WRITE + len)], there.mr.remote(WRITE), 0)
                .expect("a write");
            here.qp
                .read(4, &[here.mr.sge(READ..READ + len)], there.mr.remote(READ), 0)
                .expect("a read");
            here.qp.send(1, &[here.mr.sge(SEND..SEND + len)], 0).expect("a send");
            assert_eq!(here.finished(3), [3, 4, 1], "round {number}");
            assert_eq!(there.finished(1), [2], "round {number}");
            for (what, side, at) in
                [("SEND", there, SEND), ("WRITE", there, WRITE), ("READ", here, READ)]
            {
                let mut arrived = vec![0; len];
                side.mr.buffer().read(at, &mut arrived);
                assert!(arrived == bytes, "round {number}: {what} of {len} bytes arrived changed");
            }
        }
        let elapsed = since.elapsed().as_secs_f64();
        say!(
            "{count} SENDs, {count} WRITEs, {count} READs verified, {:.0} us per round",
            elapsed / count as f64 * 1e6
        );
    }
}

impl Side {
    /// The contexts of the next completions, all of them successes.
    fn finished(&self, count: usize) -> Vec<usize> {
        let mut contexts = Vec::new();
        while contexts.len() < count {
            let mut results = [NDK_RESULT_EX::EMPTY; 8];
            let taken = self.cq.wait_results_ex(&mut results, PATIENCE).expect("the CQ works");
            assert!(taken > 0, "no completion in {PATIENCE:?}");
            for result in &results[..taken] {
                assert_eq!(result.Status, STATUS_SUCCESS);
                contexts.push(result.RequestContext as usize);
            }
        }
        contexts
    }
}

fn address(number: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + number as u8])
}

/// The keywords of a vNIC on this NIC, as the INF would write them.
fn keywords(nic: &Nic) -> [(&'static str, String); 6] {
    let jumbo = (nic.mtu + 14).to_string();
    [
        ("*NetworkDirect", "1".into()),
        ("*NetworkDirectTechnology", "4".into()),
        ("*NetworkDirectRoCEFrameSize", "1024".into()),
        ("*JumboPacket", jumbo),
        ("LowerAdapter", nic.guid.clone()),
        ("LowerMode", "0".into()),
    ]
}

fn add(number: usize, nic: &Nic) -> &'static Vnic {
    let vnic = Vnic::add(&keywords(nic), address(number)).expect("the adapter starts");
    netio::announce(vnic);
    vnic
}

fn expect_link(vnic: &Vnic, up: bool) {
    let wanted = if up { 1 } else { 2 };
    eventually("the link state", || vnic.link.load(std::sync::atomic::Ordering::SeqCst) == wanted);
}

fn set_ndk(vnic: &Vnic, enable: bool) {
    let answer = oid::ask(vnic, oid::SET, oid::NDK_SET_STATE, &mut [u8::from(enable)], false);
    assert_eq!(answer.status, 0, "OID_NDK_SET_STATE");
}

/// Mandatory requests, and rooms that are too small for their answers.
fn requests(vnic: &Vnic) {
    for (code, len) in [
        (oid::GEN_STATISTICS, 0x98),
        (oid::ETHERNET_CURRENT_ADDRESS, 6),
        (oid::ETHERNET_PERMANENT_ADDRESS, 6),
        (oid::GEN_CURRENT_PACKET_FILTER, 4),
    ] {
        let mut room = vec![0; 512];
        let answer = oid::ask(vnic, oid::QUERY, code, &mut room, false);
        if (answer.status, answer.done) != (0, len) {
            breach!("OID {code:#x}: {answer:x?}, {len:#x} bytes expected");
        }
        let answer = oid::ask(vnic, oid::QUERY, code, &mut room[..2], false);
        if answer.status == 0 || answer.needed != len {
            breach!("OID {code:#x} with 2 bytes of room: {answer:x?}");
        }
    }
    let answer = oid::ask(vnic, oid::QUERY, 0x0BAD_0BAD, &mut [0; 8], false);
    if answer.status != crate::ndis::NOT_SUPPORTED {
        breach!("an unknown OID: {answer:x?}");
    }
}

/// Unloads, unplugs every NIC, and looks at what is left.
fn finish(host: &dyn Host) {
    if vnic::count() > 0 {
        vnic::halt_all();
    }
    host.unload();
    nic::remove_all();
    clean("after unload");
}

fn clean(when: &str) {
    eventually("the end of work items", || work::busy() == 0);
    eventually("the end of system threads", || dispatcher::running() == 0);
    let before = breaches();
    let (blocks, bytes) = pool::held();
    if blocks > 0 {
        breach!("{blocks} blocks of pool, {bytes} bytes, are held {when}");
    }
    pool::report_leaks();
    mdl::report_leaks();
    nbl::report_leaks();
    dispatcher::report_leaks();
    dpc::report_leaks();
    work::report_leaks();
    config::report_leaks();
    netio::report_leaks();
    registration::report_leaks();
    etw::report_leaks();
    if breaches() == before {
        say!("nothing leaks {when}");
    }
}
