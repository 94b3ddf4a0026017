//! Goal: the example programs speak NVMe over RDMA as Linux does, and host and target understand each other.
//! Method: the structures against those of a captured session of Linux; then both programs' modules in one process,
//! over memory, clean and with faults.
#![cfg(target_os = "linux")]

#[path = "../examples/nvme/mod.rs"]
mod nvme;

use std::error::Error;
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ndk_consumer::{Buffer, Host, Remote, pair, pair_with};
use netadapter_glue::fault::Faults;
use nvme::host::{Controller, TRANSFER_MAX};
use nvme::identify::{IdentifyController, IdentifyNamespace, cns};
use nvme::target::Target;
use nvme::wire::{
    BLOCK, CmReply, CmRequest, Command, Completion, ConnectData, Data, Sgl, Status, opcode,
    property,
};
use pcap_file::pcap::PcapReader;
use zerocopy::{FromBytes, IntoBytes};

const SUBSYSTEM: &str = "nqn.2026-11.example:disk";

/// The payloads of a captured packets' opcode, in order: behind BTH, and without padding and ICRC. All are IPv4.
fn payloads(of: u8) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/nvme/linux.pcap");
    let mut reader = PcapReader::new(File::open(path).unwrap()).unwrap();
    let mut payloads = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let frame = packet.unwrap().data.into_owned();
        let (opcode, pad) = (frame[42], usize::from(frame[43] >> 4 & 3));
        if opcode == of {
            payloads.push(frame[54..frame.len() - pad - 4].to_vec());
        }
    }
    payloads
}

const SEND_ONLY: u8 = 0x04;
const SEND_ONLY_INVALIDATE: u8 = 0x17;
const UD_SEND_ONLY: u8 = 0x64;

/// All captured commands that fit into one packet.
fn commands() -> Vec<Command> {
    let is_command = |bytes: &Vec<u8>| bytes.len() == size_of::<Command>();
    let sends = payloads(SEND_ONLY).into_iter().filter(is_command);
    sends.map(|bytes| Command::read_from_bytes(&bytes).unwrap()).collect()
}

fn keyed(command: &Command) -> (Remote, usize) {
    match command.data.parse() {
        Ok(Data::Keyed { remote, len, invalidate: true }) => (remote, len),
        other => panic!("{other:?}"),
    }
}

/// Each kind of command that the host makes is Linux's, bit by bit.
#[test]
fn commands_are_those_of_linux() {
    let captured = commands();
    let same = |index: usize, ours: &dyn Fn(&Command) -> Command| {
        let theirs = &captured[index];
        let ours = ours(theirs).with_cid(theirs.cid.get());
        assert_eq!(ours.as_bytes(), theirs.as_bytes(), "command {index}");
    };
    let data = |command: &Command| {
        let (remote, len) = keyed(command);
        Sgl::keyed(remote, len)
    };
    same(0, &|theirs| Command::connect(0, 32, 60_000, data(theirs)));
    same(1, &|_| Command::property_get(property::CAP, true));
    same(4, &|_| Command::property_set(property::CC, 0x0046_0061));
    same(5, &|_| Command::property_get(property::CSTS, false));
    same(6, &|_| Command::property_get(property::VS, false));
    same(7, &|theirs| Command::identify(0, cns::CONTROLLER, data(theirs)));
    same(11, &|_| Command::set_features(7, 0));
    let find = |wanted: &dyn Fn(&Command) -> bool| captured.iter().position(wanted).unwrap();
    let namespace = find(&|command| command.opcode == opcode::IDENTIFY && command.nsid.get() == 1);
    same(namespace + 2, &|theirs| Command::identify(1, cns::NAMESPACE, data(theirs)));
    let write = find(&|command| command.opcode == opcode::WRITE);
    same(write, &|theirs| Command::blocks(opcode::WRITE, 0x400, 64, data(theirs)));
    assert_eq!(captured[write].range(), (0x400, 64));
    let read = write - 1;
    same(read, &|theirs| Command::blocks(opcode::READ, 0x40, 64, data(theirs)));
    assert_eq!(keyed(&captured[read]).1, 64 * BLOCK);
}

#[test]
fn completions_are_those_of_linux() {
    let plain = payloads(SEND_ONLY).into_iter();
    // Behind the key that they end.
    let ending = payloads(SEND_ONLY_INVALIDATE).into_iter().map(|bytes| bytes[4..].to_vec());
    let mut seen = 0;
    for bytes in plain.chain(ending).filter(|bytes| bytes.len() == size_of::<Completion>()) {
        let theirs = Completion::read_from_bytes(&bytes).unwrap();
        assert_eq!(theirs.status(), Status::SUCCESS);
        let ours = Completion::new(
            theirs.sq_id.get(),
            theirs.sq_head.get(),
            theirs.cid,
            theirs.result.get(),
            Status::SUCCESS,
        );
        assert_eq!(ours.as_bytes(), bytes);
        seen += 1;
    }
    assert_eq!(seen, 30);
}

/// The private data of the captured requests and replies, one of each for either queue.
#[test]
fn private_data_are_those_of_linux() {
    let mads = payloads(UD_SEND_ONLY);
    // Behind DETH the MAD: attribute, and private data of the REQ behind the IP CM header, or of the REP.
    let private = |attribute: u8, at: usize| {
        let of = mads.iter().filter(move |mad| mad[8 + 17] == attribute);
        of.map(move |mad| mad[8 + at..8 + at + 32].to_vec()).collect::<Vec<_>>()
    };
    let requests = private(0x10, 24 + 140 + 36);
    let replies = private(0x13, 24 + 36);
    assert_eq!(
        requests,
        [CmRequest::new(0, 32, 0), CmRequest::new(1, 128, 1)].map(|r| r.as_bytes().to_vec())
    );
    assert_eq!(replies, [CmReply::new(32), CmReply::new(128)].map(|r| r.as_bytes().to_vec()));
}

/// The pages of a connection, a controller and a namespace of Linux are understood, and written again.
#[test]
fn pages_are_those_of_linux() {
    let connect = ConnectData::read_from_prefix(&payloads(0x10)[0][4..]).unwrap().0;
    let text = |field: &[u8]| String::from_utf8_lossy(field).trim_end_matches('\0').to_string();
    let [subsystem, host] = [text(&connect.subsystem), text(&connect.host)];
    assert!(host.starts_with("nqn.2014-08.org.nvmexpress:uuid:"), "{host}");
    let ours = ConnectData::new(connect.host_id, 0xffff, &subsystem, &host);
    assert_eq!(ours.as_bytes(), connect.as_bytes());

    // The first WRITE of a page: one packet with RETH, then middle ones, then the last.
    let [first, middle, last] = [0x06, 0x07, 0x08].map(payloads);
    let page = [&first[0][16..], &middle[0], &middle[1], &last[0]].concat();
    let controller = IdentifyController::read_from_bytes(&page).unwrap();
    assert_eq!(text(&controller.subsystem), subsystem);
    assert_eq!((controller.controller.get(), controller.namespaces.get()), (1, 1024));
    let mine = IdentifyController::new(1, &subsystem, 128);
    assert_eq!(mine.sgls.get() & 5, controller.sgls.get() & 5, "keyed SGLs");
    assert_eq!(mine.as_bytes()[512..514], page[512..514], "lengths of queue entries");
    assert!(String::from_utf8_lossy(&controller.model).starts_with("Linux "));
    let blocks = 0x8000_u64.to_le_bytes();
    let begin = first.iter().find(|first| first[16..24] == blocks).unwrap();
    let page = [&begin[16..], &[0; 3072]].concat();
    let namespace = IdentifyNamespace::read_from_bytes(&page).unwrap();
    assert_eq!(namespace.blocks.map(|blocks| blocks.get()), [0x8000; 3]);
    assert_eq!(namespace.block_shift, 9);
}

fn random(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Writes a MiB by one queue, reads it by another, and compares, by commands of several sizes.
fn exercise(host: &Host, at: SocketAddr) -> Result<(), Box<dyn Error>> {
    let mut controller = Controller::connect(host, at, SUBSYSTEM)?;
    assert!(controller.identity.subsystem.starts_with(SUBSYSTEM.as_bytes()));
    let namespace = controller.namespace()?;
    assert_eq!(namespace.blocks[0].get(), 8 << 20 >> 9);
    let mut queues = controller.queues(host, at, 2)?;
    let [writer, reader] = queues.as_mut_slice() else { panic!("two queues") };
    for (round, size) in [512, 4096, 4608, 65_536, TRANSFER_MAX].into_iter().enumerate() {
        let bytes = random(1 << 20, size as u64);
        let first = 100 * round as u64;
        writer.write(first, &Arc::new(Buffer::from(bytes.as_slice())), size)?;
        let back = Arc::new(Buffer::new(1 << 20));
        reader.read(first, &back, size)?;
        assert!(back.to_vec(0..1 << 20) == bytes, "commands of {size} bytes");
    }
    // Behind the end of the disk.
    let beyond = reader.read((8 << 20 >> 9) - 1, &Arc::new(Buffer::new(1024)), 1024).unwrap_err();
    assert!(beyond.to_string().contains("0x4080"), "{beyond}");
    for queue in queues {
        queue.disconnect()?;
    }
    controller.shut_down()
}

/// Runs `host` against a target that ends with it.
fn with_target(
    hosts: [Host; 2],
    host: impl FnOnce(&Host, SocketAddr) -> Result<(), Box<dyn Error>>,
) {
    let [initiator, other] = hosts;
    let stop = AtomicBool::new(false);
    let listener = other.listen(4420).unwrap();
    let at = listener.local_address().unwrap();
    let target = Target::new(&other, SUBSYSTEM, 8 << 20, &stop).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| target.serve(&listener));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| host(&initiator, at)));
        stop.store(true, Ordering::Relaxed);
        done.expect("the host found everything right").expect("no command failed");
    });
}

#[test]
fn a_mebibyte_comes_back_by_commands_of_every_size() {
    with_target(pair().unwrap(), exercise);
}

/// Each host loses a packet in a hundred, and then some more happens to it.
#[test]
fn a_mebibyte_comes_back_over_a_lossy_network() {
    let faults = |seed| Faults {
        seed,
        loss: 0.01,
        duplicate: 0.005,
        reorder: 0.01,
        corrupt: 0.002,
        ..Faults::default()
    };
    let hosts = pair_with(|number, builder| builder.faults(faults(number as u64))).unwrap();
    with_target(hosts, exercise);
}

/// A host that names no subsystem of the target, or no controller, gets no queue.
#[test]
fn a_stranger_is_refused() {
    with_target(pair().unwrap(), |host, at| {
        let error = Controller::connect(host, at, "nqn.2026-11.example:other").err().unwrap();
        assert!(error.to_string().contains("0x4182"), "{error}");
        Controller::connect(host, at, SUBSYSTEM)?.shut_down()
    });
}
