//! The requests of rtnetlink(7) that a lab makes: a veth pair, a bridge and its ports, an address, an interface that goes up.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netdevice, recv, send,
    socket_with,
};

/// A socket of rtnetlink(7), for the network namespace in which it was opened.
#[derive(Debug)]
pub(super) struct Netlink(OwnedFd);

impl Netlink {
    pub(super) fn open() -> io::Result<Self> {
        // Protocol 0, which stands for none elsewhere, is that of routes.
        let (flags, protocol) = (SocketFlags::CLOEXEC, None);
        Ok(Self(socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?))
    }

    /// Makes `name` and, in the network namespace `peer_in`, `peer`, joined with each other.
    pub(super) fn add_veth(
        &mut self,
        name: &str,
        peer: &str,
        peer_in: BorrowedFd<'_>,
        mtu: usize,
    ) -> io::Result<()> {
        let mtu = (mtu as u32).to_ne_bytes();
        let mut request = Request::new(RTM_NEWLINK, CREATE);
        request.put(&interface(0));
        request.attribute(IFLA_IFNAME, &zero_ended(name));
        request.attribute(IFLA_MTU, &mtu);
        request.nest(IFLA_LINKINFO, |info| {
            info.attribute(IFLA_INFO_KIND, b"veth\0");
            info.nest(IFLA_INFO_DATA, |data| {
                data.nest(VETH_INFO_PEER, |other| {
                    other.put(&interface(0));
                    other.attribute(IFLA_IFNAME, &zero_ended(peer));
                    other.attribute(IFLA_MTU, &mtu);
                    other.attribute(IFLA_NET_NS_FD, &peer_in.as_raw_fd().to_ne_bytes());
                });
            });
        });
        self.ask(request)
    }

    /// Makes a bridge, which is up at once.
    pub(super) fn add_bridge(&mut self, name: &str) -> io::Result<()> {
        let mut request = Request::new(RTM_NEWLINK, CREATE);
        request.put(&interface(IFF_UP));
        request.attribute(IFLA_IFNAME, &zero_ended(name));
        request.nest(IFLA_LINKINFO, |info| info.attribute(IFLA_INFO_KIND, b"bridge\0"));
        self.ask(request)
    }

    /// Makes an interface a port of a bridge, which is up at once.
    pub(super) fn add_port(&mut self, bridge: &str, name: &str, mtu: usize) -> io::Result<()> {
        let index = netdevice::name_to_index(self.0.as_fd(), bridge)?;
        let mut request = Request::new(RTM_NEWLINK, 0);
        request.put(&interface(IFF_UP));
        request.attribute(IFLA_IFNAME, &zero_ended(name));
        request.attribute(IFLA_MTU, &(mtu as u32).to_ne_bytes());
        request.attribute(IFLA_MASTER, &index.to_ne_bytes());
        self.ask(request)
    }

    /// Gives an interface an address, of a network of 24 or 64 bits, that can be used at once.
    pub(super) fn add_address(&mut self, name: &str, ip: IpAddr) -> io::Result<()> {
        let index = netdevice::name_to_index(self.0.as_fd(), name)?;
        let (family, prefix_len, bytes) = match ip {
            IpAddr::V4(ip) => (AddressFamily::INET, 24, ip.octets().to_vec()),
            IpAddr::V6(ip) => (AddressFamily::INET6, 64, ip.octets().to_vec()),
        };
        let mut request = Request::new(RTM_NEWADDR, CREATE);
        request.put(&[family.as_raw() as u8, prefix_len, IFA_F_NODAD, 0]);
        request.put(&index.to_ne_bytes());
        request.attribute(IFA_LOCAL, &bytes);
        request.attribute(IFA_ADDRESS, &bytes);
        self.ask(request)
    }

    pub(super) fn set_up(&mut self, name: &str) -> io::Result<()> {
        let mut request = Request::new(RTM_NEWLINK, 0);
        request.put(&interface(IFF_UP));
        request.attribute(IFLA_IFNAME, &zero_ended(name));
        self.ask(request)
    }

    /// Sends a request and waits for what became of it.
    fn ask(&mut self, request: Request) -> io::Result<()> {
        send(&self.0, &request.end(), SendFlags::empty())?;
        let mut answer = [0; 1024];
        let (len, _) = recv(&self.0, &mut answer, RecvFlags::empty())?;
        let error = answer.get(HEADER_LEN..len).and_then(<[u8]>::first_chunk);
        match error.map(|bytes| i32::from_ne_bytes(*bytes)) {
            Some(0) => Ok(()),
            Some(error) => Err(Errno::from_raw_os_error(-error).into()),
            None => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// A message that is being written.
struct Request(Vec<u8>);

impl Request {
    /// The header, whose length is still missing.
    fn new(kind: u16, flags: u16) -> Self {
        let mut bytes = vec![0; HEADER_LEN];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(REQUEST | ACK | flags).to_ne_bytes());
        Self(bytes)
    }

    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.nest(kind, |nest| nest.put(value));
    }

    /// An attribute that `fill` writes the value of.
    fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let begin = self.0.len();
        self.put(&[0; 2]);
        self.put(&kind.to_ne_bytes());
        fill(self);
        let len = (self.0.len() - begin) as u16;
        self.0[begin..begin + 2].copy_from_slice(&len.to_ne_bytes());
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// The whole message, with its length.
    fn end(mut self) -> Vec<u8> {
        let len = self.0.len() as u32;
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        self.0
    }
}

/// `ifinfomsg` of an interface that an attribute names, which these flags are set of.
fn interface(flags: u32) -> [u8; 16] {
    let mut message = [0; 16];
    message[8..12].copy_from_slice(&flags.to_ne_bytes());
    message[12..16].copy_from_slice(&flags.to_ne_bytes());
    message
}

fn zero_ended(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[0]].concat()
}

/// `nlmsghdr`.
const HEADER_LEN: usize = 16;
const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
/// A new object, and none that there is.
const CREATE: u16 = 0x400 | 0x200;
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFF_UP: u32 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
/// Nobody else can have the address, so nobody is asked.
const IFA_F_NODAD: u8 = 2;
