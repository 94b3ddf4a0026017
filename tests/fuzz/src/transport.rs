//! Two connected queue pairs, posts, time, and packets that were altered, repeated, lost or forged.

use super::frames;
use super::world::{self, BASE, DEPTH, FAST, READ_WRITE, SIZE, WINDOW, World};
use arbitrary::{Arbitrary, Unstructured};
use rocev2::env::Duration;
use rocev2::ids::{Lkey, Rkey};
use rocev2::mr::{Access, Bind, Mapping};
use rocev2::psn::{Msn, Psn};
use rocev2::qp::{RecvWr, SendOp, SendWr};
use rocev2::wire::{Aeth, Bth, Encap, Ext, Opcode, Reth, Syndrome};

/// Requests forged for the passive side.
pub fn responder(data: &[u8]) {
    run(data, 1, &REQUESTS);
}

/// Responses forged for the active side.
pub fn completer(data: &[u8]) {
    run(data, 0, &RESPONSES);
}

const REQUESTS: [Opcode; 20] = [
    Opcode::SendFirst,
    Opcode::SendMiddle,
    Opcode::SendLast,
    Opcode::SendLastImm,
    Opcode::SendOnly,
    Opcode::SendOnlyImm,
    Opcode::WriteFirst,
    Opcode::WriteMiddle,
    Opcode::WriteLast,
    Opcode::WriteLastImm,
    Opcode::WriteOnly,
    Opcode::WriteOnlyImm,
    Opcode::ReadRequest,
    Opcode::CompareSwap,
    Opcode::FetchAdd,
    Opcode::SendLastInv,
    Opcode::SendOnlyInv,
    Opcode::Flush,
    Opcode::AtomicWrite,
    Opcode::Cnp,
];

const RESPONSES: [Opcode; 8] = [
    Opcode::ReadResponseFirst,
    Opcode::ReadResponseMiddle,
    Opcode::ReadResponseLast,
    Opcode::ReadResponseOnly,
    Opcode::Acknowledge,
    Opcode::AtomicAcknowledge,
    Opcode::GapReport,
    Opcode::AckList,
];

/// Operations in one run, at most.
const STEPS: usize = 64;

#[derive(Arbitrary, Debug)]
enum Step {
    Post {
        node: bool,
        what: What,
        local: u8,
        offset: i16,
        len: u16,
        flags: u8,
    },
    Recv {
        node: bool,
        local: u8,
        len: u16,
    },
    Transmit {
        from: bool,
        packets: u8,
        units: u8,
    },
    Deliver {
        to: bool,
        at: u8,
        repeat: bool,
    },
    Lose {
        to: bool,
        at: u8,
    },
    /// One byte from the BTH on changed, and the ICRC made right.
    Alter {
        to: bool,
        at: u8,
        byte: u8,
        by: u8,
    },
    Forge(Forged),
    Advance {
        code: u8,
    },
    Jump,
    Settle,
    Flush {
        node: bool,
    },
    Deregister {
        node: bool,
        key: u8,
    },
    ModifySrq {
        depth: u8,
        threshold: u8,
    },
}

#[derive(Arbitrary, Debug)]
enum What {
    Send,
    SendInvalidate { key: u8 },
    Write { key: u8, at: i16 },
    Read { key: u8, at: i16 },
    ReadInvalidate { key: u8, at: i16 },
    FastRegister { key: u8, at: u16, base: Option<u64>, len: u16, access: u8 },
    Invalidate { key: u8 },
    Bind { window: u8, region: u8, at: i16, len: u16, access: u8 },
}

#[derive(Arbitrary, Debug)]
struct Forged {
    opcode: u8,
    /// Counted from the newest PSN that was seen on this side of the wire, or from its first.
    psn: i8,
    from_first: bool,
    ack_req: bool,
    solicited: bool,
    key: u8,
    at: i16,
    dma_len: u32,
    payload_len: u16,
    syndrome: u8,
    msn: u8,
}

/// What a forger has overheard.
struct Heard {
    encap: Encap,
    dest: Bth,
    first: Psn,
    newest: Psn,
}

fn run(data: &[u8], target: usize, opcodes: &[Opcode]) {
    let mut u = Unstructured::new(data);
    let Ok([v6, shared]) = <[bool; 2]>::arbitrary(&mut u) else { return };
    let mut world = World::new(v6);
    if shared {
        world.nodes[1].create_srq();
    }
    world.nodes.iter_mut().for_each(world::Node::create_qp);
    world.join();
    let mut heard = None;
    overhear(&mut world, target, &mut heard);
    for _ in 0..STEPS {
        if u.is_empty() {
            break;
        }
        let Ok(step) = Step::arbitrary(&mut u) else { break };
        take(&mut world, target, opcodes, &mut heard, step);
        if let Some((frame, segment_len)) = world.nodes[target].wire.back() {
            listen(&mut heard, frame, *segment_len);
        }
    }
    world.settle();
    world.finish();
}

/// One WRITE or its acknowledgement tells a forger addresses and numbers.
fn overhear(world: &mut World, target: usize, heard: &mut Option<Heard>) {
    let rkey = world.nodes[1].keys[READ_WRITE];
    post(world, 0, SendOp::Write { va: BASE, rkey }, READ_WRITE as u8, 0, 4, 0);
    world.transmit(0, 1, 1);
    if target == 0 {
        let (frame, segment_len) = world.nodes[1].wire.pop_front().expect("a WRITE was posted");
        world.nodes[1].deliver(world.now, &frame, segment_len);
        world.transmit(1, 1, 1);
    }
    let (frame, segment_len) = world.nodes[target].wire.back().expect("it was answered");
    listen(heard, frame, *segment_len);
    assert!(heard.is_some());
    world.settle();
}

fn listen(heard: &mut Option<Heard>, frame: &[u8], segment_len: usize) {
    let Some(packet) = world::first(frame, segment_len) else { return };
    if !packet.bth.opcode.is_connected() {
        return;
    }
    let first = heard.as_ref().map_or(packet.bth.psn, |heard| heard.first);
    *heard = Some(Heard { encap: packet.encap, dest: packet.bth, first, newest: packet.bth.psn });
}

fn take(
    world: &mut World,
    target: usize,
    opcodes: &[Opcode],
    heard: &mut Option<Heard>,
    step: Step,
) {
    match step {
        Step::Post { node, what, local, offset, len, flags } => {
            let node = usize::from(node);
            let op = send_op(world, node, &what);
            post(world, node, op, local, offset.into(), u32::from(len) % (2 * SIZE as u32), flags);
        }
        Step::Recv { node, local, len } => recv(world, node.into(), local, len),
        Step::Transmit { from, packets, units } => {
            let (packets, units) = (1 + packets % 8, 1 + units % 16);
            world.transmit(from.into(), packets.into(), units.into());
        }
        Step::Deliver { to, at, repeat } => {
            let now = world.now;
            let node = &mut world.nodes[usize::from(to)];
            let index = usize::from(at) % node.wire.len().max(1);
            let unit = if repeat { node.wire.get(index).cloned() } else { node.wire.remove(index) };
            if let Some((frame, segment_len)) = unit {
                node.deliver(now, &frame, segment_len);
            }
        }
        Step::Lose { to, at } => {
            let wire = &mut world.nodes[usize::from(to)].wire;
            wire.remove(usize::from(at) % wire.len().max(1));
        }
        Step::Alter { to, at, byte, by } => {
            let wire = &mut world.nodes[usize::from(to)].wire;
            let index = usize::from(at) % wire.len().max(1);
            let Some((frame, segment_len)) = wire.get_mut(index) else { return };
            let at = frames::l4(frame) + 8 + usize::from(byte);
            // The trailer of one packet can be made right; a unit of several is left alone.
            if frame.len() - frames::l4(frame) - 8 == *segment_len && at < frame.len() {
                frame[at] ^= by;
                frames::seal_icrc(frame);
            }
        }
        Step::Forge(forged) => forge(world, target, opcodes, heard.as_ref(), &forged),
        Step::Advance { code } => world.advance(Duration::from_nanos(1 << (code % 36))),
        Step::Jump => {
            world.jump();
        }
        Step::Settle => world.settle(),
        Step::Flush { node } => {
            let node = &mut world.nodes[usize::from(node)];
            node.device.flush_qp(node.qpns[0]);
            node.collect();
        }
        Step::Deregister { node, key } => {
            world.nodes[usize::from(node)].deregister(key);
        }
        Step::ModifySrq { depth, threshold } => {
            let node = &mut world.nodes[1];
            let (depth, threshold) = (usize::from(depth) % 16, usize::from(threshold) % 16);
            if let Some(srq) = node.srq {
                let _ = node.device.modify_srq(srq, Some(depth), Some(threshold));
                node.collect();
            }
        }
    }
}

fn send_op(world: &mut World, node: usize, what: &What) -> SendOp {
    let va = |at: i16| BASE.wrapping_add_signed(at.into());
    let rkey = |key: u8| world.nodes[1 - node].key(key);
    let own = |key: u8| world.nodes[node].key(key);
    match *what {
        What::Send => SendOp::Send,
        What::SendInvalidate { key } => SendOp::SendInvalidate(rkey(key)),
        What::Write { key, at } => SendOp::Write { va: va(at), rkey: rkey(key) },
        What::Read { key, at } => SendOp::Read { va: va(at), rkey: rkey(key) },
        What::ReadInvalidate { key, at } => SendOp::ReadInvalidate { va: va(at), rkey: rkey(key) },
        What::Invalidate { key } => SendOp::Invalidate(own(key)),
        What::FastRegister { key, at, base, len, access } => {
            // Half of them name the region that is for it.
            let key = if key % 2 == 0 { own(FAST as u8) } else { own(key / 2) };
            let offset = u32::from(at) % SIZE as u32;
            let len = u64::from(len) % (SIZE as u64 - u64::from(offset) + 1);
            let mapping = Mapping {
                // Named when it is posted: the consumer knows by then whether it is taken.
                region: rocev2::env::RegionId(u32::MAX),
                offset,
                base: base.unwrap_or(BASE),
                len,
                access: rights(access),
            };
            SendOp::FastRegister { key, mapping }
        }
        What::Bind { window, region, at, len, access } => SendOp::Bind(Bind {
            window: if window % 2 == 0 { own(WINDOW as u8) } else { own(window / 2) },
            region: Lkey::new(own(region).get()),
            va: va(at),
            len: len.into(),
            access: rights(access),
        }),
    }
}

fn rights(bits: u8) -> Access {
    let all = [Access::LOCAL_WRITE, Access::REMOTE_READ, Access::REMOTE_WRITE];
    let granted = all.into_iter().enumerate().filter(|(bit, _)| bits & (1 << bit) != 0);
    granted.fold(Access::LOCAL_READ, |sum, (_, right)| sum | right)
}

fn post(
    world: &mut World,
    node: usize,
    mut op: SendOp,
    local: u8,
    offset: i32,
    len: u32,
    flags: u8,
) {
    let node = &mut world.nodes[node];
    let region = if let SendOp::FastRegister { mapping, .. } = &mut op {
        mapping.region = node.memory.add();
        Some(mapping.region)
    } else {
        None
    };
    let id = node.next_id();
    // Most of them name memory that is there.
    let sgl = if local < 0x80 {
        node.sgl(READ_WRITE as u8, offset.rem_euclid(SIZE as i32 / 2), len % (SIZE as u32 / 2))
    } else {
        node.sgl(local, offset, len)
    };
    let wr = SendWr {
        id,
        op,
        sgl,
        solicited: flags & 1 != 0,
        read_fence: flags & 2 != 0,
        silent: flags & 4 != 0,
    };
    node.posted.insert(id, None);
    if node.device.post_send(node.qpns[0], wr).is_err() {
        node.posted.remove(&id);
        if let Some(region) = region {
            node.memory.end(region);
        }
    }
    node.collect();
    assert!(node.posted.len() <= 2 * DEPTH + 16, "more outstanding than the queues hold");
}

fn recv(world: &mut World, node: usize, local: u8, len: u16) {
    let node = &mut world.nodes[node];
    let id = node.next_id();
    let local = if local < 0x80 { READ_WRITE as u8 } else { local };
    let sgl = node.sgl(local, 0, u32::from(len) % (SIZE as u32 + 16));
    let room = u64::from(len) % (SIZE as u64 + 16);
    node.posted.insert(id, Some(room));
    let wr = RecvWr { id, sgl };
    let posted = match node.srq {
        Some(srq) => node.device.post_srq_recv(srq, wr),
        None => node.device.post_recv(node.qpns[0], wr),
    };
    if posted.is_err() {
        node.posted.remove(&id);
    }
    node.collect();
}

fn forge(
    world: &mut World,
    target: usize,
    opcodes: &[Opcode],
    heard: Option<&Heard>,
    forged: &Forged,
) {
    let Some(heard) = heard else { return };
    let opcode = opcodes[usize::from(forged.opcode) % opcodes.len()];
    let base = if forged.from_first { heard.first } else { heard.newest };
    let psn = Psn::new(base.get().wrapping_add_signed(forged.psn.into()));
    let bth = Bth {
        ack_req: forged.ack_req,
        solicited: forged.solicited,
        ..Bth::new(opcode, heard.dest.dest_qpn, psn)
    };
    let rkey = world.nodes[target].key(forged.key);
    let payload_len = usize::from(forged.payload_len) % 300;
    let payload = [0x5a; 300];
    let ext = ext(opcode, rkey, forged);
    let frame = world::emit(&heard.encap, &bth, &ext, &payload[..payload_len]);
    let now = world.now;
    world.nodes[target].deliver(now, &frame, 0);
}

/// The headers that `opcode` announces.
fn ext(opcode: Opcode, rkey: Rkey, forged: &Forged) -> Ext {
    let reth = Reth {
        va: BASE.wrapping_add_signed(forged.at.into()),
        rkey,
        // Most are no longer than what is there.
        len: if forged.dma_len.is_multiple_of(4) { forged.dma_len } else { forged.dma_len % 2048 },
    };
    let aeth =
        Aeth { syndrome: Syndrome::from_byte(forged.syndrome), msn: Msn::new(forged.msn.into()) };
    let (empty, _) = Ext::parse(opcode, &[0; 64]).expect("no header is longer");
    match empty {
        Ext::Reth(_) => Ext::Reth(reth),
        Ext::RethImm(_, imm) => Ext::RethImm(reth, imm),
        Ext::Ieth(_) => Ext::Ieth(rkey),
        Ext::Aeth(_) => Ext::Aeth(aeth),
        Ext::AtomicAck(_, original) => Ext::AtomicAck(aeth, original),
        Ext::Flush(feth, _) => Ext::Flush(feth, reth),
        other => other,
    }
}
