//! Posts of every kind with any flags, mostly right, and calls that a status refuses.

use super::*;

/// The first address of every fast registration here.
const BASE: u64 = 0x5000_0000_0000;
/// What any post may carry.
const FLAGS: [u32; 4] = [
    NDK_OP_FLAG_SILENT_SUCCESS,
    NDK_OP_FLAG_READ_FENCE,
    NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT,
    NDK_OP_FLAG_DEFER,
];
const RIGHTS: [u32; 4] = [
    NDK_OP_FLAG_ALLOW_LOCAL_WRITE,
    NDK_OP_FLAG_ALLOW_REMOTE_READ,
    NDK_OP_FLAG_ALLOW_REMOTE_WRITE,
    NDK_OP_FLAG_ALLOW_REMOTE_READ | NDK_OP_FLAG_ALLOW_REMOTE_WRITE,
];

/// What a connection is given to come about.
const SETTING_UP: Duration = Duration::from_millis(100);

/// An address that nobody follows.
fn label(address: u64) -> PVOID {
    std::ptr::without_provenance_mut(address as usize)
}

/// Bytes of a mapping that are there, wherever it ends in its last page.
const fn whole(pages: usize, fbo: u32) -> usize {
    (pages - 1) * PAGE_SIZE - fbo as usize
}

/// Up to `len` bytes inside a range; seldom beside it.
fn part(rng: &mut Rng, (first, room): (u64, usize), len: usize) -> (u64, usize) {
    let len = len.min(room);
    let reach = if seldom(rng) { room + 1 } else { room - len + 1 };
    (first + rng.below(reach) as u64, len)
}

impl Actor<'_> {
    /// Up to `most` bytes that a request of `host` may name: by its own registrations or the
    /// privileged token, seldom beside them, seldom by invention.
    fn sge(&mut self, host: usize, most: usize) -> NDK_SGE {
        let Self { rng, things, shared, .. } = self;
        let things = &things[host];
        let len = most / 2 + rng.below(most / 2 + 1);
        match rng.below(32) {
            0 if let Some(&Named { token, range: Some(range), .. }) = rng.pick(&things.frmrs) => {
                let (address, len) = part(rng, range, len);
                NDK_SGE::from_virtual(label(address), len as u32, token)
            }
            4..=10 if let Some(lam) = rng.pick(&things.lams) => {
                let pd = pick_pd(rng, shared.pds[host], &things.pds);
                let first = lam.pages()[0].QuadPart.cast_unsigned() + u64::from(lam.fbo());
                let (address, len) = part(rng, (first, whole(lam.pages().len(), lam.fbo())), len);
                let address = NDK_LOGICAL_ADDRESS { QuadPart: address.cast_signed() };
                NDK_SGE::from_logical(address, len as u32, pd.privileged_token())
            }
            3 if seldom(rng) => {
                NDK_SGE::from_virtual(label(rng.next()), rng.next() as u32, rng.next() as u32)
            }
            _ => match rng.pick(&things.mrs) {
                Some(memory) => {
                    let (address, len) = part(rng, (memory.address, BUFFER), len);
                    NDK_SGE::from_virtual(label(address), len as u32, memory.token)
                }
                None => NDK_SGE::from_virtual(label(0), 0, 0),
            },
        }
    }

    /// Memory of the other side, as far as this thread knows it.
    fn remote(&mut self, host: usize, len: usize) -> Remote {
        let Self { rng, things, .. } = self;
        let things = &things[host];
        match rng.below(32) {
            0 if let Some(&Named { token, range: Some(range), .. }) = rng.pick(&things.frmrs) => {
                Remote { address: part(rng, range, len).0, token }
            }
            1 if let Some(&Named { token, range: Some(range), .. }) = rng.pick(&things.mws) => {
                Remote { address: part(rng, range, len).0, token }
            }
            2 if seldom(rng) => Remote { address: rng.next(), token: rng.next() as u32 },
            _ => match rng.pick(&things.mrs) {
                Some(memory) => {
                    let (address, _) = part(rng, (memory.address, BUFFER), len);
                    Remote { address, token: memory.token }
                }
                None => Remote { address: 0, token: 0 },
            },
        }
    }

    fn flags(&mut self) -> u32 {
        FLAGS.into_iter().filter(|_| self.rng.one_in(4)).sum()
    }

    /// On a connection, seldom on a QP that has none.
    pub(crate) fn post(&mut self, host: usize) {
        if self.rng.one_in(64) {
            if let Some(&qp) = self.rng.pick(&self.things[host].qps) {
                let _status = self.post_one(host, qp, 1 - host);
            }
            return;
        }
        if self.pairs.is_empty() {
            return;
        }
        let index = self.rng.below(self.pairs.len());
        let Pair { hosts: [host, peer], qp, since, .. } = self.pairs[index];
        for _ in 0..self.rng.below(16) {
            let status = self.post_one(host, qp, peer);
            // Not connected yet, or not any more: time for another.
            if status == STATUS_CONNECTION_INVALID && since.elapsed() > SETTING_UP {
                return self.close_pair(index);
            }
        }
    }

    fn sgl(&mut self, host: usize, most: usize) -> Vec<NDK_SGE> {
        let count = [1, 1, 1, 2, 3][self.rng.below(5)];
        let count = if self.rng.one_in(32) { 0 } else { count };
        (0..count).map(|_| self.sge(host, most)).collect()
    }

    /// Receives are longer than what is sent, most of the time.
    fn post_one(&mut self, host: usize, qp: Object<NDK_QP>, peer: usize) -> NTSTATUS {
        let kind = self.rng.below(16);
        if kind < 6 {
            let mut sgl = self.sgl(host, 32_000);
            if sgl.is_empty() && !seldom(&mut self.rng) {
                sgl.push(self.sge(host, 32_000));
            }
            let srq =
                if self.rng.one_in(4) { self.rng.pick(&self.things[host].srqs) } else { None };
            return match srq {
                Some(srq) => srq.receive(1, &sgl),
                None => qp.post(1, Post::Receive(&sgl), 0),
            };
        }
        let most = if (9..=11).contains(&kind) { 12_000 } else { 1_300 };
        let sgl = self.sgl(host, most);
        let len = sgl.iter().map(|sge| sge.Length as usize).fold(0, usize::saturating_add);
        let (remote, flags) = (self.remote(peer, len), self.flags());
        // Refused or accepted: both are fine.
        match kind {
            6 | 7 | 14 => qp.post(2, Post::Send(&sgl), flags),
            8 => self.send_and_invalidate(qp, peer, &sgl, flags),
            9 | 10 | 15 => qp.post(4, Post::Write(&sgl, remote), flags),
            11 => qp.post(5, Post::Read(&sgl, remote), flags),
            12 if self.rng.one_in(4) => self.read_and_invalidate(host, qp, remote, flags),
            12 => self.post_inline(qp, remote, flags),
            _ => self.post_memory(host, qp, flags),
        }
    }

    fn read_and_invalidate(
        &mut self,
        host: usize,
        qp: Object<NDK_QP>,
        remote: Remote,
        flags: u32,
    ) -> NTSTATUS {
        let flags = flags | NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE;
        let mapped = |frmr: &mut Named<NDK_MR>| frmr.range.take().map(|range| (range, frmr.token));
        let sge = match self.things[host].frmrs.iter_mut().find_map(mapped) {
            Some(((address, len), token)) => {
                NDK_SGE::from_virtual(label(address), len.min(1000) as u32, token)
            }
            // Not one that can be invalidated.
            None if seldom(&mut self.rng) => self.sge(host, 100),
            None => return STATUS_SUCCESS,
        };
        qp.post(5, Post::Read(&[sge], remote), flags)
    }

    /// Of something that is in force, most of the time.
    fn send_and_invalidate(
        &mut self,
        qp: Object<NDK_QP>,
        peer: usize,
        sgl: &[NDK_SGE],
        flags: u32,
    ) -> NTSTATUS {
        let Self { rng, things, .. } = self;
        let named = |frmr: &mut Named<NDK_MR>| frmr.range.take().map(|_| frmr.token);
        let token = match things[peer].frmrs.iter_mut().find_map(named) {
            Some(token) => token,
            None if seldom(rng) => rng.next() as u32,
            None => return STATUS_SUCCESS,
        };
        qp.post(3, Post::SendAndInvalidate(sgl, token), flags)
    }

    /// Data that is copied at once; sometimes more than the QP takes.
    fn post_inline(&mut self, qp: Object<NDK_QP>, remote: Remote, flags: u32) -> NTSTATUS {
        let data = vec![7_u8; self.rng.below(300)];
        let (first, second) = data.split_at(self.rng.below(data.len() + 1));
        let sgl = [first, second].map(|piece| {
            NDK_SGE::from_virtual(piece.as_ptr().cast_mut().cast(), piece.len() as u32, 0)
        });
        let flags = flags | NDK_OP_FLAG_INLINE;
        if self.rng.one_in(2) {
            qp.post(6, Post::Send(&sgl), flags)
        } else {
            qp.post(7, Post::Write(&sgl, remote), flags)
        }
    }

    /// Registers, binds, invalidates; now and then what is not there, or in use.
    fn post_memory(&mut self, host: usize, qp: Object<NDK_QP>, flags: u32) -> NTSTATUS {
        let Self { rng, things, .. } = self;
        let things = &mut things[host];
        let rights = RIGHTS[rng.below(16).min(3)];
        let wrong = seldom(rng);
        if rng.one_in(2) {
            let index = rng.below(things.frmrs.len().max(1));
            let (Some(frmr), Some(lam)) = (things.frmrs.get_mut(index), rng.pick(&things.lams))
            else {
                return STATUS_SUCCESS;
            };
            let mr = frmr.object;
            if frmr.range.is_some() != wrong {
                frmr.range = None;
                return qp.post(10, Post::InvalidateMr(mr), flags);
            }
            let (mut pages, fbo) = (lam.pages(), lam.fbo());
            pages.truncate(2 + rng.below(7));
            let whole = whole(pages.len(), fbo);
            let len = whole.min(1 + rng.below(whole));
            let base = BASE + u64::from(fbo);
            let what = Post::FastRegister { mr, pages: &pages, fbo, len, base };
            let status = qp.post(8, what, flags | rights);
            if status.is_success() {
                frmr.range = Some((base, len));
            }
            return status;
        }
        let index = rng.below(things.mws.len().max(1));
        let (Some(mw), Some(memory)) = (things.mws.get_mut(index), rng.pick(&things.mrs)) else {
            return STATUS_SUCCESS;
        };
        if mw.range.is_some() != wrong {
            mw.range = None;
            return qp.post(11, Post::InvalidateMw(mw.object), flags);
        }
        let (address, len) = part(rng, (memory.address, BUFFER), BUFFER / 2);
        let bind = Post::Bind { mr: memory.mr, mw: mw.object, address, len };
        let status = qp.post(9, bind, flags | rights & !NDK_OP_FLAG_ALLOW_LOCAL_WRITE);
        if status.is_success() {
            mw.range = Some((address, len));
        }
        status
    }

    /// What a status refuses, whatever else goes on.
    pub(crate) fn misuse(&mut self, host: usize) {
        let adapter = self.adapter(host);
        let Self { rng, things, .. } = self;
        let things = &things[host];
        match rng.below(8) {
            0 => {
                let mut len = 8;
                let mut info = NDK_ADAPTER_INFO::default();
                let status = call!(adapter, NdkQueryAdapterInfo, &raw mut info, &raw mut len);
                assert_eq!(status, STATUS_BUFFER_TOO_SMALL);
            }
            1 => {
                let (mut size, mut fbo) = (0, 0);
                let status = call!(
                    adapter,
                    NdkBuildLAM,
                    std::ptr::null_mut(),
                    1,
                    None,
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                    &raw mut size,
                    &raw mut fbo,
                );
                assert_eq!(status, STATUS_INVALID_PARAMETER);
            }
            2 => {
                if let Some(&pd) = rng.pick(&things.pds) {
                    let none = Object(std::ptr::null_mut());
                    let size = QpSize { depths: [1; 2], sges: [1; 2], inline: 0 };
                    assert_eq!(
                        pd.create_qp_of([none; 2], size).unwrap_err(),
                        STATUS_INVALID_PARAMETER
                    );
                }
            }
            3 => {
                if let Some(qp) = rng.pick(&things.qps) {
                    assert_eq!(qp.send(1, &[]), STATUS_CONNECTION_INVALID);
                }
            }
            4 => {
                // Of the other kind.
                if let Some(memory) = rng.pick(&things.mrs) {
                    let again = request(|done, context| {
                        call!(memory.mr, NdkInitializeFastRegisterMr, 1, TRUE, done, context)
                    });
                    let status = again.recv_timeout(PATIENCE).expect("it ends");
                    assert_eq!(status, STATUS_INVALID_DEVICE_REQUEST);
                }
            }
            5 => {
                if let Some(&Named { object: mr, .. }) = rng.pick(&things.frmrs) {
                    let again = request(|done, context| {
                        call!(mr, NdkInitializeFastRegisterMr, 1, TRUE, done, context)
                    });
                    let status = again.recv_timeout(PATIENCE).expect("it ends");
                    assert_eq!(status, STATUS_INVALID_DEVICE_STATE);
                }
            }
            6 => {
                if let Some(&cq) = rng.pick(&things.cqs) {
                    assert_eq!(wait(|then| cq.resize(u32::MAX, then)), STATUS_INVALID_PARAMETER);
                }
            }
            _ => {
                let connector = wait(|then| adapter.create_connector(then)).unwrap();
                assert_eq!(connector.reject(), STATUS_CONNECTION_INVALID);
                let ended = wait(|then| connector.disconnect(then));
                assert_eq!(ended, STATUS_CONNECTION_INVALID);
                self.shared.await_close(start(|then| connector.close(then)));
            }
        }
    }
}
