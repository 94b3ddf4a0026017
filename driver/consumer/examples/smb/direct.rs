//! SMB Direct ([MS-SMBD]): messages of any length over the credits of a connection.

use std::collections::VecDeque;
use std::error::Error;
use std::net::SocketAddr;

use ndk_consumer::{Endpoint, EndpointConfig, Host};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// One end of a connection that has been negotiated.
pub(crate) struct Transport {
    pub(crate) endpoint: Endpoint,
    /// Bytes of the longest packet that the peer takes.
    packet_max: usize,
    /// Bytes of the longest transfer that the peer takes.
    pub(crate) transfer_max: usize,
    /// Packets that the peer has receives for.
    credits: u16,
    /// Receives of ours that the peer does not know of.
    ungranted: u16,
    /// The peer asks for a packet, whatever is in it.
    asked: bool,
    /// The message that is not whole yet.
    partial: Vec<u8>,
    whole: VecDeque<Vec<u8>>,
}

impl Transport {
    /// Connects, and agrees on the sizes of packets. `requests` are registrations and invalidations under way.
    pub(crate) fn connect(host: &Host, server: SocketAddr, requests: u32) -> Result<Self> {
        let config = EndpointConfig {
            receives: CREDITS.into(),
            receive_len: PACKET_MAX,
            sends: CREDITS.into(),
            send_len: PACKET_MAX,
            requests,
            ..EndpointConfig::default()
        };
        let mut endpoint = host.connect(server, &config)?;
        endpoint.send(Negotiate::new().as_bytes())?;
        let reply = endpoint.receive()?.bytes;
        let reply = Negotiated::read_from_bytes(&reply).map_err(|_| "no reply of SMB Direct")?;
        let packet_max = PACKET_MAX.min(reply.receive_max.get() as usize);
        if reply.status.get() != 0 || reply.version.get() != VERSION || packet_max < PACKET_MIN {
            return Err(format!("the server refuses SMB Direct: {:#x}", reply.status.get()).into());
        }
        Ok(Self {
            endpoint,
            packet_max,
            transfer_max: reply.transfer_max.get() as usize,
            credits: reply.credits.get(),
            ungranted: CREDITS.min(reply.credits_wanted.get()),
            asked: false,
            partial: Vec::new(),
            whole: VecDeque::new(),
        })
    }

    /// Sends a message, in as many packets as it takes.
    pub(crate) fn send(&mut self, message: &[u8]) -> Result<()> {
        let mut remaining = message.len();
        for part in message.chunks(self.packet_max - DATA_OFFSET) {
            remaining -= part.len();
            // The last credit is for a packet that grants some, or both ends would wait for ever.
            while self.credits == 0 || (self.credits == 1 && self.ungranted == 0) {
                self.take()?;
            }
            self.send_packet(part, remaining)?;
        }
        Ok(())
    }

    /// The next message of the peer.
    pub(crate) fn receive(&mut self) -> Result<Vec<u8>> {
        loop {
            if let Some(message) = self.whole.pop_front() {
                return Ok(message);
            }
            self.take()?;
        }
    }

    /// Grants all that can be granted.
    fn send_packet(&mut self, data: &[u8], remaining: usize) -> Result<()> {
        let granted = std::mem::take(&mut self.ungranted);
        let header = Packet::new(granted, data.len(), remaining);
        self.credits -= 1;
        self.asked = false;
        let bytes = match data {
            [] => header.as_bytes().to_vec(),
            _ => [header.as_bytes(), &[0; DATA_OFFSET - size_of::<Packet>()], data].concat(),
        };
        Ok(self.endpoint.send(&bytes)?)
    }

    /// Takes one packet. The endpoint has posted its receive again.
    fn take(&mut self) -> Result<()> {
        let bytes = self.endpoint.receive()?.bytes;
        let (packet, _) = Packet::read_from_prefix(&bytes).map_err(|_| "a packet is too short")?;
        self.credits = self.credits.saturating_add(packet.credits.get());
        self.ungranted += 1;
        self.asked |= packet.flags.get() & RESPONSE_REQUESTED != 0;
        self.partial.extend(packet.data(&bytes).ok_or("a packet ends before its data")?);
        let len = self.partial.len() + packet.remaining.get() as usize;
        if len > MESSAGE_MAX {
            return Err("a message is longer than was agreed on".into());
        }
        if packet.remaining.get() == 0 && !self.partial.is_empty() {
            self.whole.push_back(std::mem::take(&mut self.partial));
        }
        // A peer that sends much and gets no answer runs out of credits.
        if self.credits > 0 && (self.asked || self.ungranted >= CREDITS / 2) {
            self.send_packet(&[], 0)?;
        }
        Ok(())
    }
}

/// Receives of ours, and the peer's that we would like.
const CREDITS: u16 = 32;
const VERSION: u16 = 0x0100;
/// Bytes of our longest packet and of our receives.
const PACKET_MAX: usize = 8192;
/// Less is not allowed.
const PACKET_MIN: usize = 128;
/// Bytes of the longest message of the peer; not less than 128 KiB.
const MESSAGE_MAX: usize = 1 << 20;
/// The data of a packet begin at a multiple of eight.
const DATA_OFFSET: usize = size_of::<Packet>().next_multiple_of(8);
const RESPONSE_REQUESTED: u16 = 1;

/// The first packet of the client (2.2.1).
#[derive(Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct Negotiate {
    versions: [U16; 2],
    reserved: U16,
    credits_wanted: U16,
    send_len: U32,
    receive_max: U32,
    message_max: U32,
}

impl Negotiate {
    pub(crate) fn new() -> Self {
        Self {
            versions: [VERSION.into(); 2],
            reserved: U16::ZERO,
            credits_wanted: CREDITS.into(),
            send_len: U32::new(PACKET_MAX as u32),
            receive_max: U32::new(PACKET_MAX as u32),
            message_max: U32::new(MESSAGE_MAX as u32),
        }
    }
}

/// The answer of the server (2.2.2).
#[derive(Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct Negotiated {
    versions: [U16; 2],
    pub(crate) version: U16,
    reserved: U16,
    pub(crate) credits_wanted: U16,
    pub(crate) credits: U16,
    pub(crate) status: U32,
    pub(crate) transfer_max: U32,
    send_len: U32,
    pub(crate) receive_max: U32,
    message_max: U32,
}

/// The header of each packet after that (2.2.3).
#[derive(Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(crate) struct Packet {
    pub(crate) credits_wanted: U16,
    pub(crate) credits: U16,
    pub(crate) flags: U16,
    reserved: U16,
    /// Bytes of the message in later packets.
    pub(crate) remaining: U32,
    data_offset: U32,
    data_len: U32,
}

impl Packet {
    pub(crate) fn new(credits: u16, data_len: usize, remaining: usize) -> Self {
        let mut packet = Self::new_zeroed();
        packet.credits_wanted = CREDITS.into();
        packet.credits = credits.into();
        if data_len > 0 {
            packet.remaining = U32::new(remaining as u32);
            packet.data_offset = U32::new(DATA_OFFSET as u32);
            packet.data_len = U32::new(data_len as u32);
        }
        packet
    }

    /// The data of a packet that begins with this; `None` if they do not lie inside.
    pub(crate) fn data<'a>(&self, packet: &'a [u8]) -> Option<&'a [u8]> {
        let [start, len] = [self.data_offset, self.data_len].map(|word| word.get() as usize);
        packet.get(start..start.checked_add(len)?)
    }
}
