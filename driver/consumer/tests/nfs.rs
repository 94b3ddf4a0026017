//! Goal: the example that reads by NFS over RDMA makes the calls that Linux's nfsd took, and understands its answers.
//! Method: the messages of a recorded session, calls of the example and answers of Linux 6.12: tshark found the calls right.
#![cfg(target_os = "linux")]

#[path = "../examples/nfs/mod.rs"]
mod nfs;

use std::fs::File;
use std::path::Path;

use ndk_consumer::Remote;
use nfs::{Answer, Operation, Refusal, answers, call};
use pcap_file::pcap::PcapReader;

/// Payloads of SENDs without padding, behind BTH and before the ICRC.
fn messages() -> [Vec<u8>; 4] {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/nfs/linux.pcap");
    let mut reader = PcapReader::new(File::open(path).unwrap()).unwrap();
    std::array::from_fn(|_| {
        let frame = reader.next_packet().unwrap().unwrap().data.into_owned();
        frame[54..frame.len() - 4].to_vec()
    })
}

const FIND: [Operation<'_>; 4] =
    [Operation::PutRoot, Operation::Lookup("random"), Operation::GetHandle, Operation::GetSize];
const XID: u32 = 0x6e66_7302;

fn handle(answer: &[u8]) -> Vec<u8> {
    let found = answers(answer, XID, &FIND).unwrap();
    let [Answer::Done, Answer::Done, Answer::Handle(handle), Answer::Size(61_440)] = &found[..]
    else {
        panic!("{found:?}")
    };
    handle.clone()
}

#[test]
fn a_file_is_found_and_read() {
    let [find, found, read, done] = messages();
    assert_eq!(call(XID, None, &FIND), find);
    let handle = handle(&found);
    let operations = [Operation::PutHandle(&handle), Operation::Read { offset: 0, count: 65_536 }];
    // Behind the header and two words: token, length, address.
    let word = |at: usize| u32::from_be_bytes(read[at..at + 4].try_into().unwrap());
    let address = u64::from(word(36)) << 32 | u64::from(word(40));
    let lent = Remote { token: word(28), address };
    assert_eq!(call(XID + 1, Some((lent, word(32))), &operations), read);
    let all = Answer::Read { len: 61_440, eof: true };
    assert_eq!(answers(&done, XID + 1, &operations), Ok(vec![Answer::Done, all]));
}

/// An answer that is cut anywhere, or belongs to another call, is refused, and nothing panics.
#[test]
fn a_damaged_answer_is_refused() {
    let [_, found, ..] = messages();
    for len in 0..found.len() {
        assert_eq!(answers(&found[..len], XID, &FIND), Err(Refusal::Short), "{len} bytes");
    }
    assert_eq!(answers(&found, XID + 1, &FIND), Err(Refusal::Xid(XID)));
    assert_eq!(answers(&found, XID, &FIND[1..]), Err(Refusal::Other(24)));
    let changed = |at: usize, word: u32| {
        let mut bytes = found.clone();
        bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
        answers(&bytes, XID, &FIND).unwrap_err()
    };
    assert_eq!(changed(12, 4), Refusal::Transport(4), "an RDMA error");
    assert_eq!(changed(36, 1), Refusal::Rpc(1), "denied");
    assert_eq!(changed(48, 2), Refusal::Rpc(2), "a program of another version");
}

/// As a server answers that has no such file: it executes nothing behind the failure.
#[test]
fn a_missing_file_is_named() {
    let [_, found, ..] = messages();
    // The status of the first operation is that of PUTROOTFH; LOOKUP's is the second.
    let mut bytes = found;
    let lookup = bytes.windows(8).position(|words| words == [0, 0, 0, 15, 0, 0, 0, 0]).unwrap();
    bytes[lookup + 7] = 2;
    bytes.truncate(lookup + 8);
    let missing = Refusal::Nfs { operation: 15, status: 2 };
    assert_eq!(answers(&bytes, XID, &FIND), Err(missing));
    assert!(missing.to_string().contains("status 2"));
}
