//! Goal: after it is set up, the data path allocates nothing: not in the posting thread, not in the
//! poll threads of either side.
//! Method: an allocator that counts, and one test in the process, so that whatever is counted in the
//! window is the data path's.

use driver::abi::*;
use ndk_consumer::{
    Arm, Buffer, FastRegister, Frmr, Invalidate, Lam, Mw, QpConfig, Sge, Srq, SrqConfig,
};
use std::sync::Arc;
use std::time::Instant;
use tests::alloc::{Counting, all};
use tests::figures::record;
use tests::kit::{Net, PATIENCE, Side};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes of each message: several packets.
const LEN: usize = 10_000;
/// Requests of one kind in a round.
const ROUND: usize = 5;
const DEFER: u32 = NDK_OP_FLAG_DEFER;

/// What one host exchanges with the other.
struct End {
    side: Side,
    srq: Arc<Srq>,
    frmr: Arc<Frmr>,
    mw: Arc<Mw>,
    lam: Lam,
    pages: Vec<NDK_LOGICAL_ADDRESS>,
    privileged: u32,
}

impl End {
    fn new(net: &Net, host: usize) -> Self {
        let mut side = net.side(host);
        let depth = 16 * ROUND as u32;
        let srq = SrqConfig { depth, receive_sge: 1, threshold: 2 };
        let srq = side.pd.create_srq(srq).unwrap();
        let config = QpConfig { initiator_depth: depth, inline_len: 64, ..QpConfig::default() };
        side.qp = side.pd.create_qp_with_srq(&side.cq, &side.cq, &srq, config).unwrap();
        let buffer = Arc::new(Buffer::new(LEN));
        let lam = net.adapters[host].build_lam(buffer, 0..LEN).unwrap();
        Self {
            frmr: side.pd.create_frmr(8, true).unwrap(),
            mw: side.pd.create_mw().unwrap(),
            privileged: side.pd.privileged_token(),
            pages: lam.pages(),
            side,
            srq,
            lam,
        }
    }

    /// Takes `count` completions, each of which succeeded.
    fn complete(&self, count: usize) {
        let mut results = [NDK_RESULT::EMPTY; 8];
        let mut taken = 0;
        let begin = Instant::now();
        while taken < count {
            self.side.cq.arm(Arm::Any);
            let some = self.side.cq.results(&mut results);
            for result in &results[..some] {
                assert_eq!(result.Status, STATUS_SUCCESS);
            }
            taken += some;
            assert!(begin.elapsed() < PATIENCE, "{taken} of {count} completions");
        }
    }

    /// Makes the region and the window reachable for the peer. One completion.
    fn open(&self) {
        let (base, flags) = (1 << 32, NDK_OP_FLAG_ALLOW_REMOTE_WRITE);
        let what = FastRegister { pages: &self.pages, fbo: self.lam.fbo(), len: LEN, base };
        let silent = DEFER | NDK_OP_FLAG_SILENT_SUCCESS;
        self.side.qp.fast_register(0, &self.frmr, what, flags | silent).unwrap();
        self.side.qp.bind(0, &self.side.mr, &self.mw, 0..LEN, flags).unwrap();
        self.complete(1);
    }
}

/// One round of all kinds of requests.
fn exchange(from: &End, to: &End) {
    to.open();
    let (local, remote) = (&from.side, &to.side);
    for index in 0..ROUND {
        to.srq.receive(index, &[remote.mr.sge(index * LEN..(index + 1) * LEN)]).unwrap();
        to.srq.receive(index, &[remote.mr.sge(0..64)]).unwrap();
    }
    // One more for the invalidation.
    to.srq.receive(ROUND, &[]).unwrap();
    for index in 0..ROUND {
        let sge = [local.mr.sge(index * LEN..(index + 1) * LEN)];
        let logical = from.pages[0].QuadPart.cast_unsigned() + u64::from(from.lam.fbo());
        let logical = [Sge::at(logical, LEN as u32, from.privileged)];
        let at = remote.mr.remote((index + ROUND) * LEN);
        local.qp.send(0, &sge, DEFER).unwrap();
        local.qp.send_inline(0, &[[7; 64][..].into()], DEFER).unwrap();
        local.qp.write(0, &sge, at, DEFER).unwrap();
        local.qp.write(0, &logical, to.frmr.remote(1 << 32), DEFER).unwrap();
        local.qp.write(0, &sge, to.mw.remote(remote.mr.remote(0).address), DEFER).unwrap();
        local.qp.read(0, &logical, at, 0).unwrap();
    }
    local.qp.send_and_invalidate(0, &[], 0, to.frmr.remote_token()).unwrap();
    from.complete(6 * ROUND + 1);
    to.complete(2 * ROUND + 1);
    remote.qp.invalidate(0, Invalidate::Window(&to.mw), 0).unwrap();
    to.complete(1);
}

#[test]
fn the_data_path_does_not_allocate() {
    let net = Net::new();
    let ends = [End::new(&net, 0), End::new(&net, 1)];
    let _connected = net.connect_qps(&ends[0].side.qp, &ends[1].side.qp);
    for _ in 0..4 {
        exchange(&ends[0], &ends[1]);
        exchange(&ends[1], &ends[0]);
    }
    let before = all();
    for _ in 0..100 {
        exchange(&ends[0], &ends[1]);
        exchange(&ends[1], &ends[0]);
    }
    let made = all() - before;
    record("allocations/messages", made as f64);
    assert_eq!(made, 0);
}
