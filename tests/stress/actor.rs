//! One thread: what it has open, what it creates, and what it closes.

use super::*;

/// One thread's objects on one host.
#[derive(Default)]
pub(crate) struct Things {
    pub(crate) cqs: Vec<Object<NDK_CQ>>,
    pub(crate) pds: Vec<Object<NDK_PD>>,
    pub(crate) mrs: Vec<Memory>,
    pub(crate) frmrs: Vec<Named<NDK_MR>>,
    pub(crate) mws: Vec<Named<NDK_MW>>,
    pub(crate) lams: Vec<Lam>,
    pub(crate) srqs: Vec<Object<NDK_SRQ>>,
    /// Not connected.
    pub(crate) qps: Vec<Object<NDK_QP>>,
    pub(crate) listeners: Vec<Object<NDK_LISTENER>>,
    pub(crate) endpoints: Vec<Object<NDK_SHARED_ENDPOINT>>,
}

/// A fast-register region or a window.
pub(crate) struct Named<T> {
    pub(crate) object: Object<T>,
    pub(crate) token: u32,
    /// What the last post said that was to change it: the first address and the length.
    pub(crate) range: Option<(u64, usize)>,
}

/// One thread's objects.
pub(crate) struct Actor<'a> {
    pub(crate) net: &'a Net,
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) rng: Rng,
    /// Another adapter instance of each host.
    instances: [Arc<Adapter>; 2],
    pub(crate) things: [Things; 2],
    pub(crate) pairs: Vec<Pair>,
}

impl<'a> Actor<'a> {
    pub(crate) fn new(net: &'a Net, shared: &'a Arc<Shared>, seed: u64) -> Self {
        let instances = [0, 1].map(|host| net.open(host));
        let (things, pairs) = (Default::default(), Vec::new());
        Self { net, shared, rng: Rng(seed), instances, things, pairs }
    }

    pub(crate) fn act(&mut self) {
        let host = self.rng.below(2);
        match self.rng.below(48) {
            0 => self.create_cq(host),
            1 => self.create_pd(host),
            2 | 3 => self.create_memory(host),
            4 | 5 => self.create_qp(host),
            6 | 29 | 30 => self.fill_pool(),
            // Seldom to itself.
            7..=9 => self.connect(0),
            10 if self.rng.one_in(2) => self.connect(1),
            11 => self.listen(),
            12 => self.adopt(),
            13 => self.flush(host),
            14 => self.disconnect(),
            15 => self.pause(host),
            16 | 17 => self.close_one(host),
            18 if self.rng.one_in(64) && !self.pairs.is_empty() => {
                let index = self.rng.below(self.pairs.len());
                self.close_pair(index);
            }
            19 => self.create_in_callback(host),
            20 => self.change_cq(host),
            21 => self.share(host),
            22 => self.create_srq(host),
            23 if self.rng.one_in(256) => self.register_again(host),
            24 => self.query(host),
            25 => self.misuse(host),
            26 if self.rng.one_in(8) => self.visit(host),
            27 | 28 => self.shared.close_handed(&mut self.rng),
            _ => self.post(host),
        }
    }

    /// One of the instances that stay open.
    pub(crate) fn adapter(&mut self, host: usize) -> Object<NDK_ADAPTER> {
        if self.rng.one_in(2) { self.net.raw(host) } else { Object(self.instances[host].as_ptr()) }
    }

    /// A CQ whose notification takes the results and arms again.
    fn create_cq(&mut self, host: usize) {
        if self.things[host].cqs.len() >= MOST {
            return;
        }
        let own: Arc<OnceLock<Object<NDK_CQ>>> = Arc::default();
        let (seen, shared) = (Arc::clone(&own), Arc::clone(self.shared));
        let kind = [NDK_CQ_NOTIFY_SOLICITED, NDK_CQ_NOTIFY_ERRORS, NDK_CQ_NOTIFY_ANY]
            [self.rng.below(64).min(2)];
        let notify = Box::new(move |status: NTSTATUS| {
            let Some(&cq) = seen.get().filter(|_| status.is_success()) else { return };
            let mut results = [NDK_RESULT_EX::EMPTY; 16];
            loop {
                let taken = cq.results_ex(&mut results);
                if taken == 0 {
                    break;
                }
                results[..taken].iter().for_each(|result| shared.ended.count(result));
            }
            let _armed: () = call!(cq, NdkArmCq, kind);
        });
        // Seldom so small that it overruns at once.
        let least = if self.rng.one_in(32) { 1 } else { 128 };
        let depth = least + self.rng.below(64) as u32;
        let adapter = self.adapter(host);
        let cq = wait(|then| adapter.create_cq(depth, notify, then)).unwrap();
        own.set(cq).expect("set once");
        cq.arm();
        self.things[host].cqs.push(cq);
    }

    /// Another depth, other moderation; the smaller depth may overrun.
    fn change_cq(&mut self, host: usize) {
        let least = if seldom(&mut self.rng) { 1 } else { 128 };
        let (depth, interval) = (least + self.rng.below(256) as u32, self.rng.below(300) as u32);
        if let Some(cq) = self.rng.pick(&self.things[host].cqs) {
            self.shared.await_request(start(|then| cq.resize(depth, then)));
            assert_eq!(cq.moderate(interval, depth / 16), STATUS_SUCCESS);
        }
    }

    fn share(&mut self, host: usize) {
        if self.things[host].endpoints.len() < 2 {
            let (adapter, local) = (self.adapter(host), self.net.at(host, 0));
            let endpoint = wait(|then| adapter.share(local, then)).unwrap();
            self.things[host].endpoints.push(endpoint);
        }
    }

    fn create_pd(&mut self, host: usize) {
        if self.things[host].pds.len() < MOST {
            let adapter = self.adapter(host);
            self.things[host].pds.push(wait(|then| adapter.create_pd(then)).unwrap());
        }
    }

    /// A region of either kind, a window, or a mapping.
    fn create_memory(&mut self, host: usize) {
        let adapter = Arc::clone(&self.instances[host]);
        let buffer = Arc::clone(&self.shared.buffers[self.rng.below(BUFFERS)]);
        let (skip, pages) = (self.rng.below(PAGE_SIZE), 1 + self.rng.below(8) as u32);
        let remote = !self.rng.one_in(4);
        let things = &mut self.things[host];
        let pd = pick_pd(&mut self.rng, self.shared.pds[host], &things.pds);
        match self.rng.below(4) {
            0 if things.mrs.len() < 4 => things.mrs.push(Memory::over(pd, &buffer)),
            1 if things.frmrs.len() < 4 => {
                let frmr = pd.create_frmr(pages, remote).unwrap();
                let token = frmr.token();
                things.frmrs.push(Named { object: frmr, token, range: None });
            }
            2 if things.mws.len() < 4 => {
                let mw = pd.create_mw().unwrap();
                let token = mw.token();
                things.mws.push(Named { object: mw, token, range: None });
            }
            3 if things.lams.len() < 4 => {
                let len = PAGE_SIZE + self.rng.below(buffer.len() - skip - PAGE_SIZE);
                things.lams.push(adapter.build_lam(buffer, skip..skip + len).unwrap());
            }
            _ => {}
        }
    }

    /// The same region over other memory.
    fn register_again(&mut self, host: usize) {
        let buffer = &self.shared.buffers[self.rng.below(BUFFERS)];
        let mrs = &mut self.things[host].mrs;
        if mrs.is_empty() {
            return;
        }
        let index = self.rng.below(mrs.len());
        let mr = mrs[index].mr;
        if wait(|then| mr.deregister(then)).is_success() {
            mrs[index] = Memory::register(mr, buffer);
        }
    }

    /// Tells once when it runs low, and asks to be told again.
    fn create_srq(&mut self, host: usize) {
        let things = &mut self.things[host];
        if things.srqs.len() >= 3 {
            return;
        }
        let pd = pick_pd(&mut self.rng, self.shared.pds[host], &things.pds);
        let own: Arc<OnceLock<Object<NDK_SRQ>>> = Arc::default();
        let (seen, shared) = (Arc::clone(&own), Arc::clone(self.shared));
        let (depth, threshold) = (1 + self.rng.below(32) as u32, self.rng.below(8) as u32);
        // Not for ever, as it may stay low.
        let times = AtomicU32::new(0);
        let notify = Box::new(move |status: NTSTATUS| {
            if let Some(srq) = seen.get().filter(|_| status.is_success())
                && times.fetch_add(1, Ordering::Relaxed) < 16
            {
                shared.await_request(srq.modify(0, threshold));
            }
        });
        let srq = pd.create_srq(depth, threshold, notify).unwrap();
        own.set(srq).expect("set once");
        things.srqs.push(srq);
    }

    /// Of any size, with a receive queue of its own or not, with one CQ or two, and of an adapter
    /// instance that need not be theirs.
    fn new_qp(&mut self, host: usize) -> Option<Object<NDK_QP>> {
        let Self { rng, things, shared, .. } = self;
        let things = &things[host];
        let pd = pick_pd(rng, shared.pds[host], &things.pds);
        let cqs = [*rng.pick(&things.cqs)?, *rng.pick(&things.cqs)?];
        let size = QpSize {
            depths: [1 + rng.below(32) as u32, 1 + rng.below(32) as u32],
            sges: [1 + rng.below(4) as u32, 1 + rng.below(4) as u32],
            inline: [0, 64, 256][rng.below(3)],
        };
        let srq = if rng.one_in(4) { rng.pick(&things.srqs) } else { None };
        let created = match srq {
            Some(&srq) => pd.create_qp_on(cqs, srq, size),
            None => pd.create_qp_of(cqs, size),
        };
        match created {
            Ok(qp) => Some(qp),
            // A shared queue of another domain, or a CQ that has overrun.
            Err(status) => {
                let overran = |cq: &Object<NDK_CQ>| {
                    wait(|then| cq.resize(1 << 10, then)) == STATUS_INVALID_DEVICE_STATE
                };
                let why = srq.is_some() || cqs.iter().any(overran);
                assert!(why && status == STATUS_INVALID_PARAMETER, "{status:?}");
                None
            }
        }
    }

    fn create_qp(&mut self, host: usize) {
        if self.things[host].qps.len() < MOST
            && let Some(qp) = self.new_qp(host)
        {
            self.things[host].qps.push(qp);
        }
    }

    /// Callbacks accept on both hosts with QPs of the second one, where the listeners are.
    fn fill_pool(&mut self) {
        if self.shared.pool.lock().unwrap().len() < MOST
            && let Some(qp) = self.new_qp(1)
        {
            self.shared.pool.lock().unwrap().push(qp);
        }
    }

    /// Closed where it is created: in the callback, the parent before the child.
    fn create_in_callback(&mut self, host: usize) {
        let shared = Arc::clone(self.shared);
        let adapter = self.adapter(host);
        if self.rng.one_in(2) {
            return adapter.create_connector(Box::new(move |connector| {
                let connector = connector.unwrap();
                shared.await_close(start(|then| connector.close(then)));
            }));
        }
        adapter.create_pd(Box::new(move |pd| {
            let pd = pd.unwrap();
            let after = Arc::clone(&shared);
            pd.create_mr(Box::new(move |mr| {
                let mr = mr.unwrap();
                after.await_close(start(|then| pd.close(then)));
                after.await_close(start(|then| mr.close(then)));
            }));
        }));
    }

    /// An adapter instance that is closed while what was created in it is still closing.
    fn visit(&mut self, host: usize) {
        let instance = self.net.open(host);
        let adapter = Object(instance.as_ptr());
        assert_eq!(instance.info().unwrap().RdmaTechnology, NdkRoCEv2);
        let pd = wait(|then| adapter.create_pd(then)).unwrap();
        let cq = wait(|then| adapter.create_cq(4, Box::new(|_| ()), then)).unwrap();
        let qp = wait(|then| pd.create_qp(cq, 4, then)).unwrap();
        let connector = wait(|then| adapter.create_connector(then)).unwrap();
        if let Some(memory) = self.rng.pick(&self.things[host].mrs) {
            assert_eq!(qp.receive(1, &[memory.sge(0, 64)]), STATUS_SUCCESS);
        }
        let mut closes: Vec<Close> = vec![
            closing(move |then| pd.close(then)),
            closing(move |then| cq.close(then)),
            closing(move |then| qp.close(then)),
            closing(move |then| connector.close(then)),
        ];
        while let Some(close) = self.rng.take(&mut closes) {
            self.shared.await_close(close());
        }
        drop(instance);
    }

    /// Closes, or lets whichever thread comes next do it.
    fn close(&mut self, close: impl FnOnce(Then<()>) + Send + 'static) {
        let close = closing(close);
        if self.rng.one_in(2) {
            self.shared.handed.lock().unwrap().push(close);
        } else {
            self.shared.await_close(close());
        }
    }

    fn close_one(&mut self, host: usize) {
        macro_rules! close {
            ($things:ident $(, $field:tt)?) => {
                if let Some(one) = self.rng.take(&mut self.things[host].$things) {
                    self.close(move |then| one $(.$field)? .close(then));
                }
            };
        }
        match self.rng.below(16) {
            0 => close!(cqs),
            1 => close!(pds),
            2 if self.rng.one_in(64) => close!(mrs, mr),
            3 if self.rng.one_in(2) => close!(frmrs, object),
            4 if self.rng.one_in(2) => close!(mws, object),
            5 => close!(srqs),
            6 => close!(qps),
            7 => close!(endpoints),
            8 if self.rng.one_in(8) => close!(listeners),
            9 if self.rng.one_in(64) => drop(self.rng.take(&mut self.things[host].lams)),
            _ => {}
        }
    }

    /// A connector and its QP, in either order, by one thread or two.
    pub(crate) fn close_pair(&mut self, index: usize) {
        let Pair { connector, qp, .. } = self.pairs.swap_remove(index);
        let qp_first = self.rng.one_in(2);
        if qp_first {
            self.close(move |then| qp.close(then));
        }
        // Under the lock nobody else uses it.
        let taken = connector.lock().unwrap().take();
        if let Some(connector) = taken {
            self.close(move |then| connector.close(then));
        }
        if !qp_first {
            self.close(move |then| qp.close(then));
        }
    }

    /// Closes everything; the instances are closed later, as callbacks may have left things in them.
    pub(crate) fn close_all(mut self) -> [Arc<Adapter>; 2] {
        while !self.pairs.is_empty() {
            self.close_pair(0);
        }
        for things in std::mem::take(&mut self.things) {
            let Things { cqs, pds, mrs, frmrs, mws, lams, srqs, qps, listeners, endpoints } =
                things;
            listeners.into_iter().for_each(|one| self.close(move |then| one.close(then)));
            endpoints.into_iter().for_each(|one| self.close(move |then| one.close(then)));
            pds.into_iter().for_each(|one| self.close(move |then| one.close(then)));
            cqs.into_iter().for_each(|one| self.close(move |then| one.close(then)));
            srqs.into_iter().for_each(|one| self.close(move |then| one.close(then)));
            qps.into_iter().for_each(|one| self.close(move |then| one.close(then)));
            mrs.into_iter().for_each(|one| self.close(move |then| one.mr.close(then)));
            frmrs.into_iter().for_each(|one| self.close(move |then| one.object.close(then)));
            mws.into_iter().for_each(|one| self.close(move |then| one.object.close(then)));
            drop(lams);
        }
        self.instances
    }
}

/// Mostly the one that all share, so that tokens and queue pairs fit each other.
pub(crate) fn pick_pd(
    rng: &mut Rng,
    common: Object<NDK_PD>,
    own: &[Object<NDK_PD>],
) -> Object<NDK_PD> {
    if rng.one_in(16) { *rng.pick(own).unwrap_or(&common) } else { common }
}

/// A close that any thread can do.
fn closing(close: impl FnOnce(Then<()>) + Send + 'static) -> Close {
    Box::new(move || start(close))
}
