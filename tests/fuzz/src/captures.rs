//! Files that are taken for captures.

#[allow(dead_code, unused_imports, reason = "ndkperf asks it for more")]
#[path = "../../../benches/src/bin/ndkperf/decode/mod.rs"]
mod decode;

use super::frames;
use arbitrary::{Arbitrary, Unstructured};
use decode::{Decode, DecodeError, Seen, examine};
use std::cell::RefCell;
use std::io::{Seek, SeekFrom, Write};
use std::net::{IpAddr, Ipv4Addr};
use tempfile::NamedTempFile;

/// Bytes that are printed about a captured byte, at most: its packet's line, its findings, and its share of a table.
const TOLD: usize = 600;

thread_local! {
    static FILE: RefCell<NamedTempFile> = RefCell::new(NamedTempFile::new().expect("a file"));
}

/// In its first two bytes what is asked for, then the file.
pub fn decode(data: &[u8]) {
    let Some(([how, qp], file)) = data.split_first_chunk() else { return };
    let (timeline, json) = (how & 1 != 0, how & 2 != 0);
    let qp = (how & 4 != 0).then_some(u32::from(*qp));
    let mut file = file.to_vec();
    if how & 8 != 0 {
        seal(&mut file);
    }
    let args = Decode { file: Default::default(), qp, timeline, json };
    let told = explain(&file, &args);
    assert!(told.len() <= 10_000 + TOLD * file.len(), "{} bytes about {}", told.len(), file.len());
    assert_eq!(told, explain(&file, &args), "the same file, told in another way");
    see(&file);
}

/// Makes the ICRCs of a little-endian pcap file right, wherever it holds a frame of RoCEv2.
fn seal(file: &mut [u8]) {
    let Some(mut rest) = file.get_mut(PCAP_HEADER_LEN..) else { return };
    while let Some((head, behind)) = rest.split_at_mut_checked(PCAP_RECORD_LEN) {
        let len = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        let Some((frame, next)) = behind.split_at_mut_checked(len as usize) else { return };
        // Where offsets exist: Ethernet with a tag, IPv6, UDP, BTH, ICRC.
        if frame.len() >= 18 + 40 + 8 + 16 {
            frames::seal_icrc(frame);
        }
        rest = next;
    }
}

/// The header of a pcap file, and that of a record in it.
const PCAP_HEADER_LEN: usize = 24;
const PCAP_RECORD_LEN: usize = 16;

/// What is printed about a file.
fn explain(bytes: &[u8], args: &Decode) -> String {
    FILE.with_borrow_mut(|file| {
        file.as_file().set_len(0).expect("a file can be cut");
        file.seek(SeekFrom::Start(0)).expect("a file has a start");
        file.write_all(bytes).expect("there is room for a file");
        let args = Decode { file: file.path().into(), ..*args };
        let mut told = Vec::new();
        match decode::run(&args, &mut told) {
            Ok(()) => {}
            Err(DecodeError::Capture(what)) => assert!(!what.is_empty()),
            Err(DecodeError::Output(error)) => panic!("{error}"),
        }
        String::from_utf8(told).expect("text")
    })
}

/// The same bytes as frames that a doctor has seen.
fn see(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let mut seen = Vec::new();
    while let Ok((at_ns, bytes)) = <(u64, Vec<u8>)>::arbitrary(&mut u)
        && seen.len() < 64
    {
        let done = u.is_empty();
        seen.push(Seen { at_ns, bytes });
        if done {
            break;
        }
    }
    examine(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), &seen);
}
