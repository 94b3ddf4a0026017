//! A claim of a packet socket: the interface's frames of one UDP port to some addresses end at the socket.
//!
//! Without it the kernel's own stack takes each of them up behind the socket, looks for a route, and replies with ICMP
//! where it owns the address and nobody has the port. The claim is a small program at the interface's ingress
//! (tcx), behind the packet sockets and before the stack. It goes with the process: nothing is left to remove.
//!
//! It needs Linux 6.6, and `CAP_BPF` and `CAP_NET_ADMIN` of the first user namespace; without them the kernel has its frames as
//! before. Frames with a VLAN tag, IP options or a fragment are left to the kernel.

use crate::sys;
use alloc::vec::Vec;
use core::net::IpAddr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Addresses of one claim, at most.
const ADDRESSES_MAX: usize = 256;

/// Frames that the kernel's stack does not see, until this is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    _link: OwnedFd,
}

impl Claim {
    /// Claims the frames to `addresses` and `udp_port` that come in at an interface.
    ///
    /// # Errors
    /// The system call that failed; `InvalidInput` where there are too many addresses.
    pub(crate) fn new(interface: i32, addresses: &[IpAddr], udp_port: u16) -> io::Result<Self> {
        if addresses.len() > ADDRESSES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let program = sys::load_classifier(&program(addresses, udp_port))?;
        Ok(Self { _link: sys::link_ingress(program.as_fd(), interface)? })
    }
}

/// The verdict of a program (`enum tcx_action_base`): the frame goes on.
const NEXT: i32 = -1;
/// It ends here.
const DROP: i32 = 2;

// Registers: of the result, of arguments, of our own, of the frame pointer.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const R4: u8 = 4;
/// The context, which calls leave alone.
const CONTEXT: u8 = 6;
const VALUE: u8 = 7;
const WANTED: u8 = 8;
const R10: u8 = 10;

// Opcodes (RFC 9669).
const LDX_U8: u8 = 0x71;
const LDX_U16: u8 = 0x69;
const LDX_U32: u8 = 0x61;
const LDX_U64: u8 = 0x79;
const LD_IMM64: u8 = 0x18;
const MOV: u8 = 0xbf;
const MOV_IMM: u8 = 0xb7;
const ADD_IMM: u8 = 0x07;
const AND_IMM: u8 = 0x57;
const JEQ_IMM: u8 = 0x15;
const JNE_IMM: u8 = 0x55;
const JNE: u8 = 0x5d;
const JEQ: u8 = 0x1d;
/// Of the lower halves.
const JEQ32_IMM: u8 = 0x16;
const JA: u8 = 0x05;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// `bpf_skb_load_bytes`, which copies headers wherever the driver left them.
const LOAD_BYTES: i32 = 26;
/// `__sk_buff.vlan_present`.
const VLAN_PRESENT: i16 = 20;
/// The headers on the stack: the addresses of IPv6 stand on a multiple of eight, as the verifier demands.
const HEADERS: i16 = -70;

// Offsets and lengths in a frame.
const ETHER_TYPE: i16 = 12;
const V4_HEADERS: i32 = 14 + 20 + 8;
const V4_VERSION: i16 = 14;
const V4_FRAGMENT: i16 = 20;
const V4_PROTOCOL: i16 = 23;
const V4_DESTINATION: i16 = 30;
const V4_PORT: i16 = 36;
const V6_HEADERS: i32 = 14 + 40 + 8;
const V6_NEXT_HEADER: i16 = 20;
const V6_DESTINATION: i16 = 38;
const V6_PORT: i16 = 56;
const UDP: i32 = 17;

/// Where a jump leads.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Place {
    Pass,
    Drop,
    V6,
    /// The address behind the one that is compared.
    Address(usize),
}

/// A program in the making: instructions, jumps whose distance is still open, and places.
#[derive(Default)]
struct Assembler {
    code: Vec<u64>,
    jumps: Vec<(usize, Place)>,
    places: Vec<(Place, usize)>,
}

impl Assembler {
    fn push(&mut self, opcode: u8, to: u8, from: u8, offset: i16, imm: i32) {
        let [low, high] = offset.to_le_bytes();
        let [a, b, c, d] = imm.to_le_bytes();
        self.code.push(u64::from_le_bytes([opcode, from << 4 | to, low, high, a, b, c, d]));
    }

    fn jump(&mut self, opcode: u8, left: u8, right: u8, imm: i32, place: Place) {
        self.jumps.push((self.code.len(), place));
        self.push(opcode, left, right, 0, imm);
    }

    fn place(&mut self, place: Place) {
        self.places.push((place, self.code.len()));
    }

    /// Copies the first `len` bytes of the frame to the stack; a shorter frame passes.
    fn load_headers(&mut self, len: i32) {
        self.push(MOV, R1, CONTEXT, 0, 0);
        self.push(MOV_IMM, R2, 0, 0, 0);
        self.push(MOV, R3, R10, 0, 0);
        self.push(ADD_IMM, R3, 0, 0, i32::from(HEADERS));
        self.push(MOV_IMM, R4, 0, 0, len);
        self.push(CALL, 0, 0, 0, LOAD_BYTES);
        self.jump(JNE_IMM, R0, 0, 0, Place::Pass);
    }

    fn load(&mut self, opcode: u8, at: i16) {
        self.push(opcode, VALUE, R10, HEADERS + at, 0);
    }

    /// Lets pass what has another value there.
    fn expect(&mut self, opcode: u8, at: i16, value: i32) {
        self.load(opcode, at);
        self.jump(JNE_IMM, VALUE, 0, value, Place::Pass);
    }

    fn wanted(&mut self, value: u64) {
        self.push(LD_IMM64, WANTED, 0, 0, value as i32);
        self.push(0, 0, 0, 0, (value >> 32) as i32);
    }

    fn verdict(&mut self, place: Place, verdict: i32) {
        self.place(place);
        self.push(MOV_IMM, R0, 0, 0, verdict);
        self.push(EXIT, 0, 0, 0, 0);
    }

    /// The instructions, with the distance of each jump.
    fn finish(mut self) -> Vec<u64> {
        for (at, place) in self.jumps {
            let known = self.places.iter().find(|(known, _)| *known == place);
            let to = known.expect("every place is set").1;
            let distance = i16::try_from(to - at - 1).expect("256 addresses are near enough");
            self.code[at] |= u64::from(distance.cast_unsigned()) << 16;
        }
        self.code
    }
}

/// The program, in the kernel's form of eight bytes an instruction.
fn program(addresses: &[IpAddr], udp_port: u16) -> Vec<u64> {
    // As they stand in memory.
    let port = i32::from(u16::from_ne_bytes(udp_port.to_be_bytes()));
    let ether_type = |number: u16| i32::from(u16::from_ne_bytes(number.to_be_bytes()));
    let mut code = Assembler::default();
    code.push(MOV, CONTEXT, R1, 0, 0);
    code.push(LDX_U32, VALUE, CONTEXT, VLAN_PRESENT, 0);
    code.jump(JNE_IMM, VALUE, 0, 0, Place::Pass);
    code.load_headers(V4_HEADERS);
    code.load(LDX_U16, ETHER_TYPE);
    code.jump(JEQ_IMM, VALUE, 0, ether_type(0x86dd), Place::V6);
    code.jump(JNE_IMM, VALUE, 0, ether_type(0x0800), Place::Pass);
    code.expect(LDX_U8, V4_VERSION, 0x45);
    code.expect(LDX_U8, V4_PROTOCOL, UDP);
    code.load(LDX_U16, V4_FRAGMENT);
    code.push(AND_IMM, VALUE, 0, 0, i32::from(u16::from_ne_bytes(0x3fff_u16.to_be_bytes())));
    code.jump(JNE_IMM, VALUE, 0, 0, Place::Pass);
    code.expect(LDX_U16, V4_PORT, port);
    code.load(LDX_U32, V4_DESTINATION);
    for address in addresses {
        if let IpAddr::V4(address) = address {
            let address = i32::from_ne_bytes(address.octets());
            code.jump(JEQ32_IMM, VALUE, 0, address, Place::Drop);
        }
    }
    code.jump(JA, 0, 0, 0, Place::Pass);
    code.place(Place::V6);
    code.load_headers(V6_HEADERS);
    code.expect(LDX_U8, V6_NEXT_HEADER, UDP);
    code.expect(LDX_U16, V6_PORT, port);
    for (number, address) in addresses.iter().enumerate() {
        if let IpAddr::V6(address) = address {
            let (first, second) = halves(address.octets());
            code.load(LDX_U64, V6_DESTINATION);
            code.wanted(first);
            code.jump(JNE, VALUE, WANTED, 0, Place::Address(number));
            code.load(LDX_U64, V6_DESTINATION + 8);
            code.wanted(second);
            code.jump(JEQ, VALUE, WANTED, 0, Place::Drop);
            code.place(Place::Address(number));
        }
    }
    code.verdict(Place::Pass, NEXT);
    code.verdict(Place::Drop, DROP);
    code.finish()
}

/// The two halves of an IPv6 address, as they stand in memory.
fn halves(octets: [u8; 16]) -> (u64, u64) {
    let half = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&octets[at..at + 8]);
        u64::from_ne_bytes(bytes)
    };
    (half(0), half(8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use etherparse::PacketBuilder;
    use std::println;

    const PORT: u16 = 4791;
    const OURS: [&str; 4] = ["10.0.0.1", "fd00::1", "203.0.113.255", "fd00::1:0:0:1"];

    /// A frame to an address and a port.
    fn frame(to: &str, port: u16) -> Vec<u8> {
        let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let ip = match to.parse().unwrap() {
            IpAddr::V4(to) => ethernet.ipv4([10, 0, 0, 9], to.octets(), 64),
            IpAddr::V6(to) => ethernet.ipv6([9; 16], to.octets(), 64),
        };
        let udp = ip.udp(50_000, port);
        let mut frame = Vec::new();
        udp.write(&mut frame, &[7; 24]).unwrap();
        frame
    }

    fn changed(mut frame: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
        frame[at] = value;
        frame
    }

    /// Goal: what is ours ends here, and all else goes on. Method: the kernel runs the program.
    #[test]
    fn what_is_claimed_ends_here() {
        let ours = OURS.map(|address| address.parse().unwrap());
        let program = match sys::load_classifier(&program(&ours, PORT)) {
            Ok(program) => program,
            Err(error) => return println!("skipped: the kernel takes no program: {error}"),
        };
        let verdict = |frame: &[u8]| sys::run_classifier(program.as_fd(), frame).unwrap();
        for to in OURS {
            assert_eq!(verdict(&frame(to, PORT)), DROP, "{to}");
            assert_eq!(verdict(&frame(to, PORT + 1)), NEXT, "{to}, another port");
        }
        for to in ["10.0.0.2", "203.0.113.254", "fd00::2", "fd00::1:0:0:2", "fd00:0:0:1::1"] {
            assert_eq!(verdict(&frame(to, PORT)), NEXT, "{to}");
        }
        let [v4, v6] = [frame(OURS[0], PORT), frame(OURS[1], PORT)];
        let others = [
            ("options", changed(v4.clone(), 14, 0x46)),
            ("more fragments", changed(v4.clone(), 20, 0x20)),
            ("a later fragment", changed(v4.clone(), 21, 1)),
            ("TCP", changed(v4.clone(), 23, 6)),
            ("another protocol than IP", changed(v4.clone(), 13, 6)),
            ("a header between", changed(v6.clone(), 20, 44)),
            ("a runt", vec![0; 14]),
            ("a runt of IPv6", v6[..60].to_vec()),
        ];
        for (what, frame) in others {
            assert_eq!(verdict(&frame), NEXT, "{what}");
        }
        assert_eq!(verdict(&changed(v4, 20, 0x40)), DROP, "do not fragment");
    }

    #[test]
    fn a_claim_has_a_bound() {
        let address: IpAddr = OURS[0].parse().unwrap();
        let error = Claim::new(1, &vec![address; ADDRESSES_MAX + 1], PORT).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let v6 = OURS[1].parse().unwrap();
        assert!(program(&[v6; ADDRESSES_MAX], PORT).len() < 4096, "as much as any kernel takes");
    }
}
