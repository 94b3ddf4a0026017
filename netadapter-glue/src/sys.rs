//! The Linux calls that no safe crate binds, each behind a safe function.
#![expect(unsafe_code, reason = "system calls that `rustix` does not bind")]

use alloc::boxed::Box;
use core::mem::{size_of, zeroed};
use core::ptr::{NonNull, from_mut, from_ref, null_mut};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Most messages that one system call moves.
pub(crate) const BATCH: usize = 32;

/// Receives up to one message per buffer, without waiting. Returns their number.
///
/// `lens` gets the true length of each message, which is more than its buffer where it was cut.
/// At most [`BATCH`] buffers are used.
pub(crate) fn recvmmsg(
    fd: BorrowedFd<'_>,
    buffers: &mut [Box<[u8]>],
    lens: &mut [usize],
) -> Result<usize, Errno> {
    let mut slices = [libc::iovec { iov_base: null_mut(), iov_len: 0 }; BATCH];
    // SAFETY: `mmsghdr` is plain data, for which all zeroes means a message without buffers.
    let mut messages: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
    let count = buffers.len().min(lens.len()).min(BATCH);
    for ((buffer, slice), message) in buffers.iter_mut().zip(&mut slices).zip(&mut messages) {
        *slice = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        message.msg_hdr.msg_iov = slice;
        message.msg_hdr.msg_iovlen = 1;
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    // SAFETY: the first `count` messages name one slice each, and each slice a buffer that is
    // borrowed mutably here; the call keeps no pointer.
    let received = unsafe {
        libc::recvmmsg(fd.as_raw_fd(), messages.as_mut_ptr(), count as u32, flags, null_mut())
    };
    let received = usize::try_from(received).map_err(|_| last_errno())?;
    for (len, message) in lens.iter_mut().zip(&messages[..received]) {
        *len = message.msg_len as usize;
    }
    Ok(received)
}

/// Binds a packet socket to an interface, for frames of every protocol.
pub(crate) fn bind_packet(fd: BorrowedFd<'_>, interface: i32) -> io::Result<()> {
    // SAFETY: `sockaddr_ll` is plain data.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = interface;
    let len = size_of::<libc::sockaddr_ll>() as u32;
    // SAFETY: `address` is a `sockaddr_ll` of `len` bytes, read during the call only.
    check(unsafe { libc::bind(fd.as_raw_fd(), from_ref(&address).cast(), len) })
}

/// The hardware type (`ARPHRD_*`) and the address of the interface that a packet socket is bound to.
pub(crate) fn packet_address(fd: BorrowedFd<'_>) -> io::Result<(u16, [u8; 6])> {
    // SAFETY: `sockaddr_ll` is plain data.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    let mut len = size_of::<libc::sockaddr_ll>() as u32;
    let name = from_mut(&mut address).cast();
    // SAFETY: `name` has room for `len` bytes, which the call does not exceed.
    check(unsafe { libc::getsockname(fd.as_raw_fd(), name, &raw mut len) })?;
    let [a, b, c, d, e, f, _, _] = address.sll_addr;
    Ok((address.sll_hatype, [a, b, c, d, e, f]))
}

/// Sets a packet socket option (packet(7)) whose value is an integer.
pub(crate) fn set_packet_option(fd: BorrowedFd<'_>, option: i32, value: i32) -> io::Result<()> {
    set_option(fd, libc::SOL_PACKET, option, &value)
}

/// A packet socket option whose value is an integer.
pub(crate) fn packet_option(fd: BorrowedFd<'_>, option: i32) -> io::Result<i32> {
    let mut value = 0_i32;
    let mut len = size_of::<i32>() as u32;
    let place = from_mut(&mut value).cast();
    // SAFETY: `place` has room for `len` bytes, which the call does not exceed.
    check(unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_PACKET, option, place, &raw mut len)
    })?;
    Ok(value)
}

/// Gives a group of packet sockets the program that chooses one for each frame: its result is the number of that.
pub(crate) fn set_fanout_program(fd: BorrowedFd<'_>, code: &[libc::sock_filter]) -> io::Result<()> {
    set_option(fd, libc::SOL_PACKET, libc::PACKET_FANOUT_DATA, &classic(code))
}

/// Makes a socket receive the frames that a program chooses (socket(7)), in the place of any before it.
pub(crate) fn attach_filter(fd: BorrowedFd<'_>, code: &[libc::sock_filter]) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &classic(code))
}

/// Makes a socket receive all frames again.
pub(crate) fn detach_filter(fd: BorrowedFd<'_>) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0_i32)
}

/// A classic program, which the kernel copies and does not change.
const fn classic(code: &[libc::sock_filter]) -> libc::sock_fprog {
    libc::sock_fprog { len: code.len() as u16, filter: code.as_ptr().cast_mut() }
}

/// Gives a packet socket a receive ring of version 2, for [`map_shared`]. Options that change the frames are set before.
pub(crate) fn set_packet_ring(fd: BorrowedFd<'_>, ring: &libc::tpacket_req) -> io::Result<()> {
    set_packet_option(fd, libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as i32)?;
    set_option(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, ring)
}

/// Maps the first `len` bytes of a descriptor's memory.
pub(crate) fn map_shared(fd: BorrowedFd<'_>, len: usize) -> io::Result<NonNull<u8>> {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, at a place of the kernel's choice.
    let start = unsafe { libc::mmap(null_mut(), len, rights, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(start.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Ends a mapping of [`map_shared`].
///
/// # Safety
/// It is the whole mapping, and nothing in it is used any more.
pub(crate) unsafe fn unmap(start: NonNull<u8>, len: usize) {
    // SAFETY: the caller's promise. It cannot fail for a mapping that exists.
    let _ = unsafe { libc::munmap(start.as_ptr().cast(), len) };
}

/// Makes an interface receive every multicast frame while the packet socket is open.
pub(crate) fn join_all_multicast(fd: BorrowedFd<'_>, interface: i32) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: interface,
        mr_type: libc::PACKET_MR_ALLMULTI as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)
}

fn set_option<T: Copy>(fd: BorrowedFd<'_>, level: i32, option: i32, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as u32;
    let value = from_ref(value).cast();
    // SAFETY: `value` is `len` bytes of initialized plain data, read during the call only, as is what it points to.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, value, len) })
}

/// Largest layer-3 packet of the named interface (netdevice(7)). `fd` is any socket.
pub(crate) fn interface_mtu(fd: BorrowedFd<'_>, name: &str) -> io::Result<usize> {
    let mut request = interface_request(name)?;
    // SAFETY: SIOCGIFMTU reads the name of an `ifreq` and writes its `ifru_mtu`.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) })?;
    // SAFETY: the call succeeded, so `ifru_mtu` is the member that it wrote.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    usize::try_from(mtu).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The rate of the named interface in bits per second (ethtool); `None` where its driver reports none, or
/// it has no link. `fd` is any socket.
pub(crate) fn interface_speed(fd: BorrowedFd<'_>, name: &str) -> Option<u64> {
    let mut request = interface_request(name).ok()?;
    let mut command = EthtoolCmd { cmd: ETHTOOL_GSET, ..EthtoolCmd::default() };
    request.ifr_ifru.ifru_data = from_mut(&mut command).cast();
    // SAFETY: SIOCETHTOOL reads the name of an `ifreq`, and ETHTOOL_GSET writes the command that
    // `ifru_data` points to; both live during the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) }).ok()?;
    let mbit = u32::from(command.speed_hi) << 16 | u32::from(command.speed);
    (![0, SPEED_UNKNOWN].contains(&mbit)).then(|| u64::from(mbit) * 1_000_000)
}

/// `ethtool_cmd` of linux/ethtool.h.
#[repr(C)]
#[derive(Default)]
struct EthtoolCmd {
    cmd: u32,
    supported: u32,
    advertising: u32,
    /// Megabits per second, the lower half.
    speed: u16,
    ports: [u8; 6],
    limits: [u32; 2],
    /// The upper half.
    speed_hi: u16,
    mdix: [u8; 2],
    lp_advertising: u32,
    reserved: [u32; 2],
}

const _: () = assert!(size_of::<EthtoolCmd>() == 44);

const ETHTOOL_GSET: u32 = 1;
const SPEED_UNKNOWN: u32 = u32::MAX;

/// Makes an open `/dev/net/tun` the other end of the named TAP interface, which is created if it
/// does not exist.
pub(crate) fn attach_tap(fd: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let mut request = interface_request(name)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as i16;
    // SAFETY: TUNSETIFF reads and writes an `ifreq`.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })
}

/// Lets the TAP interface of an attached `/dev/net/tun` outlive it.
pub(crate) fn keep_tap(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: TUNSETPERSIST takes a number.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETPERSIST, 1) })
}

fn interface_request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: `ifreq` is plain data, for which all zeroes means the empty name.
    let mut request: libc::ifreq = unsafe { zeroed() };
    let (_, room) = request.ifr_name.split_last_mut().expect("IFNAMSIZ is 16");
    if name.is_empty() || name.len() > room.len() || name.contains('\0') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in room.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// Loads a classifier program (bpf(2)), which the kernel verifies.
pub(crate) fn load_classifier(code: &[u64]) -> io::Result<OwnedFd> {
    let attributes = ProgramLoad {
        program_type: BPF_PROG_TYPE_SCHED_CLS,
        instructions: code.len() as u32,
        code: code.as_ptr() as u64,
        license: c"MIT".as_ptr() as u64,
        expected_attach_type: BPF_TCX_INGRESS,
        ..ProgramLoad::default()
    };
    // SAFETY: the two pointers name a program of that many instructions and a string, both read during the call only.
    unsafe { bpf(BPF_PROG_LOAD, &attributes) }
}

/// Runs a program of [`load_classifier`] on what comes in at an interface, until the descriptor is closed.
pub(crate) fn link_ingress(program: BorrowedFd<'_>, interface: i32) -> io::Result<OwnedFd> {
    let attributes = LinkCreate {
        program: program.as_raw_fd(),
        interface,
        attach_type: BPF_TCX_INGRESS,
        ..LinkCreate::default()
    };
    // SAFETY: there is no pointer in it.
    unsafe { bpf(BPF_LINK_CREATE, &attributes) }
}

/// The result of a program of [`load_classifier`] for a frame.
#[cfg(test)]
pub(crate) fn run_classifier(program: BorrowedFd<'_>, frame: &[u8]) -> io::Result<i32> {
    const BPF_PROG_TEST_RUN: i32 = 10;
    let mut run = ProgramRun {
        program: program.as_raw_fd(),
        frame_len: frame.len() as u32,
        frame: frame.as_ptr() as u64,
        repeat: 1,
        ..ProgramRun::default()
    };
    let run_len = size_of::<ProgramRun>() as u32;
    // SAFETY: `run` is the command's part of `union bpf_attr`, which names a frame of that length; the kernel writes the result
    // into it, and no frame, for which there is no place.
    let done =
        unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_TEST_RUN, from_mut(&mut run), run_len) };
    check(done as i32).map(|()| run.result)
}

/// The part of `union bpf_attr` for `BPF_PROG_TEST_RUN`.
#[cfg(test)]
#[repr(C)]
#[derive(Default)]
struct ProgramRun {
    program: i32,
    result: i32,
    frame_len: u32,
    out_len: u32,
    frame: u64,
    out: u64,
    repeat: u32,
    duration_ns: u32,
}

/// A command of bpf(2) that makes a descriptor.
///
/// # Safety
/// `T` is the command's part of `union bpf_attr`, without padding, and what it points to is readable.
unsafe fn bpf<T>(command: i32, attributes: &T) -> io::Result<OwnedFd> {
    let attributes_len = size_of::<T>() as u32;
    // SAFETY: the caller's promise; the kernel reads the attributes during the call only.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, from_ref(attributes), attributes_len) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// The part of `union bpf_attr` for `BPF_PROG_LOAD`, up to the attach type.
#[repr(C)]
#[derive(Default)]
struct ProgramLoad {
    program_type: u32,
    instructions: u32,
    code: u64,
    license: u64,
    /// Level, size and place of a log, and the kernel's version, which no longer counts.
    log: [u32; 2],
    log_buffer: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    expected_attach_type: u32,
}

const _: () = assert!(size_of::<ProgramLoad>() == 72);

/// The part of `union bpf_attr` for `BPF_LINK_CREATE` at an interface.
#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    program: i32,
    interface: i32,
    attach_type: u32,
    flags: u32,
    /// A program to stand before or behind, and the revision that this was decided on: none.
    relative: [u64; 2],
}

const _: () = assert!(size_of::<LinkCreate>() == 32);

const BPF_PROG_LOAD: i32 = 5;
const BPF_LINK_CREATE: i32 = 28;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
const BPF_TCX_INGRESS: u32 = 46;

/// Gives the calling thread a network of its own, for a test. Needs `CAP_SYS_ADMIN`.
#[cfg(test)]
pub(crate) fn own_network() -> io::Result<()> {
    // SAFETY: the thread changes its network alone; no memory or descriptor is concerned.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) })
}

pub(crate) fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(crate) fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).expect("a failed call sets errno")
}
