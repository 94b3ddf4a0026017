//! Goal: no safe call of a consumer leads to a race or to memory that is gone, in whatever order it drops its objects.
//! Method: two providers on one thread, each stepped by the waits of the consumer, small enough for Miri, which looks for
//! both: `cargo +nightly miri test -p ndk-consumer --test soundness`.

use driver::abi::{NDK_OP_FLAG_ALLOW_REMOTE_WRITE, NDK_RESULT, STATUS_SUCCESS};
use ndk_consumer::{
    Adapter, Buffer, Connector, Cq, FastRegister, Listener, Mr, Pd, Qp, QpConfig, ReadLimits,
    Rights,
};
use ndk_verifier::{Lab, explore};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

const LIMITS: ReadLimits = ReadLimits { inbound: 1, outbound: 1 };
/// On the virtual clock.
const PATIENCE: Duration = Duration::from_secs(5);
const LEN: usize = 64;

/// One end of a connection.
struct End {
    adapter: Arc<Adapter>,
    pd: Arc<Pd>,
    cq: Arc<Cq>,
    qp: Arc<Qp>,
    mr: Arc<Mr>,
    connector: Connector,
}

impl End {
    /// Waits for one completion, which is a success.
    fn complete(&self) {
        let mut results = [NDK_RESULT::EMPTY; 1];
        while self.cq.results(&mut results) == 0 {
            let seen = self.cq.notifications();
            self.cq.arm(ndk_consumer::Arm::Any);
            if self.cq.results(&mut results) == 1 {
                break;
            }
            assert!(self.cq.wait_notification(seen, PATIENCE).unwrap(), "a completion");
        }
        assert_eq!(results[0].Status, STATUS_SUCCESS);
    }
}

/// Connects two hosts, the active end first.
fn connected(lab: &Lab) -> ([End; 2], Arc<Listener>) {
    let made = lab.hosts.each_ref().map(|host| {
        let adapter = Adapter::open(Arc::clone(&host.opener)).unwrap();
        let (pd, cq) = (adapter.create_pd().unwrap(), adapter.create_cq(8).unwrap());
        let config = QpConfig { receive_depth: 2, initiator_depth: 2, ..QpConfig::default() };
        let qp = pd.create_qp(&cq, &cq, config).unwrap();
        let rights = Rights::LOCAL_WRITE | Rights::REMOTE_READ | Rights::REMOTE_WRITE;
        let mr = pd.register(Buffer::new(LEN), rights).unwrap();
        (adapter, pd, cq, qp, mr)
    });
    let [from, to] =
        [(0, 0), (1, 7174)].map(|(host, port)| SocketAddr::new(lab.hosts[host].ip, port));
    let [near, far] = &made;
    let listener = far.0.listen(to).unwrap();
    let active = near.0.create_connector().unwrap();
    let request = active.connect(&near.3, from, to, LIMITS, b"");
    let passive = listener.next(PATIENCE).unwrap();
    let accept = passive.accept(&far.3, LIMITS, b"");
    request.wait().unwrap();
    active.complete_connect().wait().unwrap();
    accept.wait().unwrap();
    let [near, far] = made;
    let end = |(adapter, pd, cq, qp, mr), connector| End { adapter, pd, cq, qp, mr, connector };
    ([end(near, active), end(far, passive)], listener)
}

/// One world without faults, of the verifier's.
fn world(consumer: impl Fn(&Lab)) {
    let runs = explore(0..1, 0, consumer);
    assert!(runs.iter().all(|run| run.objects == 0));
}

#[test]
fn bytes_go_over_and_every_order_of_drops_is_sound() {
    world(|lab| {
        let ([near, far], listener) = connected(lab);
        near.mr.buffer().write(0, &[7; LEN]);
        far.qp.receive(1, &[far.mr.sge(0..LEN)]).unwrap();
        near.qp.send(2, &[near.mr.sge(0..LEN)], 0).unwrap();
        near.complete();
        far.complete();
        assert_eq!(far.mr.buffer().to_vec(0..LEN), [7; LEN]);
        near.mr.buffer().write(0, &[8; 9]);
        near.qp.write(3, &[near.mr.sge(0..9)], far.mr.remote(1), 0).unwrap();
        near.complete();
        assert_eq!(far.mr.buffer().load(9), 8);
        // The memory of a posted receive, and of what the peer may WRITE, goes before its objects do.
        far.qp.receive(4, &[far.mr.sge(0..LEN)]).unwrap();
        near.qp.write(5, &[near.mr.sge(0..LEN)], far.mr.remote(0), 0).unwrap();
        let End { adapter, pd, cq, qp, mr, connector } = far;
        drop((adapter, pd, mr));
        drop(near);
        drop((listener, qp, cq, connector));
    });
}

/// A region that is registered names the pages of a mapping; the mapping and its buffer are dropped, and the peer WRITEs.
#[test]
fn the_memory_of_a_released_mapping_outlives_a_write_of_the_peer() {
    world(|lab| {
        let ([near, far], _listener) = connected(lab);
        let buffer = Arc::new(Buffer::new(LEN));
        let frmr = far.pd.create_frmr(1, true).unwrap();
        let lam = far.adapter.build_lam(Arc::clone(&buffer), 0..LEN).unwrap();
        let base = buffer.as_ptr().addr() as u64;
        let pages = lam.pages();
        let what = FastRegister { pages: &pages, fbo: lam.fbo(), len: LEN, base };
        far.qp.fast_register(1, &frmr, what, NDK_OP_FLAG_ALLOW_REMOTE_WRITE).unwrap();
        far.complete();
        let remote = frmr.remote(base);
        near.qp.write(2, &[near.mr.sge(0..LEN)], remote, 0).unwrap();
        near.complete();
        // On its way while the memory goes.
        near.qp.write(3, &[near.mr.sge(0..LEN)], remote, 0).unwrap();
        drop((lam, buffer));
        // It is refused, or came first; either ends the request.
        let mut results = [NDK_RESULT::EMPTY; 1];
        let seen = near.cq.notifications();
        near.cq.arm(ndk_consumer::Arm::Any);
        if near.cq.results(&mut results) == 0 {
            let _ = near.cq.wait_notification(seen, PATIENCE);
        }
    });
}
