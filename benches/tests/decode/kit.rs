//! Captures for the tests of `ndkperf decode`, and its runs.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use pcap_file::pcap::{PcapPacket, PcapWriter};
use rocev2::ids::{Qpn, Rkey};
use rocev2::psn::{Msn, Psn};
use rocev2::wire::{Aeth, Bth, Encap, Ext, Mac, Opcode, Reth, Syndrome, Template, UnitWriter};
use serde_json::Value;
use tempfile::TempDir;

/// A capture of the repository.
pub(crate) fn captured(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/captures").join(name)
}

pub(crate) fn run(file: &Path, flags: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ndkperf"));
    command.arg("decode").arg(file).args(flags).stdin(Stdio::null()).output().unwrap()
}

pub(crate) fn json(file: &Path) -> Value {
    let output = run(file, &["--json"]);
    assert!(output.status.success(), "{}: {output:?}", file.display());
    serde_json::from_slice(&output.stdout).unwrap()
}

pub(crate) fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(crate) fn kinds(report: &Value) -> Vec<&str> {
    list(&report["findings"]).iter().filter_map(|finding| finding["kind"].as_str()).collect()
}

pub(crate) fn assert_fails(file: &Path, words: &str) {
    let output = run(file, &[]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.starts_with("ndkperf: ") && message.contains(words), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(output.stdout.is_empty());
}

/// A capture between A, which has QP 0xa, and B, which has QP 0xb.
pub(crate) struct Made {
    _dir: TempDir,
    pub(crate) path: PathBuf,
}

impl Made {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        fs::read(&self.path).unwrap()
    }
}

/// Frames with their microseconds.
pub(crate) fn made(frames: &[(u64, Vec<u8>)]) -> Made {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("made.pcap");
    let mut writer = PcapWriter::new(fs::File::create(&path).unwrap()).unwrap();
    for (at_us, frame) in frames {
        let at = Duration::from_secs(START_S) + Duration::from_micros(*at_us);
        writer.write_packet(&PcapPacket::new(at, frame.len() as u32, frame)).unwrap();
    }
    Made { _dir: dir, path }
}

/// A READ request of A, so many PSNs behind the first.
pub(crate) fn read(behind: u32, len: u32) -> Vec<u8> {
    let reth = Reth { va: 0x1000, rkey: Rkey::new(9), len };
    packet(true, Opcode::ReadRequest, behind, &Ext::Reth(reth), &[])
}

pub(crate) fn write(behind: u32, len: u32) -> Vec<u8> {
    write_to(0xb, behind, len)
}

pub(crate) fn write_to(qpn: u32, behind: u32, len: u32) -> Vec<u8> {
    let (reth, payload) =
        (Reth { va: 0x1000, rkey: Rkey::new(9), len }, vec![behind as u8; len as usize]);
    packet_for(true, qpn, Opcode::WriteOnly, behind, &Ext::Reth(reth), &payload)
}

/// A packet of B's answer, filled with `byte`.
pub(crate) fn response(opcode: Opcode, behind: u32, len: usize, byte: u8) -> Vec<u8> {
    let aeth = Aeth { syndrome: Syndrome::ACK, msn: Msn::new(1) };
    from_b(opcode, behind, &Ext::Aeth(aeth), &vec![byte; len])
}

pub(crate) fn ack(behind: u32, syndrome: Syndrome) -> Vec<u8> {
    let aeth = Aeth { syndrome, msn: Msn::new(1) };
    from_b(Opcode::Acknowledge, behind, &Ext::Aeth(aeth), &[])
}

pub(crate) fn from_b(opcode: Opcode, behind: u32, ext: &Ext, payload: &[u8]) -> Vec<u8> {
    packet(false, opcode, behind, ext, payload)
}

fn packet(from_a: bool, opcode: Opcode, behind: u32, ext: &Ext, payload: &[u8]) -> Vec<u8> {
    packet_for(from_a, if from_a { 0xb } else { 0xa }, opcode, behind, ext, payload)
}

fn packet_for(
    from_a: bool,
    qpn: u32,
    opcode: Opcode,
    behind: u32,
    ext: &Ext,
    payload: &[u8],
) -> Vec<u8> {
    let encap = Encap {
        src_mac: Mac([2, 0, 0, 0, 0, 1]),
        dst_mac: Mac([2, 0, 0, 0, 0, 2]),
        vlan: None,
        src: "10.0.0.1".parse().unwrap(),
        dst: "10.0.0.2".parse().unwrap(),
        traffic_class: 0,
        hop_limit: 64,
        ip_id: 0,
        flow_label: 0,
        src_port: 0xc123,
    };
    let encap = if from_a { encap } else { encap.reply() };
    let bth = Bth::new(opcode, Qpn::new(qpn), Psn::new(FIRST_PSN).add(behind));
    frame(&encap, &bth, ext, payload)
}

pub(crate) fn frame(encap: &Encap, bth: &Bth, ext: &Ext, payload: &[u8]) -> Vec<u8> {
    let template = Template::new(encap);
    let mut buf = vec![0; 4400];
    let mut writer = UnitWriter::new(&mut buf, &template, encap.ip_id);
    let Ok(()) = writer.push(bth, ext, payload.len(), |out| {
        out.copy_from_slice(payload);
        Ok::<(), Infallible>(())
    });
    let len = writer.finish().len;
    buf.truncate(len);
    buf
}

pub(crate) const FIRST_PSN: u32 = 0x100;
pub(crate) const START_S: u64 = 1_700_000_000;
