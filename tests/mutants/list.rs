//! Bugs by hand: each breaks a rule that is easy to break and hard to notice.

use crate::source::functions;
use crate::weave::{Bug, contains};
use std::path::Path;

/// A bug by hand: the text, which stands once in the file, and what stands there instead.
struct Entry {
    name: &'static str,
    file: &'static str,
    text: &'static str,
    instead: &'static str,
    rule: &'static str,
}

/// A bug that no test can catch.
pub(crate) struct Void {
    pub(crate) name: &'static str,
    /// Why it changes nothing that anybody could see.
    pub(crate) why: &'static str,
}

/// Those that every test run judges.
pub(crate) const QUICK: [&str; 2] = ["IcrcCoversTtl", "TimersForgetASlot"];

/// The list as bugs of the workspace at `root`.
///
/// # Panics
/// Where an entry does not fit the code.
pub(crate) fn bugs(root: &Path) -> Vec<Bug> {
    LIST.iter().map(|entry| bug(root, entry)).collect()
}

fn bug(root: &Path, entry: &Entry) -> Bug {
    let Entry { name, file, text, instead, rule } = *entry;
    let file = if file.contains("/src/") { file.into() } else { format!("rocev2/src/{file}") };
    let source =
        std::fs::read_to_string(root.join(&file)).unwrap_or_else(|_| panic!("{name}: {file}"));
    let found: Vec<_> = source.match_indices(text).map(|(at, _)| at).collect();
    let [start] = found[..] else {
        panic!("{name}: its text stands {} times in {file}, not once:\n{text}", found.len())
    };
    let line = 1 + source[..start].matches('\n').count();
    let place = format!("{file}:{line}");
    let at = start..start + text.len();
    let bug = Bug {
        number: 0,
        name: name.into(),
        place,
        rule,
        file,
        turn: 0,
        at,
        instead: instead.into(),
    };
    let inside = functions(&source).iter().any(|function| contains(function, &bug));
    assert!(inside && text != instead, "{name}: its text is in no function, or is no bug");
    bug
}

macro_rules! list {
    ($($name:ident $file:literal: $text:literal => $instead:literal, $rule:literal;)*) => {
        const LIST: &[Entry] = &[$(Entry {
            name: stringify!($name), file: $file, text: $text, instead: $instead, rule: $rule,
        },)*];
    };
}

/// Bugs that change nothing.
pub(crate) const VOID: &[Void] = &[];

// ---- requester --------------------------------------------------------------------------------
list! {
    FenceIsIgnored "qp/send/requester.rs":
        "if wqe.read_fence() && packet == 0 && (reads > 0 || parks) {" => "if false {",
        "a fenced request waits for the READs before it";
    WindowIsIgnored "qp/send/requester.rs":
        "if room == 0 {" => "if false {",
        "no more than a window is in flight";
    ReadDepthIsIgnored "qp/send/requester.rs":
        "let full = reads >= self.initiator_depth.min(limit as usize);" => "let full = reads >= limit as usize;",
        "no more READs than the peer granted";
    ReadLimitIsIgnored "qp/send/requester.rs":
        "let full = reads >= self.initiator_depth.min(limit as usize);" => "let full = reads >= self.initiator_depth;",
        "no more READs than the limit towards a peer that drops";
    ResponsesRequestedLongAgoCount "qp/send/recovery/gaps.rs":
        "if sq.is_open(self.asked.prev()) { self.asked } else { una };" => "if una.since(self.asked) > 0 { una } else { self.asked };",
        "a noted PSN that is no longer in flight tells nothing";
    TimerRequestsAll "qp/send/queue/gaps.rs":
        "if sure { ANEW } else {" => "if sure { tried } else {",
        "few responses are requested at first after a timer";
    LastPacketAsksForNoAck "qp/send/requester.rs":
        "ack_req: last || room == 1" => "ack_req: room == 1",
        "the end of a message asks for an ACK";
    WriteSolicits "qp/send/requester.rs":
        "&& !matches!(data, Data::Write(_))" => "",
        "a WRITE raises no solicited event";
    ResentReadStartsOver "qp/send/requester.rs":
        "va.wrapping_add(offset)" => "va",
        "a READ that goes on asks for what is missing";
    WriteAnnouncesTooMuch "qp/send/requester.rs":
        "let reth = Reth { va, rkey, len: wqe.len() as u32 };" => "let reth = Reth { va, rkey, len: wqe.len() as u32 + u32::from(packets > 1) };",
        "RETH says how much is written";
    InvalidateDoesNotWait "qp/send/requester.rs":
        "SendOp::Invalidate(_) if all_complete =>" => "SendOp::Invalidate(_) if all_complete || true =>",
        "a key ends after the requests that use it (10.6.5.1)";

// ---- completer ----------------------------------------------------------------------------------
    AnswerToAProbeIsMeasured "qp/send/completer.rs":
        "!plain && (self.answers || read" => "!plain && (read",
        "a lost ACK makes no probe later";
    LossesHideTheRoundTrip "qp/send/completer.rs":
        "self.timed.filter(|timed| psn.since(timed.psn) >= 0)" => "self.timed.filter(|_| false)",
        "what comes behind a lost packet tells how long a round trip takes at most";
    DisturbedIsMeasured "qp/send/completer.rs":
        "timed.disturbed = true;" => "",
        "a round trip that waited for a lost packet is none";
    ProbesTellNoRoundTrip "qp/send/retry.rs":
        "self.took_at_most(after_ns);" => "",
        "the answer to the first probe times the next";
    UnknownPathsBackOff "qp/send/retry.rs":
        "if known { u64::MAX }" => "if true { u64::MAX }",
        "a path of which nothing is known is probed ten times a second";
    ProbeOfAPauseIsLost "qp/send/recovery/probes.rs":
        "if self.is_lossy(sq) { until } else { until.max(now + LATE) }" => "until",
        "where nothing was lost the ACK of a probe is only late, and tells nothing about what was sent since";
    LostProbeSilencesTheNext "qp/send/recovery/probes.rs":
        "self.probe |= !tells && self.probed_at(sq).is_some();" => "",
        "an ACK that may be an earlier probe's is followed by another probe at once";
    UnsolicitedAckIsMeasured "qp/recv/responder.rs":
        "self.answer_again(peer.make);" => "self.reply.get_or_insert(Syndrome::ACK);",
        "an unsolicited ACK is no round trip of what it acknowledges";
    AnswersForEver "qp/send/completer.rs":
        "it, and do not set it.\n        self.answers = false;" => "it, and do not set it.",
        "the ACK behind the answer to a probe is measured";
    AckCoversOneMore "qp/send/completer.rs":
        "self.acknowledge(now, psn.add(1), sq, out);" => "self.acknowledge(now, psn.add(2), sq, out);",
        "an ACK covers its PSN and none after it";
    LostReadDataIsAccepted "qp/send/completer.rs":
        "let result = if acked.lost_read {" => "let result = if false {",
        "READ data is placed where it belongs";
    RnrPauseIsSkipped "qp/send/completer.rs":
        "self.pause = Some((refused, now + pause));" =>
        "let pause = Duration::from_micros(1); self.pause = Some((refused, now + pause));",
        "the requester waits as long as RNR NAK says";
    NeverGivesUp "qp/send/completer.rs":
        "return Verdict::Fail(WcStatus::TransportRetryExceeded);" => "",
        "retries end (C9-140)";
    GivesUpAtOnce "qp/send/completer.rs":
        "let tries = (self.timer.tries(), expiry == Expiry::Resend);" =>
        "if expiry == Expiry::Resend { return Verdict::Fail(WcStatus::TransportRetryExceeded); }
                let tries = (self.timer.tries(), expiry == Expiry::Resend);",
        "retries are made";
    NakCoversItsPacket "qp/send/completer.rs":
        "Syndrome::Nak(NakCode::PsnSequence) => {" =>
        "Syndrome::Nak(NakCode::PsnSequence) => { let psn = psn.add(1);",
        "a NAK covers what is before its PSN";
    RnrTriesAreNotRestored "qp/send/completer.rs":
        "self.rnr_tries = 0;" => "",
        "progress restores the RNR retries";
    EarlyReadDataOfAnyLength "qp/send/completer.rs":
        "fits(packet, wqe, done, cx.sq, cx.peer)\n                && place(" => "place(",
        "READ data that comes early has the length of its place, too";
    RttIsSampledOnAResend "qp/outbound.rs":
        "asked.filter(|_| new)" => "asked",
        "Karn: no round trip is measured on what was sent twice";
    RnrRetryForeverEnds "qp/send/completer.rs":
        "if self.rnr_retry != RNR_RETRY_FOREVER {" => "if true {",
        "an RNR retry count of 7 never ends";
    StaleRnrPausesAgain "qp/send/completer.rs":
        "Syndrome::RnrNak(_) if psn.since(sq.acked()) < 0 => Err(DropReason::StaleResponse)," => "",
        "an RNR NAK for what was taken since is stale";
    UnexpectedPsnIsTaken "qp/send/completer.rs":
        "if !cx.sq.expects(psn) {" => "if false && !cx.sq.expects(psn) {",
        "a response to a packet that is not in flight is dropped";
    ReservedSyndromeIsAnAck "qp/send/completer.rs":
        "Err(DropReason::ReservedSyndrome)" => "{ self.acknowledge(now, psn, sq, out); Ok(Verdict::Done) }",
        "a reserved syndrome changes nothing";
    AnyAckIsAProbesAnswer "qp/send/completer.rs":
        "sent_at.is_none_or(|at| !self.answers && self.timer.is_too_soon(now.nanos_since(at)))" => "sent_at.is_none()",
        "an ACK that comes sooner than half a round trip does not answer the probe";
    ProbesAnswerIsNoEvidence "qp/send/recovery/probes.rs":
        "if sq.una() != at || sq.next().since(at) <= 0 {" => "if true || sq.una() != at || sq.next().since(at) <= 0 {",
        "what the answer to a probe leaves out is lost";
    ProbedReadIsAskedAgainAtOnce "qp/send/recovery/probes.rs":
        "due: self.reorder_window.end(now), probed: true" => "due: now, probed: true",
        "a READ that a probe may have overtaken is given time";
    WrongReadLengthIsTaken "qp/send/completer.rs":
        "packet.payload.len() as u64 == expected && " => "",
        "READ data has the length that was asked for";

// ---- send queue ---------------------------------------------------------------------------------
    AckCompletesReads "qp/send/queue.rs":
        "if head.is_read() {\n                acked.lost_read = true;" =>
        "if false {\n                acked.lost_read = true;",
        "only its data completes a READ";
    FailureIsSilent "qp/send/entry.rs":
        "head & (SILENT | STATUS) == SILENT" => "head & SILENT != 0",
        "an error always produces a completion (10.7.3.1)";
    ReadInvalidatesNothing "qp/send/queue.rs":
        "= head.ended_key()" => "= head.ended_key().filter(|_| false)",
        "a READ that invalidates ends its key";
    FailureSucceeds "qp/send/queue/ends.rs":
        "self.end(status, out);" => "let _ = status; self.end(WcStatus::Success, out);",
        "what failed does not succeed";
    FlushTakesSuccessBack "qp/send/queue/ends.rs":
        "self.unpark_all(out);
        self.update();" => "(self.parked, self.una_packet) = (0, 0); self.update();",
        "what has succeeded does not end flushed";
    RingHoldsOneTooMany "qp/ring.rs":
        "self.room = self.ring.depth - queued;" => "self.room = self.ring.depth + 1 - queued;",
        "a queue holds as many requests as it was created for";
    ElementsBehindTheFirstLineAreLost "qp/ring.rs":
        "self.ring.lines.get(self.begin + line)?" => "self.ring.lines.get(self.begin + line.min(1))?",
        "a request has all its elements";
    WindowRequestsAreSkipped "qp/send/queue.rs":
        "if wqe.concerns_windows() {" => "if wqe.concerns_windows() && index % 2 == 0 {",
        "each request for a window is heard of";
    FlushForgets "qp/send/queue/ends.rs":
        "while self.oldest().is_some() {" => "while let Some(wqe) = self.oldest() { if wqe.id() % 2 == 0 { self.ring.pop(1); continue; }",
        "each request completes once";
    ResendSkipsAPacket "qp/send/queue/scoreboard.rs":
        "(self.next, self.cursor) = (psn, place);\n        }" =>
        "(self.next, self.cursor) = (psn, place);\n        }
        let more = self.wqe(place.wqe).filter(|wqe| self.packets(*wqe) > place.packet + 1);
        if more.is_some_and(|wqe| !wqe.is_read()) {
            self.cursor.packet += 1;
            self.next = self.next.add(1);
        }",
        "go-back-N starts at what is missing";
    RepairSkipsAPacket "qp/send/queue/scoreboard.rs":
        "self.scoreboard.resend = self.resend_range(psn, end);
        self.scoreboard.resend.map(" =>
        "let psn = if self.is_read_at(psn) { psn } else { psn.add(1) }; self.scoreboard.resend = self.resend_range(psn, end);
        self.scoreboard.resend.map(",
        "what was named as missing is sent again";
    OvertakenCopyLivesOn "qp/send/queue/copies.rs":
        "again.until = again.until.min(again.sent_at + OVERTAKEN);" => "",
        "a copy of a READ that a newer packet has overtaken holds the completion no longer than a network reorders";
    OlderResponseOvertakesACopy "qp/send/queue/copies.rs":
        "if end.since(again.behind) > 0 {" => "if end.since(again.from) > 0 {",
        "only the response to a packet that was sent after the copy overtakes it";
    CopyIsSpentByTheFirstResponse "qp/send/queue/copies.rs":
        "self.responses >= self.copies || executed" => "self.responses > 0 || executed",
        "a READ that was sent twice completes after as many responses, or when no copy can arrive";

// ---- timers ---------------------------------------------------------------------------------------
    BackoffIsNotReset "qp/send/retry.rs":
        "(self.tries, self.timeouts) = (0, 0);\n        (self.progress_at, self.quiet_since, self.read)" =>
        "(self.progress_at, self.quiet_since, self.read)",
        "progress ends the back-off";
    EarlyTimerIsNotUndone "qp/send/retry.rs":
        "self.floor.raise(now, nanos(late.min(FLOOR_MAX)));" => "let _ = late;",
        "a timer that was early waits longer";
    TimeoutsDoNotBackOff "qp/send/retry.rs":
        "self.quiet_since = now;\n            self.timeouts += 1;" => "self.quiet_since = now;",
        "resends by the retransmission timer back off";
    ReadIsAskedAgainTooSoon "qp/send/retry.rs":
        "let rto = now >= self.rto_at(now);" => "let rto = true;",
        "a READ that is only late is not sent again";
    TimeoutIsTheNegotiatedOne "qp/send/retry.rs":
        "let ns = self.negotiated_ns.saturating_mul(u64::from(self.retries) + 1);" => "let ns = self.negotiated_ns;",
        "the time to give up is the timeout for each retry";
    TimersForgetASlot "timer.rs":
        "let current = *queued == deadline;" => "let current = *queued != deadline;",
        "a deadline that is due is served";
    DueIsTooLate "timer.rs":
        "if current && deadline > now {" => "if current && deadline >= now {",
        "a deadline is due when it is reached";
    SupersededDeadlinesWake "timer.rs":
        "if current && deadline > now {" => "if deadline > now {",
        "a deadline that was superseded wakes nobody";
    GoneQueuePairsWake "device/qps.rs":
        "self.lists.timers.disarm(slot);" => "",
        "a queue pair that is gone wakes nobody";
    SupersededDeadlinesPileUp "timer.rs":
        "if self.is_full() {" => "if false {",
        "superseded deadlines are dropped before the queue has to grow";
    LaterDeadlineWins "timer.rs":
        "deadline < *queued" => "deadline > *queued",
        "the earlier deadline wins";

    FailedQueuePairAsks "qp/send/recovery.rs":
        "self.probe = false;" => "",
        "nothing but an owed NAK leaves in the error state";
    DropperShowsItselfAsKeeper "device.rs":
        "if keeps { Make::Keeper }" => "if keeps || true { Make::Keeper }",
        "an adapter shows itself as ours where it keeps what comes early";
    EveryPeerIsOfOurMake "wire/mad.rs":
        "_ => (Make::Other, 0)," => "_ => (Make::Keeper, 0),",
        "a peer that does not show itself is waited for";
    MakeOfTheRepIsForgotten "cm/connection.rs":
        "(peer.make, peer.qpn) = (header.make, rep.local_qpn);" => "peer.qpn = rep.local_qpn; let _ = header;",
        "REP shows the peer's make";
    BurstIsChance "qp/send/completer.rs":
        "sq.misses_in_a_row(BURST)" => "sq.misses_in_a_row(BURST) && false",
        "several READ responses in a row are lost to congestion";
    ChanceSlowsDown "qp/recv/responder.rs":
        "keeper && !packet.bth.becn;" => "false && keeper && !packet.bth.becn;",
        "a READ response that was lost by chance slows nobody down";
    RateRisesBeforeNews "qp/cc/rate.rs":
        "self.held_until = self.held_until.max(now + HOLD * late.min(LATE_MAX));" => "let _ = (late, HOLD, LATE_MAX);",
        "a rate does not rise before a peer can tell of a loss";
    DataTwiceIsNoSign "qp/send/recovery.rs":
        "self.reorder_window.widen();" => "",
        "a READ that was requested again too early widens the reorder window";

    // Gaps, between two of ours.
    EveryKnownFrameIsRight "device/receive.rs":
        "let right = core::mem::take(&mut received.refused);" => "let right = core::mem::take(&mut received.refused) || true;",
        "a packet with a wrong ICRC is dropped";
    ReportNamesTheOpenWindow "qp/recv/gaps.rs":
        "if psn.since(self.told) >= 0 {" => "if false {",
        "a report leaves out what may have been overtaken";
    ReportNamesOneGap "qp/recv/gaps.rs":
        "None => gaps.push(Gap { missing, came: packets }).is_ok()," => "None => gaps.is_empty() && gaps.push(Gap { missing, came: packets }).is_ok(),",
        "a report names all gaps";
    GapsOfLongAgoCount "qp/recv/gaps.rs":
        "let first = held == 1;" => "let first = false;",
        "what was noted of a gap ends with it";
    BurstWaitsOneByOne "qp/recv/early.rs":
        "self.gap_since.is_none_or(|since| since == now)" => "self.gap_since.is_none()",
        "packets that came together wait together";
    ManyBehindAGapProveNothing "qp/recv/gaps.rs":
        "held.min(self.untold as usize) > REORDER_PACKETS" => "held.min(self.untold as usize) > usize::MAX - 1",
        "many packets behind a gap prove a loss at once";
    RefusalWidensTheWindow "qp/recv/early.rs":
        "_ if self.nak_state == NakState::Rnr => {}" => "_ if false => {}",
        "what comes again behind a refused packet was not late";
    RefusalLeavesTheReport "qp/recv/responder.rs":
        "// A report would name this packet as missing.\n                self.gaps.forget();" => "",
        "what was refused for want of a receive is not missing";
    ReportToAnyMake "qp/recv/early.rs":
        "Make::Keeper if held > 0 => self" => "_ if held > 0 => self",
        "a peer of another make gets a NAK";
    ReportOfAnyMake "qp/inbound.rs":
        "packet.bth.opcode == Opcode::GapReport && peer.make != Make::Keeper" => "false",
        "a report of a peer of another make is dropped";
    ListToAnyMake "qp/outbound.rs":
        "let takes = |peer: &PeerQp| peer.make == Make::Keeper;" => "let takes = |_: &PeerQp| true;",
        "a peer of another make gets each ACK alone";
    ListForAnyCore "device/acks.rs":
        "if core_bits > 0 {" => "if false {",
        "a list is for queue pairs of one core of the peer";
    ListOfAnyMake "qp/inbound.rs":
        "if peer.make == Make::Keeper { Ok(()) } else { Err(DropReason::UnknownOpcode) }" => "Ok(())",
        "a list of a peer of another make is dropped";
    ListOfAnyAddress "qp/inbound.rs":
        "check_addresses(peer, encap)?;" => "",
        "a list comes from the peer";
    ListForAnyPath "device/acks.rs":
        "if entry.path != Some(path) {" => "if false {",
        "an ACK of a list is for a queue pair of its sender";
    ListOverSeveralPaths "device/acks.rs":
        "entry.path == Some(path) && entry.qp.class() == class" => "entry.qp.class() == class",
        "the ACKs of a list are for one peer";
    ListOfSeveralClasses "device/acks.rs":
        "entry.path == Some(path) && entry.qp.class() == class" => "entry.path == Some(path)",
        "the ACKs of a list are of one class";
    ClassOfOurOwnPort "cm/connection.rs":
        "if self.is_active() { self.peer.remote } else { self.peer.local }" => "self.peer.local",
        "a class belongs to the port of a service";
    HeadersKeepTheirClass "device/connections.rs":
        "self.template = None;" => "",
        "established connections follow their class";
    PriorityIsADoubt "path.rs":
        "Self { mac: encap.src_mac, vlan: vlan_of(encap.vlan) }" => "Self { mac: encap.src_mac, vlan: encap.vlan }",
        "frames of one peer may have several priorities";
    PathKeepsAPriority "device/connections.rs":
        "vlan: without_priority(peer.hop.vlan)" => "vlan: peer.hop.vlan",
        "a connection answers in the priority of its own request";
    LineLosesThoseInFront "device/line.rs":
        "if self.taken == self.first.len() {" => "if true {",
        "queue pairs send in the order in which they became ready";
    EveryAckAnswersADuplicate "qp/recv/responder.rs":
        "bth.solicited = answers;" => "bth.solicited = answers || true;",
        "only an ACK that answers a duplicate says so";
    DuplicatesAreToldToAnyMake "qp/recv/responder.rs":
        "if make == Make::Keeper {\n            self.gaps.answer_without_gap" => "if true {\n            self.gaps.answer_without_gap",
        "the bits of an ACK to a peer of another make are those of the standard";
    ProbesAnswerShowsAnEarlyTimer "qp/send/completer.rs":
        "self.answers = cx.peer.make == Make::Keeper && packet.bth.solicited;" => "self.answers = false;",
        "the answer to a probe is no sign of an early timer";
    BurstOfGapsIsChance "qp/send/completer.rs":
        "u32::from(gap.missing) >= BURST" => "gap.missing == u16::MAX",
        "several packets in a row are lost to congestion";
    LossesAreAlwaysChance "qp/cc/loss_sum.rs":
        "let congestion = self.excess >= LOSSES * PACKETS_PER_LOSS;" => "let congestion = false;",
        "many losses for long are congestion";
    LossesAddUpForEver "qp/cc/loss_sum.rs":
        "self.excess.saturating_sub(came)" => "self.excess",
        "a loss now and then is chance";
    OverflowIsALossAsAny "qp/cc/congestion.rs":
        "Loss::Overflow { .. } => OVERFLOW_CUT," => "Loss::Overflow { .. } => LOSS_CUT,",
        "a loss that shows congestion cuts the rate by more";
    AnyProbeIsTheOnlyOne "qp/send/probe.rs":
        "self.all == 1" => "self.all > 0",
        "where several probes are out, an answer is not timed by the last one";
    OlderPacketShowsALossAgain "qp/send/queue/gaps.rs":
        "if end.since(self.behind) > 0 {" => "if end.since(self.behind) >= 0 {",
        "a packet was lost again where one that left behind it has come";
    GenerationsAreOne "qp/send/queue/gaps.rs":
        "if next == self.behind { older } else { newer }" => "if next == self.behind || true { older } else { newer }",
        "what was sent again later waits for what left later";
    AllowanceIsNotUsedUp "qp/send/queue/gaps.rs":
        "self.allowance.saturating_sub(1)" => "self.allowance",
        "as many packets are sent again at once as came";
    EarlyIsForgottenWhileRefused "qp/recv/early.rs":
        "Insertion::Inserted if self.nak_state == NakState::Rnr => {" => "Insertion::Inserted if false && self.nak_state == NakState::Rnr => {",
        "a gap behind a packet that was refused is told";
    TailIsNotTried "qp/send/queue/gaps.rs":
        "if missing > 0 && !self.is_read_at(una) {" => "if false && missing > 0 && !self.is_read_at(una) {",
        "a tail that was lost behind a gap is sent again";
    TailIsTriedOneByOne "qp/send/queue/gaps.rs":
        "packets.saturating_mul(2)" => "packets",
        "a tail that was lost is tried in growing parts";
    FewProveThatManyAreLost "qp/send/queue/gaps.rs":
        "let few = !sure &&" => "let few = false && !sure &&",
        "a few packets that overtake many are no sign that all are lost";
    NewReadIsAskedForInParts "qp/send/queue/gaps.rs":
        "let new = read_end.is_some() && acked.since(psn) <= 0;" => "let new = false && read_end.is_some() && acked.since(psn) <= 0;",
        "a READ that may not have been executed is requested as it was";
    ReportOfTheUnsentCounts "qp/send/queue/gaps.rs":
        "if self.highest.since(end) < 0 { None }" => "if false { None }",
        "what was not sent has not come";

    SocketCountsOn "wire/ids.rs":
        "self.next.wrapping_mul(self.step)" => "self.next",
        "a socket's packets are counted in their unit";
    UnseenIdOfIp6 "wire/icrc.rs":
        ".filter(|id| *id == 0 || !seed.v6)" => "",
        "IPv6 has no identification that could explain an ICRC";

// ---- responder -----------------------------------------------------------------------------------
    DuplicateIsExecuted "qp/recv/responder.rs":
        "i32::MIN..0 => self.duplicate(now, packet, cx)," => "i32::MIN..0 => Ok(self.expected(packet, cx)),",
        "a duplicate is acknowledged, not executed (C9-105)";
    SlotsAreNotGivenBack "qp/recv/early.rs":
        "pool.give_back(slot);" => "",
        "a gap that is closed has no slot of the pool";
    ClosedQueuesKeepTheirSlots "qp/recv/reorder_buffer.rs":
        "self.forget_while(pool, |_| true);" => "let _ = pool;",
        "a queue pair at its end has no slot of the pool";
    QuotaCountsPackets "qp/recv/reorder_pool.rs":
        "(bytes as usize / self.slot_len)" => "(bytes as usize / 256)",
        "a quota counts slots, not the packets of a path MTU that the peer chose";
    OneConnectionHasThePool "qp/recv/reorder_pool.rs":
        "self.slots.limit().div_ceil(2);" => "self.slots.limit();",
        "a connection has half of the pool at most";
    LatecomersFindNoSlot "qp/recv/reorder_pool.rs":
        "self.take_from_another(holder, from)?;" => "return None;",
        "a peer with less than its share has a slot at once";
    OldestPacketIsTaken "qp/recv/reorder_pool.rs":
        "let newest = self.shares.get(giver)?.last;" => "let newest = self.shares.get(giver)?.first;",
        "the newest packet of the largest holder gives way";
    SharesAreOfConnections "qp/recv/shares.rs":
        "if self.peers[most].held > of_peer + 1 {" => "if self.peers[most].held > own + 1 {",
        "many connections of one peer have no more than one";
    SharesAreOfPeers "qp/recv/shares.rs":
        "(self.holders[largest].held > own + 1).then_some(largest)" =>
        "(self.holders[largest].held > own + 1).then_some(largest).filter(|_| false)",
        "each connection of a peer has its share of what the peer has";
    AnyConnectionGives "qp/recv/shares.rs":
        "if self.holders[hand].held > self.holders[largest].held {" => "if false {",
        "of a peer's connections the largest one gives";
    LostSlotsAreStillRead "qp/recv/reorder_pool.rs":
        "filter(|found| found.stamp == stamp)" => "filter(|found| found.stamp >= stamp)",
        "a queue pair whose slots were given to others has none of theirs";
    GapHoldsForEver "qp/recv/early.rs":
        "self.reorder_buffer.forget(pool);" => "let _ = pool;",
        "what a gap holds comes back when its peer must have given up";
    ProgressIsNoSignOfLife "qp/recv/early.rs":
        "if self.epsn != first {\n            self.held_since = now;" => "if false {\n            self.held_since = now;",
        "the time of a gap begins anew with progress";
    SecondCopyTakesASlot "qp/recv/reorder_pool.rs":
        "if let Some(held) = self.find(holder, psn) {" => "if let Some(held) = self.find(holder, psn).filter(|_| false) {",
        "a packet is buffered once";
    WalkHasNoEnd "qp/recv/reorder_pool.rs":
        "slots.take(WALKED).find(" => "slots.take(usize::MAX).find(",
        "the cost of an early packet does not depend on what is buffered";
    GapIsExecuted "qp/recv/responder.rs":
        "ahead => self.early(now, ahead.cast_unsigned(), packet, pool, cx)," =>
        "_ => Ok(self.expected(packet, cx)),",
        "requests are executed in order";
    EveryGapIsNaked "qp/recv/early.rs":
        "let held = self.reorder_buffer.len(pool);" => "let held = self.reorder_buffer.len(pool); self.nak_sequence();",
        "one NAK per gap";
    SendWithoutReceiveIsDropped "qp/recv/responder.rs":
        "let Some(rqe) = cx.rq.head() else {\n            return Err(Refusal::NotReady);" =>
        "let Some(rqe) = cx.rq.head() else {\n            return Ok(());",
        "a SEND without a receive is refused for a while";
    LongSendIsNotNoticed "qp/recv/responder.rs":
        "let fits = total <= rqe.len();" => "let fits = true; let _ = rqe.len();",
        "a SEND fits its receive";
    PeerInvalidatesNothing "qp/recv/responder.rs":
        "let invalidated = invalidated_key(packet.ext);\n        if let Some(key) = invalidated {" =>
        "let invalidated = invalidated_key(packet.ext);\n        if let Some(key) = invalidated.filter(|_| false) {",
        "SEND with invalidate ends the key";
    LastLengthIsReported "qp/recv/responder.rs":
        "len: total as u32," => "len: packet.payload.len() as u32,",
        "a receive's length is that of the message";
    MsnMissesReads "qp/recv/responder.rs":
        "self.msn = self.msn.next();\n        cx.tally.count(Counter::RxReadRequests);" =>
        "cx.tally.count(Counter::RxReadRequests);",
        "a READ counts in the MSN (C9-148)";
    AckOvertakesRead "qp/recv/responder.rs":
        "match self.reads.fill(" =>
        "if self.reply.is_some() {
            let reads = core::mem::take(&mut self.reads);
            let written = self.fill_reply(peer, (&mut *unit, false), tally);
            self.reads = reads;
            return (written, Verdict::Done);
        }
        match self.reads.fill(",
        "an ACK stays behind the READ responses owed before it";
    AckNamesTheNextPacket "qp/recv/responder.rs":
        "self.epsn.back(packets + 1)" => "self.epsn.back(packets)",
        "an ACK names the newest packet executed";
    AckNamesAReadResponse "qp/recv/responder.rs":
        "*packets = packets.saturating_add(responses);" => "*packets = packets.saturating_add(0 * responses);",
        "a READ is acknowledged by its responses alone";
    AckCountsReads "qp/recv/responder.rs":
        "*messages = messages.saturating_add(1);" => "*messages = messages.saturating_add(0);",
        "an ACK's MSN is that of the packet that it names";
    AckFollowsACopyOfARead "qp/recv/responder.rs":
        "if replayed && acks_all &&" => "if replayed && acks_all && false &&",
        "a READ's responses acknowledge what came again before it";
    ReadsTrailIntoSilence "qp/recv/responder.rs":
        "if !is_read && !self.trailing_reads.any() {" => "if !is_read {",
        "an ACK of what is before a READ is not repeated";
    ReadOwesAnAck "qp/recv/responder.rs":
        "self.nak_state = NakState::None;\n        self.reply = None;" => "self.nak_state = NakState::None;",
        "a READ's responses acknowledge what came before it";
    WriteGoesBack "qp/recv/responder.rs":
        "target.offset + written," => "target.offset + written.saturating_sub(1),",
        "the packets of a WRITE lie one behind the other";
    FlushAnswersReads "qp/mod.rs":
        "self.responder.clear();\n        self.enter_error(out);\n    }" => "self.enter_error(out);\n    }",
        "a flush drops the READ responses that are owed";
    BadKeyOfAWriteWithImmediate "qp/recv/responder.rs":
        "has_imm.then_some(WcStatus::LocalAccess)" => "has_imm.then_some(WcStatus::Flushed)",
        "C9-222.1: the receive of a WRITE with immediate and a bad key ends in error";
    StaleNakLeaves "qp/recv/responder.rs":
        "if ack_req || self.reply.is_some() {\n            self.reply = Some(Syndrome::ACK);" =>
        "if ack_req || self.reply.is_some() {\n            self.reply.get_or_insert(Syndrome::ACK);",
        "a NAK whose gap closed does not leave";
    MessageIsNotEnded "qp/recv/responder.rs":
        "(Message::None, _) => opens," => "(Message::None, _) => true,",
        "a message begins with its first packet (C9-83)";
    ReadWithPayload "qp/recv/responder.rs":
        "!packet.payload.is_empty()\n            || " => "",
        "a READ request has no payload";
    WriteKeyIsCheckedOnce "qp/recv/responder.rs":
        "cx.mrs.invalidate(cx.pd, Invalidator::Peer(cx.qpn), key)" =>
        "cx.mrs.invalidate(cx.pd, Invalidator::Owner, key)",
        "a peer ends a window only through the QP that bound it";
    WriteRaisesImmediate "qp/recv/responder.rs":
        "if has_imm && !cx.claim() {" => "if !cx.claim() {",
        "a WRITE takes no receive";

// ---- the peer's origin ---------------------------------------------------------------------------
    StrangersAreBelieved "qp/inbound.rs":
        "if self.origin.knows(&Origin::of(&packet.encap)) {" => "if true {",
        "a packet that is not exactly expected comes as the peer's do";
    StrangersEndConnections "qp/recv/responder.rs":
        "Err(Refusal::Fatal(..)) if !cx.known => {" => "Err(Refusal::Fatal(..)) if false => {",
        "what ends a connection comes as the peer's packets do";
    DisbelievedRequestBeginsAMessage "qp/recv/responder.rs":
        "self.message = message;" => "let _ = message;",
        "a request that is not believed changes nothing";
    AckOfAllIsAlwaysProof "qp/send/proof.rs":
        "|| asked && (all" => "|| (all",
        "an ACK of many packets comes as the peer's do, or answers a probe";
    OldestPacketIsNoProof "qp/send/proof.rs":
        "sq.expects(psn) && psn == sq.una()" => "sq.expects(psn) && false",
        "the next READ data are the peer's, whichever way they came";
    RepeatedNakEndsTheConnection "qp/send/proof.rs":
        "            | Syndrome::Reserved(_) => true," => "            | Syndrome::Reserved(_) => false,",
        "a NAK that ends the connection comes as the peer's packets do";
    PortIsNeverLearned "qp/origin.rs":
        "(self.last.src_port, self.port_known) = (origin.src_port, true);" => "let _ = origin;",
        "the first packet tells the peer's UDP port";
    PortOfOurMakeIsUnknown "qp/origin.rs":
        "if matches!(make, Make::Keeper) && src_port != ROCE_PORT {" => "if false {",
        "the port of a peer of our make is known before its first packet";
    FieldsNeverVary "qp/origin.rs":
        "self.varies = self.varies.or(field);" => "let _ = field;",
        "a field that changes again and again is not asked for";
    ThirdValueTellsNothing "qp/origin.rs":
        "let another = u32::from(changed && !third.and(field).is_empty());" => "let another = u32::from(false);",
        "a value between two that were believed counts";
    OneForgedValueTellsAll "qp/origin.rs":
        "let another = u32::from(changed && !third.and(field).is_empty());" =>
        "let another = 2 * u32::from(changed && !third.and(field).is_empty());",
        "one value that was not believed may be forged";
    AnswersNeedNoOtherProbe "qp/origin.rs":
        "tries > before.tries" => "tries >= before.tries",
        "an answer counts that comes again to another probe";
    DuplicatesFromElsewhereAreAnsweredAtOnce "qp/origin.rs":
        "since.is_some_and(|at| now.saturating_since(at) >= REPEATED_AFTER)" => "since.is_none_or(|at| now >= at)",
        "a duplicate from elsewhere is answered once in a millisecond";
    RoutersAreFollowed "qp/origin.rs":
        "if self.last.macs == of(before) {" => "if self.last.macs != of(hop) {",
        "the packets of a peer behind a router still come from that";
    ListOfAStrangerCounts "device/acks.rs":
        "&& !entry.qp.is_peer(&encap) {" => "&& false {",
        "a list of ACKs comes as the peer's packets do";
    HopLimitIsFree "wire/flow.rs":
        "if differ(words, &self.words, &masks.flow) { None }" =>
        "let mut flow = masks.flow; flow[2] &= !(0xff << 48); if differ(words, &self.words, &flow) { None }",
        "a packet of another hop limit takes no short way";
    PriorityIsTheVlan "wire/origin.rs":
        "Some(tag) => tag & VLAN_ID," => "Some(tag) => tag,",
        "packets of a flow may have several priorities";
    HeldPacketWins "qp/recv/reorder_buffer.rs":
        "Place::Held(slot) if pool.is_copy(slot, packet) => return Insertion::Duplicate," =>
        "Place::Held(_) if packet.payload.len() < usize::MAX => return Insertion::Duplicate,",
        "of two requests with one number neither is kept";
    ForgedCnpsCutAtOnce "qp/cc/rate.rs":
        "now.saturating_since(self.cut_at) >= CNP_INTERVAL" => "now.saturating_since(self.cut_at) >= CUT_INTERVAL",
        "notifications cut once in 50 us";

// ---- READ responses -------------------------------------------------------------------------------------
    ResentReadIsAnsweredFromTheStart "qp/recv/read.rs":
        "let target = target.unwrap_or(None);" =>
        "let target = target.unwrap_or(None); let psn = record.first;",
        "a part asked for again is answered from there on";
    ResentReadIsNotAnswered "qp/recv/read.rs":
        "let Some(record) = self.record_of(psn, reth, pmtu) else { return false };" =>
        "let Some(record) = self.record_of(psn, reth, pmtu).filter(|_| false) else { return false };",
        "a READ that came twice is answered twice";
    DuplicateReadOfADeadKeyIsSilent "qp/recv/responder.rs":
        "(fill_aeth(nak, (psn, false), peer, unit, tally), Verdict::Done)" =>
        "{ let _ = (nak, psn); (0, Verdict::Done) }",
        "DUP-10: a peer that still waits is told that the key has ended";
    StaleReadIsRefused "qp/recv/read.rs":
        "target.is_err() && !self.peer_waits(now, record.first)" =>
        "target.is_err() && !self.peer_waits(now, record.first) && false",
        "DUP-10: a copy of a READ that the peer has is silent";
    HalfACopyIsRefused "qp/recv/read.rs":
        "if replay && target.is_some() {" => "if replay && target.is_some() && false {",
        "DUP-10: a copy whose key ends while it is answered is silent";
    LaterReadIsThatWhichThePeerWaitsFor "qp/recv/read.rs":
        "if first.since(psn) > 0 && now < since + COPIES_PASS => false," => "if false => false,",
        "DUP-10: a peer waits for the oldest READ that it asks for";
    ReadNeverEnds "qp/recv/read.rs":
        "Place::of(self.next == self.first, self.next.add(1) == self.end)" =>
        "Place::of(self.next == self.first, self.next == self.first && self.next.add(1) == self.end)",
        "a READ response ends with LAST or ONLY";
    DuplicateReadWithAnotherKey "qp/recv/read.rs":
        "(reth.rkey == record.reth.rkey && inside).then_some(record)" => "inside.then_some(record)",
        "DUP-08: a duplicate READ is the same READ, its key too";
    DuplicateReadWithAnotherAddress "qp/recv/read.rs":
        " && reth.va == record.reth.va.wrapping_add(skipped)" => "",
        "a duplicate READ is the same READ, its address too";
    DuplicateReadOfMore "qp/recv/read.rs":
        "u64::from(reth.len) <= left && " => "",
        "a duplicate READ asks for no more than the first";
    ReadsAreOwedWithoutBound "qp/recv/read.rs":
        "if self.replies.len() >= self.replies_max() {
            return false;" => "if self.replies.len() >= MAX_READS {
            return false;",
        "duplicates make no more responses owed than two per READ";
    AnswersAreOutOfOrder "qp/recv/read.rs":
        "other.next.since(reply.next) > 0" => "other.next.since(reply.next) < 0",
        "READ responses leave in PSN order";

// ---- receives --------------------------------------------------------------------------------------
    SharedReceivesComeNewestFirst "qp/recv/queue.rs":
        "ring.get(0).map(Rqe) {\n            let posted" => "ring.get(ring.len() - 1).map(Rqe) {\n            let posted",
        "receives are taken in order";
    SharedReceiveStays "qp/recv/queue.rs":
        "ring.pop(1);\n        self.claimed" => "self.claimed",
        "a receive is taken once";
    DeeperRingOvertakes "qp/recv/queue.rs":
        "ring.update();\n            if !ends {" => "ring.update();\n            if false && !ends {",
        "receives of a queue that became deeper are taken in order";
    LowReceivesAreNotTold "qp/recv/queue.rs":
        "self.due += 1;" => "",
        "a shared queue that runs low is told";
    LowReceivesAreToldAgain "qp/recv/queue.rs":
        "self.armed = false;\n            self.due += 1;" => "self.due += 1;",
        "once for each time that it was armed";

// ---- congestion --------------------------------------------------------------------------------
    EveryMarkMakesACnp "qp/cc/congestion.rs":
        "self.enabled && marked && self.cnp_sent_at.is_none_or(due)" => "self.enabled && marked",
        "one CNP in 50 us";
    EctIsTakenForCe "wire/encap.rs":
        "traffic_class & CE == CE" => "traffic_class & CE != 0",
        "only CE is congestion";
    AnyAddressIsThePeers "qp/inbound.rs":
        "encap.dst == peer.encap.src && encap.src == peer.encap.dst" => "encap.dst == peer.encap.src",
        "a packet comes from the connection's address";

// ---- keys --------------------------------------------------------------------------------------
    RightsAreIgnored "mr/slot.rs":
        "let usual = u32::from(needed.bits()) | NAMES;" => "let usual = NAMES;",
        "a key gives the rights that it was made with";
    PeerInvalidatesAnything "mr/slot.rs":
        "Kind::FastRegister(_) | Kind::Window => Ok(())," =>
        "Kind::FastRegister(_) | Kind::Window | Kind::Registered => Ok(()),",
        "a registered region is not ended by a peer";
    InvalidationKeepsTargets "mr/slot.rs":
        "let same = self.seq.load(Acquire) == seq;" => "let same = true;",
        "nothing goes through a key that ended, even if it was checked before";
    WindowIsAsWideAsItsRegion "mr/lookup.rs":
        "let Bind { va: base, len, access, .. } = *bind;" =>
        "let (Bind { va: base, access, .. }, len) = (*bind, span.len - (bind.va - span.base));",
        "a window is as long as it was bound";
    MappingForgetsItsOffset "mr/lookup.rs":
        "offset: offset.into(), base, len, access" => "offset: 0, base, len, access",
        "a mapping begins at its offset";
    WindowServesAnyQp "mr/lookup.rs":
        "if bound.qpn != qpn {" => "if false {",
        "a window serves the QP that bound it";
    WindowOutlivesItsRegion "mr/lookup.rs":
        "view.bound.is_none_or(|bound| self.lives(&bound)).then_some(span.region)" => "Some(span.region)",
        "a window ends with its region";
    KeyServesAnyDomain "mr/slot.rs":
        "if self.pd != pd {" => "if false {",
        "a key serves its protection domain (C10-72)";
    WindowsSurviveTheirQp "mr/lookup.rs":
        "let window = self.bound.find(qpn.get()).next();" => "let window = self.bound.find(!qpn.get()).next();",
        "windows end with the QP that bound them";

// ---- wire ------------------------------------------------------------------------------------
    FlowTakesAnyChecksum "wire/flow.rs":
        "right.then_some((u16" => "(right || true).then_some((u16",
        "the short way drops what the general one drops";
    FlowTakesAnySource "wire/flow.rs":
        "let pairs = words.iter().zip(others).zip(mask);" => "let pairs = words.iter().zip(others).zip(mask).take(3);",
        "the short way is for the packets of one peer";
    TemplateChecksumForgetsTheId "wire/template.rs":
        "add(self.sum, ip_id)" => "add(self.sum, ip_id & 0xff00)",
        "the IPv4 checksum is that of the header";
    IcrcIsNotChecked "wire/mod.rs":
        "check.judge(covered_bytes, *icrc).ok_or(DropReason::Icrc)?;" => "check.judge(covered_bytes, *icrc).unwrap_or(0);",
        "a packet with a wrong ICRC is dropped";
    IcrcCoversTtl "wire/icrc.rs":
        "[bytes[1], bytes[8]] = [ONES; 2];" => "",
        "the ICRC leaves out what routers change";
    PadIsDelivered "wire/mod.rs":
        "let payload = body.get(..payload_len)" => "let payload = body.get(..payload_len.max(body.len()))",
        "pad bytes are no data";
    PadIsNotZero "wire/mod.rs":
        "pad.fill(0);" => "pad.fill(1);",
        "pad bytes are zero";
    PacketToQpZero "wire/mod.rs":
        "if bth.dest_qpn == Qpn::new(0) {" => "if false {",
        "nothing goes to QP 0";
    VersionIsIgnored "wire/bth.rs":
        "if flags & 0x0f != 0 {" => "if false && flags & 0x0f != 0 {",
        "the transport version is 0";
    FragmentIsParsed "wire/encap.rs":
        "if ip.is_fragmenting_payload() {" => "if false {",
        "a fragment is no packet";

    // The short ways.
    SingleTakesAnyPsn "qp/recv/common.rs":
        "if psn != self.epsn ||" => "if psn.since(self.epsn) < 0 ||",
        "a request is executed in its turn";
    SingleBreaksIntoAMessage "qp/recv/common.rs":
        "self.message != Message::None || u64::from(reth.len) != len" => "u64::from(reth.len) != len",
        "a message in progress ends before the next begins";
    SingleWriteMayBeShorter "qp/recv/common.rs":
        "u64::from(reth.len) != len || len > cx.pmtu()" => "u64::from(reth.len) < len || len > cx.pmtu()",
        "a WRITE has the length that it announced";
    SingleSendOverflowsItsElement "qp/recv/common.rs":
        "&& len <= u64::from(sge.len))" => "&& len <= u64::from(sge.len) + 64)",
        "a message that does not fit its receive fails";
    SingleSendIsUnsolicited "qp/recv/common.rs":
        "Received::success(len as u32, solicited)" => "Received::success(len as u32, solicited && len != 64)",
        "a solicited event is one the short way, too";
    SingleSendEndsNoReceive "qp/recv/common.rs":
        "cx.rq.head_ended();" => "",
        "each message takes a receive of its own";
    CommonSendOverflowsItsElement "qp/recv/common.rs":
        ".filter(|sge| total <= u64::from(sge.len))" => ".filter(|sge| total <= u64::from(sge.len) + 64)",
        "a message that does not fit its receive fails";
    AnswersToProbesAreNotCounted "qp/send/completer.rs":
        "if !answer || !self.recovery.probe_answered(cx.sq) {" => "if !answer {",
        "an ACK of an earlier probe tells nothing about what was sent since";
    EarlierProbesAreForgotten "qp/send/probe.rs":
        "self.earlier = self.all;" => "",
        "an ACK of an earlier probe tells nothing about what was sent since";
    NewestAckEndsAPart "qp/send/queue.rs":
        "|| end == before || self.cursor.packet > 0 {" => "|| end == before {",
        "an ACK inside a message does not end it";
    NewestAckForgetsTheTimer "qp/send/completer.rs":
        "self.timer.progress(now, false, || false);" => "",
        "nothing expires when everything is acknowledged";
    SingleReadIsForgotten "qp/recv/common.rs":
        "self.reads.accept(psn, packets, reth, target, self.msn);" => "if psn.get() % 8 != 0 { self.reads.accept(psn, packets, reth, target, self.msn); }",
        "each READ that was accepted has a response";
    SingleIcrcIsNotChecked "wire/common.rs":
        "if icrc_of(covered) != *icrc {" => "if icrc_of(covered) != *icrc && false {",
        "a packet with a wrong ICRC is dropped";
    SegmentIsForAnyQueuePair "wire/segments.rs":
        "bth.dest_qpn != qpn ||" => "",
        "each packet of a unit is for the queue pair that it names";
    SegmentIsOfAnyHost "device/receive.rs":
        "if !qp.is_peer(&encap) {\n            return;\n        }" => "",
        "packets of a unit from another host are not the peer's";
    SegmentsAreNotMarked "wire/segments.rs":
        "&& !is_marked(unit.encap.traffic_class)" => "",
        "a mark of a unit is one of each of its packets";
    SegmentIsOfAnyPartition "wire/segments.rs":
        "|| !bth.is_of_default_partition()" => "",
        "a packet of another partition is dropped";
    CommonMiddleMayBeShort "qp/recv/common.rs":
        "end < u64::from(len) && payload.len() as u64 == pmtu" => "end < u64::from(len)",
        "a packet before the last is full";
    CommonWriteMayEndEarly "qp/recv/common.rs":
        "end == u64::from(len) && payload" => "end <= u64::from(len) && payload",
        "a WRITE has the length that its first packet announced";
    CommonSendForgetsItsPlace "qp/recv/common.rs":
        "(addr.wrapping_add(received), Access::LOCAL_WRITE)" => "(addr, Access::LOCAL_WRITE)",
        "each packet goes behind those before it";
    CommonPacketRequestsNoAck "qp/send/common.rs":
        "new.room == 1 ||" => "",
        "the packet that uses up the window requests an ACK";
    CommonAckPassesARead "qp/inbound.rs":
        "!self.calm || self.sq.reads_in_flight() > 0" => "!self.calm",
        "an ACK behind a READ shows that responses are missing";
    CommonResponseStartsAnew "qp/send/common.rs":
        "let addr = addr.wrapping_add(done);" => "let addr = addr.wrapping_add(done % 4096);",
        "each packet of a response goes behind those before it";
    CommonResponseNeedNotEnd "qp/send/common.rs":
        "if last && !place.is_last() {" => "if last && false && !place.is_last() {",
        "the last packet of a READ ends a response";
    CommonResponseRepeatsItsStart "qp/recv/read.rs":
        "(mrs.region(&target)?, target.offset + done)" => "(mrs.region(&target)?, target.offset + done % 8192)",
        "each packet of a response has its own bytes";
    CommonNakIsAnAck "wire/common.rs":
        "(!refuses).then_some(common)" => "(!refuses || true).then_some(common)",
        "a NAK acknowledges nothing";
    FlowTakesAnyPartition "wire/flow.rs":
        "if differ(words, &self.words, &masks.flow) { None }" => "let mut mask = masks.flow; mask[(self.kind.bth() + 2) / WORD] = 0; if differ(words, &self.words, &mask) { None }",
        "any other partition is dropped";
    SinglePadIsDelivered "wire/common.rs":
        "len.checked_sub(ICRC_LEN + pad_count)?);" => "len.checked_sub(ICRC_LEN + pad_count)?.max(len - ICRC_LEN));",
        "pad bytes are no data";
    SingleIgnoresTheWindow "qp/send/common.rs":
        "window.saturating_sub(sq.in_flight())" => "(window + 64).saturating_sub(sq.in_flight())",
        "no more than a window is in flight";
    SingleIgnoresTheReadDepth "qp/send/common.rs":
        "new.reads < self.reads_max" => "new.reads <= self.reads_max",
        "no more READs are in flight than were agreed on";
    SingleReadsIntoAnything "qp/send/common.rs":
        "if read { Access::LOCAL_WRITE }" => "if read { Access::LOCAL_READ }",
        "the sink of a READ grants local write";
    SingleIgnoresTheFence "qp/send/entry.rs":
        "match head & (0xff | READ_FENCE | 0xff << COUNT_SHIFT" => "match head & (0xff | 0xff << COUNT_SHIFT",
        "a fenced request waits for the READs before it";
    SinglesEndUnacknowledged "qp/send/queue.rs":
        "let singles = (0..ahead as usize)" => "let singles = (0..ahead as usize + usize::from(ahead > 2))",
        "what is not acknowledged does not succeed";
    SingleReadTakesAnyLength "qp/send/queue.rs":
        "(left.min(pmtu) == len)" => "(left.min(pmtu) >= len)",
        "a response has the length of its READ";
    StreamForgetsAResend "qp/send/queue/scoreboard.rs":
        "resend.is_none() && !stalled && behind" => "!stalled && behind",
        "a resend goes before new packets";
    ProbeMissesAShortResponse "qp/inbound.rs":
        "let probed = !self.calm && self.probe.waits();" => "let probed = false;",
        "any response answers a probe";
    RunKeepsAnOldHop "device/transmit.rs":
        "self.hops == hops && traffic_class == Some(self.traffic_class)" => "traffic_class == Some(self.traffic_class)",
        "packets follow the path";
    RunIsCountedAsOnePacket "wire/common.rs":
        "self.packets += 1;" => "self.packets = 1;",
        "each packet is counted";
    RunIgnoresTheTurn "wire/run.rs":
        "self.limit.units == 0 || self.bytes >= self.limit.bytes" => "self.limit.units == 0",
        "queue pairs take turns";
    HopsChangeUnnoticed "path.rs":
        "self.changes = self.changes.wrapping_add(1);" => "",
        "packets follow the path";
    BurstOfResponsesStopsTheTimer "qp/send/retry.rs":
        "if outstanding {" => "if outstanding || self.progress_at == now {",
        "nothing is waited for when nothing is in flight";

// ---- device ------------------------------------------------------------------------------------
    LimitedMemberIsRefused "wire/bth.rs":
        "self.pkey & 0x7fff == Self::DEFAULT_PKEY & 0x7fff" => "self.pkey == Self::DEFAULT_PKEY",
        "a limited member of the partition is one";
    ReservedPartitionIsAccepted "wire/bth.rs":
        "self.pkey & 0x7fff == Self::DEFAULT_PKEY & 0x7fff" => "(self.pkey & 0x7fff == Self::DEFAULT_PKEY & 0x7fff || self.pkey == 0x8001)",
        "PKT-20: any other partition is dropped";
    AnyQkeyServes "device/front.rs":
        "Ext::Deth(Deth { qkey: GSI_QKEY, .. }) => {" => "Ext::Deth(_) => {",
        "QP 1 has its Q_Key";
    AnyDestinationIsOurs "device/link_end.rs":
        "if !addresses.contains(&encap.dst) {" => "if false {",
        "only our addresses are ours";
    DatagramReachesAnRcQp "device/receive.rs":
        "let handled = if packet.bth.opcode.is_connected() {" => "let handled = if true {",
        "an RC queue pair takes RC opcodes";
    QpnIsUsedAgainAtOnce "device/qps.rs":
        "&& qpn != self.last_qpns[slot]" => "&& (qpn != self.last_qpns[slot] || true)",
        "a QPN rests before it is used again";
    DestroyedQpStaysInLine "device/qps.rs":
        "if scheduled {" => "if false {",
        "a destroyed queue pair leaves no place in the line of those that send";
    FirstPacketIsNoRtu "device/receive.rs":
        "entry.hears(slot, &mut self.lists, Heard::DATA);" => "",
        "the first packet stands for a lost RTU";
    EveryDoubtIsTold "path.rs":
        "self.doubted_at.is_none_or(|at| now >= at + DOUBT_INTERVAL)" => "true",
        "what peers do makes no more than so many doubts of a path";
    PathStaysInTheTable "path.rs":
        "self.by_ends.remove(self.hash(path), index.place());" => "",
        "a path without users is gone";

// ---- connection management -----------------------------------------------------------------------
    DreqIsNotAnswered "cm/receive.rs":
        "self.transmit(to, mad(header.transaction_id, &drep));" => "let _ = (drep, to, header);",
        "DREQ is answered by DREP";
    ConnectGivesUpAtOnce "cm/retry.rs":
        "self.resends_left = self.resends_left.checked_sub(1)?;" => "if true { return None; }",
        "what is not answered is sent again";
    RepeatedReqIsNew "cm/request.rs":
        "if let Some(id) = self.conns.find_request(request) {" =>
        "if let Some(id) = self.conns.find_request(request).filter(|_| false) {",
        "a REQ that comes twice is one request";
    ReqKillsALiveConnection "cm/request.rs":
        "self.check_stale(now, old);" => "self.lose_peer(now, old);",
        "a REQ, which may be forged, ends no live connection by itself";
    RejOfAnotherPeer "cm/receive.rs":
        "Some((id, conn)) if conn.may_be_peer(rej.local_comm_id) => id," => "Some((id, _)) => id,",
        "CM-17: a REJ names both IDs";
    AnyRemoteIdIsThePeers "cm/receive.rs":
        "Some((id, conn)) if conn.remote_id == Some(remote_id) => {" => "Some((id, conn)) => { let _ = remote_id;",
        "RTU, DREQ and DREP name both IDs";
    AnyMraIsTaken "cm/receive.rs":
        "(State::ReqSent, MraMessage::Req) | (State::RepSent, MraMessage::Rep) => {}" =>
        "(State::ReqSent | State::RepSent, MraMessage::Req | MraMessage::Rep) => {}",
        "MRA says which message it has received";
    RepIsSentAfterData "cm/send.rs":
        "self.conns.set_deadline(id, None);\n        self.claim_peer_qp(now, id);" =>
        "if !matches!(event, Event::RecvData) { self.conns.set_deadline(id, None); }
        self.claim_peer_qp(now, id);",
        "REP is not sent again once data established the connection";
    DreqForAnotherQp "cm/receive.rs":
        "if conn.qp.qpn != dreq.remote_qpn {" => "if false {",
        "DREQ names the QP";
    MraWaitsAsLongAsItSays "peer_limits.rs":
        "code_duration(code).min(self.service_limit)" => "code_duration(code)",
        "a peer's MRA is not trusted for ever";
    GidsMayLie "cm/request.rs":
        "if (ip_cm.src, ip_cm.dst) != (src, dst) || gids" => "if gids",
        "a REQ's addresses are those that it came from";
    TransportIsIgnored "cm/request.rs":
        "if req.transport != Transport::Rc {" => "if false {",
        "RC is the one transport";
    AnyMtuWillDo "cm/request.rs":
        ".filter(|pmtu| *pmtu <= max)" => "",
        "a path MTU that the port does not carry is refused";
    TimeWaitAnswersAnybody "cm/time_wait.rs":
        "self.check_addresses(packet)?;" => "",
        "the REJ of an ended connection is repeated to its peer only";
    StaleReqIsTaken "cm/request.rs":
        "wait.request.as_ref() == Some(request)" => "wait.request.is_some()",
        "a REQ with the ID of an ended connection is another one";
    MraIsTakenTwice "cm/retry.rs":
        "self.extended = true;" => "",
        "one MRA per sending";
    RefusedReqKeepsItsPlace "cm/send.rs":
        "conn.step(Event::SendRej);\n        conn.set_message(rej);\n        conn.rejected = true;" =>
        "conn.step(Event::SendRej);\n        conn.set_message(rej);",
        "a REJ is repeated until the peer has heard it";
    UnspecifiedAddressIsAHost "wire/encap.rs":
        "check_hosts(&encap)?;" => "",
        "nobody is at a multicast or unspecified address";
    ClassEIsAHost "wire/host.rs":
        "matches!(v4.octets()[0], 0 | 240..)" => "matches!(v4.octets()[0], 0 | 255..)",
        "class E is nobody's";
    LoopbackComesFromTheWire "wire/host.rs":
        "address.is_loopback() && !own.is_loopback()" => "address.is_loopback() && own.is_loopback()",
        "a loopback address is on the link of another one only";
    GroupMayAsk "wire/host.rs":
        "if !(encap.src_mac.is_host() && encap.dst_mac.is_host())" => "if !encap.src_mac.is_host()",
        "a packet to a group is for nobody alone";
    ZeroIsAnEthernetAddress "wire/host.rs":
        "self.0[0] & 1 == 0 && !matches!(self.0, [0, 0, 0, 0, 0, 0])" => "self.0[0] & 1 == 0",
        "no host has the Ethernet address zero";
    OtherHostsFramesAreTaken "device/link_end.rs":
        "mac != encap.dst_mac" => "mac == encap.src_mac",
        "a frame for another host is not answered from its address";
    OwnAddressComesFromTheWire "device/link_end.rs":
        "[encap.src_mac, encap.dst_mac] == [self.loopback_mac; 2]" => "encap.src_mac == encap.dst_mac",
        "a loopback is closed to the wire";
    LoopbackIsForAll "device/link_end.rs":
        "false if !loops => link.check(encap)," => "false => link.check(encap),",
        "the loopback is for own addresses";
    PriorityIsAVlan "device/link_end.rs":
        "encap.vlan.map_or(0, |tci| tci & VLAN_ID)" => "encap.vlan.map_or(0, |tci| tci)",
        "a priority in a tag is no other VLAN";
    NoTagIsEveryVlan "device/link_end.rs":
        "if self.vlan.is_some_and(|own| own != vlan)" => "if self.vlan.is_some_and(|own| vlan != 0 && own != vlan)",
        "a packet without a tag is of no VLAN";
    UnitsSkipTheEnds "device/receive.rs":
        "if self.check_ends(&encap).is_err() {\n            return;\n        }" => "",
        "a unit is checked as a frame is";
    PathMtuIsLoweredForEver "cm/path_mtu.rs":
        "*pmtu < self.peer.pmtu && !self.pmtu_lowered" => "*pmtu < self.peer.pmtu",
        "one more REQ, and no third";
    PathMtuIsRaised "cm/path_mtu.rs":
        "*pmtu < self.peer.pmtu && !self.pmtu_lowered" => "!self.pmtu_lowered",
        "the path MTU asked for is no larger than the port's";
    SecondReqIsTheFirst "cm/path_mtu.rs":
        "self.transaction_id = transaction_id;" => "",
        "a copy of the first REJ is not about the second REQ";
    PathMtuIsToldAlone "cm/path_mtu.rs":
        "(self.peer.pmtu, self.pmtu_lowered) = (pmtu, true);" => "self.pmtu_lowered = true;",
        "the queue pair has the path MTU of the REQ that was accepted";
    AnyRejLowersThePathMtu "cm/path_mtu.rs":
        "about != (RejMessage::Req, RejReason::INVALID_MTU)" => "about.0 != RejMessage::Req",
        "only REJ 26 names a path MTU";
    RequestsShareWithConnections "device/mad_limiter.rs":
        "true => self.named.has(now, group, true)," => "true => self.unknown.has(now, group, true),",
        "a flood of requests costs messages of connections nothing";
    OneSourceHasAll "device/mad_limiter.rs":
        "tariff(cost_ns * GROUP_PART)" => "tariff(cost_ns)",
        "one source has a quarter";
    RepeatedRequestsWait "device/mad_limiter.rs":
        "false => self.unknown.has(now, group, repeated)," => "false => self.unknown.has(now, group, false),",
        "a request that comes again goes first";
    RefusedRequestsAreForgotten "device/mad_limiter.rs":
        "request.filter(|_| !allowed)" => "request.filter(|_| false)",
        "a request that was refused is remembered";
    CopiesAreRepetitions "device/greylist.rs":
        "at != young && tags.contain(hash)" => "tags.contain(hash)",
        "copies sent at once are no repetitions";
    GreylistNeverForgets "device/greylist.rs":
        "self.generations[self.young].clear();" => "",
        "a request is repeated for some seconds";
    UnprovenNeverLeave "cm/table.rs":
        "self.unproven.leave(id);\n        if let Some(peer_qp)" => "if let Some(peer_qp)",
        "a peer that is proved takes no place of others";
    UnprovenAreUnbounded "cm/request.rs":
        "self.conns.unproven.len() < self.config.max_unproven" => "true",
        "what is accepted and unproven is bounded";
    FirstRequestsDisplace "cm/request.rs":
        "has_room || asked.repeated && self.displace" => "has_room || self.displace",
        "a request that comes for the first time takes no place of another";
    YoungRepetitionsAreDisplaced "cm/unproven.rs":
        "(!conn.repeated || now.saturating_since(conn.since) >= OLD)" => "true",
        "a handshake has its round trip";
    AnyHostNamesAConnection "cm/mod.rs":
        "conn.peer.remote.ip() == peer" => "true",
        "the share of connections is for their peers";
    RefusalsFillTheQueue "cm/send.rs":
        "self.config.max_transmits.div_ceil(4) * 3" => "self.config.max_transmits",
        "refusals leave room for messages of connections";
    TermsAreSwapped "cm/request.rs":
        "inbound: req.initiator_depth, outbound: req.responder_resources" =>
        "inbound: req.responder_resources, outbound: req.initiator_depth",
        "what the peer asks for is what we serve";
    RetriesAreOurs "peer_limits.rs":
        "own.max(wanted).min(RETRIES_MAX)" => "own.min(RETRIES_MAX)",
        "a peer may ask for more retries than ours";
    AckTimeoutZeroIsShort "peer_limits.rs":
        "if code == FOR_EVER { longest }" => "if code == FOR_EVER { 1 }",
        "an ACK timeout of 0 is for ever, and so the longest";
    AckDelayIsForgotten "cm/connection.rs":
        "let wanted = fold_ack_delay(config.ack_timeout_code, rep.target_ack_delay);" =>
        "let wanted = config.ack_timeout_code;",
        "the acceptor's delay is part of the ACK timeout";
    FlowLabelOfTheOtherPath "cm/request.rs":
        "flow_label: req.primary.flow_label," => "flow_label: req.alternate.flow_label,",
        "the primary path is the connection's";
    ResponseTimeoutIsOurs "cm/connection.rs":
        "code_duration(req.local_response_timeout).min(config.connect_limit)" =>
        "code_duration(req.remote_response_timeout).min(config.connect_limit)",
        "the REP waits for the RTU as long as the REQ said";

// ---- units ------------------------------------------------------------------------------------
    UnitsPassWhateverComes "qp/unit_watch.rs":
        "(acked.since(end) >= 0).then_some(Outcome::Lost)" => "(acked.since(end) >= 0).then_some(Outcome::Passed)",
        "a unit of which each packet was sent again was lost whole";
    PartOfAUnitIsAll "qp/unit_watch.rs":
        "(acked.since(again_to) > 0).then_some(Outcome::Passed)" => "(acked.since(again_to) > 0).then_some(Outcome::Lost)",
        "a unit of which one packet came was divided";
    UnitIsLostBeforeItComes "qp/unit_watch.rs":
        "(acked.since(end) >= 0).then_some(Outcome::Lost)" => "Some(Outcome::Lost)",
        "a unit counts as lost once its packets have come singly";
    DropperShowsUnits "qp/unit_watch.rs":
        "make == Make::Other && psn.since(self.first) < 0" => "make == Make::Keeper && psn.since(self.first) < 0",
        "a peer that drops what is behind a gap tells nothing of a unit there";
    ResendsLeaveInUnits "qp/outbound.rs":
        "let max_packets = if new { max_packets } else { max_packets.min(1) };" => "",
        "a packet that is sent again leaves alone";
    ResponsesAgainLeaveInUnits "qp/recv/read.rs":
        "let again = reply.again();" => "let again = false;",
        "a response that is sent again leaves alone";
    BurstOfUnitsCountsEach "units.rs":
        "self.stage == Stage::Singles || !self.is_sound() && fate.sent_at < self.since" => "self.stage == Stage::Singles",
        "units that left together are lost together";
    ShortUnitsShowLongOnes "units.rs":
        "if len >= self.lost_len {" => "if len > 0 {",
        "a unit that passes tells nothing of longer ones";
    UnitsAreNeverTriedAgain "units.rs":
        "self.stage == Stage::Singles && now >= self.until" => "self.stage == Stage::Singles && now < self.until",
        "one unit is tried after the wait";
    WaitForUnitsStays "units.rs":
        "self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX);" => "",
        "the wait for the next trial doubles";
    OneLostUnitOfManyPathsIsNews "path.rs":
        "(path || !self.units.is_sound()) && self.units.judge(now, &news)" => "self.units.judge(now, &news)",
        "the link is doubted once a path has given units up";
    ManyUnitsAreTried "device/transmit.rs":
        "(RunLimit { units: 1, ..limit }, true)" => "(limit, true)",
        "one unit is tried at a time";
    NewPacketKeepsUnsolicitedAcks "qp/recv/early.rs":
        "self.unsolicited_ack.cancel();
        // The buffered packets" => "// The buffered packets",
        "a new request ends unsolicited ACKs";
    CommonPacketKeepsUnsolicitedAcks "qp/recv/common.rs":
        "self.unsolicited_ack.cancel();" => "",
        "a new request ends unsolicited ACKs";
    TrimmedResendIsForgotten "qp/send/queue/scoreboard.rs":
        "self.scoreboard.resend = self.resend_range(from, range.end);
            if self.scoreboard.resend.is_none() {" => "self.scoreboard.resend = self.resend_range(from, range.end);
            if true {",
        "the next gap begins when nothing of the last is left";
    GoingBackSkipsMore "qp/send/queue/scoreboard.rs":
        "let packets = ahead.min(of_wqe - self.cursor.packet);" => "let packets = (ahead + 1).min(of_wqe - self.cursor.packet);",
        "going back skips what the peer has, and no more";
    MarkedAcksAreCongestion "qp/inbound.rs":
        "let data = known && !packet.payload.is_empty();" => "let data = known;",
        "a mark on a packet without payload causes no CNP";
    ProbesPrecedeWhatAsks "qp/send/completer.rs":
        "self.timer.put_off(now, at);" => "",
        "a response that was not requested is not late";
    StandingMessagesAreNotProbed "qp/send/completer.rs":
        "(self.unasked.replace(sq.next()) != Some(sq.next())).then_some(now)" => "Some(now)",
        "where no packet leaves any more, a probe requests what they did not";
    QuartersAskForNothing "qp/send/queue/new.rs":
        "let since = self.cursor.packet % interval;" => "let since = self.cursor.packet;",
        "inside a long message a quarter of the window requests an ACK";
    RttSpansAnRnrPause "qp/send/completer.rs":
        "self.disturb();
        self.pause = Some((refused, now + pause));" => "self.pause = Some((refused, now + pause));",
        "Karn: no round trip is measured over an RNR pause";

// ---- the provider -----------------------------------------------------------------------------
    InlineDataShareASlot "driver/src/qp/call.rs":
        "let slot = slot.place();" => "let slot = 0 * slot.place();",
        "inline data stay until their request is done";
    SilentSuccessIsTold "driver/src/qp/call.rs":
        "silent: flags & NDK_OP_FLAG_SILENT_SUCCESS != 0," => "silent: false,",
        "a request that is to succeed in silence has no completion";
    RejectIsNotSent "driver/src/connector/accept.rs":
        "let _ = cx.device.reject(cx.now, conn, private_data);" => "let _ = (conn, private_data);",
        "the peer hears that it is rejected";
    DisconnectIsNotTold "driver/src/connector/end.rs":
        "if let Some(event) = event {" => "if let Some(event) = event.filter(|_| false) {",
        "an end that did not leave is told that the other did";
    PeerIsOurselves "driver/src/connector/core.rs":
        "peer: zone::within(peer.remote, self.zone)," => "peer: zone::within(peer.local, self.zone),",
        "the peer's address is the peer's";
    AntecedentsCloseEarly "driver/src/object/core.rs":
        "&& life.children == 0 &&" => "&&",
        "an object closes behind those that were made of it";
    NumberedZonesAreOneAnother "driver/src/zone.rs":
        "(first, second) if first == second" => "(first, second) if first <= second",
        "two links have nothing in common";
    AnyAddressHasAZone "driver/src/zone.rs":
        "let zone = if has_zone(address.ip()) { zone } else { 0 };" => "",
        "an address of a link alone has a zone";
    PeerHasNoZone "driver/src/connector/core.rs":
        "peer: zone::within(peer.remote, self.zone)," => "peer: peer.remote,",
        "a connector tells the peer's zone";
    AcceptedEndHasNoZone "driver/src/listener/core.rs":
        "let port = zone::within(bound, zone);" => "let port = bound;",
        "a connector of a listener tells its own zone";
    OwnAddressOfAnotherZone "driver/src/connector/connect.rs":
        "zone::common(zone, listeners.zone_at(what.remote)).ok_or(STATUS_CONNECTION_REFUSED)" => "Ok(zone)",
        "a connect across zones of the own host is refused";
    LocalZoneIsTaken "driver/src/connector/core.rs":
        "local: zone::within(peer.local, self.zone)," => "local: peer.local,",
        "a connector tells its own zone";
    InlineDataAreTrusted "driver/src/bytes/inline.rs":
        "room.split_at_checked(sge.Length as usize)?" => "room.split_at(sge.Length as usize)",
        "a list that changes during the call ends it";
    ElementsAreUnbounded "driver/src/queue.rs":
        "check_len(elements.iter().map(|sge| u64::from(sge.len)).sum())?;" => "check_len(0)?;",
        "a request is no longer than a transfer may be";
    OneSlotTooMany "driver/src/queue.rs":
        "let has_room = queued < self.depth.load(Ordering::Relaxed);" => "let has_room = queued <= self.depth.load(Ordering::Relaxed);",
        "a queue takes as many requests as it was created for";
    OneElementTooFew "driver/src/queue.rs":
        "if count > max_sge { Err" => "if count >= max_sge { Err",
        "a request may have as many elements as the queue says";
    LongestTransferIsRefused "driver/src/queue.rs":
        "if len > MAX_TRANSFER as u64 { Err" => "if len >= MAX_TRANSFER as u64 { Err",
        "a request may be as long as the adapter says";
    PagesAreLost "driver/src/mr/shared.rs":
        "lists.give_back(index);" => "let _ = (lists, index);",
        "a list of pages that is refused comes back";
    PagesAreUneven "driver/src/mr/shared.rs":
        "page.QuadPart % PAGE_SIZE as i64 == 0" => "page.QuadPart % 2 == 0",
        "pages of a fast registration begin at pages";
    OtherPagesAreNotTaken "driver/src/mr/shared.rs":
        "own.or_else(pool)" => "{ let _ = pool; own }",
        "a region that is registered again before the old list came back takes one of the pool";
    WindowsMayWriteAnything "driver/src/mr/shared.rs":
        "if access.contains(Access::REMOTE_WRITE) && !self.local_write.load(Ordering::Relaxed) {" => "if false {",
        "a window writes only where its region may";
    KeptMemoryIsFreed "driver/src/lam/shared.rs":
        "if self.post(&Message::Retained(Arc::clone(&memory))).is_err() {" => "if false {",
        "memory whose owner went stays where it cannot be told";
    MappingsTouch "driver/src/lam/shared.rs":
        "self.next.fetch_add(u64::from(pages) + 1, Ordering::Relaxed)" => "self.next.fetch_add(u64::from(pages), Ordering::Relaxed)",
        "no element reaches from one mapping into another";
    ReleasedPlacesAreLost "driver/src/lam/shared.rs":
        "self.0.fetch_add(1, Ordering::Release);" => "",
        "a mapping that is gone gives its place back";
    PartOfAPostStays "driver/src/lam/shared.rs":
        "self.rings[..taken].iter().for_each(|ring| ring.give_back());" => "",
        "a message that not every core takes takes no place";
    LongerChainIsFollowed "driver/src/bytes/mapping.rs":
        "chain.iter().take(count)" => "chain.iter().take(count + 1)",
        "no more MDLs are mapped than were counted";
    MappingTakesMoreMemory "driver/src/bytes/mapping.rs":
        "2 * (4 + count) * (size_of::<Piece>() + size_of::<Mapped>())" => "count * size_of::<Piece>()",
        "there is memory for what a request needs";
    GapsAreMapped "driver/src/bytes/mapping.rs":
        "if expected.is_some_and(|expected| expected != va) {" => "if false {",
        "the MDLs of a chain are virtually contiguous";
    PieceReachesBehind "driver/src/bytes/mapping.rs":
        "let take = (piece.len - skip).min(len - done);" => "let take = (len - done).min(piece.len);",
        "no byte behind a piece is touched";
    MappingEndsOneLater "driver/src/bytes/mapping.rs":
        "if offset > self.len || len as u64 > self.len - offset {" => "if offset > self.len || len as u64 > self.len - offset + 1 {",
        "no byte behind a region is touched";
    CallbackIsNoEntry "driver/src/cq/shared.rs":
        "called || self.calling.is_inside()" => "called",
        "a CQ goes after the notification that is being made";
    ArmTellsOfWhatWasTaken "driver/src/cq/shared.rs":
        "let waits = self.taken.load(Ordering::Relaxed) == added;" => "let waits = false;",
        "an arm of a CQ from which all was taken waits for what comes next";
    PolledCqIsNotNotified "driver/src/cq/core.rs":
        "if !cq.failed && cq.object.shared.arm.waits_for_next(cq.added) {" => "if !cq.failed && cq.fill() == 0 {",
        "what comes after an arm is notified, polled or not";
    TakenCountsForModeration "driver/src/cq/core.rs":
        "(cq.unnotified, cq.unnotified_since) = (0, None);
            return None;" => "return None;",
        "moderation counts nothing that was taken before the arm";
    ArmKnowsNotWhatWasTaken "driver/src/cq/shared.rs":
        "self.taken.store(taken, Ordering::Relaxed);" => "",
        "an arm waits for what comes after the last that was taken";
    OldRingIsLeftEarly "driver/src/cq/shared.rs":
        "let count = self.ring.slots().min(max - taken);" =>
        "let count = if ends { 0 } else { self.ring.slots().min(max - taken) };",
        "no result is lost when a CQ becomes deeper";
    ErrorsWakeOnlyAny "driver/src/cq/shared.rs":
        "ARM_SOLICITED => pending & (PENDING_SOLICITED | PENDING_ERROR) != 0," => "ARM_SOLICITED => pending & PENDING_SOLICITED != 0,",
        "an arm for solicited events hears of errors";
    WeakArmWins "driver/src/cq/shared.rs":
        "self.armed.fetch_max(strength, Ordering::Release);" => "self.armed.store(strength, Ordering::Release);",
        "the strongest arm counts";
    CountOfOneWaits "driver/src/cq/shared.rs":
        "if interval == 0 || count <= 1 || (by_count && unnotified >= count) {" => "if interval == 0 || (by_count && unnotified > count) {",
        "a notification is made at the count";
    ImpossibleCountWaits "driver/src/cq/shared.rs":
        "return if by_count { Moderation::ForCount } else { Moderation::Notify };" => "return Moderation::ForCount;",
        "a count that the CQ never has waits for nothing";
    CqTakesOneTooMany "driver/src/cq/core.rs":
        "let room = self.depth.saturating_sub(fill) as usize;" => "let room = (self.depth + 1).saturating_sub(fill) as usize;",
        "a CQ holds as many results as it was created for";
    OverrunIsSilent "driver/src/cq/core.rs":
        "cq.news |= PENDING_ERROR;" => "",
        "an overrun is told";
    OverrunCqSucceeds "driver/src/cq/core.rs":
        "let status = if cq.failed { STATUS_BUFFER_OVERFLOW } else { STATUS_SUCCESS };" => "let status = STATUS_SUCCESS;",
        "a CQ that overran says so";
    FailedCqIsUsable "driver/src/cq/core.rs":
        "self.table.get(key).is_some_and(|cq| !cq.failed)" => "self.table.contains_key(key)",
        "a CQ that overran serves no other queue pair";
    SmallerCqLosesResults "driver/src/cq/core.rs":
        "if self.fill() > depth {" => "if false {",
        "a CQ stays deep enough for what it holds";
    CqCannotBeExact "driver/src/cq/core.rs":
        "if self.fill() > depth {" => "if self.fill() >= depth {",
        "a CQ may become as deep as what it holds";
    ClosingCqNotifies "driver/src/cq/core.rs":
        "if !cq.object.shared.arm.is_due() || cq.object.base.is_closing() {" => "if !cq.object.shared.arm.is_due() {",
        "nothing is notified after a close";
    ModeratedNeverEnds "driver/src/cq/core.rs":
        "self.moderated.swap_remove(index);
                self.mark_dirty(key);" => "self.moderated.swap_remove(index);",
        "a notification that waits is made in time";
    WindowsGoByCores "driver/src/mw/core.rs":
        "self.noted.front().map(|&(place, _)| place)" => "self.noted.front().map(|_| 0)",
        "windows are followed in the order of all cores";
    OlderWindowRequestStays "driver/src/mw/core.rs":
        "self.noted.remove(before);" => "",
        "of each window the last request counts";
    WindowHasNoRegion "driver/src/mw/core.rs":
        "SendOp::Bind(bind) => cx.tokens.get(&Rkey::new(bind.region.get())).copied()," => "SendOp::Bind(_) => None,",
        "a region stays while a window is bound to it";
    UnitsAreNotDivided "driver/src/shard.rs":
        "if wire::is_for_several(frame, segment_len, cores) {" => "if false {",
        "a unit for several cores reaches each";
    UnitsAreKeptTwice "driver/src/shard.rs":
        "if from == to {" => "if false {",
        "no core passes a unit to itself";
    PassedUnitsWakeNobody "driver/src/shard.rs":
        "if passage.is_some_and(|passage| passage.send(frame, segment_len)) {
            self.wake(to);" => "if passage.is_some_and(|passage| passage.send(frame, segment_len)) {",
        "a core wakes for what is passed to it";
    UnpassedUnitsAreNotCounted "driver/src/shard.rs":
        "self.counters.unpassed.add();" => "",
        "what cannot be passed on is counted";
    RefusedRequestKeepsItsPlace "driver/src/shard.rs":
        "Err(error) => {
                self.requests.fetch_add(1, Ordering::Release);" => "Err(error) => {",
        "a request that is refused leaves no place taken";
    MappingsAreForgotten "driver/src/lane/steps.rs":
        "self.bytes.lams.update();" => "",
        "a post finds its mapping";
    ReleasesAreForgotten "driver/src/lane/steps.rs":
        "self.bytes.release(released.region);" => "let _ = released;",
        "a region that its request held goes with it";
    FramesPrecedePosts "driver/src/lane/steps.rs":
        "self.drain_doorbells();
        if let Some(passage)" => "if let Some(passage)",
        "what was posted before a frame came is known before it";
    SrqNoticeIsNoCall "driver/src/lane/steps.rs":
        "srq.shared.calling.begin();" => "",
        "an SRQ goes after the notification that is being made";
    RejectIsSilent "driver/src/connector/accept.rs":
        "let _ = cx.device.reject(cx.now, conn, private_data);" => "let _ = (conn, private_data);",
        "the peer hears of a reject";
    AcceptLeavesTheQp "driver/src/connector/accept.rs":
        "if connector.phase == Phase::Requested {" => "if false {",
        "a queue pair whose accept failed is free for another";
    DisconnectFlushesNothing "driver/src/connector/end.rs":
        "trace_disconnected(cx, ends, EndedBy::Consumer, qp);
        if let Some(qp) = qp {
            cx.flush_qp(qp);
        }
        if let Some(done) = pending {
            cx.request_done(done, status);" => "trace_disconnected(cx, ends, EndedBy::Consumer, qp);
        if let Some(done) = pending {
            cx.request_done(done, status);",
        "a disconnect ends what was posted";
    CloseForgetsItsRequest "driver/src/connector/end.rs":
        "cx.request_done(done, STATUS_CANCELLED);" => "let _ = done;",
        "a request ends before its connector is gone";
    EventComesTwice "driver/src/connector/end.rs":
        "if !connector.step(Step::Lose) {" => "if !connector.step(Step::Lose) && connector.event.is_none() {",
        "a disconnect is told once";
    RefusalTellsNothing "driver/src/connector/end.rs":
        "self.keep_refusal(key, &private_data);" => "let _ = &private_data;",
        "the private data of a REJ can be read";
    PortIsNotGivenBack "driver/src/connector/core.rs":
        "cx.device.unbind_port(port.ip(), port.port());" => "let _ = port;",
        "a port is free when its users are gone";
    QpServesTwo "driver/src/connector/core.rs":
        "if qp.connector.is_some() {" => "if false {",
        "a queue pair serves one connector";
    PortOfAFailedClaimStays "driver/src/connector/connect.rs":
        "cx.device.unbind_port(what.local.ip(), what.local.port());
            return Err(status);" => "return Err(status);",
        "a connect that fails leaves no port taken";
    ForeignSourceConnects "driver/src/connector/connect.rs":
        "if !cx.owns(what.local.ip()) {" => "if false {",
        "a connect begins at an own address";
    OthersConnectsWait "driver/src/connector/connect.rs":
        "self.resolving.swap_remove(index);
            match mac" => "index += 1;
            match mac",
        "a connect is answered once";
    ListenerTakesAnyAddress "driver/src/listener/core.rs":
        "if !cx.owns(local.ip()) {" => "if false {",
        "a listener has an own address";
    ListenerKeepsItsPort "driver/src/listener/core.rs":
        "cx.device.unlisten(id);
            cx.device.unbind_port(local.ip(), local.port());" => "cx.device.unlisten(id);",
        "a port is free when its listener is gone";
    PauseIsForgotten "driver/src/listener/core.rs":
        "listener.pause(cx);
        STATUS_SUCCESS" => "STATUS_SUCCESS",
        "a listener that was paused before it listened is paused";
    EndpointKeepsItsPort "driver/src/endpoint/core.rs":
        "cx.device.unbind_port(local.ip(), local.port());" => "let _ = local;",
        "a port is free when its endpoint is gone";
    SrqShrinksBelowItsPosts "driver/src/srq/core.rs":
        "if depth != 0 && depth < posted.wrapping_sub(slots.retired()) {" => "if false {",
        "an SRQ stays deep enough for what it holds";
    SrqIsSetAsideForOneReceive "driver/src/srq/core.rs":
        "let (depth, several) = (self.depth as usize, cx.shard.cores() > 1);" =>
        "let (depth, several) = (1, cx.shard.cores() > 1);",
        "a creation allocates no more than was set aside for it";
    SilentResultsAreShown "driver/src/qp/core.rs":
        "completions.by_ref().filter(|completion| !completion.silent)" => "completions.by_ref().filter(|_| true)",
        "a silent success has no result";
    FlushedResultIsAFault "driver/src/qp/core.rs":
        "if !flushed {" => "if flushed {",
        "a fault is traced, and what it flushes is not";
    QpIsSetAsideForOneRequest "driver/src/qp/core.rs":
        "let (initiator, receive) = (self.initiator_depth as usize, self.receive_depth as usize);" =>
        "let (initiator, receive) = (1, 1);",
        "a creation allocates no more than was set aside for it";
    AntecedentGoesFirst "driver/src/object/core.rs":
        "life.closing.is_some() && life.children == 0 && !life.finishing" => "life.closing.is_some() && !life.finishing",
        "an object is closed after its successors";
    CloseEndsTwice "driver/src/object/core.rs":
        "life.finishing |= ends;" => "",
        "a close ends once";
    CloseEntersTheObject "driver/src/turn/lives.rs":
        "if is_entered(&mut self.cx, place) {" => "if false {",
        "an object goes after the call that is inside it";
    ObjectsPlaceIsLost "driver/src/turn/lives.rs":
        "self.objects.remove(&mut self.cx, place);
        self.cx.shard.release_object();" => "self.objects.remove(&mut self.cx, place);",
        "an object that is gone gives its place back";
    FailureOfOneCoreIsMissed "driver/src/turn/desk.rs":
        "self.handle_failures(core, false);" => "",
        "the consumer hears of a connection that failed";
    CallbackHasALane "driver/src/turn/desk.rs":
        "self.cx.device.engines.give_back();
                self.run(upcall);" => "self.run(upcall);",
        "no lane is held while the consumer is called";
    ForeignTagsAreKept "driver/src/paths.rs":
        "if vlan(tci) == to { tci } else { to }" => "tci",
        "packets follow the neighbour's VLAN";
    PathsAreAskedForOnce "driver/src/paths.rs":
        "if looked < CHECKS { 0 } else { self.check_next + CHECKS }" => "self.check_next + CHECKS",
        "each path is looked at again and again";
    LongUnitIsPassedWhole "driver/src/passage.rs":
        "Segments { header_len, segment_len }" => "Segments { header_len, segment_len: segment_len + 1 }",
        "a unit that fits no buffer is passed on in its packets";
    PassageLosesABuffer "driver/src/passage.rs":
        "} else {
            self.give_back(buffer);
        }
        fits" => "}
        fits",
        "a frame that fits no buffer takes none";
    UnpassedUnitsAreNoDrops "driver/src/counters.rs":
        "sum(|edge| &edge.receive) + self.unpassed.get()" => "sum(|edge| &edge.receive)",
        "units that were not passed on are dropped ones";

// ---- the edges --------------------------------------------------------------------------------
    HopelessFramesWait "netadapter-glue/src/refusal.rs":
        "if frame_len >= self.hopeless_len {" => "if false {",
        "what a refused frame has cost once it costs no more";
    WaitsStayLong "netadapter-glue/src/refusal.rs":
        "Some(self.patience / 2)" => "Some(self.patience)",
        "each wait in vain halves the next";
    HopelessStaysSo "netadapter-glue/src/refusal.rs":
        "if longest() >= self.hopeless_len {" => "if false {",
        "a frame of that length that leaves ends this";
    WaitOutlivesItsFrame "netadapter-glue/src/refusal.rs":
        "self.wait = None;
        if longest()" => "if longest()",
        "a frame that leaves ends the wait";
    VainWaitsAreNeverForgotten "netadapter-glue/src/refusal.rs":
        "(self.vain_at, self.patience) = (None, PATIENCE);" => "",
        "waits in vain that were long ago count no more";
    ShorterFramesAreHopeless "netadapter-glue/src/refusal.rs":
        "self.hopeless_len = frame_len;" => "self.hopeless_len = 0;",
        "a shorter frame may pass where a longer one did not";
    OffersNeverPause "netadapter-glue/src/refusal.rs":
        "self.wait.is_none_or(|wait| now().saturating_duration_since(wait.offered_at) >= RETRY)" => "true",
        "a refused frame is offered again after a pause";
    ShortFramesShowLongOnesPass "netadapter-glue/src/queue.rs":
        "refusal.has_left(|| self.longest(sent));" => "refusal.has_left(|| usize::MAX);",
        "a frame that leaves shows nothing of longer ones";
    QueueBeginsAgainAtAPart "netadapter-glue/src/queue.rs":
        "self.head_sent -= count;" => "self.head_sent = 0;",
        "each frame of a unit leaves once";
    QueueTurnsTooEarly "netadapter-glue/src/queue.rs":
        "let run = (depth - self.len).min(depth - begin)" => "let run = (depth - self.len).min(depth)",
        "a run of buffers ends where the queue does";
    TapWaitsForEver "netadapter-glue/src/tap.rs":
        "if self.refusal.stays(self.queue.head_len(), Instant::now()) {" => "if true {",
        "a frame that is refused for ever is given up";
    PacketsWaitForEver "netadapter-glue/src/af_packet.rs":
        "if self.refusal.stays(self.queue.head_len(), Instant::now()) {" => "if true {",
        "a frame that is refused for ever is given up";
    DatagramsWaitForEver "netadapter-glue/src/qemu.rs":
        "if self.refusal.stays(self.queue.head_len(), Instant::now()) {" => "if true {",
        "a frame that is refused for ever is given up";
    PartOfAFrameIsGivenUp "netadapter-glue/src/qemu.rs":
        "if self.head_sent > 0 {" => "if false {",
        "a stream loses no part of a frame";
    LostLinkKeepsItsWait "netadapter-glue/src/qemu.rs":
        "self.drops.transmit += self.queue.clear();
        self.refusal.end_wait();
        self.head_sent = 0;" => "self.drops.transmit += self.queue.clear();
        self.head_sent = 0;",
        "a new link waits for nothing of the old one";
    LostLinkKeepsAPart "netadapter-glue/src/qemu.rs":
        "self.refusal.end_wait();
        self.head_sent = 0;" => "self.refusal.end_wait();",
        "a new link begins with a whole frame";
    TapSpins "netadapter-glue/src/tap.rs":
        "self.queue.len() > 0 && self.retry_after().is_none()" => "self.queue.len() > 0",
        "an edge whose frame is refused does not spin";
    IdentificationStays "netadapter-glue/src/segment.rs":
        "u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(index)" => "u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(0 * index)",
        "each packet of a unit has an identification";
    LengthIsTheUnits "netadapter-glue/src/segment.rs":
        "udp[4..6].copy_from_slice(&(8 + payload_len as u16).to_be_bytes());" => "udp[4..6].copy_from_slice(&(payload_len as u16).to_be_bytes());",
        "each packet of a unit has its length";
    SecondTagIsTheHeader "netadapter-glue/src/segment.rs":
        "[0x81, 0x00] | [0x88, 0xa8]" => "[0x81, 0x00]",
        "both kinds of VLAN tags are known";
    CarryIsLost "netadapter-glue/src/segment.rs":
        "let sum = (sum & 0xffff) + (sum >> 16);" => "let sum = sum & 0xffff;",
        "checksums carry around";
    HintsTakeConnectsPlaces "netadapter-glue/src/neighbour/queries.rs":
        "self.summary.taken[class as usize] < class.places()" => "self.summary.taken.iter().sum::<usize>() < HINTS_MAX",
        "a hint takes no place that a connect needs";
    StrangersAreFree "netadapter-glue/src/neighbour/queries.rs":
        "self.strangers.take(now_ns)" => "self.strangers.take(now_ns) || true",
        "queries for forged frames are bounded by rate";
    WaitingConnectsAreForgotten "netadapter-glue/src/neighbour/queries.rs":
        "if self.has_turn() { self.waiting.pop_front() } else { None }" => "None",
        "a connect waits its turn";
    ConnectsAreAskedLast "netadapter-glue/src/neighbour/queries.rs":
        "find(|query| query.due && query.class == Class::Connect)" => "find(|query| query.due && query.class == Class::Hint)",
        "queries for connects go before all else";
    AnyLinkAnswersAProbe "netadapter-glue/src/neighbour/query.rs":
        "self.sent > 0 && self.probe.is_none_or(|probe| probe == link)" => "self.sent > 0",
        "a probe is answered from where it went";
    UnsentQueriesAreAnswered "netadapter-glue/src/neighbour/query.rs":
        "self.sent > 0 && self.probe.is_none_or(|probe| probe == link)" => "self.probe.is_none_or(|probe| probe == link)",
        "an answer to no question is none";
    ProbesNeverBroadcast "netadapter-glue/src/neighbour/query.rs":
        "Some(_) => (self.probe, self.sent) = (None, 1)," => "Some(_) => return Silence::GivenUp,",
        "a neighbour that is silent where it was is looked for elsewhere";
    OneVlanIsAsked "netadapter-glue/src/neighbour/query.rs":
        "self.vlans[usize::from(self.sent + 1) % 2]" => "self.vlans[0]",
        "a neighbour is looked for in both VLANs";
    HintsDisplaceNeighbours "netadapter-glue/src/neighbour/known.rs":
        "Class::Hint => first.is_forgotten(now_ns)," => "Class::Hint => true,",
        "a stranger's hint displaces no neighbour";
    NeighboursAreKnownForEver "netadapter-glue/src/neighbour/known.rs":
        ".filter(|neighbour| !neighbour.is_forgotten(now_ns))" => "",
        "what was learned long ago is asked for again";
    AnnouncementsTeach "netadapter-glue/src/neighbour/mod.rs":
        "self.probe(now_ns, Class::Hint, &known, Some(link));" => "self.known.learn(Neighbour { link, ..known }, Class::Hint);",
        "a neighbour has moved when the old place is silent";
    ConnectsShareTheLastFrame "netadapter-glue/src/neighbour/mod.rs":
        "Class::Connect if is_connect => query.due = true," => "Class::Connect if is_connect => {}",
        "each connect asks";
    OwnAddressIsANeighbour "netadapter-glue/src/neighbour/mod.rs":
        "if is_unicast(ip) && !self.addresses.contains(&ip) {" => "if is_unicast(ip) {",
        "an own address at another host is a conflict";
    ConflictsAreNotCounted "netadapter-glue/src/neighbour/mod.rs":
        "self.conflicts += u64::from(message.sender().is_some_and(is_ours));" => "let _ = message.sender().is_some_and(is_ours);",
        "an address conflict is counted";
    EventsOfConnectsAreLost "netadapter-glue/src/neighbour/mod.rs":
        "Class::Connect => self.0.capacity()," => "Class::Connect => EVENTS_MAX / 4,",
        "the result of a connect has its place";
    AnswersPileUp "netadapter-glue/src/neighbour/mod.rs":
        "if self.answers.len() == ANSWERS_MAX {" => "if false {",
        "answers that wait are bounded";
    ForeignFramesAreHeard "netadapter-glue/src/neighbour/mod.rs":
        "let for_us = frame.starts_with(&self.mac) || frame.first().is_some_and(|b| b & 1 != 0);" => "let for_us = true;",
        "a frame for another host is not ours";
    HostsReportsAreErrors "netadapter-glue/src/udp/errors.rs":
        "Some(&(ORIGIN_ICMP | ORIGIN_ICMP6))" => "Some(&ORIGIN_ICMP6)",
        "a report by ICMP is counted";
    SocketsOwnErrorsAreReports "netadapter-glue/src/udp/errors.rs":
        "matches!(value.get(ORIGIN_AT), Some(&(ORIGIN_ICMP | ORIGIN_ICMP6)))" => "value.len() > ORIGIN_AT",
        "only what others report is a report";
    IcmpNamesThePathMtu "netadapter-glue/src/udp.rs":
        "libc::IP_PMTUDISC_PROBE" => "libc::IP_PMTUDISC_DO",
        "an ICMP error, which anybody can forge, makes no path too narrow";
    IcmpNamesThePathMtuOfIpv6 "netadapter-glue/src/udp.rs":
        "libc::IPV6_PMTUDISC_PROBE" => "libc::IPV6_PMTUDISC_DO",
        "nor does one of IPv6";
    DatagramsOfUdpWaitForEver "netadapter-glue/src/udp.rs":
        "if self.refusal.stays(self.queue.head_len(), Instant::now()) {" => "if true {",
        "a frame that is refused for ever is given up";
}
