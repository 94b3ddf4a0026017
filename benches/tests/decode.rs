//! `ndkperf decode` as its users run it: captures of `rdma_rxe`, captures that are made here, and files that are none.

#[path = "decode/addresses.rs"]
mod addresses;
#[path = "decode/kit.rs"]
mod kit;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use kit::{
    FIRST_PSN, START_S, ack, assert_fails, captured, from_b, json, kinds, list, made, read,
    response, run, stdout, write, write_to,
};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;
use pcap_file::{DataLink, Endianness};
use proptest::prelude::*;
use rocev2::ids::Qpn;
use rocev2::psn::{Msn, Psn};
use rocev2::wire::ack_list::Ack;
use rocev2::wire::gap_report::Gap;
use rocev2::wire::{Aeth, Ext, NakCode, Opcode, RnrTimer, Syndrome};
use serde_json::Value;
use tempfile::TempDir;

// ---- captures of rdma_rxe ----------------------------------------------------------------------

#[test]
fn a_connection_is_told_from_its_request_to_its_end() {
    let report = json(&captured("k612_rping_v4.pcap"));
    assert_eq!(report["schema"], "ndkperf-decode");
    assert_eq!(report["schema_version"], 1);
    assert_eq!((&report["frames"], &report["roce"]), (&29.into(), &29.into()));
    assert_eq!(report["findings"].as_array().unwrap().len(), 0);
    let [connection] = list(&report["connections"]) else { panic!("{report:#}") };
    let messages: Vec<&Value> =
        list(&connection["events"]).iter().map(|event| &event["message"]).collect();
    assert_eq!(messages, ["REQ", "REP", "RTU", "DREQ", "DREP"]);
    assert_eq!((&connection["conversation"], &connection["port"]), (&1.into(), &7174.into()));
    let [conversation] = list(&report["conversations"]) else { panic!("{report:#}") };
    assert_eq!(conversation["paired_by"], "connection_management");
    assert_eq!(conversation["path_mtu"], 1024);
    // The server reads and writes; both say so by SENDs.
    let [client, server] = list(&conversation["directions"]) else { panic!("{report:#}") };
    assert_eq!(client["operations"]["SEND"]["messages"], 4);
    for (operation, messages, bytes) in [("SEND", 4, 64), ("READ", 2, 128), ("WRITE", 2, 128)] {
        let done = &server["operations"][operation];
        assert_eq!((&done["messages"], &done["bytes"]), (&messages.into(), &bytes.into()));
    }
    for direction in [client, server] {
        assert_eq!(direction["in_order"], direction["request_packets"]);
        assert_eq!(direction["gaps"]["count"], 0);
        let latency = &direction["ack_latency_us"];
        assert!(latency["min"].as_f64() <= latency["median"].as_f64());
        assert!(latency["max"].as_f64() > Some(1.0), "{latency}");
    }
}

#[test]
fn each_refusal_is_found() {
    for (file, kind, words) in [
        ("nak_bad_rkey.pcap", "refused", "NAK remote access error refuses PSN 0x000100 of frame 1"),
        ("nak_bad_rkey_read.pcap", "refused", "remote access error"),
        ("nak_small_recv.pcap", "refused", "remote operational error"),
        ("cm_reject_v4.pcap", "rejected", "reason 8, invalid service ID: nobody listens"),
        ("cm_reject_v6.pcap", "rejected", "fd00::2 refuses the connection of fd00::1"),
        ("rnr_exceeded.pcap", "retries_exhausted", "refused 4 times by RNR NAK and not sent again"),
        ("timeout_retry_exceeded.pcap", "retries_exhausted", "sent 4 times in 59.156 ms and never"),
        ("corrupt_write.pcap", "wrong_icrc", "9 packets have a wrong ICRC"),
    ] {
        let report = json(&captured(file));
        let finding = &report["findings"][0];
        assert_eq!(finding["kind"], kind, "{file}: {report:#}");
        assert!(finding["text"].as_str().unwrap().contains(words), "{file}: {finding}");
        let text = run(&captured(file), &[]);
        assert!(text.status.success());
        assert!(stdout(&text).contains(words), "{file}");
    }
}

/// Goal: a READ that comes again when its answer was complete and its key is gone is named as what ends the connection.
/// Method: a kernel's NVMe host, whose rxe is strict, and a target of ours that asked once more; the network had delayed a
/// packet. Each frame has its first 96 bytes.
#[test]
fn a_stale_read_that_is_refused_is_found() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/decode/stale_read.pcap");
    let report = json(&file);
    assert_eq!(kinds(&report)[..2], ["stale_read", "refused"], "{report:#}");
    let finding = &report["findings"][0];
    assert_eq!((&finding["frame"], &finding["severity"]), (&18.into(), &"error".into()));
    let text = finding["text"].as_str().unwrap();
    let expected = "the READ of frame 3 was answered in full, and came again in frame 14 behind the \
                    message of frame 12, which invalidates its key";
    assert!(text.contains(expected), "{text}");
    // The other capture with that NAK has no READ that was answered.
    assert!(!kinds(&json(&captured("nak_bad_rkey_read.pcap"))).contains(&"stale_read"));
}

#[test]
fn what_is_sent_again_has_its_cause() {
    for (file, cause, count) in [
        ("corrupt_write.pcap", "nak_sequence", 29),
        ("corrupt_write.pcap", "timeout", 4),
        ("rnr_exceeded.pcap", "rnr_nak", 3),
        ("timeout_retry_exceeded.pcap", "timeout", 6),
        ("dup_mix.pcap", "unknown", 0),
    ] {
        let report = json(&captured(file));
        let sent_again = &report["conversations"][0]["directions"][0]["sent_again"];
        assert_eq!(sent_again[cause], count, "{file}: {sent_again}");
    }
    // The network's own copies are none of the requester.
    let report = json(&captured("dup_mix.pcap"));
    assert_eq!(report["conversations"][0]["directions"][0]["duplicates"], 13);
}

#[test]
fn queue_pairs_find_each_other_without_connection_management() {
    let report = json(&captured("srq_pingpong.pcap"));
    let pairs: Vec<(u64, u64)> = list(&report["conversations"])
        .iter()
        .map(|conversation| {
            assert_eq!(conversation["paired_by"], "inference");
            let qpn = |end: usize| conversation["ends"][end]["qpn"].as_u64().unwrap();
            (qpn(0), qpn(1))
        })
        .collect();
    assert_eq!(pairs, [(0x21, 0x1f), (0x22, 0x20), (0x23, 0x21)]);
}

#[test]
fn one_queue_pair_is_shown_alone_and_in_lines() {
    let output = run(&captured("srq_pingpong.pcap"), &["--qp", "0x22", "--timeline"]);
    assert!(output.status.success(), "{output:?}");
    let text = stdout(&output);
    let lines = text.lines().take_while(|line| !line.is_empty());
    assert_eq!(lines.filter(|line| line.contains("#2 ")).count(), 12, "{text}");
    assert!(text.contains("#2 10.0.0.1 QP 0x22 <-> 10.0.0.2 QP 0x20"), "{text}");
    assert!(!text.contains("#1 "), "{text}");
    let output = run(&captured("corrupt_write.pcap"), &["--timeline"]);
    for words in ["[gap: 1 missing]", "[again by NAK sequence]", "NAK PSN sequence error", "wrong]"]
    {
        assert!(stdout(&output).contains(words), "{words}");
    }
}

#[test]
fn the_program_counts_what_a_run_counts() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("ours.pcap");
    let arguments =
        "loopback --operations write --iterations 300 --size 16k --loss 2 --seed 1 --json";
    let output = Command::new(env!("CARGO_BIN_EXE_ndkperf"))
        .args(arguments.split_whitespace())
        .args([Path::new("--pcap"), &file])
        .output()
        .unwrap();
    let run: Value = serde_json::from_slice(&output.stdout).unwrap();
    let counters = &run["operations"][0]["counters"];
    let resent =
        ["resent_timer_pkts", "resent_nak_pkts", "resent_implied_nak_pkts", "resent_rnr_pkts"];
    let resent: u64 = resent.iter().map(|name| counters[name].as_u64().unwrap()).sum();
    let report = json(&file);
    let direction = &report["conversations"][0]["directions"][0];
    let again = direction["sent_again"].as_object().unwrap().values();
    let again: u64 = again.map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(direction["operations"]["WRITE"]["messages"], 300);
    assert!(resent > 0 && again == resent, "{again} seen, {resent} counted: {direction:#}");
}

/// Goal: a tool that shares no code with ours counts the same opcodes.
#[test]
fn tshark_counts_the_same_packets() {
    for file in
        ["rping_v4.pcap", "rc_mix.pcap", "dup_mix.pcap", "corrupt_write.pcap", "udaddy_v4.pcap"]
    {
        let file = captured(file);
        let mut tshark = Command::new("tshark");
        tshark.arg("-r").arg(&file).args(["-T", "fields", "-e", "infiniband.bth.opcode"]);
        let output = match tshark.stdin(Stdio::null()).output() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let _ = writeln!(io::stderr(), "skipped: no tshark");
                return;
            }
            output => output.unwrap(),
        };
        assert!(output.status.success(), "{output:?}");
        let mut expected: BTreeMap<u64, u64> = BTreeMap::new();
        for opcode in stdout(&output).lines().filter_map(|line| line.trim().parse().ok()) {
            *expected.entry(opcode).or_default() += 1;
        }
        let report = json(&file);
        let number = |value: &Value| value.as_u64().unwrap();
        let counted = list(&report["opcodes"]);
        let counted = counted.iter().map(|it| (number(&it["opcode"]), number(&it["packets"])));
        assert_eq!(counted.collect::<BTreeMap<_, _>>(), expected, "{}", file.display());
    }
}

// ---- captures that are made here ---------------------------------------------------------------

/// Goal: the answer to a repeated READ that differs from the first is found, and the same answer is none.
#[test]
fn a_stale_read_is_found() {
    for (second, found) in [(7, true), (3, false)] {
        let file = made(&[
            (0, read(0, 5000)),
            (20, response(Opcode::ReadResponseFirst, 0, 4096, 3)),
            // The last response is lost, and a WRITE follows.
            (30, write(2, 8)),
            (50, ack(2, Syndrome::ACK)),
            (20_000, read(0, 5000)),
            (20_020, response(Opcode::ReadResponseFirst, 0, 4096, second)),
            (20_030, response(Opcode::ReadResponseLast, 1, 904, second)),
        ]);
        let report = json(&file.path);
        let kinds: Vec<&str> = kinds(&report);
        assert_eq!(kinds.contains(&"stale_read"), found, "{report:#}");
        // The last response is there for the first time, and the WRITE before it.
        assert!(kinds.contains(&"late_read"), "{report:#}");
        if found {
            let finding = &report["findings"][0];
            assert_eq!((&finding["kind"], &finding["frame"]), (&"stale_read".into(), &6.into()));
            assert_eq!(finding["severity"], "error");
            let text = finding["text"].as_str().unwrap();
            let expected = "the READ of frame 1 was sent again in frame 5 and answered with different \
                            data: the 4096 bytes of PSN 0x000100 differ from those of frame 2";
            assert!(text.contains(expected), "{text}");
        }
    }
}

#[test]
fn gap_reports_probes_and_reordering_are_told_apart() {
    let gap = Gap { missing: 1, came: 1 }.emit();
    let file = made(&[
        (0, write(0, 8)),
        (10, ack(0, Syndrome::ACK)),
        (20, write(2, 8)),
        (30, from_b(Opcode::GapReport, 1, &Ext::None, &gap)),
        (40, write(1, 8)),
        (50, ack(2, Syndrome::ACK)),
        (60, write(4, 8)),
        (65, write(3, 8)),
        (1000, write(2, 0)),
        (1020, ack(2, Syndrome::ACK)),
        (1030, write(3, 8)),
        (1040, write(4, 8)),
        (1060, ack(4, Syndrome::ACK)),
    ]);
    let report = json(&file.path);
    let direction = &report["conversations"][0]["directions"][0];
    for (name, count) in [("probes", 1), ("out_of_order", 1), ("gap_reports", 1), ("acks", 4)] {
        assert_eq!(direction[name], count, "{name}: {direction:#}");
    }
    assert_eq!(direction["sent_again"]["gap_report"], 1);
    assert_eq!(direction["sent_again"]["probe_answer"], 2);
    assert_eq!(direction["operations"]["WRITE"]["messages"], 5);
    assert_eq!(direction["gaps"]["missing_psns"], 2);
    assert_eq!(direction["gaps"]["longest_us"], 20.0);
}

#[test]
fn a_list_of_acks_is_told_of_each_of_its_queue_pairs() {
    let other = Ack { dest_qpn: Qpn::new(0xd), psn: Psn::new(FIRST_PSN + 50), msn: Msn::new(1) };
    let aeth = Ext::Aeth(Aeth { syndrome: Syndrome::ACK, msn: Msn::new(1) });
    let file = made(&[
        (0, write(0, 8)),
        (5, write_to(0xc, 50, 8)),
        (10, from_b(Opcode::AckList, 0, &aeth, &other.emit())),
    ]);
    let report = json(&file.path);
    let conversations = list(&report["conversations"]);
    assert_eq!(conversations.len(), 2, "{report:#}");
    for conversation in conversations {
        assert_eq!(conversation["directions"][0]["acks"], 1, "{report:#}");
    }
    let opcodes = list(&report["opcodes"]);
    let lists = opcodes.iter().find(|opcode| opcode["name"] == "ACK list").unwrap();
    assert_eq!(lists["packets"], 1, "{report:#}");
}

#[test]
fn marks_windows_and_unknown_opcodes_are_told() {
    let mut marked = write(1, 8);
    // ECN of the traffic class: congestion experienced. The ICRC does not cover it, but the header's checksum does.
    marked[15] |= 3;
    let sum = u16::from_be_bytes([marked[24], marked[25]]) - 3;
    marked[24..26].copy_from_slice(&sum.to_be_bytes());
    let mut unknown = write(2, 8);
    unknown[42] = 0xc2;
    let file = made(&[
        (0, write(0, 8)),
        (10, marked),
        (20, from_b(Opcode::Cnp, 0, &Ext::Cnp, &[])),
        (30, unknown),
        (40, write(500_000, 8)),
        (50, ack(0, Syndrome::RnrNak(RnrTimer::new(12)))),
        (60, ack(0, Syndrome::Nak(NakCode::RemoteAccess))),
    ]);
    let report = json(&file.path);
    let [requests, responses] = list(&report["conversations"][0]["directions"]) else { panic!() };
    assert_eq!((&requests["ce_marks"], &responses["cnps"]), (&1.into(), &1.into()), "{report:#}");
    let kinds = kinds(&report);
    for kind in ["refused", "out_of_window", "wrong_icrc", "receiver_not_ready", "congestion"] {
        assert!(kinds.contains(&kind), "{kind}: {report:#}");
    }
    assert_eq!(kinds[0], "refused", "the most serious one is first");
    let opcodes = list(&report["opcodes"]);
    assert!(opcodes.iter().any(|opcode| opcode["name"] == "opcode 0xc2"), "{report:#}");
    assert_eq!(requests["nak_list"][0]["rnr_timer_us"], 640);
}

#[test]
fn a_request_after_the_end_of_its_connection_is_found() {
    let mut bytes = fs::read(captured("rping_v4.pcap")).unwrap();
    let report = json(&captured("rping_v4.pcap"));
    assert!(!kinds(&report).contains(&"after_release"));
    // Behind header, REQ, REP and RTU comes the first SEND; a record's header is 16 bytes long.
    let mut at = 24;
    let len =
        |at: usize| 16 + u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
    for _ in 0..3 {
        at += len(at);
    }
    let send = bytes[at..at + len(at)].to_vec();
    bytes.extend(send);
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("late.pcap");
    fs::write(&file, bytes).unwrap();
    let report = json(&file);
    let finding = list(&report["findings"]).iter().find(|it| it["kind"] == "after_release");
    let finding = finding.unwrap_or_else(|| panic!("{report:#}"));
    assert_eq!(finding["frame"], 42);
    assert!(finding["text"].as_str().unwrap().contains("after the DREQ of frame 40"), "{finding}");
}

#[test]
fn pcapng_says_the_same_as_pcap() {
    let frames =
        [(0, read(0, 8)), (7, response(Opcode::ReadResponseOnly, 0, 8, 1)), (9, write(1, 4))];
    let file = made(&frames);
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("made.pcapng");
    let mut writer =
        PcapNgWriter::with_endianness(fs::File::create(&path).unwrap(), Endianness::Little)
            .unwrap();
    writer.write_pcapng_block(InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0)).unwrap();
    for (at_us, frame) in &frames {
        // The crate writes a number of units, which are microseconds unless an option says otherwise.
        let block = EnhancedPacketBlock {
            timestamp: Duration::from_nanos(START_S * 1_000_000 + at_us),
            original_len: frame.len() as u32,
            data: frame.as_slice().into(),
            interface_id: 0,
            options: Vec::new(),
        };
        writer.write_pcapng_block(block).unwrap();
    }
    drop(writer);
    let [mut one, mut other] = [&file.path, &path].map(|path| json(path));
    for report in [&mut one, &mut other] {
        report["file"] = Value::Null;
    }
    assert_eq!(one, other);
    assert_eq!(one["conversations"][0]["packets"], 3);
}

// ---- files that end early, or are none ---------------------------------------------------------

#[test]
fn a_file_that_ends_early_is_told_as_far_as_it_goes() {
    let whole = fs::read(captured("rping_v4.pcap")).unwrap();
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("cut.pcap");
    fs::write(&file, &whole[..whole.len() - 10]).unwrap();
    let output = run(&file, &["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["frames"], 40);
    let message = String::from_utf8(output.stderr).unwrap();
    // The DREP is the last one: 16 bytes of its own header, and 322 of the frame.
    let expected =
        format!("cut.pcap: byte {}: the file ends within this record", whole.len() - 338);
    assert!(message.starts_with("ndkperf: ") && message.contains(&expected), "{message}");
    assert_eq!(report["error"], message.trim_end().trim_start_matches("ndkperf: "));
}

#[test]
fn frames_that_were_cut_are_analysed_by_their_headers() {
    let frame = write(0, 800);
    let file = made(&[(0, frame.clone()), (10, ack(0, Syndrome::ACK))]);
    let bytes = file.bytes();
    // The first record keeps 96 bytes of its frame, as a capture of headers does. Lengths are in this machine's order.
    let record = 24;
    let mut cut = bytes[..record + 16 + 96].to_vec();
    cut[record + 8..record + 12].copy_from_slice(&96u32.to_ne_bytes());
    cut.extend(&bytes[record + 16 + frame.len()..]);
    fs::write(&file.path, cut).unwrap();
    let report = json(&file.path);
    assert_eq!((&report["cut"], &report["wrong_icrc"]), (&1.into(), &0.into()));
    let direction = &report["conversations"][0]["directions"][0];
    assert_eq!(direction["operations"]["WRITE"]["bytes"], 800, "{report:#}");
    assert_eq!(direction["acks"], 1);
}

#[test]
fn a_file_that_is_no_capture_is_told_in_one_line() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    let mut radio = made(&[]).bytes();
    radio[23] = 105;
    for (bytes, words) in [
        (b"neither the one nor the other".to_vec(), "byte 0: neither pcap nor pcapng"),
        (Vec::new(), "byte 0: neither pcap nor pcapng"),
        (radio, "not of Ethernet"),
    ] {
        fs::write(&file, bytes).unwrap();
        assert_fails(&file, words);
    }
    assert_fails(dir.path(), "not a regular file");
    assert_fails(&dir.path().join("absent"), "No such file");
    let output = run(&captured("rping_v4.pcap"), &["--qp", "0x1000000"]);
    assert_eq!(output.status.code(), Some(2));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any bytes end in a report or a sentence, alone and behind each of the headers of a capture.
    #[test]
    fn any_bytes_are_taken(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        head in 0..4usize,
    ) {
        let mut ng = vec![0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0];
        ng.extend([[0xff; 8].as_slice(), &[28, 0, 0, 0]].concat());
        let mut head = match head {
            0 => Vec::new(),
            1 => fs::read(captured("rping_v4.pcap")).unwrap(),
            2 => made(&[]).bytes(),
            _ => ng,
        };
        head.extend(bytes);
        check_no_panic(&head);
    }

    /// So do captures that were sound once.
    #[test]
    fn damaged_captures_are_taken(
        which in 0..4usize,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let name = ["k612_rping_v6.pcap", "rc_mix.pcap", "rc_read.pcap", "udaddy_v4.pcap"][which];
        let mut bytes = fs::read(captured(name)).unwrap();
        for (at, byte) in damage {
            *at.get_mut(&mut bytes) = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        check_no_panic(&bytes);
    }
}

fn check_no_panic(bytes: &[u8]) {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("capture");
    fs::write(&file, bytes).unwrap();
    for flag in ["--json", "--timeline"] {
        let output = run(&file, &[flag]);
        let code = output.status.code();
        assert!(
            matches!(code, Some(0 | 1)),
            "{code:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
