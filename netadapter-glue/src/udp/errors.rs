//! The kernel's word on datagrams that were sent (`IP_RECVERR`, ip(7)).
//!
//! With it a send says that the interface takes no datagram (`ENOBUFS`), which Linux keeps to itself otherwise. It also makes each
//! ICMP error for the port a pending error, which the next call returns in the place of its own result, to whomever it sends.
//! Anybody can forge one. So an error that a report may have left is cleared, the report counted, and the call made again.

use super::control::{Kind, first_of};
use super::sys;
use rustix::io::Errno;
use rustix::net::sockopt;
use std::os::fd::BorrowedFd;

/// Entries that one look takes off the queue, at most. The rest keeps the descriptor ready.
const TAKEN_MAX: usize = 64;

/// The error queue of a socket.
#[derive(Debug, Default)]
pub(super) struct Errors {
    /// Reports of routers and hosts so far.
    pub(super) reported: u64,
}

impl Errors {
    /// Takes what the queue holds, and the pending error. Whether there was a report from the network.
    pub(super) fn take(&mut self, fd: BorrowedFd<'_>) -> bool {
        let before = self.reported;
        let mut room = [0; ROOM];
        for _ in 0..TAKEN_MAX {
            let Ok(len) = sys::receive_error(fd, &mut room) else { break };
            self.reported += u64::from(is_report(room.get(..len).unwrap_or_default()));
        }
        let _ = sockopt::socket_error(fd);
        self.reported > before
    }
}

/// Whether a report may have left this error, by the kernel's tables for both families.
pub(super) const fn may_be_reported(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NETUNREACH
            | Errno::HOSTUNREACH
            | Errno::NOPROTOOPT
            | Errno::CONNREFUSED
            | Errno::MSGSIZE
            | Errno::OPNOTSUPP
            | Errno::HOSTDOWN
            | Errno::NONET
            | Errno::PROTO
            | Errno::ACCESS
    )
}

/// Whether ancillary data has an error that an ICMP message told, and not the host's own kernel.
fn is_report(mut control: &[u8]) -> bool {
    while let Some((kind, value, behind)) = first_of(control) {
        if [IPV4_ERROR, IPV6_ERROR].contains(&kind) {
            return matches!(value.get(ORIGIN_AT), Some(&(ORIGIN_ICMP | ORIGIN_ICMP6)));
        }
        control = behind;
    }
    false
}

const IPV4_ERROR: Kind = (libc::SOL_IP, libc::IP_RECVERR);
const IPV6_ERROR: Kind = (libc::SOL_IPV6, libc::IPV6_RECVERR);
/// The offset of `ee_origin` in `sock_extended_err`, behind the error number.
const ORIGIN_AT: usize = 4;
const ORIGIN_ICMP: u8 = 2;
const ORIGIN_ICMP6: u8 = 3;
/// Marks, hop limit, the error and the address of its sender, and some more.
const ROOM: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn control(kind: Kind, origin: u8) -> Vec<u8> {
        let (len, zeros) = ((16_usize + 16).to_ne_bytes(), [0; 11]);
        let kinds = [kind.0.to_ne_bytes(), kind.1.to_ne_bytes()];
        [&len[..], kinds.as_flattened(), &[111, 0, 0, 0, origin], &zeros].concat()
    }

    #[test]
    fn an_icmp_error_is_told_from_the_kernels_own() {
        let marks = control((libc::SOL_IP, libc::IP_TTL), ORIGIN_ICMP);
        for (origin, is) in [(0, false), (1, false), (2, true), (3, true), (4, false)] {
            for kind in [IPV4_ERROR, IPV6_ERROR] {
                assert_eq!(is_report(&[&marks[..], &control(kind, origin)].concat()), is);
            }
        }
        assert!(!is_report(&marks) && !is_report(&control(IPV4_ERROR, 2)[..20]));
    }
}
