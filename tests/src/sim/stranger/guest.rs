//! What the consumer of a host of ours makes for a connection with a stranger, whom it takes for a peer.

use crate::kit::numbered::{self, QpParts};
use crate::kit::raw::{Object, Post};
use crate::sim::end::What;
use crate::sim::memory::{GUARD, Region};
use crate::sim::world::{Part, Step, World, require};
use driver::abi::*;

/// The private data of a request of a stranger that a consumer accepts.
pub(crate) const GUEST: [u8; 4] = [0xfe; 4];
/// The name of all that is made for one.
pub(crate) const GUEST_NAME: usize = usize::MAX;
/// SENDs that are posted to it, and bytes of each.
const SENDS: usize = 2;
const SEND_LEN: usize = 64;
/// Where the memory of each begins; what it may READ begins behind a guard, of so many bytes.
const LABEL: u64 = 0x3000_0000_0000;
pub(super) const REMOTE: u64 = LABEL + GUARD as u64;
const REGION_LEN: usize = 4096;
/// Connections that a consumer has at a time with whom it does not know, on a host.
const GUESTS_MAX: usize = 16;

/// A connection with a stranger.
pub(crate) struct Guest {
    host: usize,
    /// Of its acceptance.
    token: usize,
    region: Region,
    pd: Object<NDK_PD>,
    cq: Object<NDK_CQ>,
    qp: Object<NDK_QP>,
    connector: Object<NDK_CONNECTOR>,
}

impl World {
    /// A stranger asks for a connection, and is given one.
    pub(crate) fn welcome(&mut self, host: usize, connector: Object<NDK_CONNECTOR>) -> Step {
        let guests = self.guests.iter().filter(|guest| guest.host == host).count();
        if self.part != Part::Chaos || guests >= GUESTS_MAX {
            let _gone_meanwhile = connector.reject();
            return self.close(host, What::CloseStray, connector);
        }
        let adapter = self.hosts[host].adapter;
        let pd = self.create(host, |token| numbered::create_pd(adapter, token))?;
        let name = GUEST_NAME;
        let create = |token| numbered::create_cq(adapter, 16, None, name, token);
        let cq: Object<NDK_CQ> = self.create(host, create)?;
        let parts = QpParts { cqs: [cq; 2], depths: [1, 4], srq: None, inline: 0 };
        let qp = self.create(host, |token| numbered::create_qp(pd, &parts, name, token))?;
        let mut rng = match &mut self.stranger {
            Some(strange) => strange.rng.fork(),
            None => self.rng.fork(),
        };
        let mut region = Region::new(1, REGION_LEN, LABEL, &mut rng);
        let flags = NDK_MR_FLAG_ALLOW_LOCAL_WRITE | NDK_MR_FLAG_ALLOW_REMOTE_READ;
        self.register(host, pd, &mut region, flags)?;
        // The key to it.
        let data = region.token.to_be_bytes();
        let token = self.token(host, What::AcceptGuest);
        let status = numbered::accept(connector, qp, [16, 16], &data, name, token);
        require!(status == STATUS_PENDING, "an accept gives {status}");
        self.guests.push(Guest { host, token, region, pd, cq, qp, connector });
        Ok(())
    }

    /// An acceptance has ended: a stranger that is there is sent something.
    pub(crate) fn serve_guest(&mut self, token: usize, status: NTSTATUS) -> Step {
        let guest = self.guests.iter().find(|guest| guest.token == token);
        let Some(guest) = guest.filter(|_| status == STATUS_SUCCESS) else { return Ok(()) };
        let address = std::ptr::without_provenance_mut(REMOTE as usize);
        let sgl = [NDK_SGE::from_virtual(address, SEND_LEN as u32, guest.region.token)];
        for id in 0..SENDS {
            let status = guest.qp.post(id, Post::Send(&sgl), 0);
            require!(status == STATUS_SUCCESS, "a SEND to a stranger gives {status}");
        }
        Ok(())
    }

    /// What a host had for strangers is gone with it.
    pub(crate) fn forget_guests(&mut self, host: usize) {
        self.guests.retain(|guest| guest.host != host);
    }

    /// Closes what was made for strangers. Their memory stays until everything is closed.
    pub(crate) fn close_guests(&mut self) -> Step {
        for at in 0..self.guests.len() {
            let Guest { host, pd, cq, qp, connector, region: Region { mr, .. }, .. } =
                self.guests[at];
            self.close(host, What::CloseStray, connector)?;
            self.close(host, What::CloseStray, qp)?;
            self.close(host, What::CloseStray, cq)?;
            self.close(host, What::CloseStray, mr)?;
            self.close(host, What::CloseStray, pd)?;
        }
        Ok(())
    }
}
