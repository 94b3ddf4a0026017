//! Socket addresses as Windows lays them out, on whatever host this runs: `AF_INET6` is 23 here.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use super::{NTSTATUS, STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_PARAMETER, STATUS_SUCCESS, ULONG};

/// Address family, as in the first two bytes of every socket address.
pub type ADDRESS_FAMILY = u16;
/// IPv4.
pub const AF_INET: ADDRESS_FAMILY = 2;
/// IPv6.
pub const AF_INET6: ADDRESS_FAMILY = 23;

/// The common beginning of all socket addresses; what follows depends on the family.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SOCKADDR {
    pub sa_family: ADDRESS_FAMILY,
    pub sa_data: [u8; 14],
}
layout!(SOCKADDR, 0x10 { sa_family: 0, sa_data: 2 });

/// An IPv4 address in network order.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(4))]
pub struct IN_ADDR {
    pub S_un_b: [u8; 4],
}

/// An IPv4 socket address.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SOCKADDR_IN {
    pub sin_family: ADDRESS_FAMILY,
    /// In network order.
    pub sin_port: u16,
    pub sin_addr: IN_ADDR,
    pub sin_zero: [u8; 8],
}
layout!(SOCKADDR_IN, 0x10 { sin_family: 0, sin_port: 2, sin_addr: 4, sin_zero: 8 });

/// An IPv6 address in network order.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(2))]
pub struct IN6_ADDR {
    pub Byte: [u8; 16],
}

/// An IPv6 socket address.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SOCKADDR_IN6 {
    pub sin6_family: ADDRESS_FAMILY,
    /// In network order.
    pub sin6_port: u16,
    pub sin6_flowinfo: u32,
    pub sin6_addr: IN6_ADDR,
    pub sin6_scope_id: u32,
}
layout!(SOCKADDR_IN6, 0x1C {
    sin6_family: 0, sin6_port: 2, sin6_flowinfo: 4, sin6_addr: 8, sin6_scope_id: 0x18,
});

/// Room for an address of either family.
#[derive(Clone, Copy)]
#[repr(C)]
pub union SOCKADDR_INET {
    pub Ipv4: SOCKADDR_IN,
    pub Ipv6: SOCKADDR_IN6,
    pub si_family: ADDRESS_FAMILY,
}
layout!(SOCKADDR_INET, 0x1C {});

impl SOCKADDR_INET {
    /// All zero: no address.
    pub const UNSPECIFIED: Self = Self {
        Ipv6: SOCKADDR_IN6 {
            sin6_family: 0,
            sin6_port: 0,
            sin6_flowinfo: 0,
            sin6_addr: IN6_ADDR { Byte: [0; 16] },
            sin6_scope_id: 0,
        },
    };

    /// Bytes that the address takes: 16, 28, or 2 if it has no family.
    #[must_use]
    pub fn len(&self) -> ULONG {
        match self.family() {
            AF_INET => size_of::<SOCKADDR_IN>() as ULONG,
            AF_INET6 => size_of::<SOCKADDR_IN6>() as ULONG,
            _ => size_of::<ADDRESS_FAMILY>() as ULONG,
        }
    }

    /// True if it holds no address.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.socket_addr().is_none()
    }

    /// For the parameters that take a `PSOCKADDR`.
    #[must_use]
    pub fn as_ptr(&self) -> *const SOCKADDR {
        core::ptr::from_ref(self).cast()
    }

    /// The address in Rust's terms; `None` if the family is neither IPv4 nor IPv6.
    #[must_use]
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        match self.family() {
            AF_INET => {
                // SAFETY: every bit pattern of the union is a valid SOCKADDR_IN.
                let v4 = unsafe { self.Ipv4 };
                let ip = Ipv4Addr::from(v4.sin_addr.S_un_b);
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            AF_INET6 => {
                // SAFETY: every bit pattern of the union is a valid SOCKADDR_IN6.
                let v6 = unsafe { self.Ipv6 };
                let ip = Ipv6Addr::from(v6.sin6_addr.Byte);
                let port = u16::from_be(v6.sin6_port);
                Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }

    fn family(&self) -> ADDRESS_FAMILY {
        // SAFETY: the family is the first field of every variant.
        unsafe { self.si_family }
    }
}

impl From<SocketAddr> for SOCKADDR_INET {
    fn from(addr: SocketAddr) -> Self {
        let mut inet = Self::UNSPECIFIED;
        match addr {
            SocketAddr::V4(v4) => {
                inet.Ipv4 = SOCKADDR_IN {
                    sin_family: AF_INET,
                    sin_port: v4.port().to_be(),
                    sin_addr: IN_ADDR { S_un_b: v4.ip().octets() },
                    sin_zero: [0; 8],
                };
            }
            SocketAddr::V6(v6) => {
                inet.Ipv6 = SOCKADDR_IN6 {
                    sin6_family: AF_INET6,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: IN6_ADDR { Byte: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
            }
        }
        inet
    }
}

impl fmt::Debug for SOCKADDR_INET {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.socket_addr() {
            Some(addr) => write!(f, "{addr}"),
            None => write!(f, "address family {}", self.family()),
        }
    }
}

/// Reads a socket address that a consumer passed, at any alignment. `None` if the pointer is NULL,
/// the family is neither IPv4 nor IPv6, or `len` is too small for it.
///
/// # Safety
/// `address` is NULL or readable for `len` bytes.
#[must_use]
pub unsafe fn parse_sockaddr(address: *const SOCKADDR, len: ULONG) -> Option<SocketAddr> {
    if address.is_null() {
        return None;
    }
    let mut inet = SOCKADDR_INET::UNSPECIFIED;
    let copied = size_of::<SOCKADDR_INET>().min(len as usize);
    // SAFETY: the caller vouches for `len` bytes; `inet` has room for `copied` of them.
    unsafe {
        core::ptr::copy_nonoverlapping(address.cast::<u8>(), (&raw mut inet).cast(), copied);
    }
    if len < inet.len() { None } else { inet.socket_addr() }
}

/// Writes `addr` under the length rule of `NdkGetLocalAddress` and its relatives: `STATUS_SUCCESS`
/// and `*len` = bytes written, or `STATUS_BUFFER_TOO_SMALL`, `*len` = bytes needed and the buffer
/// untouched. A NULL buffer is too small.
///
/// # Safety
/// `len` is NULL or valid for reads and writes; `address` is NULL or writable for `*len` bytes.
pub unsafe fn write_sockaddr(
    addr: SocketAddr,
    address: *mut SOCKADDR,
    len: *mut ULONG,
) -> NTSTATUS {
    if len.is_null() {
        return STATUS_INVALID_PARAMETER;
    }
    let inet = SOCKADDR_INET::from(addr);
    // SAFETY: not NULL, so valid for reads and writes.
    let room = unsafe { len.replace(inet.len()) };
    if address.is_null() || room < inet.len() {
        return STATUS_BUFFER_TOO_SMALL;
    }
    // SAFETY: the caller vouches for `room` bytes, which are enough.
    unsafe {
        core::ptr::copy_nonoverlapping(
            inet.as_ptr().cast::<u8>(),
            address.cast(),
            inet.len() as usize,
        );
    }
    STATUS_SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Option<SocketAddr> {
        // SAFETY: the slice is readable for its length.
        unsafe { parse_sockaddr(bytes.as_ptr().cast(), bytes.len() as ULONG) }
    }

    #[test]
    fn both_families_survive_the_round_trip() {
        for text in ["10.0.0.1:7174", "[2001:db8::1]:445", "[fe80::1%3]:65535", "0.0.0.0:0"] {
            let addr: SocketAddr = text.parse().unwrap();
            let inet = SOCKADDR_INET::from(addr);
            assert_eq!(inet.socket_addr(), Some(addr));
            let mut bytes = [0xAA_u8; 29];
            let mut len = 28;
            // SAFETY: the array holds more than `len` bytes.
            let status =
                unsafe { write_sockaddr(addr, bytes[1..].as_mut_ptr().cast(), &raw mut len) };
            assert_eq!((status, len), (STATUS_SUCCESS, inet.len()));
            assert_eq!(parse(&bytes[1..1 + len as usize]), Some(addr), "unaligned");
            assert_eq!(parse(&bytes[1..len as usize]), None, "one byte short");
        }
    }

    #[test]
    fn the_bytes_are_those_of_windows() {
        let inet = SOCKADDR_INET::from("10.0.0.2:7174".parse::<SocketAddr>().unwrap());
        // SAFETY: 16 bytes of an initialized union.
        let bytes = unsafe { inet.as_ptr().cast::<[u8; 16]>().read() };
        assert_eq!(bytes, [2, 0, 0x1C, 0x06, 10, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_short_buffer_is_told_the_size_and_left_alone() {
        let addr: SocketAddr = "[::1]:1".parse().unwrap();
        let mut bytes = [0xAA_u8; 28];
        let mut len = 27;
        // SAFETY: the array holds more than `len` bytes.
        let status = unsafe { write_sockaddr(addr, bytes.as_mut_ptr().cast(), &raw mut len) };
        assert_eq!((status, len, bytes), (STATUS_BUFFER_TOO_SMALL, 28, [0xAA; 28]));
        let mut len = 0;
        // SAFETY: a NULL buffer of no bytes.
        let status = unsafe { write_sockaddr(addr, core::ptr::null_mut(), &raw mut len) };
        assert_eq!((status, len), (STATUS_BUFFER_TOO_SMALL, 28));
    }

    #[test]
    fn nonsense_is_no_address() {
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(&[2]), None);
        assert_eq!(parse(&[10, 0, 0, 80, 1, 2, 3, 4]), None, "AF_INET6 of Linux");
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { parse_sockaddr(core::ptr::null(), 16) }, None);
    }
}
