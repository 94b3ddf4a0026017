//! A consumer over the explorer's providers, on a virtual clock.

use driver::abi::*;
use ndk_consumer::{
    Adapter, Buffer, Connector, Cq, FastRegister, Frmr, Invalidate, Lam, Mr, NdkError, Qp,
    QpConfig, ReadLimits, Remote, Result,
};
use ndk_verifier::{Explore, Explorer, Lab, Limits, Opener, Run, Versions, Way, explore};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use tests::kit::raw::Object;
use tests::kit::{ALL_ACCESS, Net, PATIENCE, PORT};
use tests::{call, rng::Rng};

const SEEDS: u64 = 1000;
/// Bytes of the region that the server reads, and of the one behind it that it writes.
const HALF: usize = 4 * PAGE_SIZE;
/// The server's answer to a byte.
const ANSWER: u8 = 0x5a;
const MESSAGE: usize = 64;
const BASE: u64 = 0x10_0000_0000;

/// Of a hundred creations.
const REFUSED: u32 = 10;

#[test]
fn a_consumer_runs_over_a_thousand_providers() {
    let runs = explore(0..SEEDS, REFUSED, consumer);
    for run in &runs {
        let Run { seed, reports, objects, .. } = run;
        assert!(run.is_clean(), "seed {seed}: {objects} objects, {reports:?}");
    }
    let mut ways = BTreeMap::<_, u64>::new();
    for choice in runs.iter().flat_map(|run| run.choices.iter().flatten()) {
        let late = matches!(choice.way, Way::Late(_));
        let way = if late { "late".to_string() } else { choice.way.to_string() };
        *ways.entry(way).or_default() += 1;
    }
    println!("{ways:?}");
    assert!(ways.len() == 7 && ways.values().all(|&count| count > SEEDS / 4), "every way, often");
}

#[test]
fn a_seed_replays_its_run() {
    let again = || explore(40..60, REFUSED, consumer);
    let (first, second) = (again(), again());
    assert_eq!(first, second);
    assert_ne!(first[0].choices, first[1].choices, "another seed");
}

/// Where creations are refused now and then, a consumer tries again.
fn again<T>(create: impl Fn() -> Result<T>) -> T {
    for _ in 0..100 {
        match create() {
            Err(NdkError { status: STATUS_INSUFFICIENT_RESOURCES, .. }) => {}
            ended => return ended.unwrap(),
        }
    }
    panic!("refused a hundred times");
}

/// A host's objects.
struct End {
    qp: Arc<Qp>,
    frmr: Arc<Frmr>,
    mr: Arc<Mr>,
    lam: Lam,
    cq: Arc<Cq>,
    adapter: Arc<Adapter>,
    at: SocketAddr,
}

impl End {
    fn new(lab: &Lab, host: usize) -> Self {
        let adapter = Adapter::open(Arc::clone(&lab.hosts[host].opener)).unwrap();
        let pd = again(|| adapter.create_pd());
        let cq = again(|| adapter.create_cq(64));
        let config = QpConfig { receive_depth: 16, initiator_depth: 16, ..QpConfig::default() };
        let qp = again(|| pd.create_qp(&cq, &cq, config));
        let mr = again(|| pd.register(Buffer::new(HALF + MESSAGE), ALL_ACCESS));
        let frmr = again(|| pd.create_frmr(adapter.info()?.FRMRPageCount.min(16), true));
        let lam = adapter.build_lam(Arc::new(Buffer::new(2 * HALF)), 0..2 * HALF).unwrap();
        let at = SocketAddr::new(lab.hosts[host].ip, if host == 0 { 0 } else { PORT });
        Self { qp, frmr, mr, lam, cq, adapter, at }
    }

    /// The next completion, which is a success.
    fn done(&self, context: usize) -> NDK_RESULT_EX {
        let mut results = [NDK_RESULT_EX::EMPTY];
        assert_eq!(self.cq.wait_results_ex(&mut results, PATIENCE).unwrap(), 1);
        let [result] = results;
        assert_eq!((result.RequestContext.addr(), result.Status), (context, STATUS_SUCCESS));
        result
    }
}

fn consumer(lab: &Lab) {
    let mut rng = Rng(lab.seed);
    let (client, server) = (End::new(lab, 0), End::new(lab, 1));
    let listener = again(|| server.adapter.listen(server.at));
    let connectors = connect(&client, &server, &listener);
    for _ in 0..1 + rng.below(3) {
        transact(&mut rng, &client, &server);
    }
    connectors[rng.below(2)].disconnect().wait().unwrap();
    drop(connectors);
    drop(listener);
}

fn connect(client: &End, server: &End, listener: &Arc<ndk_consumer::Listener>) -> [Connector; 2] {
    const LIMITS: ReadLimits = ReadLimits { inbound: 4, outbound: 4 };
    let active = again(|| client.adapter.create_connector());
    let request = active.connect(&client.qp, client.at, server.at, LIMITS, b"explored");
    let passive = listener.next(PATIENCE).expect("the request arrives");
    let accept = passive.accept(&server.qp, LIMITS, b"yes");
    request.wait().unwrap();
    assert_eq!(&active.connection_data().unwrap().private_data[..3], b"yes");
    active.complete_connect().wait().unwrap();
    accept.wait().unwrap();
    [active, passive]
}

/// The client registers memory and sends its name; the server reads one half, writes the answer into the other, and
/// sends a message, by which the registration ends in half of the cases.
fn transact(rng: &mut Rng, client: &End, server: &End) {
    let bytes: Vec<u8> = (0..HALF).map(|_| rng.next() as u8).collect();
    client.lam.buffer().write(0, &bytes);
    let pages = client.lam.pages();
    let what = FastRegister { pages: &pages, fbo: 0, len: 2 * HALF, base: BASE };
    let rights = NDK_OP_FLAG_ALLOW_REMOTE_READ | NDK_OP_FLAG_ALLOW_REMOTE_WRITE;
    let message = HALF..HALF + MESSAGE;
    server.qp.receive(1, &[server.mr.sge(message.clone())]).unwrap();
    client.qp.receive(2, &[client.mr.sge(0..MESSAGE)]).unwrap();
    client.qp.fast_register(3, &client.frmr, what, rights | NDK_OP_FLAG_DEFER).unwrap();
    let remote = client.frmr.remote(BASE);
    client.mr.buffer().write(HALF, &remote.token.to_le_bytes());
    client.qp.send(4, &[client.mr.sge(message)], 0).unwrap();
    client.done(3);
    client.done(4);
    server.done(1);
    let by_peer = rng.one_in(2);
    answer(server, by_peer);
    let received = client.done(2);
    if by_peer {
        let kind = (received.Type, received.TypeSpecificCompletionOutput as u32);
        assert_eq!(kind, (NdkOperationTypeReceiveAndInvalidate, remote.token));
    } else {
        client.qp.invalidate(5, Invalidate::Region(&client.frmr), 0).unwrap();
        client.done(5);
    }
    let mut answered = vec![0; HALF];
    client.lam.buffer().read(HALF, &mut answered);
    assert!(answered.iter().zip(&bytes).all(|(new, old)| *new == old ^ ANSWER), "right data");
}

fn answer(server: &End, invalidate: bool) {
    let End { qp, mr, .. } = server;
    let mut token = [0; 4];
    mr.buffer().read(HALF, &mut token);
    let remote = Remote { address: BASE, token: u32::from_le_bytes(token) };
    qp.read(1, &[mr.sge(0..HALF)], remote, 0).unwrap();
    server.done(1);
    let mut bytes = vec![0; HALF];
    mr.buffer().read(0, &mut bytes);
    bytes.iter_mut().for_each(|byte| *byte ^= ANSWER);
    mr.buffer().write(0, &bytes);
    qp.write(2, &[mr.sge(0..HALF)], remote.at(HALF), NDK_OP_FLAG_SILENT_SUCCESS).unwrap();
    let reply = [mr.sge(HALF..HALF + MESSAGE)];
    if invalidate {
        qp.send_and_invalidate(3, &reply, 0, remote.token).unwrap();
    } else {
        qp.send(3, &reply, 0).unwrap();
    }
    server.done(3);
}

/// The version that an adapter tells in its header and as information.
fn version(opener: &dyn Opener, asked: NDK_VERSION) -> std::result::Result<NDK_VERSION, NTSTATUS> {
    let adapter = Object(opener.open(asked)?);
    // SAFETY: it is open.
    let told = unsafe { (*adapter.0).Header.Version };
    let mut info = NDK_ADAPTER_INFO::default();
    let mut size = size_of::<NDK_ADAPTER_INFO>() as u32;
    assert_eq!(call!(adapter, NdkQueryAdapterInfo, &raw mut info, &raw mut size), STATUS_SUCCESS);
    assert_eq!(info.Version, told);
    // SAFETY: opened here, and nothing is under it.
    unsafe { opener.close(adapter.0) };
    Ok(told)
}

#[test]
fn versions_are_negotiated_with_the_provider_of_a_seed() {
    let net = Net::new();
    let ask = |versions, seed, major, minor| {
        let explore = Explore { versions, ..Explore::new(seed) };
        let explorer = Explorer::new(net.providers[0].clone(), explore);
        version(&*explorer, NDK_VERSION { Major: major, Minor: minor })
    };
    let of = |major, minor| Ok(NDK_VERSION { Major: major, Minor: minor });
    let refused = Err(NDIS_STATUS_BAD_VERSION);
    let all = |versions, major, minor| {
        let mut all: Vec<_> = (0..40).map(|seed| ask(versions, seed, major, minor)).collect();
        all.sort_by_key(|version| version.map_or((0, 0), |version| (version.Major, version.Minor)));
        all.dedup();
        all
    };
    assert_eq!(all(Versions::Serving, 1, 0), [of(1, 2)]);
    assert_eq!(all(Versions::Serving, 2, 0), [of(2, 0), of(2, 1)]);
    assert_eq!(all(Versions::Serving, 2, 1), [of(2, 1)]);
    assert_eq!(all(Versions::Any, 2, 1), [refused, of(2, 1)]);
    assert_eq!(all(Versions::Any, 1, 2), [of(1, 2)], "a provider of 2.x serves it");
    let two = Versions::Highest(NDK_VERSION { Major: 2, Minor: 0 });
    assert_eq!(
        [ask(two, 1, 2, 0), ask(two, 1, 2, 1), ask(two, 1, 1, 1)],
        [of(2, 0), refused, of(1, 2)]
    );
    assert_eq!(ask(Versions::Serving, 1, 3, 0), refused);
    net.finish();
}

#[test]
fn a_small_adapter_refuses_what_it_does_not_tell() {
    let net = Net::new();
    let explore = Explore { limits: Limits::Small, ..Explore::new(1) };
    let opener: Arc<dyn Opener> = Explorer::new(net.providers[0].clone(), explore);
    let adapter = Adapter::open(opener).unwrap();
    let info = adapter.info().unwrap();
    assert_eq!((info.MaxCqDepth, info.FRMRPageCount, info.MaxSrqDepth), (256, 16, 0));
    let refused = |result: Result<()>| result.unwrap_err().status;
    let pd = adapter.create_pd().unwrap();
    let cq = adapter.create_cq(256).unwrap();
    assert_eq!(refused(adapter.create_cq(257).map(drop)), STATUS_INVALID_PARAMETER);
    assert_eq!(refused(pd.create_frmr(17, true).map(drop)), STATUS_IMPLEMENTATION_LIMIT);
    assert_eq!(refused(cq.resize(16)), STATUS_NOT_SUPPORTED);
    assert_eq!(refused(cq.moderate(10, 10)), STATUS_NOT_SUPPORTED);
    let config = QpConfig { initiator_sge: 4, ..QpConfig::default() };
    assert_eq!(refused(pd.create_qp(&cq, &cq, config).map(drop)), STATUS_INVALID_PARAMETER);
    drop((pd, cq));
    drop(adapter);
    net.finish();
}
