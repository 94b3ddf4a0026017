//! Two network namespaces joined by a veth pair, or one with two TAPs in a bridge, in a user namespace. They end with the process.
#![expect(unsafe_code, reason = "unshare(2) is unsafe for some of its flags")]

use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use netadapter_glue::tap;
use rustix::io::Errno;
use rustix::process::{getgid, getuid};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use super::netlink::Netlink;

/// An end of the cable.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum End {
    Client,
    Server,
}

impl End {
    /// Its interface.
    pub(super) const fn interface(self) -> &'static str {
        match self {
            Self::Client => "client0",
            Self::Server => "server0",
        }
    }
}

/// A veth pair, each end in a network namespace of its own, or a bridge of two TAPs.
#[derive(Debug)]
pub(super) struct Cable {
    /// The namespaces, by [`End`].
    namespaces: [File; 2],
}

impl Cable {
    /// Leaves this process's network for new ones, in which the `addresses` are those of the ends, if there are any.
    /// No other thread runs.
    pub(super) fn new(mtu: usize, addresses: &[IpAddr]) -> io::Result<Self> {
        leave()?;
        let server = namespace()?;
        unshare(UnshareFlags::NEWNET).map_err(|errno| explain(errno.into()))?;
        let cable = Self { namespaces: [namespace()?, server] };
        let [client, server] = [End::Client, End::Server].map(End::interface);
        let server_fd = cable.namespaces[End::Server as usize].as_fd();
        Netlink::open()?.add_veth(client, server, server_fd, mtu).map_err(explain)?;
        for end in [End::Client, End::Server] {
            cable.enter(end)?;
            let mut netlink = Netlink::open()?;
            if let Some(ip) = addresses.get(end as usize) {
                netlink.add_address(end.interface(), *ip)?;
            }
            netlink.set_up("lo")?;
            netlink.set_up(end.interface())?;
        }
        Ok(cable)
    }

    /// Leaves this process's network for a new one, in which a bridge joins the TAPs of both ends. No other thread runs.
    pub(super) fn bridged(mtu: usize) -> io::Result<Self> {
        leave()?;
        let cable = Self { namespaces: [namespace()?, namespace()?] };
        let mut netlink = Netlink::open()?;
        netlink.add_bridge(BRIDGE).map_err(explain)?;
        for end in [End::Client, End::Server] {
            tap::create(end.interface()).map_err(|error| {
                let hint = "it must be there, and open to you";
                io::Error::new(error.kind(), format!("/dev/net/tun: {error}; {hint}"))
            })?;
            // It carries a little less than other interfaces do.
            let refused = |error: io::Error| {
                io::Error::new(error.kind(), format!("a TAP with an MTU of {mtu}: {error}"))
            };
            netlink.add_port(BRIDGE, end.interface(), mtu).map_err(refused)?;
        }
        Ok(cable)
    }

    /// What this thread opens from here on is at this end.
    pub(super) fn enter(&self, end: End) -> io::Result<()> {
        let namespace = self.namespaces[end as usize].as_fd();
        Ok(move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?)
    }
}

/// The network namespace of this thread.
fn namespace() -> io::Result<File> {
    File::open("/proc/thread-self/ns/net")
}

/// Leaves the network for an empty one, in a user namespace that gives the right to it. Root has the right without.
fn leave() -> io::Result<()> {
    let ids = (getuid().as_raw(), getgid().as_raw());
    let private = unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNET);
    let left = private.or_else(|errno| unshare(UnshareFlags::NEWNET).map_err(|_| errno));
    left.map_err(|errno| explain(errno.into()))?;
    // Without a right to it, as root of the machine has, there is no user namespace, and nothing to map.
    let _ = map_ids(ids);
    Ok(())
}

fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
    // SAFETY: only the flag that gives a thread descriptors of its own is unsafe, and it is not among them.
    unsafe { unshare_unsafe(flags) }
}

/// The user is the same in the user namespace, so that files are his.
fn map_ids((uid, gid): (u32, u32)) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

/// Says what mends it where this system gives a user no namespaces.
fn explain(error: io::Error) -> io::Error {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    let refused =
        [Errno::PERM, Errno::ACCESS, Errno::NOSPC, Errno::INVAL, Errno::NOSYS, Errno::USERS];
    if !errno.is_some_and(|errno| refused.contains(&errno)) {
        return error;
    }
    let hint = "this system gives an ordinary user no namespaces: run it with sudo, or allow them by \
                `sysctl -w` of user.max_user_namespaces=10000, on Debian \
                kernel.unprivileged_userns_clone=1, on Ubuntu \
                kernel.apparmor_restrict_unprivileged_userns=0; a container needs this of its host";
    io::Error::new(error.kind(), format!("{error}; {hint}"))
}

const BRIDGE: &str = "bridge0";

#[cfg(test)]
mod tests {
    use super::*;

    /// What has another reason is not blamed on namespaces.
    #[test]
    fn a_refusal_is_told_with_what_mends_it() {
        let told = |errno: Errno| explain(errno.into()).to_string();
        assert!(told(Errno::PERM).contains("user.max_user_namespaces"));
        assert!(told(Errno::NOSPC).contains("sudo"));
        assert!(!told(Errno::EXIST).contains("sudo"));
    }
}
