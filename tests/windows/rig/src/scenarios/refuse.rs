//! Resources that the system refuses.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use driver::abi::*;
use ndk_consumer::{Adapter, Buffer, Listener, NdkError, QpConfig, SrqConfig};

use super::net::{ALL_ACCESS, LIMITS, Net, PATIENCE, PORT, Side, register_again};
use super::*;
use crate::ndis::vnic::Opener;
use crate::ntos::misc;
use crate::ntos::pool::Resource;

/// Each object that starting asks for is refused once; each time all of it is undone. Of those that
/// are asked for very often a sample, another one each time: [OFFSET], or "all" for each of them.
pub(super) fn refused(host: &dyn Host, arguments: &[String]) {
    refuse_each(host, Resource::Object, &[], arguments);
}

/// The same where the adapter has two poll cores, of which the second is refused what the first has.
pub(super) fn refused_cores(host: &dyn Host, arguments: &[String]) {
    let cores = ("PollCores", "2");
    exhaust_while_starting(host, 1500, &[cores]);
    exhaust_while_starting(host, 9000, &[cores, ("*NetworkDirectRoCEFrameSize", "4096")]);
    refuse_each(host, Resource::Object, &[cores], arguments);
}

/// The same for allocations of pool; and starting needs no more of it than it sets aside first.
pub(super) fn refused_pool(host: &dyn Host, arguments: &[String]) {
    exhaust_while_starting(host, 1500, &[]);
    exhaust_while_starting(host, 9000, &[("*NetworkDirectRoCEFrameSize", "4096")]);
    refuse_each(host, Resource::Pool, &[], arguments);
}

fn refuse_each(
    host: &dyn Host,
    kind: Resource,
    others: &[(&'static str, &str)],
    arguments: &[String],
) {
    let keywords = keywords(Nic::plug_in(1500), others);
    pool::record(kind);
    assert!(!start_once(host, &keywords), "nothing was refused, and it failed");
    let requests = pool::recorded();
    clean("with no request refused");
    let chosen = match arguments {
        [all] if all == "all" => (0..requests.len()).collect(),
        [offset] => sample(&requests, offset.parse().expect("an offset")),
        _ => sample(&requests, misc::system_time() as usize / 10_000_000),
    };
    let mut missed = 0;
    for &count in &chosen {
        pool::refuse_after(kind, Some(count));
        start_once(host, &keywords);
        let (_, was_refused) = pool::asked();
        pool::refuse_after(kind, None);
        clean(&format!("with request {count} refused"));
        missed += usize::from(!was_refused);
    }
    // How often a worker asks depends on its turns; all but the last few requests are always made.
    assert!(missed < 10, "{missed} of {} requests were not made", chosen.len());
    say!(
        "{} of {} requests refused, each time verified to be undone",
        chosen.len() - missed,
        requests.len()
    );
}

/// Every [`STRIDE`]th of what is asked for again and again, the frames' parts above all, beginning at
/// `offset`; each of the others.
fn sample(requests: &[String], offset: usize) -> Vec<usize> {
    const STRIDE: usize = 32;
    let offset = offset % STRIDE;
    say!("a sample of what is asked for again and again: {offset}");
    let mut seen = BTreeMap::<&str, usize>::new();
    let mut chosen = Vec::new();
    for (at, request) in requests.iter().enumerate() {
        let before = seen.entry(request).or_default();
        if *before < 8 || *before % STRIDE == offset {
            chosen.push(at);
        }
        *before += 1;
    }
    chosen
}

/// The pool is exhausted after each number of allocations, until what is set aside is enough.
fn exhaust_while_starting(host: &dyn Host, mtu: u32, others: &[(&'static str, &str)]) {
    let nic = Nic::plug_in(mtu);
    let keywords = keywords(nic, others);
    for count in 0.. {
        pool::exhaust_after(count);
        let failed = start_once(host, &keywords);
        let (asked, was_refused) = pool::asked();
        pool::refuse_after(Resource::Pool, None);
        clean(&format!("with the pool exhausted after {count} allocations"));
        assert!(was_refused, "{asked} allocations were granted, and none was refused");
        if !failed {
            say!("{count} of {asked} allocations granted: they set enough aside, MTU {mtu}");
            return;
        }
    }
}

/// True if something did not start.
fn start_once(host: &dyn Host, keywords: &[(&'static str, String)]) -> bool {
    if let Err(status) = host.load() {
        say!("DriverEntry: {status:#x}");
        return true;
    }
    let before = nic::asked();
    let vnic = Vnic::add(keywords, &[address(0)]);
    let failed = match vnic {
        Ok(vnic) => {
            netio::announce(vnic);
            // What it asks for while its NIC is offered is always asked for.
            nic::settle_after(before);
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

/// The pool refuses, once or from then on, each allocation that the making of each object leads to:
/// it fails with one status, or works all the same; and afterwards everything works.
pub(super) fn exhausted(host: &dyn Host, _: &[String]) {
    let net = Net::start(host, 1500);
    let [here, _] = net.adapters.as_ref().expect("open");
    each("an adapter", || Adapter::open(Arc::new(Opener(net.vnics[0]))));
    each("a CQ", || here.create_cq(64));
    each("a CQ of full depth", || here.create_cq(32_768));
    each("a PD", || here.create_pd());
    each("a connector", || here.create_connector());
    let from = SocketAddr::new(address(0), 0);
    each("a listener", || here.listen(from));
    let (cq, pd) = (here.create_cq(64).expect("a CQ"), here.create_pd().expect("a PD"));
    each("an MR", || pd.register(Buffer::new(1 << 16), ALL_ACCESS));
    let mr = pd.register(Buffer::new(1 << 20), ALL_ACCESS).expect("an MR");
    each("a registration of pieces without mapping", || register_again(&mr, 5000, mdl::LOCKED));
    each("a QP", || pd.create_qp(&cq, &cq, QpConfig::default()));
    let deep = QpConfig { receive_depth: 4096, initiator_depth: 4096, ..QpConfig::default() };
    each("a QP of full depth", || pd.create_qp(&cq, &cq, deep));
    let inline = QpConfig { inline_len: 256, initiator_depth: 1024, ..QpConfig::default() };
    each("a QP with inline data", || pd.create_qp(&cq, &cq, inline));
    each("a larger CQ", || here.create_cq(64).and_then(|cq| cq.resize(32_768)));
    each("a memory window", || pd.create_mw());
    each("a fast-register region", || pd.create_frmr(16, true));
    let srq = SrqConfig { depth: 4096, receive_sge: 1, threshold: 0 };
    each("an SRQ", || pd.create_srq(srq));
    each("a larger SRQ", || {
        let small = pd.create_srq(SrqConfig { depth: 16, ..srq })?;
        small.modify(4096, 0).wait()
    });
    each("a shared endpoint", || here.share(from));
    let buffer = Arc::new(Buffer::new(1 << 20));
    each("logical addresses", || here.build_lam(Arc::clone(&buffer), 100..1 << 19));
    // The core's tables grow on the way, each at its time.
    let before = pool::held();
    pool::exhaust_after(usize::MAX >> 1);
    let many: Vec<_> =
        (0..3000).map(|_| grow(|| pd.register(Buffer::new(1), ALL_ACCESS))).collect();
    say!("3000 MRs made, {before:?} -> {:?} of pool", pool::held());
    drop(many);
    each_step_of_a_connection(&net);
    say!("refusals of run-time pool verified");
    let connection = net.connect();
    connection.exchange(100, 5000);
    drop(connection);
    drop((mr, pd, cq));
    net.end(host);
}

/// Makes an object with nothing but what is set aside for it: all but the first allocations, which
/// are those of the reserves, are refused.
fn grow<T>(make: impl Fn() -> Result<T, NdkError>) -> T {
    for granted in 1.. {
        pool::exhaust_after(granted);
        let made = make();
        pool::refuse_after(Resource::Pool, None);
        match made {
            Ok(made) => return made,
            Err(error) => assert_eq!(error.status, STATUS_INSUFFICIENT_RESOURCES, "{error}"),
        }
    }
    unreachable!("there is always one more")
}

/// Makes an object with each allocation refused, alone and with all that follow; also its close then
/// finds the pool empty.
fn each<T>(what: &str, make: impl Fn() -> Result<T, NdkError>) {
    let mut refused = 0;
    for exhausts in [false, true] {
        for count in 0.. {
            if exhausts {
                pool::exhaust_after(count);
            } else {
                pool::refuse_after(Resource::Pool, Some(count));
            }
            let made = make();
            let (_, was_refused) = pool::asked();
            match made {
                Ok(made) => drop(made),
                Err(error) if error.status == STATUS_INSUFFICIENT_RESOURCES => refused += 1,
                Err(error) => breach!("{what} with allocation {count} refused: {error}"),
            }
            pool::refuse_after(Resource::Pool, None);
            if !was_refused {
                break;
            }
        }
    }
    if refused == 0 {
        breach!("{what} was never refused");
    }
    say!("{what}: refused {refused} times");
}

/// A connection is made with the pool exhausted after each number of allocations.
fn each_step_of_a_connection(net: &Net) {
    let adapters = net.adapters.as_ref().expect("open");
    let listener = adapters[1].listen(SocketAddr::new(address(1), PORT)).expect("a listener");
    let mut refused = 0;
    for count in 0.. {
        let sides = [net.side(0), net.side(1)];
        let mut was_refused = false;
        let made = connect_exhausted(net, &listener, &sides, count, &mut was_refused);
        was_refused |= pool::asked().1;
        pool::refuse_after(Resource::Pool, None);
        match made {
            Ok(()) => {}
            // The second is how this side hears of the other's want.
            Err(NdkError {
                status: STATUS_INSUFFICIENT_RESOURCES | STATUS_CONNECTION_REFUSED,
                ..
            }) => refused += 1,
            Err(error) => breach!("a connection with {count} allocations granted: {error}"),
        }
        if !was_refused {
            break;
        }
    }
    if refused == 0 {
        breach!("no connection was refused");
    }
    say!("connections: refused {refused} times");
}

fn connect_exhausted(
    net: &Net,
    listener: &Arc<Listener>,
    sides: &[Side; 2],
    count: usize,
    was_refused: &mut bool,
) -> Result<(), NdkError> {
    let adapters = net.adapters.as_ref().expect("open");
    let active = adapters[0].create_connector().expect("a connector");
    let (from, to) = (SocketAddr::new(address(0), 0), SocketAddr::new(address(1), PORT));
    pool::exhaust_after(count);
    let request = active.connect(&sides[0].qp, from, to, LIMITS, b"caller");
    let since = Instant::now();
    let passive = loop {
        if let Some(passive) = listener.next(Duration::from_millis(20)) {
            break passive;
        }
        if let Some(Err(error)) = request.poll() {
            return Err(error);
        }
        let waited = since.elapsed();
        assert!(waited < PATIENCE, "no request and no refusal within {PATIENCE:?}");
        // Dropped for want of memory, it comes again, for which there has to be some. One that is only
        // slow does no harm.
        if waited > Duration::from_millis(200) && pool::asked().1 {
            *was_refused = true;
            pool::refuse_after(Resource::Pool, None);
        }
    };
    if *was_refused {
        pool::exhaust_after(0);
    }
    let accept = passive.accept(&sides[1].qp, LIMITS, b"callee");
    // An acceptance that is refused leaves the caller without an answer until it gives up.
    while request.poll().is_none() {
        if let Some(Err(error)) = accept.wait_timeout(Duration::from_millis(1)) {
            return Err(error);
        }
    }
    request.wait()?;
    active.complete_connect().wait()?;
    accept.wait()
}
