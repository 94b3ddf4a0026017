//! Work requests.

use super::account::Kind;
use super::{Run, SIZE};
use arbitrary::Arbitrary;
use driver::abi::*;
use ndk_consumer::Remote;
use tests::kit::numbered;
use tests::kit::raw::{Object, Post};

/// A work request.
#[derive(Arbitrary, Debug)]
pub(super) struct Work {
    what: What,
    /// Of each element.
    pieces: [Option<Piece>; 3],
    flags: u16,
}

#[derive(Arbitrary, Debug)]
enum What {
    Receive,
    SrqReceive { srq: u8 },
    Send,
    SendAndInvalidate { token: Token },
    Read { token: Token, at: u16 },
    Write { token: Token, at: u16 },
    FastRegister { mr: u8, pages: u8, fbo: u16, len: u16, junk: bool },
    Bind { mr: u8, mw: u8, at: u16, len: u16 },
    InvalidateMr { mr: u8 },
    InvalidateMw { mw: u8 },
}

/// A part of the memory: mostly one that there is.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Piece {
    at: u16,
    len: u16,
    token: Token,
    beyond: bool,
}

/// A key: that of a region or a window, that of all memory, or one that names nothing.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Token {
    Mr(u8),
    Mw(u8),
    Privileged(u8),
    Any(u32),
}

impl Run {
    fn token(&self, host: usize, token: Token) -> u32 {
        let of = match token {
            Token::Mr(at) => self.account.this(host, Kind::Mr, at).map(Object::<NDK_MR>::token),
            Token::Mw(at) => self.account.this(host, Kind::Mw, at).map(Object::<NDK_MW>::token),
            Token::Privileged(at) => {
                let pd = self.account.this::<NDK_PD>(host, Kind::Pd, at);
                pd.map(Object::privileged_token)
            }
            Token::Any(token) => Some(token),
        };
        of.unwrap_or(0)
    }

    /// The elements. Those of an inline request name memory that can be read.
    fn sgl(&self, host: usize, work: &Work) -> Vec<NDK_SGE> {
        let inline = u32::from(work.flags) & NDK_OP_FLAG_INLINE != 0;
        let base = self.memory[host].as_ptr();
        let element = |piece: &Piece| {
            let at = usize::from(piece.at) % SIZE;
            let len = usize::from(piece.len) % (SIZE - at + 1);
            let address = match piece.beyond && !inline {
                true => base.wrapping_add(at << 4),
                false => base.wrapping_add(at),
            };
            let token = self.token(host, piece.token);
            NDK_SGE::from_virtual(address.cast(), len as u32, token)
        };
        work.pieces.iter().flatten().map(element).collect()
    }

    fn remote(&self, host: usize, token: Token, at: u16) -> Remote {
        let base = self.memory[1 - host].as_ptr().addr() as u64;
        Remote { address: base + u64::from(at), token: self.token(1 - host, token) }
    }

    pub(super) fn post(&mut self, host: usize, qp: u8, work: &Work) {
        let (sgl, flags) = (self.sgl(host, work), u32::from(work.flags));
        let Some(qp) = self.account.this::<NDK_QP>(host, Kind::Qp, qp) else { return };
        let mr = |mr| self.account.argument(host, Kind::Mr, mr);
        let mw = |mw| self.account.argument(host, Kind::Mw, mw);
        let mut pages = Vec::new();
        let post = match work.what {
            What::Receive => Post::Receive(&sgl),
            What::SrqReceive { srq } => return self.post_shared(host, srq, &sgl),
            What::Send => Post::Send(&sgl),
            What::SendAndInvalidate { token } => {
                Post::SendAndInvalidate(&sgl, self.token(1 - host, token))
            }
            What::Read { token, at } => Post::Read(&sgl, self.remote(host, token, at)),
            What::Write { token, at } => Post::Write(&sgl, self.remote(host, token, at)),
            What::FastRegister { mr: at, pages: count, fbo, len, junk } => {
                let lam = self.lams[host].first().filter(|_| !junk);
                let known = lam.into_iter().flat_map(|(pages, _)| pages.iter().copied());
                let unknown = (0..).map(|page| NDK_LOGICAL_ADDRESS { QuadPart: page << 12 });
                pages.extend(known.chain(unknown).take(count.into()));
                let base = self.memory[host].as_ptr().addr() as u64;
                let (fbo, len) = (fbo.into(), len.into());
                Post::FastRegister { mr: mr(at), pages: &pages, fbo, len, base }
            }
            What::Bind { mr: region, mw: window, at, len } => {
                let address = self.memory[host].as_ptr().addr() as u64 + u64::from(at);
                Post::Bind { mr: mr(region), mw: mw(window), address, len: len.into() }
            }
            What::InvalidateMr { mr: at } => Post::InvalidateMr(mr(at)),
            What::InvalidateMw { mw: at } => Post::InvalidateMw(mw(at)),
        };
        self.account.posts(|id| qp.post(id, post, flags));
    }

    fn post_shared(&mut self, host: usize, srq: u8, sgl: &[NDK_SGE]) {
        if let Some(srq) = self.account.this::<NDK_SRQ>(host, Kind::Srq, srq) {
            self.account.posts(|id| srq.receive(id, sgl));
        }
    }

    pub(super) fn flush(&self, host: usize, qp: u8) {
        let qp = self.account.this::<NDK_QP>(host, Kind::Qp, qp);
        qp.into_iter().for_each(Object::flush);
    }

    pub(super) fn results(&mut self, host: usize, at: u8) {
        let Some(cq) = self.account.this(host, Kind::Cq, at) else { return };
        for result in numbered::results(cq) {
            self.account.completed(result.RequestContext.addr());
        }
    }
}
