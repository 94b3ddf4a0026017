//! Messages of the greatest length, over memory that is computed.

use super::*;

/// Byte `n` of every region is `n` modulo a prime.
struct Pattern {
    table: Vec<u8>,
    written: u64,
}

const PERIOD: u64 = 251;

impl Pattern {
    fn new() -> Self {
        Self { table: (0..PERIOD + 4096).map(|n| (n % PERIOD) as u8).collect(), written: 0 }
    }

    fn at(&self, offset: u64, len: usize) -> &[u8] {
        &self.table[(offset % PERIOD) as usize..][..len]
    }
}

impl Memory for Pattern {
    fn read(&mut self, _: RegionId, offset: u64, out: &mut [u8]) -> Result<(), Fault> {
        out.copy_from_slice(self.at(offset, out.len()));
        Ok(())
    }

    fn write(&mut self, _: RegionId, offset: u64, data: &[u8]) -> Result<(), Fault> {
        assert!(data == self.at(offset, data.len()), "{offset:#x}");
        assert_eq!(offset, self.written, "each byte comes once");
        self.written += data.len() as u64;
        Ok(())
    }
}

/// One node's packets of one turn, given to the other.
fn turn(now: Instant, from: &mut Node, to: &mut Node, memory: [&mut Pattern; 2]) -> bool {
    let [source, sink] = memory;
    let mut buf = vec![0; 65_000];
    let encap = from.qp.peer().unwrap().encap;
    let mut template = Template::new(&encap);
    let mut one = OneFrame::new(&mut buf);
    let mut run = UnitRun::new(&mut one, &mut template, Ids::new(false, encap.ip_id), one_unit(16));
    let Node { qp, mrs, reorder_pool, out, .. } = from;
    qp.fill(now, &mut run, &mut Shared { mrs, memory: source, reorder_pool, out });
    let Some(unit) = one.unit else { return false };
    for packet in parse_unit(&buf[..unit.len], Some(unit.segment_len)) {
        let packet = packet.unwrap();
        let Node { qp, mrs, reorder_pool, out, .. } = to;
        let mut shared = Shared { mrs, memory: &mut *sink, reorder_pool, out };
        qp.handle_packet(now, &packet, None, &mut shared).unwrap();
    }
    from.collect();
    to.collect();
    true
}

fn carries(kind: WcKind, pmtu: Pmtu, len: u64) {
    let settings = Settings { pmtu, psn: Psn::new(0xff_f000), ..CLEAN };
    let mut pair = Pair::new(0, settings);
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
    let region = RegionId(0);
    let registration = Registration { pd: PD, region, base: BASE, len, access };
    for node in &mut pair.nodes {
        node.key = node.registrar.register(registration).unwrap();
    }
    let [near, far] = &mut pair.nodes;
    let (va, rkey) = (BASE, far.key);
    let op = match kind {
        WcKind::Write => SendOp::Write { va, rkey },
        WcKind::Read => SendOp::Read { va, rkey },
        _ => SendOp::Send,
    };
    let sgl = far.sge(0, len as usize);
    far.recv(2, sgl);
    let sgl = near.sge(0, len as usize);
    near.send(1, op, sgl);
    let (mut here, mut there) = (Pattern::new(), Pattern::new());
    let mut turns = 0;
    while turn(pair.now, near, far, [&mut here, &mut there])
        | turn(pair.now, far, near, [&mut there, &mut here])
    {
        turns += 1;
        pair.now = Instant::from_nanos(turns);
    }
    assert_eq!(near.statuses(), [(1, WcStatus::Success)]);
    let written = if kind == WcKind::Read { here.written } else { there.written };
    assert_eq!(written, len);
    if kind == WcKind::Send {
        assert_eq!(u64::from(far.done[0].len), len);
    }
}

const LONGEST: u64 = 1 << 31;

#[test]
fn the_longest_send_arrives() {
    carries(WcKind::Send, Pmtu::B4096, LONGEST);
}

#[test]
fn the_longest_write_arrives() {
    carries(WcKind::Write, Pmtu::B4096, LONGEST);
}

#[test]
fn the_longest_read_arrives() {
    carries(WcKind::Read, Pmtu::B4096, LONGEST);
}

/// The longest message is 2^23 packets of 256 bytes, which takes seconds; an eighth has to suffice.
#[test]
fn a_long_message_of_small_packets_arrives() {
    for kind in [WcKind::Send, WcKind::Write, WcKind::Read] {
        carries(kind, Pmtu::B256, 256 << 20);
    }
}
