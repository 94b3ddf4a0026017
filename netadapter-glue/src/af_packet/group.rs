//! Several packet sockets on one interface, one for each core: the kernel gives each frame to one of them
//! (packet(7), `PACKET_FANOUT_CBPF`), which a program of the classic kind chooses. It needs no right beyond the sockets'.
//!
//! The program sees a frame from the network header on: the kernel has taken off the Ethernet header and a VLAN tag.

use super::AfPacket;
use crate::sys;
use alloc::vec::Vec;
use libc::{
    BPF_ABS, BPF_ALU, BPF_B, BPF_H, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_LD, BPF_RET,
    BPF_RSH, BPF_W, sock_filter,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// The part of a UDP datagram that names the core that it is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CoreField {
    /// The destination port of the datagrams that have it.
    pub udp_port: u16,
    /// A byte behind the UDP header. As many of its upper bits as number the cores name one.
    pub byte: usize,
}

/// Cores that a byte can name.
const CORES_MAX: usize = 256;

impl AfPacket {
    /// Opens `interface` once for each of so many cores, with or without offload. A frame arrives at the edge of the core that
    /// `field` names. The first edge gets those that name no such core, and all that have no such field: every other protocol,
    /// fragments, and packets with IP options or extension headers. Any edge may send any frame.
    ///
    /// A unit that the kernel has made of several packets goes where its first one does. The edges are to be dropped together: a
    /// frame may reach the edge of another core once one is gone.
    ///
    /// # Errors
    /// The system call that failed: several cores take Linux 5.11. `InvalidInput` where the interface is not Ethernet, or there is
    /// no core, or more than a byte can name.
    pub fn open_group(
        interface: &str,
        offload: bool,
        cores: usize,
        field: CoreField,
    ) -> io::Result<Vec<Self>> {
        match cores {
            1 => return Ok(Vec::from([Self::new(interface, offload, |_| Ok(()))?])),
            2..=CORES_MAX => {}
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
        let edges = (0..cores).map(|_| Self::new(interface, offload, take_nothing));
        let edges = edges.collect::<io::Result<Vec<Self>>>()?;
        let mut sockets = edges.iter().map(|edge| edge.socket.as_fd());
        if let Some(first) = sockets.next() {
            // The kernel chooses a number that no other group of the host has. The members have the order in which they join.
            join(first, 0, libc::PACKET_FANOUT_FLAG_UNIQUEID)?;
            sys::set_fanout_program(first, &program(cores, field))?;
            let group = sys::packet_option(first, libc::PACKET_FANOUT)?.cast_unsigned() & 0xffff;
            sockets.try_for_each(|socket| join(socket, group, 0))?;
        }
        edges.iter().try_for_each(|edge| sys::detach_filter(edge.socket.as_fd()))?;
        Ok(edges)
    }
}

/// Keeps all frames from a socket: one that has not joined yet would get those of all cores.
fn take_nothing(socket: BorrowedFd<'_>) -> io::Result<()> {
    sys::attach_filter(socket, &[step(BPF_RET, 0)])
}

fn join(socket: BorrowedFd<'_>, group: u32, flags: u32) -> io::Result<()> {
    // A group does not heed the option of its sockets.
    let flags = flags | libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
    let value = group | (libc::PACKET_FANOUT_CBPF | flags) << 16;
    sys::set_packet_option(socket, libc::PACKET_FANOUT, value.cast_signed())
}

/// A jump to the end, where frames are given to the first core: there is no program so long.
const OTHER: u8 = u8::MAX;
/// Where the kernel's program finds the EtherType behind a VLAN tag, in host order.
const ETHER_TYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL).cast_unsigned();
const IPV4: u32 = 0x0800;
const IPV6: u32 = 0x86dd;
const V4_LEN: u32 = 20;
const V6_LEN: u32 = 40;
const UDP_LEN: u32 = 8;
const UDP: u32 = 17;

/// The program that finds the core of a frame. A load from beyond the end of the frame ends it with the result 0.
fn program(cores: usize, field: CoreField) -> Vec<sock_filter> {
    let (port, byte) = (u32::from(field.udp_port), UDP_LEN + field.byte as u32);
    let core_bits = cores.next_power_of_two().trailing_zeros();
    let v6 = [
        load(BPF_B, 0),
        step(BPF_ALU | BPF_RSH, 4),
        expect(BPF_JEQ, 6),
        load(BPF_B, 6),
        expect(BPF_JEQ, UDP),
        load(BPF_H, V6_LEN + 2),
        expect(BPF_JEQ, port),
        load(BPF_B, V6_LEN + byte),
    ];
    let v4 = [
        load(BPF_B, 0),
        // Version 4, without options.
        expect(BPF_JEQ, 0x45),
        load(BPF_H, 6),
        // No fragment.
        sock_filter { jt: OTHER, jf: 0, ..step(BPF_JMP | BPF_JSET, 0x3fff) },
        load(BPF_B, 9),
        expect(BPF_JEQ, UDP),
        load(BPF_H, V4_LEN + 2),
        expect(BPF_JEQ, port),
        load(BPF_B, V4_LEN + byte),
        step(BPF_JMP | BPF_JA, v6.len() as u32),
    ];
    let begin = [
        load(BPF_W, ETHER_TYPE),
        sock_filter { jt: 1 + v4.len() as u8, ..step(BPF_JMP | BPF_JEQ, IPV6) },
        expect(BPF_JEQ, IPV4),
    ];
    let end = [
        step(BPF_ALU | BPF_RSH, 8 - core_bits),
        sock_filter { jt: OTHER, ..step(BPF_JMP | BPF_JGE, cores as u32) },
        step(BPF_RET | RESULT, 0),
        step(BPF_RET, 0),
    ];
    let mut code = [begin.as_slice(), &v4, &v6, &end].concat();
    let last = code.len() - 1;
    for (at, step) in code.iter_mut().enumerate() {
        for way in [&mut step.jt, &mut step.jf] {
            if *way == OTHER {
                *way = (last - at - 1) as u8;
            }
        }
    }
    code
}

/// `BPF_RET | BPF_A`: the result is what was computed.
const RESULT: u32 = 0x10;

fn step(code: u32, value: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k: value }
}

fn load(size: u32, at: u32) -> sock_filter {
    step(BPF_LD | BPF_ABS | size, at)
}

/// Gives to the first core what fails this.
fn expect(comparison: u32, value: u32) -> sock_filter {
    sock_filter { jf: OTHER, ..step(BPF_JMP | comparison, value) }
}

#[cfg(test)]
mod tests;
