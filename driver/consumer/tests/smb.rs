//! Goal: the example that writes and reads by SMB Direct asks what Linux's ksmbd took, understands its answers, keeps to
//! the peer's credits, and moves the right bytes.
//! Method: a recorded session of the example with ksmbd of Linux 6.1, which tshark found right. A server in this process
//! gives its answers, moves the data itself, and is as sparing with credits and packets as it may be.
#![cfg(target_os = "linux")]

#[path = "../examples/smb/mod.rs"]
mod smb;

use std::collections::VecDeque;
use std::error::Error;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use ndk_consumer::{
    Buffer, Endpoint, EndpointConfig, EndpointError, Host, Listener, Mr, Remote, Rights, pair,
};
use pcap_file::pcap::PcapReader;
use smb::client::Session;
use smb::direct::Packet;
use smb::file::{Close, Create, Descriptor, Read, Write};
use smb::session::{Dialect, Logoff, Negotiate, SessionSetup, TreeConnect};
use smb::wire::{Header, Request};
use zerocopy::{FromBytes, IntoBytes};

type Result<T, E = EndpointError> = std::result::Result<T, E>;

/// Bytes that the recorded session moves each way, by one request.
const RECORDED: usize = 1 << 20;
const HEADER: usize = size_of::<Header>();

/// The payloads of the recorded SENDs: those of the client, and those of the server. All are IPv4, of one packet each.
fn recorded() -> [Vec<Vec<u8>>; 2] {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/smb/linux.pcap");
    let mut reader = PcapReader::new(File::open(path).unwrap()).unwrap();
    let mut sides = [const { Vec::new() }; 2];
    while let Some(packet) = reader.next_packet() {
        let frame = packet.unwrap().data.into_owned();
        let (opcode, pad) = (frame[42], usize::from(frame[43] >> 4 & 3));
        // SEND Only, and the same behind the token that it ends.
        let start = match opcode {
            0x04 => 54,
            0x17 => 58,
            other => panic!("opcode {other:#x}"),
        };
        sides[usize::from(frame[29] == 1)].push(frame[start..frame.len() - pad - 4].to_vec());
    }
    sides
}

/// The messages of SMB that packets carry whole.
fn messages(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let data = |bytes: &Vec<u8>| {
        let (packet, _) = Packet::read_from_prefix(bytes).unwrap();
        assert_eq!(packet.remaining.get(), 0);
        packet.data(bytes).unwrap().to_vec()
    };
    packets.iter().map(data).filter(|message| !message.is_empty()).collect()
}

/// How the server behaves.
#[derive(Clone, Copy)]
struct Manner {
    /// Packets that it lets the client send before it answers.
    credits: u16,
    /// Bytes of the longest packet that it takes, and of the data in one of its own.
    packet_max: u32,
    part: usize,
    /// It asks for a packet before each answer.
    asks: bool,
    /// The command whose answers it changes, and how.
    spoils: Option<(u16, Spoil)>,
}

type Spoil = fn(&mut Vec<u8>);

const PLAIN: Manner =
    Manner { credits: 32, packet_max: 1364, part: 1024, asks: false, spoils: None };

/// A server of one session.
struct Server {
    endpoint: Endpoint,
    manner: Manner,
    /// Recorded answers that were not given yet; the last of a kind is given again.
    answers: Vec<Vec<u8>>,
    disk: Arc<Mr>,
    /// Packets that may come, and that may go.
    may: [u16; 2],
    partial: Vec<u8>,
    whole: VecDeque<Vec<u8>>,
    /// Packets that came without data, and messages that were answered.
    empty: usize,
    taken: Vec<Vec<u8>>,
}

impl Server {
    fn accept(host: &Host, listener: &Arc<Listener>, manner: Manner, len: usize) -> Result<Self> {
        Ok(Self {
            endpoint: host.accept(listener, &EndpointConfig::default())?,
            manner,
            answers: messages(&recorded()[1][1..]),
            disk: host.register(Buffer::new(len), Rights::LOCAL_WRITE)?,
            may: [manner.credits, 0],
            partial: Vec::new(),
            whole: VecDeque::new(),
            empty: 0,
            taken: Vec::new(),
        })
    }

    /// Serves the client until it disconnects.
    fn serve(mut self) -> Result<Self> {
        let [client, server] = recorded();
        assert_eq!(self.endpoint.receive()?.bytes, client[0], "the negotiation of SMB Direct");
        let mut reply = server[0].clone();
        reply[10..12].copy_from_slice(&self.manner.credits.to_le_bytes());
        reply[24..28].copy_from_slice(&self.manner.packet_max.to_le_bytes());
        self.endpoint.send(&reply)?;
        loop {
            if let Some(message) = self.whole.pop_front() {
                self.answer(message)?;
                continue;
            }
            match self.take() {
                Ok(()) => {}
                Err(EndpointError::Disconnected) => return Ok(self),
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes a packet.
    fn take(&mut self) -> Result<()> {
        let bytes = self.endpoint.receive()?.bytes;
        assert!(bytes.len() <= self.manner.packet_max as usize);
        let (packet, _) = Packet::read_from_prefix(&bytes).unwrap();
        self.may[0] = self.may[0].checked_sub(1).expect("the client had a credit");
        self.may[1] += packet.credits.get();
        let data = packet.data(&bytes).expect("the data lie inside");
        self.empty += usize::from(data.is_empty());
        self.partial.extend(data);
        if packet.remaining.get() > 0 {
            // The rest of the message needs a credit.
            return self.send_empty(0);
        }
        if !self.partial.is_empty() {
            self.whole.push_back(std::mem::take(&mut self.partial));
        }
        Ok(())
    }

    fn answer(&mut self, message: Vec<u8>) -> Result<()> {
        let (header, _) = Header::read_from_prefix(&message).unwrap();
        let command = header.command.get();
        let mut answer = self.recorded_answer(command);
        answer[24..32].copy_from_slice(header.id.as_bytes());
        let token = match command {
            Negotiate::COMMAND => {
                let dialect = HEADER + size_of::<Negotiate>();
                answer[HEADER + 4..][..2].copy_from_slice(&message[dialect..][..2]);
                None
            }
            Write::COMMAND | Read::COMMAND => self.transfer(&message, &mut answer)?,
            _ => None,
        };
        match self.manner.spoils {
            Some((spoilt, spoil)) if spoilt == command => spoil(&mut answer),
            _ => {}
        }
        self.taken.push(message);
        if self.manner.asks {
            self.send_empty(RESPONSE_REQUESTED)?;
        }
        self.send(&answer, token)
    }

    fn recorded_answer(&mut self, command: u16) -> Vec<u8> {
        let mut same = (0..self.answers.len()).filter(|at| self.answers[*at][12] == command as u8);
        let first = same.next().expect("it was recorded");
        match same.next() {
            Some(_) => self.answers.remove(first),
            None => self.answers[first].clone(),
        }
    }

    /// Moves the data of a request; the token that its answer ends.
    fn transfer(&mut self, message: &[u8], answer: &mut [u8]) -> Result<Option<u32>> {
        let (body, descriptor) = message[HEADER..].split_at(size_of::<Write>());
        let descriptor = Descriptor::read_from_bytes(descriptor).unwrap();
        let remote = Remote { address: descriptor.address.get(), token: descriptor.token.get() };
        let write = message[12] == Write::COMMAND as u8;
        let offset = match write {
            true => Write::read_from_bytes(body).unwrap().offset,
            false => Read::read_from_bytes(body).unwrap().offset,
        };
        let (start, len) = (offset.get() as usize, descriptor.len.get() as usize);
        let part = [self.disk.sge(start..start + len)];
        let count = if write {
            self.endpoint.read(&part, remote)?;
            HEADER + 4
        } else {
            self.endpoint.write(&part, remote)?;
            HEADER + 8
        };
        answer[count..count + 4].copy_from_slice(descriptor.len.as_bytes());
        // The channel of 3.0.2 lets the answer end it.
        Ok((message[HEADER + 32] == 2).then_some(remote.token))
    }

    fn send(&mut self, message: &[u8], token: Option<u32>) -> Result<()> {
        let mut remaining = message.len();
        for part in message.chunks(self.manner.part) {
            remaining -= part.len();
            let mut packet = Packet::new(0, part.len(), remaining).as_bytes().to_vec();
            packet.extend([0; 4]);
            packet.extend(part);
            self.send_bytes(packet, token.filter(|_| remaining == 0))?;
        }
        Ok(())
    }

    /// A packet without data.
    fn send_empty(&mut self, flags: u16) -> Result<()> {
        let mut packet = Packet::new(0, 0, 0);
        packet.flags = flags.into();
        self.send_bytes(packet.as_bytes().to_vec(), None)
    }

    /// Lets the packet grant what can be granted.
    fn send_bytes(&mut self, mut packet: Vec<u8>, token: Option<u32>) -> Result<()> {
        while self.may[1] == 0 {
            self.take()?;
        }
        self.may[1] -= 1;
        let granted = self.manner.credits - self.may[0];
        self.may[0] = self.manner.credits;
        packet[2..4].copy_from_slice(&granted.to_le_bytes());
        match token {
            Some(token) => self.endpoint.send_and_invalidate(&packet, token)?,
            None => self.endpoint.send(&packet)?,
        }
        Ok(())
    }
}

const RESPONSE_REQUESTED: u16 = 1;

/// As the example does it: writes a file of `len` bytes, reads it back, compares.
fn exercise(host: &Host, len: usize, dialect: Dialect) -> Result<(), Box<dyn Error>> {
    let server = "10.0.0.1:445".parse()?;
    let mut session = Session::connect(host, server, "share", "guest", dialect)?;
    let file = session.create("smb-direct")?;
    let data: Vec<u8> = (0..len).map(|at| (at * 31 + at / 251) as u8).collect();
    session.write(file, &Arc::new(Buffer::from(data.as_slice())))?;
    let back = Arc::new(Buffer::new(len));
    session.read(file, &back)?;
    assert!(back.to_vec(0..len) == data, "the file is another one");
    session.close(file)?;
    session.disconnect()
}

/// A whole session: what the client says of it, and the server behind it.
fn session(manner: Manner, len: usize, dialect: Dialect) -> (Result<(), String>, Server) {
    let [host, client] = pair().unwrap();
    let listener = host.listen(445).unwrap();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| Server::accept(&host, &listener, manner, len)?.serve());
        let done = exercise(&client, len, dialect).map_err(|error| error.to_string());
        (done, server.join().unwrap().unwrap())
    })
}

/// All requests are the recorded ones, but for the addresses and tokens of the memory.
#[test]
fn requests_are_those_that_ksmbd_took() {
    let (done, server) = session(PLAIN, RECORDED, Dialect::V302);
    done.unwrap();
    let mut ours = server.taken;
    let mut theirs = messages(&recorded()[0][1..]);
    for message in ours.iter_mut().chain(&mut theirs) {
        if [Write::COMMAND, Read::COMMAND].contains(&message[12].into()) {
            message[HEADER + size_of::<Write>()..][..12].fill(0);
        }
    }
    assert_eq!(ours, theirs);
}

/// Several transfers are under way at once, of which the last is shorter.
#[test]
fn a_file_comes_back_in_either_dialect() {
    for dialect in [Dialect::V300, Dialect::V302] {
        let (done, _) = session(PLAIN, (9 << 20) + 4097, dialect);
        assert_eq!(done, Ok(()), "{dialect:?}");
    }
}

/// The least that the specification lets a server give: packets of 128 bytes, one at a time.
#[test]
fn a_sparing_server_is_served() {
    let manner = Manner { credits: 1, packet_max: 128, part: 40, ..PLAIN };
    let (done, server) = session(manner, 5 << 20, Dialect::V302);
    assert_eq!(done, Ok(()));
    assert!(server.taken.len() > 15);
}

#[test]
fn a_server_that_asks_for_a_packet_gets_one() {
    let (done, server) = session(Manner { asks: true, ..PLAIN }, RECORDED, Dialect::V302);
    assert_eq!(done, Ok(()));
    assert_eq!(server.empty, server.taken.len());
}

/// An answer that is cut, or is none to the request, is refused, and nothing panics.
#[test]
fn a_spoilt_answer_is_refused() {
    const SPOILS: [(&str, Spoil); 5] = [
        ("no SMB message", |answer| answer.truncate(63)),
        ("another kind", |answer| answer.truncate(66)),
        ("another kind", |answer| answer[12] ^= 0x10),
        ("no request", |answer| answer[24] ^= 0x80),
        ("status 0xc0000022", |answer| answer[8..12].copy_from_slice(&[0x22, 0, 0, 0xc0])),
    ];
    let commands = [
        Negotiate::COMMAND,
        SessionSetup::COMMAND,
        TreeConnect::COMMAND,
        Create::COMMAND,
        Write::COMMAND,
        Read::COMMAND,
        Close::COMMAND,
        Logoff::COMMAND,
    ];
    for command in commands {
        for (told, spoil) in SPOILS {
            let manner = Manner { spoils: Some((command, spoil)), ..PLAIN };
            let (done, _) = session(manner, RECORDED, Dialect::V302);
            let error = done.expect_err(told);
            assert!(error.contains(told), "command {command}: {error}");
        }
    }
}
