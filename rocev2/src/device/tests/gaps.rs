//! Goal: two devices of ours repair all gaps at once, and send nothing twice that was not lost. Method: packets are taken
//! off the wire, and what each side says to that is looked at packet by packet.

use super::*;
use crate::wire::gap_report::{GAPS_MAX, Gap};

/// Two devices, and the PSN of the client's first packet.
struct Gappy {
    world: World,
    qps: [Qpn; 2],
    first: Psn,
}

impl Gappy {
    /// Nothing limits a rate.
    fn of(reorder_bytes: [u32; 2]) -> Self {
        let mut configs = [config(false, 0), config(false, 1)];
        for (config, bytes) in configs.iter_mut().zip(reorder_bytes) {
            (config.window.reorder_bytes, config.dcqcn) = (bytes, None);
        }
        Self::join(configs)
    }

    fn join(configs: [DeviceConfig; 2]) -> Self {
        let (world, qps, _) = World::of(configs).join(false);
        let mut gappy = Self { world, qps, first: Psn::new(0) };
        // A packet each way, so that round trips are known.
        gappy.post(gappy.world.write(), 1);
        gappy.world.transmit(0);
        gappy.world.now = gappy.world.now + Duration::from_micros(20);
        gappy.world.run();
        gappy.first = gappy.world.sent[0][0].1.add(1);
        gappy.forget();
        gappy
    }

    fn new() -> Self {
        Self::of([512 << 10; 2])
    }

    fn post(&mut self, op: SendOp, packets: usize) {
        self.world.post(self.qps[0], 1, op, packets * 1024);
    }

    /// A WRITE of so many packets, of which `lost` are lost.
    fn write(&mut self, packets: usize, lost: &[i32]) {
        self.post(self.world.write(), packets);
        assert_eq!(self.send(lost).len(), packets - lost.len());
    }

    fn read(&mut self, packets: usize) {
        let op = SendOp::Read { va: BASE, rkey: self.world.keys[1] };
        self.post(op, packets);
    }

    /// A receive of one packet at the server.
    fn post_recv(&mut self) {
        let key = Lkey::new(self.world.keys[1].get());
        let sgl = SgList::from_iter([Sge { addr: BASE, len: 1024, lkey: key }]);
        self.world.devices[1].post_recv(self.qps[1], RecvWr { id: 1, sgl }).unwrap();
    }

    fn forget(&mut self) {
        self.world.sent = Default::default();
        self.world.done = Default::default();
    }

    /// The place of a packet.
    fn at(&self, frame: &[u8]) -> i32 {
        Packet::parse(frame).unwrap().bth.psn.since(self.first)
    }

    /// Sends what the client has, without `lost`. Returns what is on the wire.
    fn send(&mut self, lost: &[i32]) -> Vec<i32> {
        self.world.transmit(0);
        let frames = core::mem::take(&mut self.world.wires[1]);
        self.world.wires[1] =
            frames.into_iter().filter(|frame| !lost.contains(&self.at(frame))).collect();
        self.world.wires[1].iter().map(|frame| self.at(frame)).collect()
    }

    /// Delivers to the server, and takes what it answers.
    fn answer(&mut self) -> Vec<Vec<u8>> {
        self.world.deliver(1);
        self.world.transmit(1);
        self.world.wires[0].drain(..).collect()
    }

    /// Waits until `node` acts.
    fn wait(&mut self, node: usize) {
        let device = &mut self.world.devices[node];
        self.world.now = device.poll_timeout().unwrap();
        device.handle_timeout(self.world.now);
    }

    /// Delivers to the server. Its report, when the reorder window is over.
    fn report(&mut self) -> Vec<u8> {
        assert!(self.answer().is_empty(), "a gap may be mere reordering");
        self.wait(1);
        let [report] = <[_; 1]>::try_from(self.answer()).unwrap();
        report
    }

    /// Where the gaps of a report begin, and they.
    fn gaps(&self, report: &[u8]) -> (i32, Vec<(u16, u16)>) {
        let Packet { bth, payload, .. } = Packet::parse(report).unwrap();
        assert_eq!(bth.opcode, Opcode::GapReport);
        (self.at(report), Gap::parse(payload).map(|gap| (gap.missing, gap.came)).collect())
    }

    /// Delivers to the client. The places of what it sends then, of which `lost` are lost.
    fn told(&mut self, frame: Vec<u8>, lost: &[i32]) -> Vec<i32> {
        self.world.wires[0].push_back(frame);
        self.world.deliver(0);
        let sent = self.world.sent[0].len();
        self.send(lost);
        self.places(sent)
    }

    /// The places of what the client has sent after so many packets.
    fn places(&self, from: usize) -> Vec<i32> {
        self.world.sent[0][from..].iter().map(|(_, psn)| psn.since(self.first)).collect()
    }

    /// Whether all is done, long before a timer that knows nothing, and each packet was sent as often as that.
    fn ends_with(&mut self, sent: usize) {
        self.world.run_for(Duration::from_millis(2));
        assert!(!self.world.done[0].is_empty());
        assert!(self.world.done[0].iter().all(|done| done.status == WcStatus::Success));
        assert!(self.world.devices[0].poll_timeout().is_none(), "nothing is in flight");
        assert_eq!(self.world.sent[0].len(), sent);
    }

    /// As the server's report, or anybody's.
    fn forge(&self, at: i32, payload: &[u8]) -> Vec<u8> {
        let [client, server] = self.qps;
        let encap = self.world.devices[1].slot(server).unwrap().1.qp.peer().unwrap().encap;
        let bth = Bth::new(Opcode::GapReport, client, self.first.add(at.cast_unsigned()));
        emit(&Packet { encap, bth, ext: Ext::None, payload })
    }

    fn forge_gaps(&self, at: i32, gaps: &[(u16, u16)]) -> Vec<u8> {
        let gaps = gaps.iter().map(|(missing, came)| Gap { missing: *missing, came: *came });
        self.forge(at, &gaps.flat_map(Gap::emit).collect::<Vec<_>>())
    }

    fn rate(&mut self) -> Option<u64> {
        self.world.devices[0].qp_rate(self.qps[0], self.world.now)
    }
}

#[test]
fn one_report_names_all_gaps_and_only_they_are_sent_again() {
    let mut gappy = Gappy::new();
    gappy.write(20, &[5, 12]);
    let report = gappy.report();
    assert_eq!(gappy.gaps(&report), (5, vec![(1, 6), (1, 7)]));
    assert!(!Packet::parse(&report).unwrap().bth.solicited, "it answers no duplicate");
    assert_eq!(gappy.told(report, &[]), [5, 12]);
    gappy.ends_with(20 + 2);
    assert!(gappy.world.memory[1].0[0][100_000..120_480] == gappy.world.memory[0].0[0][..20_480]);
}

/// Packets within the window that is open may have been overtaken.
#[test]
fn a_report_leaves_out_what_has_just_come() {
    let mut gappy = Gappy::new();
    gappy.write(20, &[5, 12]);
    let later = gappy.world.wires[1].split_off(10);
    assert!(gappy.answer().is_empty());
    gappy.world.now = gappy.world.now + Duration::from_micros(50);
    gappy.world.wires[1] = later;
    let report = gappy.report();
    assert_eq!(gappy.gaps(&report), (5, vec![(1, 5)]));
    gappy.wait(1);
    let report = gappy.answer().remove(0);
    assert_eq!(gappy.gaps(&report), (5, vec![(1, 6), (1, 7)]));
}

#[test]
fn many_packets_behind_a_gap_prove_a_loss_at_once() {
    let mut gappy = Gappy::new();
    gappy.write(90, &[5, 80]);
    let [report] = <[_; 1]>::try_from(gappy.answer()).unwrap();
    assert_eq!(gappy.gaps(&report).0, 5);
    assert_eq!(gappy.told(report, &[])[0], 5);
}

#[test]
fn a_packet_lost_again_waits_for_one_that_left_behind_it() {
    let mut gappy = Gappy::new();
    gappy.write(20, &[5, 12]);
    let report = gappy.report();
    assert_eq!(gappy.told(report.clone(), &[5]), [5, 12]);
    assert!(gappy.answer().is_empty());
    assert!(gappy.told(report, &[]).is_empty(), "the same again");
    let older = gappy.forge_gaps(5, &[(1, 14)]);
    assert!(gappy.told(older, &[]).is_empty(), "all that came left before it");
    gappy.write(3, &[]);
    let report = gappy.report();
    assert_eq!(gappy.gaps(&report), (5, vec![(1, 17)]));
    assert_eq!(gappy.told(report, &[]), [5]);
    gappy.ends_with(23 + 3);
}

/// Two generations: what was sent again later waits for what left later.
#[test]
fn what_is_sent_again_later_waits_longer() {
    let mut gappy = Gappy::new();
    gappy.write(20, &[]);
    let mut told = |packets: usize, gaps: &[(u16, u16)]| {
        gappy.world.wires[1].clear();
        if packets > 0 {
            gappy.write(packets, &[]);
        }
        gappy.told(gappy.forge_gaps(5, gaps), &[])
    };
    assert_eq!(told(0, &[(1, 3)]), [5]);
    assert_eq!(told(3, &[(1, 6), (1, 7)]), [12]);
    assert!(told(0, &[(1, 6), (1, 7)]).is_empty());
    assert_eq!(told(0, &[(1, 6), (1, 8)]), [5]);
    assert!(told(3, &[(1, 6), (1, 10)]).is_empty());
    assert_eq!(told(0, &[(1, 6), (1, 11)]), [5, 12]);
}

#[test]
fn lost_responses_are_requested_again_at_once_and_each_once() {
    for seed in 1..9 {
        request_lost_responses(seed);
    }
}

/// First PSNs lie in both halves of all: a number that was noted at none, or long ago, is neither before nor behind them.
fn request_lost_responses(seed: u8) {
    let mut configs = [config(false, 0), config(false, 1)];
    configs.iter_mut().for_each(|config| (config.seed, config.dcqcn) = ([seed; 32], None));
    let mut gappy = Gappy::join(configs);
    gappy.read(20);
    gappy.send(&[]);
    for (n, frame) in gappy.answer().into_iter().enumerate() {
        if ![5, 6, 12].contains(&n) {
            gappy.world.wires[0].push_back(frame);
        }
    }
    gappy.world.deliver(0);
    assert!(gappy.send(&[]).is_empty());
    gappy.wait(0);
    assert_eq!(gappy.send(&[]), [5, 12]);
    let packets = gappy.world.wires[1].iter().map(|frame| Packet::parse(frame).unwrap().ext);
    let lens: Vec<_> = packets.map(|ext| ext.reth().unwrap().len).collect();
    assert_eq!(lens, [2048, 1024]);
    gappy.ends_with(3);
    assert_eq!(gappy.world.sent[1].len(), 23);
}

/// A response that comes twice was late, and the next one that is missing is waited for twice as long.
#[test]
fn a_response_that_was_requested_in_vain_widens_the_window() {
    let mut gappy = Gappy::new();
    let [first, second] = [(); 2].map(|()| {
        gappy.read(3);
        gappy.send(&[]);
        let mut responses = gappy.answer();
        let late = responses.remove(1);
        gappy.world.wires[0].extend(responses);
        gappy.world.deliver(0);
        let since = gappy.world.now;
        while gappy.send(&[]).is_empty() {
            gappy.wait(0);
        }
        gappy.world.wires[0].push_back(late);
        gappy.world.run();
        gappy.world.now.saturating_since(since)
    });
    assert_eq!(second, 2 * first);
}

/// Those that are missing after a timer may all have been too many for some queue.
#[test]
fn responses_that_a_timer_misses_are_requested_few_at_first() {
    let mut gappy = Gappy::new();
    gappy.read(60);
    gappy.send(&[]);
    let last = gappy.answer().pop().unwrap();
    gappy.world.wires[0].push_back(last);
    gappy.world.deliver(0);
    let requested = |gappy: &mut Gappy| -> u32 {
        gappy.send(&[]);
        let packets = gappy.world.wires[1].iter().map(|frame| Packet::parse(frame).unwrap());
        packets.filter_map(|packet| packet.ext.reth()).map(|reth| reth.len / 1024).sum()
    };
    for expected in [1, 8] {
        let mut packets = 0;
        while packets == 0 {
            gappy.world.wires[1].clear();
            gappy.wait(0);
            packets = requested(&mut gappy);
        }
        assert_eq!(packets, expected);
    }
    for frame in gappy.answer() {
        gappy.world.wires[0].push_back(frame);
    }
    gappy.world.deliver(0);
    assert_eq!(requested(&mut gappy), 16, "twice as many, once they have come");
    gappy.world.run_for(Duration::from_millis(2));
    assert_eq!(gappy.world.done[0].len(), 1);
}

#[test]
fn a_lost_read_request_is_requested_as_it_was() {
    for behind in [3, 10] {
        let mut gappy = Gappy::new();
        gappy.post(gappy.world.write(), 3);
        gappy.read(4);
        gappy.post(gappy.world.write(), behind);
        assert_eq!(gappy.send(&[3]).len(), 3 + behind);
        gappy.world.deliver(1);
        gappy.wait(1);
        let [ack, report] = match <[_; 2]>::try_from(gappy.answer()) {
            Ok(both) => both,
            Err(all) => panic!("{} packets", all.len()),
        };
        let [ack, report] = if gappy.at(&ack) == 2 { [ack, report] } else { [report, ack] };
        assert_eq!(gappy.gaps(&report), (3, vec![(4, behind as u16)]));
        assert_eq!(gappy.told(report, &[]), [3]);
        assert!(gappy.told(ack, &[]).is_empty());
        let request = Packet::parse(&gappy.world.wires[1][0]).unwrap();
        assert_eq!(request.ext.reth().map(|reth| reth.len), Some(4096));
        gappy.ends_with(3 + 1 + behind + 1);
    }
}

/// The peer would take a part for the whole.
#[test]
fn a_read_that_may_not_have_arrived_is_not_requested_in_parts() {
    let mut gappy = Gappy::new();
    gappy.read(4);
    gappy.post(gappy.world.write(), 10);
    gappy.send(&[]);
    let report = gappy.forge_gaps(0, &[(2, 10)]);
    assert!(gappy.told(report, &[]).is_empty());
}

/// A few packets may have been quicker than many; the many are not sent again for that.
#[test]
fn a_few_that_overtake_many_cause_one_resend() {
    let mut gappy = Gappy::new();
    gappy.write(20, &[]);
    let late: Vec<_> = gappy.world.wires[1].drain(..18).collect();
    let report = gappy.report();
    assert_eq!(gappy.gaps(&report), (0, vec![(18, 2)]));
    assert_eq!(gappy.told(report, &[]), [0]);
    gappy.world.wires[1].extend(late);
    gappy.ends_with(20 + 1);
}

#[test]
fn a_tail_lost_behind_a_gap_is_tried_in_growing_parts() {
    let mut gappy = Gappy::new();
    let tail: Vec<_> = (12..20).collect();
    gappy.write(20, &[&[5], &tail[..]].concat());
    let report = gappy.report();
    assert_eq!(gappy.told(report, &[]), [5]);
    for tried in [vec![12], vec![13, 14], vec![15, 16, 17, 18], vec![19]] {
        let [ack] = <[_; 1]>::try_from(gappy.answer()).unwrap();
        assert_eq!(gappy.told(ack, &[]), tried);
    }
    gappy.ends_with(20 + 9);
}

/// As many at once as came, as the queue that lost them may be full still.
#[test]
fn no_more_is_sent_again_at_once_than_came() {
    let mut gappy = Gappy::new();
    gappy.write(40, &[]);
    gappy.world.wires[1].clear();
    let report = gappy.forge_gaps(0, &[(4, 4), (4, 4)]);
    assert_eq!(gappy.told(report, &[]).len(), 8);
    let mut gappy = Gappy::new();
    gappy.write(40, &[]);
    let report = gappy.forge_gaps(0, &[(4, 1), (3, 3)]);
    assert_eq!(gappy.told(report, &[]), [0, 1, 2, 3], "of seven");
    let mut gappy = Gappy::new();
    gappy.write(40, &[]);
    gappy.world.wires[1].clear();
    // Of the first gap nothing tells that more than its first packet was lost.
    let report = gappy.forge_gaps(0, &[(9, 1), (2, 5)]);
    assert_eq!(gappy.told(report, &[]), [0, 10, 11]);
}

#[test]
fn a_peer_of_another_make_gets_a_nak_and_its_report_is_dropped() {
    for packets in [20, 90] {
        let mut gappy = Gappy::of([0, 512 << 10]);
        gappy.write(packets, &[5, 12]);
        let mut answers = gappy.answer();
        if answers.is_empty() {
            gappy.wait(1);
            answers = gappy.answer();
        }
        assert_eq!(answers.len(), 1);
        let bth = Packet::parse(&answers[0]).unwrap().bth;
        assert_eq!((bth.opcode, bth.solicited), (Opcode::Acknowledge, false));
    }

    let mut gappy = Gappy::of([512 << 10, 0]);
    gappy.write(20, &[]);
    let report = gappy.forge_gaps(5, &[(1, 14)]);
    assert!(gappy.told(report, &[]).is_empty());
    assert_eq!(gappy.world.drops(0), [(DropReason::UnknownOpcode, 1)]);
    assert!(gappy.world.done[0].is_empty());
    gappy.ends_with(20);
}

#[test]
fn a_report_of_what_was_never_sent_changes_nothing() {
    for gaps in [&[(1, 20)][..], &[(0, 0), (u16::MAX, u16::MAX)], &[(21, 0)], &[(u16::MAX, 0); 64]]
    {
        let mut gappy = Gappy::new();
        gappy.write(20, &[]);
        let report = gappy.forge_gaps(0, gaps);
        assert!(gappy.told(report, &[]).is_empty(), "{gaps:?}");
        gappy.ends_with(20);
    }
}

#[test]
fn a_malformed_report_does_no_harm() {
    let mut gappy = Gappy::new();
    gappy.write(190, &[]);
    for payload in [&[][..], &[0, 1, 0], &[0, 0, 0, 0], &[0, 0, 0, 9], &[0, 9, 0, 0, 0]] {
        let report = gappy.forge(0, payload);
        assert!(gappy.told(report, &[]).len() <= 1, "{payload:?}");
    }
    let mut gappy = Gappy::new();
    gappy.write(190, &[]);
    let report = gappy.forge_gaps(0, &[(1, 1); GAPS_MAX + 20]);
    let all: Vec<_> = (0..GAPS_MAX as i32).map(|n| 2 * n).collect();
    assert_eq!(gappy.told(report, &[]), all, "what is behind the last one is not looked at");
    gappy.ends_with(190 + GAPS_MAX);
}

/// Whether the acknowledgements say that they answer a duplicate, without one and with one.
fn solicits(reorder_bytes: [u32; 2]) -> [bool; 2] {
    let mut gappy = Gappy::of(reorder_bytes);
    gappy.write(1, &[]);
    let copy = gappy.world.wires[1][0].clone();
    let first = gappy.answer().remove(0);
    gappy.world.wires[1].push_back(copy);
    let second = gappy.answer().remove(0);
    [first, second].map(|frame| Packet::parse(&frame).unwrap().bth.solicited)
}

#[test]
fn an_ack_tells_one_of_ours_that_it_answers_a_duplicate() {
    assert_eq!(solicits([512 << 10; 2]), [false, true]);
    assert_eq!(solicits([512 << 10, 0]), [false, true], "who drops can tell, too");
    assert_eq!(solicits([0, 512 << 10]), [false, false]);
}

/// The wait for a probe after one was sent, and its answer came at once: as if it were an older ACK that is late.
fn wait_after_probe(answers: bool) -> Duration {
    let mut gappy = Gappy::new();
    gappy.write(1, &[]);
    let lost = gappy.answer();
    assert_eq!(lost.len(), 1);
    while gappy.send(&[]).is_empty() {
        gappy.wait(0);
    }
    let frame = gappy.answer().remove(0);
    let mut packet = Packet::parse(&frame).unwrap();
    assert!(packet.bth.solicited);
    packet.bth.solicited = answers;
    gappy.world.wires[0].push_back(emit(&packet));
    gappy.world.deliver(0);
    assert_eq!(gappy.world.done[0].len(), 1);
    gappy.write(1, &[]);
    let deadline = gappy.world.devices[0].poll_timeout().unwrap();
    deadline.saturating_since(gappy.world.now)
}

#[test]
fn the_answer_to_a_probe_is_no_sign_of_an_early_timer() {
    assert!(wait_after_probe(true) < wait_after_probe(false));
}

#[test]
fn several_lost_in_a_row_slow_down_and_one_does_not() {
    let all: Vec<_> = (0..60).collect();
    for (lost, slows) in [
        (&all[5..6], false),
        (&all[5..8], false),
        (&all[5..9], true),
        (&[2, 5, 8, 11, 14, 17, 20, 23, 26, 29, 32, 35, 38, 41, 44, 47, 50, 53, 56], true),
        (&[5, 15, 25, 35, 45], false),
        (&[2, 10, 18, 26, 34, 42, 50], false),
        (&[2, 10, 18, 26, 34, 42, 50, 58], true),
    ] {
        let mut gappy = Gappy::join([config(false, 0), config(false, 1)]);
        gappy.write(60, lost);
        let report = gappy.report();
        gappy.told(report, &[]);
        assert_eq!(gappy.rate().is_some(), slows, "{lost:?}");
    }
}

/// Packets that came between the losses count.
#[test]
fn a_loss_among_many_packets_again_and_again_is_chance() {
    let mut gappy = Gappy::join([config(false, 0), config(false, 1)]);
    for round in 0..16 {
        gappy.write(60, &[5]);
        let report = gappy.report();
        gappy.told(report, &[]);
        assert_eq!(gappy.rate(), None, "{round}");
        gappy.world.run_for(Duration::from_millis(2));
        gappy.first = gappy.first.add(60);
        gappy.forget();
    }
}

#[test]
fn what_is_refused_for_want_of_a_receive_is_not_missing() {
    let mut gappy = Gappy::new();
    gappy.post(SendOp::Send, 3);
    gappy.send(&[]);
    let answers = gappy.answer();
    assert_eq!(answers.len(), 1);
    assert!(matches!(Packet::parse(&answers[0]).unwrap().ext, Ext::Aeth(_)));
    let due = gappy.world.devices[1].poll_timeout().unwrap();
    assert!(due > gappy.world.now + Duration::from_secs(17), "no window opens");
}

/// Goal: what was reported to have come and was dropped later, since others needed its slots, comes again, long before a timer
/// that knows nothing: the requester keeps everything until it is acknowledged, and a probe shows what is missing.
#[test]
fn a_packet_that_was_reported_and_dropped_is_sent_again() {
    for lost in [1, 5, 15] {
        let mut gappy = Gappy::new();
        gappy.write(20, &[lost]);
        let report = gappy.report();
        gappy.told(report, &[]);
        gappy.world.devices[1].reorder_pool.take_newest();
        assert_eq!(gappy.world.devices[1].reorder_pool.taken(), 1);
        gappy.world.run_for(Duration::from_millis(20));
        assert_eq!(gappy.world.statuses(0), [(1, WcStatus::Success)]);
        assert!(
            gappy.world.memory[1].0[0][100_000..120_480] == gappy.world.memory[0].0[0][..20_480]
        );
        let again = gappy.world.sent[0].len() - 20;
        assert!(
            again <= 1 + 18 - lost as usize + 6,
            "{again} for {lost}: what was lost, and probes"
        );
    }
}

/// Goal: a packet that is lost behind one that is refused is told of once that one has found its receive.
#[test]
fn a_gap_behind_a_refused_packet_is_told() {
    let mut gappy = Gappy::new();
    gappy.post(SendOp::Send, 1);
    for _ in 0..2 {
        gappy.post(gappy.world.write(), 1);
    }
    gappy.send(&[1]);
    let [rnr] = <[_; 1]>::try_from(gappy.answer()).unwrap();
    assert!(gappy.told(rnr, &[]).is_empty());
    gappy.post_recv();
    gappy.world.run_for(Duration::from_millis(20));
    assert_eq!(gappy.world.done[0].len(), 3, "{:?}", gappy.world.sent);
    let lost = gappy.places(0).into_iter().filter(|place| *place == 1).count();
    assert_eq!(lost, 2, "once more, and not by a timer");
}

/// A packet that was only late widens the window; 16 that were lost bring it back.
#[test]
fn reports_of_what_was_lost_narrow_the_window_again() {
    let mut gappy = Gappy::new();
    let mut window = |copies: usize| {
        gappy.write(2, &[]);
        let first = gappy.world.wires[1].pop_front().unwrap();
        let since = gappy.world.now;
        gappy.report();
        gappy.world.wires[1].extend(vec![first; copies]);
        let width = gappy.world.now.saturating_since(since).as_micros();
        gappy.world.run();
        width
    };
    assert_eq!(window(2), 100, "the second copy shows that the packet was late");
    let widths: Vec<_> = (0..17).map(|_| window(1)).collect();
    assert_eq!(widths, [&[200; 16][..], &[100]].concat());
}

/// The window of reordering is as wide after a refusal as before.
#[test]
fn a_packet_that_comes_again_behind_a_refused_one_was_not_late() {
    let mut gappy = Gappy::new();
    let window = |gappy: &mut Gappy| {
        assert!(gappy.answer().is_empty());
        gappy.world.devices[1].poll_timeout().unwrap().saturating_since(gappy.world.now)
    };
    gappy.post(SendOp::Send, 1);
    gappy.post(gappy.world.write(), 1);
    gappy.send(&[]);
    let frames: Vec<_> = gappy.world.wires[1].iter().cloned().collect();
    gappy.world.wires[1].pop_front();
    let first = window(&mut gappy);
    gappy.wait(1);
    assert_eq!(gappy.answer().len(), 1, "a report of the packet that is then refused");
    gappy.world.wires[1].extend(frames);
    let [rnr] = <[_; 1]>::try_from(gappy.answer()).unwrap();
    assert!(matches!(Packet::parse(&rnr).unwrap().ext, Ext::Aeth(_)));

    gappy.post_recv();
    gappy.world.run_for(Duration::from_millis(20));
    assert_eq!(gappy.world.done[0].len(), 2);
    gappy.post(gappy.world.write(), 2);
    gappy.world.transmit(0);
    gappy.world.wires[1].pop_front();
    assert_eq!(window(&mut gappy), first);
}

/// A report that is owed when the packet comes, and finds no receive, is owed no more.
#[test]
fn a_report_is_not_sent_once_the_packet_is_refused() {
    let mut gappy = Gappy::new();
    gappy.post(SendOp::Send, 3);
    gappy.send(&[]);
    let late = gappy.world.wires[1].pop_front().unwrap();
    assert!(gappy.answer().is_empty());
    gappy.wait(1);
    gappy.world.wires[1].push_back(late);
    let answers = gappy.answer();
    assert_eq!(answers.len(), 1);
    assert!(matches!(Packet::parse(&answers[0]).unwrap().ext, Ext::Aeth(_)));
}
