//! `sendmmsg` and `recvmmsg` with names and ancillary data, and the interface of an address, each behind a safe function.
#![expect(unsafe_code, reason = "system calls that `rustix` does not bind")]

use super::control::{Control, Name};
use crate::RUN;
use alloc::boxed::Box;
use alloc::string::String;
use core::ffi::CStr;
use core::mem::zeroed;
use core::net::IpAddr;
use core::ptr::{from_ref, null_mut};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A datagram to send.
#[derive(Debug)]
pub(super) struct Outgoing<'a> {
    pub(super) to: Name,
    pub(super) control: Control,
    pub(super) payload: &'a [u8],
}

/// A place for a received datagram.
#[derive(Debug)]
pub(super) struct Place {
    /// The bytes before [`Self::begin`] stay free.
    pub(super) buffer: Box<[u8]>,
    pub(super) begin: usize,
    pub(super) from: Name,
    pub(super) control: Control,
    /// Bytes of the datagram, which may be more than there is room for.
    pub(super) len: usize,
}

/// Sends up to [`RUN`] datagrams without waiting. Returns their number; an error concerns the first.
pub(super) fn send(fd: BorrowedFd<'_>, datagrams: &[Outgoing<'_>]) -> Result<usize, Errno> {
    let payload = |datagram: &Outgoing<'_>| libc::iovec {
        iov_base: datagram.payload.as_ptr().cast_mut().cast(),
        iov_len: datagram.payload.len(),
    };
    let mut slices: heapless::Vec<libc::iovec, RUN> =
        datagrams.iter().take(RUN).map(payload).collect();
    let mut messages: heapless::Vec<libc::mmsghdr, RUN> = heapless::Vec::new();
    for (datagram, slice) in datagrams.iter().zip(&mut slices) {
        let mut message = blank_message(slice);
        message.msg_hdr.msg_name = datagram.to.bytes.as_ptr().cast_mut().cast();
        message.msg_hdr.msg_namelen = datagram.to.len;
        message.msg_hdr.msg_control = datagram.control.bytes.as_ptr().cast_mut().cast();
        message.msg_hdr.msg_controllen = datagram.control.len as _;
        messages.push(message).expect("as many as slices");
    }
    let (start, count) = (messages.as_mut_ptr(), messages.len() as u32);
    // SAFETY: each message names a slice, a name and ancillary data of the lengths said, all of which live during the call; the
    // kernel writes into the messages' lengths alone, and keeps no pointer.
    let sent = unsafe {
        libc::sendmmsg(fd.as_raw_fd(), start, count, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    };
    usize::try_from(sent).map_err(|_| crate::sys::last_errno())
}

/// Receives up to one datagram for each of up to [`RUN`] places, without waiting. Returns their number.
pub(super) fn receive(fd: BorrowedFd<'_>, places: &mut [Place]) -> Result<usize, Errno> {
    let mut slices: heapless::Vec<libc::iovec, RUN> = heapless::Vec::new();
    for place in places.iter_mut().take(RUN) {
        let room = &mut place.buffer[place.begin..];
        let slice = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        slices.push(slice).expect("a run fits");
    }
    let mut messages: heapless::Vec<libc::mmsghdr, RUN> = heapless::Vec::new();
    for (place, slice) in places.iter_mut().zip(&mut slices) {
        let mut message = blank_message(slice);
        message.msg_hdr.msg_name = place.from.bytes.as_mut_ptr().cast();
        message.msg_hdr.msg_namelen = Name::LEN_MAX as u32;
        message.msg_hdr.msg_control = place.control.bytes.as_mut_ptr().cast();
        message.msg_hdr.msg_controllen = Control::LEN_MAX as _;
        messages.push(message).expect("as many as slices");
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    let (start, count) = (messages.as_mut_ptr(), messages.len() as u32);
    // SAFETY: each message names a slice, room for a name and for ancillary data of the lengths said, all of which are
    // borrowed mutably here; the kernel keeps no pointer.
    let received = unsafe { libc::recvmmsg(fd.as_raw_fd(), start, count, flags, null_mut()) };
    let received = usize::try_from(received).map_err(|_| crate::sys::last_errno())?;
    for (place, message) in places.iter_mut().zip(&messages).take(received) {
        place.len = message.msg_len as usize;
        place.from.len = message.msg_hdr.msg_namelen;
        place.control.len = message.msg_hdr.msg_controllen;
    }
    Ok(received)
}

/// Takes an entry off the error queue, without its datagram, and writes its ancillary data to `control`. Returns their length.
pub(super) fn receive_error(fd: BorrowedFd<'_>, control: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: `msghdr` is plain data, for which all zeroes means a message without anything.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = control.len() as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the message names room for ancillary data of the length said, borrowed mutably here; the kernel keeps no pointer.
    let received = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags) };
    if received < 0 { Err(crate::sys::last_errno()) } else { Ok(message.msg_controllen) }
}

/// A message of one slice.
fn blank_message(slice: &mut libc::iovec) -> libc::mmsghdr {
    // SAFETY: `mmsghdr` is plain data, for which all zeroes means a message without anything.
    let mut message: libc::mmsghdr = unsafe { zeroed() };
    message.msg_hdr.msg_iov = slice;
    message.msg_hdr.msg_iovlen = 1;
    message
}

/// Binds a socket to `name`.
pub(super) fn bind(fd: BorrowedFd<'_>, name: &Name) -> io::Result<()> {
    // SAFETY: `name` has `len` bytes, read during the call only.
    crate::sys::check(unsafe { libc::bind(fd.as_raw_fd(), name.bytes.as_ptr().cast(), name.len) })
}

/// Sets an option of a socket whose value is an integer.
pub(super) fn set_option(
    fd: BorrowedFd<'_>,
    (level, option): (i32, i32),
    value: i32,
) -> io::Result<()> {
    let (len, value) = (size_of::<i32>() as u32, from_ref(&value).cast());
    // SAFETY: `value` is an integer of `len` bytes, read during the call only.
    crate::sys::check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, value, len) })
}

/// The interface that has `ip`, or that of whose network it is (127.0.0.2 is on the one that has 127.0.0.1/8).
pub(super) fn interface_of(ip: IpAddr) -> Option<String> {
    let mut first = null_mut();
    // SAFETY: the call writes the head of a list, which is freed below.
    crate::sys::check(unsafe { libc::getifaddrs(&raw mut first) }).ok()?;
    let (mut found, mut next) = (None, first);
    // SAFETY: the list's entries live until it is freed; its end is null.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: the address is null, or one of its family.
        let own = unsafe { address_of(entry.ifa_addr) };
        // SAFETY: so is the mask.
        let mask = unsafe { address_of(entry.ifa_netmask) };
        // SAFETY: the name is a string.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        let exact = own == Some(ip);
        if exact || found.is_none() && is_in_network(ip, own, mask) {
            found = Some(String::from(name.to_string_lossy()));
        }
        next = if exact { null_mut() } else { entry.ifa_next };
    }
    // SAFETY: the list of above, to which no reference is left.
    unsafe { libc::freeifaddrs(first) };
    found
}

/// The address of a socket address.
///
/// # Safety
/// It is null, or is as long as its family says.
unsafe fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller's promise: every socket address has a family.
    let family = unsafe { address.as_ref() }?.sa_family;
    let len = match i32::from(family) {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        _ => return None,
    };
    let mut name = Name::blank();
    // SAFETY: the caller's promise, for this family.
    name.bytes[..len].copy_from_slice(unsafe { core::slice::from_raw_parts(address.cast(), len) });
    name.address().map(|address| address.ip())
}

fn is_in_network(ip: IpAddr, own: Option<IpAddr>, mask: Option<IpAddr>) -> bool {
    match (ip, own, mask) {
        (IpAddr::V4(ip), Some(IpAddr::V4(own)), Some(IpAddr::V4(mask))) => {
            (ip.to_bits() ^ own.to_bits()) & mask.to_bits() == 0
        }
        (IpAddr::V6(ip), Some(IpAddr::V6(own)), Some(IpAddr::V6(mask))) => {
            (ip.to_bits() ^ own.to_bits()) & mask.to_bits() == 0
        }
        _ => false,
    }
}
