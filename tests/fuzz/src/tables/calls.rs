//! The calls, but for posts.

use super::account::Kind;
use super::{Run, SIZE};
use arbitrary::Arbitrary;
use driver::abi::*;
use ndk_consumer::Mdl;
use std::net::{IpAddr, SocketAddr};
use std::ptr::null_mut;
use tests::call;
use tests::kit::PORT;
use tests::kit::numbered::{self, From, QpParts};
use tests::kit::raw::Object;

/// Private data, longer than any message takes.
const DATA: [u8; 255] = [0x77; 255];

#[derive(Arbitrary, Clone, Copy, Debug)]
pub(super) enum Create {
    Cq { depth: u16, near: Option<u8> },
    Pd,
    Mr { pd: u8, fast: bool },
    Mw { pd: u8 },
    Srq { pd: u8, depth: u16, threshold: u16, near: Option<u8> },
    Qp { pd: u8, cqs: [u8; 2], srq: Option<u8>, depths: [u16; 2], inline: u16 },
    Connector,
    Listener,
    Endpoint { address: u8 },
}

impl Create {
    const fn kind(self) -> Kind {
        match self {
            Self::Cq { .. } => Kind::Cq,
            Self::Pd => Kind::Pd,
            Self::Mr { .. } => Kind::Mr,
            Self::Mw { .. } => Kind::Mw,
            Self::Srq { .. } => Kind::Srq,
            Self::Qp { .. } => Kind::Qp,
            Self::Connector => Kind::Connector,
            Self::Listener => Kind::Listener,
            Self::Endpoint { .. } => Kind::Endpoint,
        }
    }
}

/// A depth: mostly one that there is.
const fn depth(code: u16) -> u32 {
    if code < 0xff00 { code as u32 % 80 } else { (code as u32 - 0xff00) << 24 }
}

impl Run {
    pub(super) fn create(&mut self, host: usize, create: Create) {
        let on = self.hosts.adapters[host];
        let token = self.account.creates(host, create.kind());
        let pd = |pd| self.account.this::<NDK_PD>(host, Kind::Pd, pd);
        let core = |near: Option<u8>| near.map(|near| usize::from(near % 64));
        let status = match create {
            Create::Cq { depth: code, near } => {
                Some(numbered::create_cq(on, depth(code), core(near), host, token))
            }
            Create::Pd => Some(numbered::create_pd(on, token)),
            Create::Mr { pd: at, fast } => pd(at).map(|pd| numbered::create_mr(pd, fast, token)),
            Create::Mw { pd: at } => pd(at).map(|pd| numbered::create_mw(pd, token)),
            Create::Srq { pd: at, depth: code, threshold, near } => {
                let depths = [depth(code), threshold.into()];
                pd(at).map(|pd| numbered::create_srq(pd, depths, core(near), host, token))
            }
            Create::Qp { pd: at, cqs, srq, depths, inline } => pd(at).map(|pd| {
                let parts = QpParts {
                    cqs: cqs.map(|cq| self.account.argument(host, Kind::Cq, cq)),
                    depths: depths.map(depth),
                    srq: srq.map(|srq| self.account.argument(host, Kind::Srq, srq)),
                    inline: inline.into(),
                };
                numbered::create_qp(pd, &parts, host, token)
            }),
            Create::Connector => Some(numbered::create_connector(on, token)),
            Create::Listener => Some(numbered::create_listener(on, host, token)),
            Create::Endpoint { address } => {
                Some(numbered::share(on, self.address(host, address), token))
            }
        };
        // Where there is no domain yet, there was no call.
        self.account.returned(token, status.unwrap_or(STATUS_INVALID_PARAMETER));
    }

    /// Our own address or the other host's, or one that nobody has, with a port.
    fn address(&self, host: usize, code: u8) -> SocketAddr {
        let ip = match code >> 4 {
            0..8 => self.hosts.addresses[host],
            8..12 => self.hosts.addresses[1 - host],
            12 => IpAddr::from([10, 0, 0, 77]),
            13 => IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, 1]),
            14 => IpAddr::from([127, 0, 0, 1]),
            _ => IpAddr::from([0; 16]),
        };
        let port = if code & 8 == 0 { 0 } else { PORT + u16::from(code & 3) };
        SocketAddr::new(ip, port)
    }

    pub(super) fn close(&mut self, host: usize, kind: Kind, at: u8) {
        let Some((token, object)) = self.account.closes(host, kind, at) else { return };
        let status = match kind {
            Kind::Cq => numbered::close(Object::<NDK_CQ>(object.cast()), token),
            Kind::Pd => numbered::close(Object::<NDK_PD>(object.cast()), token),
            Kind::Mr => numbered::close(Object::<NDK_MR>(object.cast()), token),
            Kind::Mw => numbered::close(Object::<NDK_MW>(object.cast()), token),
            Kind::Srq => numbered::close(Object::<NDK_SRQ>(object.cast()), token),
            Kind::Qp => numbered::close(Object::<NDK_QP>(object.cast()), token),
            Kind::Connector => numbered::close(Object::<NDK_CONNECTOR>(object.cast()), token),
            Kind::Listener => numbered::close(Object::<NDK_LISTENER>(object.cast()), token),
            Kind::Endpoint => numbered::close(Object::<NDK_SHARED_ENDPOINT>(object.cast()), token),
        };
        assert!(status == STATUS_PENDING || status == STATUS_SUCCESS, "a close fails: {status}");
        self.account.returned(token, status);
    }

    /// A request on an object, if there is one of its kind.
    fn request<T>(
        &mut self,
        host: usize,
        kind: Kind,
        at: u8,
        call: impl FnOnce(&Self, Object<T>, usize) -> NTSTATUS,
    ) {
        let Some(object) = self.account.this(host, kind, at) else { return };
        let token = self.account.requests();
        let status = call(self, object, token);
        self.account.returned(token, status);
    }

    pub(super) fn listen(&mut self, host: usize, at: u8, port: u8) {
        self.request(host, Kind::Listener, at, |run, listener, token| {
            // Mostly where the other host connects to.
            let code = if port < 0x80 { 8 } else { port };
            numbered::listen(listener, run.address(host, code), token)
        });
    }

    pub(super) fn pause(&self, host: usize, at: u8, pause: bool) {
        let listener = self.account.this::<NDK_LISTENER>(host, Kind::Listener, at);
        listener.into_iter().for_each(|listener| listener.pause(pause));
    }

    pub(super) fn connect(
        &mut self,
        host: usize,
        at: u8,
        [qp, from, to]: [u8; 3],
        limits: [u8; 2],
        data: u8,
    ) {
        self.request(host, Kind::Connector, at, |run, connector, token| {
            let qp = run.account.argument(host, Kind::Qp, qp);
            let from = match from {
                0..0xa0 => From::Address(run.address(host, 0)),
                0xa0..0xc0 => From::Address(run.address(host, from << 3)),
                _ => From::Endpoint(run.account.argument(host, Kind::Endpoint, from)),
            };
            let to = if to < 0x80 { 0x88 } else { to & 0x7f };
            let remote = run.address(host, to);
            let limits = limits.map(u32::from);
            numbered::connect(connector, qp, from, remote, limits, &DATA[..data.into()], token)
        });
    }

    pub(super) fn complete_connect(&mut self, host: usize, at: u8) {
        self.request(host, Kind::Connector, at, |_, connector, token| {
            numbered::complete_connect(connector, host, token)
        });
    }

    pub(super) fn accept(&mut self, host: usize, at: u8, qp: u8, limits: [u8; 2], data: u8) {
        self.request(host, Kind::Connector, at, |run, connector, token| {
            let qp = run.account.argument(host, Kind::Qp, qp);
            let data = &DATA[..data.into()];
            numbered::accept(connector, qp, limits.map(u32::from), data, host, token)
        });
    }

    pub(super) fn reject(&self, host: usize, at: u8) {
        let connector = self.account.this::<NDK_CONNECTOR>(host, Kind::Connector, at);
        connector.map(Object::reject);
    }

    pub(super) fn disconnect(&mut self, host: usize, at: u8) {
        self.request(host, Kind::Connector, at, |_, connector, token| {
            numbered::disconnect(connector, token)
        });
    }

    /// What can be asked without a request.
    pub(super) fn query(&self, host: usize, at: u8) {
        if let Some(connector) = self.account.this(host, Kind::Connector, at) {
            let _ = numbered::connection_data(connector);
            numbered::peer_address(connector);
        }
        let endpoint = self.account.this(host, Kind::Endpoint, at);
        endpoint.map(numbered::shared_address);
        let mut room = [0xaa_u8; size_of::<NDK_ADAPTER_INFO>() + 8];
        let mut len = u32::from(at).min(size_of::<NDK_ADAPTER_INFO>() as u32);
        let on = self.hosts.adapters[host];
        let info: *mut NDK_ADAPTER_INFO = room.as_mut_ptr().cast();
        let info = if at == 0 { null_mut() } else { info };
        let status = call!(on, NdkQueryAdapterInfo, info, &raw mut len);
        assert!(status.is_success() || at < 0xff, "a room of all bytes is refused: {status}");
        assert!(room[size_of::<NDK_ADAPTER_INFO>()..] == [0xaa; 8], "written behind the room");
    }

    /// A description of the memory, or of more than there is.
    fn describe(&mut self, host: usize, len: usize) -> *mut MDL {
        self.mdls.push(Mdl::new(self.memory[host].as_ptr(), len.min(SIZE)));
        self.mdls.last_mut().expect("one was added").as_mut_ptr()
    }

    pub(super) fn register(&mut self, host: usize, at: u8, len: usize, flags: u8) {
        let mdl = self.describe(host, len);
        self.request(host, Kind::Mr, at, |_, mr, token| {
            numbered::register(mr, mdl, len, flags.into(), token)
        });
    }

    pub(super) fn deregister(&mut self, host: usize, at: u8) {
        self.request(host, Kind::Mr, at, |_, mr, token| numbered::deregister(mr, token));
    }

    pub(super) fn initialize(&mut self, host: usize, at: u8, pages: u16) {
        self.request(host, Kind::Mr, at, |_, mr, token| {
            numbered::initialize(mr, pages.into(), token)
        });
    }

    pub(super) fn build_lam(&mut self, host: usize, len: usize) {
        let mdl = self.describe(host, len);
        if self.lams[host].len() < 4 {
            let lam = numbered::build_lam(self.hosts.adapters[host], mdl, len.min(SIZE));
            self.lams[host].extend(lam);
        }
    }

    pub(super) fn release_lam(&mut self, host: usize, at: u8) {
        if !self.lams[host].is_empty() {
            let at = usize::from(at) % self.lams[host].len();
            let (_, lam) = self.lams[host].swap_remove(at);
            numbered::release_lam(self.hosts.adapters[host], lam);
        }
    }

    pub(super) fn resize(&mut self, host: usize, at: u8, code: u16) {
        self.request(host, Kind::Cq, at, |_, cq, token| numbered::resize(cq, depth(code), token));
    }

    pub(super) fn arm(&self, host: usize, at: u8, how: u8) {
        let cq = self.account.this(host, Kind::Cq, at);
        cq.into_iter().for_each(|cq| numbered::arm(cq, how.into()));
    }

    pub(super) fn moderate(&self, host: usize, at: u8, interval_us: u32, count: u32) {
        let cq = self.account.this::<NDK_CQ>(host, Kind::Cq, at);
        cq.map(|cq| cq.moderate(interval_us, count));
    }

    pub(super) fn modify_srq(&mut self, host: usize, at: u8, threshold: u16) {
        self.request(host, Kind::Srq, at, |_, srq, token| {
            numbered::arm_srq(srq, threshold.into(), token)
        });
    }
}
