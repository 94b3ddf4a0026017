//! Memory, windows, shared receive queues and every kind of post, through the C tables, on two
//! providers joined in memory.

mod fast_register;
mod posts;
mod register;
mod srq;
mod together;
mod window;

use driver::abi::*;
use ndk_consumer::{Buffer, Connector, FastRegister, Frmr, Lam, Listener, QpConfig, Remote, Sge};
use std::sync::Arc;
use tests::kit::{Connected, Net, PATIENCE, Side, status};

/// The tests of this room.
pub(crate) const FILES: &[&[crate::Entry]] = &[
    fast_register::TESTS,
    posts::TESTS,
    register::TESTS,
    srq::TESTS,
    together::TESTS,
    window::TESTS,
];

const PAGE: u64 = PAGE_SIZE as u64;
/// The first address of every fast registration here: a label that means nothing.
const BASE: u64 = 0x5000_0000_0000;
const REMOTE: u32 = NDK_OP_FLAG_ALLOW_REMOTE_READ | NDK_OP_FLAG_ALLOW_REMOTE_WRITE;

/// A connection; the sides are the client and the server.
struct Pair {
    client: Side,
    server: Side,
    _connectors: [Connector; 2],
    _listener: Arc<Listener>,
    net: Arc<Net>,
}

impl Pair {
    fn new() -> Self {
        Self::with(QpConfig::default())
    }

    /// Both QPs are made with `config`.
    fn with(config: QpConfig) -> Self {
        let net = Arc::new(Net::new());
        let [client, server] = [0, 1].map(|host| {
            let mut side = net.side(host);
            side.qp = side.pd.create_qp(&side.cq, &side.cq, config).unwrap();
            side
        });
        let Connected { active, passive, listener } = net.connect_qps(&client.qp, &server.qp);
        Self { client, server, _connectors: [active, passive], _listener: listener, net }
    }

    /// The logical addresses of a part of a new buffer of the server.
    fn map(&self, skip: usize, len: usize) -> Mapped {
        let buffer = Arc::new(Buffer::new(skip + len));
        let lam = self.net.adapters[1].build_lam(Arc::clone(&buffer), skip..skip + len).unwrap();
        Mapped { pages: lam.pages(), fbo: lam.fbo(), len, lam }
    }
}

/// A buffer that can be fast-registered.
struct Mapped {
    pages: Vec<NDK_LOGICAL_ADDRESS>,
    fbo: u32,
    len: usize,
    lam: Lam,
}

impl Mapped {
    /// The registration of all of it, from `BASE` on.
    fn whole(&self) -> FastRegister<'_> {
        FastRegister { pages: &self.pages, fbo: self.fbo, len: self.len, base: self.base() }
    }

    fn base(&self) -> u64 {
        BASE + u64::from(self.fbo)
    }

    /// Reads from the registered part.
    fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.lam.buffer().read(self.fbo as usize + offset, &mut bytes);
        bytes
    }

    /// An element over the part, with the privileged token of a domain.
    fn sge(&self, offset: u64, len: u32, token: u32) -> Sge<'static> {
        let address = self.pages[0].QuadPart.cast_unsigned() + u64::from(self.fbo) + offset;
        Sge::at(address, len, token)
    }
}

impl Pair {
    /// Fast-registers `mapped` on the server for everything, and waits until it is done.
    fn fast_register(&self, frmr: &Frmr, mapped: &Mapped) {
        self.server.qp.fast_register(1, frmr, mapped.whole(), REMOTE).unwrap();
        assert_eq!(self.server.ends(1), [(NdkOperationTypeFastRegister, STATUS_SUCCESS)]);
    }

    /// What a WRITE of the client's first bytes ends with.
    fn write(&self, remote: Remote, len: usize) -> NTSTATUS {
        self.client.qp.write(2, &[self.client.mr.sge(0..len)], remote, 0).unwrap();
        self.client.statuses(1)[0]
    }

    /// What a READ of `len` bytes to 1000 of the client ends with.
    fn read(&self, remote: Remote, len: usize) -> NTSTATUS {
        let sink = [self.client.mr.sge(1000..1000 + len)];
        self.client.qp.read(3, &sink, remote, 0).unwrap();
        self.client.statuses(1)[0]
    }
}
