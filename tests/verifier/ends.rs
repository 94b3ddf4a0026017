//! The objects of the mistakes' consumers.

use super::Watched;
use driver::abi::*;
use ndk_consumer::Buffer;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};
use tests::kit::raw::{Memory, Object, Post, QpSize, start, wait};
use tests::kit::{PATIENCE, PORT};

/// Bytes of each region.
pub(super) const LEN: usize = 1 << 16;

/// Waits for something that another thread brings about.
pub(super) fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "it does not come");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A consumer's objects on one host.
#[derive(Clone, Copy)]
pub(super) struct End {
    pub(super) cq: Object<NDK_CQ>,
    pub(super) pd: Object<NDK_PD>,
    pub(super) qp: Object<NDK_QP>,
    pub(super) memory: Memory,
    pub(super) buffer: &'static Buffer,
}

impl End {
    pub(super) fn new(watched: &Watched, host: usize) -> Self {
        let adapter = watched.net.raw(host);
        let cq = wait(|then| adapter.create_cq(64, Box::new(|_| ()), then)).unwrap();
        let pd = wait(|then| adapter.create_pd(then)).unwrap();
        let size = QpSize { depths: [16, 16], sges: [1, 1], inline: 0 };
        let qp = pd.create_qp_of([cq, cq], size).unwrap();
        let buffer = Box::leak(Box::new(Buffer::new(LEN)));
        Self { cq, pd, qp, memory: Memory::over(pd, buffer), buffer }
    }

    /// The QP first: what it has posted ends with it.
    pub(super) fn close(self) {
        wait(|then| self.qp.close(then));
        self.close_rest();
    }

    pub(super) fn close_rest(self) {
        wait(|then| self.memory.mr.close(then));
        wait(|then| self.cq.close(then));
        wait(|then| self.pd.close(then));
    }

    /// The status of the next completion.
    pub(super) fn completion(self) -> NTSTATUS {
        until(|| {
            let mut results = [NDK_RESULT_EX::EMPTY];
            (self.cq.results_ex(&mut results) == 1).then_some(results[0].Status)
        })
    }
}

/// Two ends and their connection.
pub(super) struct Pair {
    pub(super) ends: [End; 2],
    pub(super) connectors: [Object<NDK_CONNECTOR>; 2],
    pub(super) listener: Object<NDK_LISTENER>,
}

impl Pair {
    pub(super) fn new(watched: &Watched) -> Self {
        let net = &watched.net;
        let ends = [End::new(watched, 0), End::new(watched, 1)];
        let (sender, incoming) = channel();
        let event = Box::new(move |connector| sender.send(connector).unwrap());
        let listener = wait(|then| net.raw(1).create_listener(event, then)).unwrap();
        assert_eq!(wait(|then| listener.listen(net.at(1, PORT), then)), STATUS_SUCCESS);
        let active = wait(|then| net.raw(0).create_connector(then)).unwrap();
        let (local, remote) = (net.at(0, 0), net.at(1, PORT));
        let connected = start(|then| active.connect(ends[0].qp, local, remote, then));
        let passive: Object<NDK_CONNECTOR> = incoming.recv_timeout(PATIENCE).unwrap();
        let accepted = start(|then| passive.accept(ends[1].qp, Box::new(|| ()), then));
        assert_eq!(connected.recv_timeout(PATIENCE), Ok(STATUS_SUCCESS));
        assert_eq!(wait(|then| active.complete_connect(Box::new(|| ()), then)), STATUS_SUCCESS);
        assert_eq!(accepted.recv_timeout(PATIENCE), Ok(STATUS_SUCCESS));
        Self { ends, connectors: [active, passive], listener }
    }

    pub(super) fn close_connectors(&self) {
        for connector in self.connectors {
            wait(|then| connector.close(then));
        }
        wait(|then| self.listener.close(then));
    }

    pub(super) fn close(self) {
        self.close_connectors();
        self.ends.into_iter().for_each(End::close);
    }

    /// A WRITE of everything that the second end has to wait for, as it is held inside a callback.
    pub(super) fn write(&self) -> NTSTATUS {
        let [first, second] = &self.ends;
        let sgl = [first.memory.sge(0, LEN as u32)];
        first.qp.write(1, &sgl, second.memory.address, second.memory.token)
    }
}

/// A region of the first end, fast-registered over its whole buffer, which has an address of its own.
pub(super) struct Fast {
    pub(super) mr: Object<NDK_MR>,
    pub(super) lam: ndk_consumer::Lam,
}

impl Fast {
    pub(super) const BASE: u64 = 0x1_0000_0000;

    pub(super) fn register(watched: &Watched, end: End) -> Self {
        let buffer = Arc::new(Buffer::new(LEN));
        let lam = watched.net.adapters[0].build_lam(buffer, 0..LEN).unwrap();
        let mr = end.pd.create_frmr(16, true).unwrap();
        let (pages, base) = (lam.pages(), Self::BASE);
        let post = Post::FastRegister { mr, pages: &pages, fbo: 0, len: LEN, base };
        assert_eq!(end.qp.post(1, post, NDK_OP_FLAG_ALLOW_REMOTE_READ), STATUS_SUCCESS);
        assert_eq!(end.completion(), STATUS_SUCCESS);
        Self { mr, lam }
    }

    pub(super) fn sge(&self) -> NDK_SGE {
        let address = std::ptr::without_provenance_mut(Self::BASE as usize);
        NDK_SGE::from_virtual(address, 64, self.mr.token())
    }
}
