//! Two adapters, a connection between them, and what is sent over it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use driver::abi::*;
use ndk_consumer::{
    Adapter, Buffer, Connector, Cq, FastRegister, Listener, Mr, NdkError, Pd, Qp, QpConfig,
    ReadLimits, Remote,
};

use super::*;
use crate::ndis::nic::offload::Offloads;
use crate::ndis::vnic::Opener;

pub(super) const LIMITS: ReadLimits = ReadLimits { inbound: 8, outbound: 8 };
pub(super) const ALL_ACCESS: u32 = NDK_MR_FLAG_ALLOW_REMOTE_READ | NDK_MR_FLAG_ALLOW_REMOTE_WRITE;
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
pub(super) const PORT: u16 = 7174;

/// Two adapters on two NICs of the switch.
pub(super) struct Net {
    pub(super) vnics: [&'static Vnic; 2],
    pub(super) nics: [&'static Nic; 2],
    pub(super) adapters: Option<[Arc<Adapter>; 2]>,
}

pub(super) struct Side {
    pub(super) cq: Arc<Cq>,
    pub(super) mr: Arc<Mr>,
    pub(super) qp: Arc<Qp>,
    pd: Arc<Pd>,
}

pub(super) struct Connection {
    pub(super) sides: [Side; 2],
    pub(super) connectors: [Connector; 2],
    pub(super) listener: Arc<Listener>,
}

impl Net {
    pub(super) fn start(host: &dyn Host, mtu: u32) -> Self {
        Self::plug(host, mtu).open_adapters()
    }

    pub(super) fn plug(host: &dyn Host, mtu: u32) -> Self {
        Self::plug_with(host, mtu, &[])
    }

    /// The adapters have these keywords.
    pub(super) fn plug_with(host: &dyn Host, mtu: u32, others: &[(&'static str, &str)]) -> Self {
        Self::plug_on(host, mtu, Offloads::PLAIN, others)
    }

    /// The NICs have these offloads, the adapters these keywords.
    pub(super) fn plug_on(
        host: &dyn Host,
        mtu: u32,
        offloads: Offloads,
        others: &[(&'static str, &str)],
    ) -> Self {
        host.load().expect("DriverEntry succeeds");
        let nics = [0, 1].map(|_| Nic::plug_in_with(mtu, offloads));
        let vnics = [0, 1].map(|number| {
            let vnic = add_with(number, nics[number], others);
            expect_ready(vnic, nics[number]);
            vnic
        });
        Self { vnics, nics, adapters: None }
    }

    /// Waits for NDK, which may be on its way.
    pub(super) fn open_adapters(self) -> Self {
        let adapters = self.vnics.map(|vnic| {
            let mut adapter = None;
            eventually("an NDK adapter", || {
                adapter = Adapter::open(Arc::new(Opener(vnic))).ok();
                adapter.is_some()
            });
            adapter.expect("it opened")
        });
        Self { adapters: Some(adapters), ..self }
    }

    pub(super) fn close_adapters(mut self) -> Self {
        self.adapters = None;
        self
    }

    pub(super) fn side(&self, number: usize) -> Side {
        self.side_with(number, 512)
    }

    /// With a CQ of this depth.
    pub(super) fn side_with(&self, number: usize, depth: u32) -> Side {
        self.side_of(number, depth, QpConfig::default())
    }

    /// With a CQ that is near these processors, a bit each.
    pub(super) fn side_near(&self, number: usize, processors: usize) -> Side {
        let cq = self.adapter(number).create_cq_near(512, processors);
        self.side_on(number, cq.expect("a CQ"), QpConfig::default())
    }

    fn side_of(&self, number: usize, depth: u32, config: QpConfig) -> Side {
        self.side_on(number, self.adapter(number).create_cq(depth).expect("a CQ"), config)
    }

    fn adapter(&self, number: usize) -> &Arc<Adapter> {
        &self.adapters.as_ref().expect("open")[number]
    }

    fn side_on(&self, number: usize, cq: Arc<Cq>, config: QpConfig) -> Side {
        let pd = self.adapter(number).create_pd().expect("a PD");
        let mr = pd.register(Buffer::new(1 << 20), ALL_ACCESS).expect("an MR");
        let qp = pd.create_qp(&cq, &cq, config).expect("a QP");
        Side { cq, mr, qp, pd }
    }

    /// Whose QP takes small messages inline.
    pub(super) fn side_inline(&self, number: usize) -> Side {
        self.side_of(number, 512, QpConfig { inline_len: 64, ..QpConfig::default() })
    }

    pub(super) fn connect(&self) -> Connection {
        self.try_connect(address(0), address(1)).expect("the connect succeeds")
    }

    /// Connects the first adapter to the second, by these addresses.
    pub(super) fn try_connect(&self, from: IpAddr, to: IpAddr) -> Result<Connection, NdkError> {
        self.connect_sides([self.side(0), self.side(1)], from, to)
    }

    pub(super) fn connect_sides(
        &self,
        sides: [Side; 2],
        from: IpAddr,
        to: IpAddr,
    ) -> Result<Connection, NdkError> {
        self.connect_by(sides, from, SocketAddr::new(to, PORT))
    }

    /// To a listener at this address.
    pub(super) fn connect_by(
        &self,
        sides: [Side; 2],
        from: IpAddr,
        to: SocketAddr,
    ) -> Result<Connection, NdkError> {
        let adapters = self.adapters.as_ref().expect("open");
        let from = SocketAddr::new(from, 0);
        let listener = adapters[1].listen(to).expect("a listener");
        let active = adapters[0].create_connector().expect("a connector");
        let request = active.connect(&sides[0].qp, from, to, LIMITS, b"caller");
        let passive = loop {
            if let Some(Err(error)) = request.poll() {
                return Err(error);
            }
            if let Some(passive) = listener.next(Duration::from_millis(10)) {
                break passive;
            }
        };
        assert_eq!(passive.connection_data().expect("its data").private_data[..6], *b"caller");
        let accept = passive.accept(&sides[1].qp, LIMITS, b"callee");
        request.wait()?;
        active.complete_connect().wait()?;
        accept.wait()?;
        say!("connected");
        Ok(Connection { sides, connectors: [active, passive], listener })
    }

    pub(super) fn end(self, host: &dyn Host) {
        let vnics = self.vnics;
        drop(self.adapters);
        vnics.into_iter().for_each(Vnic::remove);
        finish(host);
    }
}

impl Connection {
    /// SENDs, WRITEs and READs, `count` of each, of up to `len` bytes, every one verified.
    pub(super) fn exchange(&self, count: usize, len: usize) {
        let since = Instant::now();
        (0..count).for_each(|number| self.round(number, len));
        let elapsed = since.elapsed().as_secs_f64();
        say!(
            "{count} SENDs, {count} WRITEs, {count} READs verified, {:.0} us per round",
            elapsed / count as f64 * 1e6
        );
    }

    /// Exchanges while `meanwhile` runs, and a while before and after.
    pub(super) fn exchange_during(&self, len: usize, meanwhile: impl FnOnce()) {
        const MORE: usize = 100;
        let (over, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let exchange = scope.spawn(|| {
                let mut left = MORE;
                while left > 0 {
                    self.round(rounds.fetch_add(1, Ordering::Relaxed), len);
                    left -= usize::from(over.load(Ordering::Acquire));
                }
            });
            eventually("traffic", || rounds.load(Ordering::Relaxed) > MORE);
            meanwhile();
            over.store(true, Ordering::Release);
            exchange.join().expect("the exchange survives");
        });
        say!("{} rounds verified", rounds.into_inner());
    }

    /// One SEND, one WRITE and one READ of up to `len` bytes.
    fn round(&self, number: usize, len: usize) {
        let [here, there] = &self.sides;
        // Where each kind lies in both regions.
        const SEND: usize = 0;
        const WRITE: usize = 1 << 18;
        const READ: usize = 1 << 19;
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
}

impl Connection {
    /// `count` requests of the client, each for up to `len` bytes, which the server writes into a
    /// region that is registered for that request alone.
    pub(super) fn serve_requests(&self, client: &Arc<Adapter>, count: usize, len: usize) {
        let [here, there] = &self.sides;
        let target = Arc::new(Buffer::new(len + 8192));
        let frmr = here.pd.create_frmr((len >> 12) as u32 + 3, true).expect("a region");
        for number in 0..count {
            let (offset, len) = (number * 521 % 8192, 1 + number * 7919 % len);
            let bytes: Vec<u8> = (0..len).map(|place| (place * 29 + number * 13) as u8).collect();
            let part = offset..offset + len;
            let lam = client.build_lam(Arc::clone(&target), part).expect("logical addresses");
            let base = target.as_ptr().addr() as u64 + offset as u64;
            let pages = lam.pages();
            let what = FastRegister { pages: &pages, fbo: lam.fbo(), len, base };
            here.qp
                .fast_register(1, &frmr, what, NDK_OP_FLAG_ALLOW_REMOTE_WRITE)
                .expect("a registration");
            here.qp.receive(2, &[here.mr.sge(0..64)]).expect("a receive");
            there.qp.receive(3, &[there.mr.sge(0..64)]).expect("a receive");
            let Remote { address, token } = frmr.remote(base);
            let request = [&address.to_le_bytes()[..], &token.to_le_bytes()].concat();
            here.qp.send_inline(4, &[request[..].into()], 0).expect("a request");
            assert_eq!(there.finished(1), [3], "round {number}");
            let mut asked = [0; 12];
            there.mr.buffer().read(0, &mut asked);
            assert_eq!(asked[..], request, "round {number}");
            there.mr.buffer().write(64, &bytes);
            let data = [there.mr.sge(64..64 + len)];
            there.qp.write(5, &data, Remote { address, token }, 0).expect("a write");
            let answer = [there.mr.sge(0..8)];
            there.qp.send_and_invalidate(6, &answer, 0, token).expect("an answer");
            let (mine, mut theirs) = (here.results(3), there.finished(2));
            theirs.sort_unstable();
            assert_eq!(theirs, [5, 6], "round {number}");
            let mut contexts: Vec<_> =
                mine.iter().map(|result| result.RequestContext as usize).collect();
            contexts.sort_unstable();
            assert_eq!(contexts, [1, 2, 4], "round {number}");
            let invalidated = mine.iter().any(|result| {
                result.Type == NdkOperationTypeReceiveAndInvalidate
                    && result.TypeSpecificCompletionOutput == token as usize
            });
            assert!(invalidated, "round {number}: {mine:?}");
            let mut arrived = vec![0; len];
            target.read(offset, &mut arrived);
            assert!(arrived == bytes, "round {number}: {len} bytes arrived changed");
        }
        say!("{count} requests verified: FRMR, inline SEND, WRITE, SEND that invalidates");
    }
}

impl Side {
    /// One more QP, on the same PD and CQ.
    pub(super) fn another_qp(&self) -> Arc<Qp> {
        self.pd.create_qp(&self.cq, &self.cq, QpConfig::default()).expect("a QP")
    }

    /// The contexts of the next completions, all of them successes.
    pub(super) fn finished(&self, count: usize) -> Vec<usize> {
        self.results(count).iter().map(|result| result.RequestContext as usize).collect()
    }

    /// The next completions, all of them successes.
    fn results(&self, count: usize) -> Vec<NDK_RESULT_EX> {
        let mut all = Vec::new();
        while all.len() < count {
            let mut results = [NDK_RESULT_EX::EMPTY; 8];
            let taken = self.cq.wait_results_ex(&mut results, PATIENCE).expect("the CQ works");
            assert!(taken > 0, "no completion in {PATIENCE:?}");
            for result in &results[..taken] {
                assert_eq!(result.Status, STATUS_SUCCESS);
                all.push(*result);
            }
        }
        all
    }
}

/// Registers the memory of `mr` anew, by a chain of MDLs of `piece` bytes with these flags. The chain is never
/// freed.
pub(super) fn register_again(mr: &Mr, piece: usize, flags: i16) -> Result<(), NdkError> {
    // SAFETY: open; nobody replaces the table.
    let table = unsafe { *(*(*mr.as_ptr()).Dispatch.get()) };
    let gone =
        wait_for(|done, context| unsafe { (table.NdkDeregisterMr)(mr.as_ptr(), done, context) });
    // It may have failed to come back before.
    if gone != STATUS_SUCCESS && gone != STATUS_INVALID_DEVICE_STATE {
        return Err(NdkError { status: gone, call: "NdkDeregisterMr" });
    }
    let (start, len) = (mr.buffer().as_ptr(), mr.buffer().len());
    let mut next = std::ptr::null_mut();
    for at in (0..len).step_by(piece).rev() {
        let mdl = mdl::make(start.wrapping_add(at), piece.min(len - at), flags);
        unsafe { (*mdl).next = next };
        next = mdl;
    }
    let status = wait_for(|done, context| unsafe {
        (table.NdkRegisterMr)(mr.as_ptr(), next.cast(), len, ALL_ACCESS, done, context)
    });
    NdkError::check("NdkRegisterMr", status)?;
    mr.renew_tokens();
    Ok(())
}

/// Makes a call that may pend, and waits for its end.
fn wait_for(call: impl FnOnce(Option<NDK_FN_REQUEST_COMPLETION>, PVOID) -> NTSTATUS) -> NTSTATUS {
    unsafe extern "system" fn done(context: PVOID, status: NTSTATUS) {
        let ended = unsafe { Box::from_raw(context.cast::<Sender<NTSTATUS>>()) };
        ended.send(status).expect("somebody waits");
    }
    let (ended, end) = channel();
    let context = Box::into_raw(Box::new(ended));
    let status = call(Some(done), context.cast());
    if status == STATUS_PENDING {
        return end.recv_timeout(PATIENCE).expect("the call ends");
    }
    // It did not pend, so the context is still ours.
    drop(unsafe { Box::from_raw(context) });
    status
}
