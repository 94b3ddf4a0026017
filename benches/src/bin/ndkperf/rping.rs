//! The other side of `rping`, the ping-pong of librdmacm, in both roles.
//!
//! One ping: the client SENDs where its data lies, the server READs it and SENDs go; the client
//! SENDs where it wants it back, the server WRITEs it there and SENDs done. A SEND of the client is
//! 16 bytes: address, R_Key and length, big endian. A SEND of the server has the same length, and
//! its content means nothing.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use driver::abi::{
    NDK_MR_FLAG_ALLOW_LOCAL_WRITE, NDK_MR_FLAG_ALLOW_REMOTE_READ, NDK_MR_FLAG_ALLOW_REMOTE_WRITE,
};
use ndk_consumer::{Adapter, Buffer, Connector, Mr, ReadLimits, Remote};

use crate::completions::Waits;
use crate::connection::{Depths, Event};
use crate::failure::Failure;
use crate::session::Session;

/// Port of `rping` when none is given.
pub(crate) const PORT: u16 = 7174;
/// Bytes of a ping when nothing is said.
pub(crate) const SIZE: u32 = 64;
/// Fewest bytes of a ping: its text with the longest number, and a letter.
pub(crate) const SIZE_MIN: u32 = 32;
/// Most bytes of a ping.
pub(crate) const SIZE_MAX: u32 = 64 * 1024;

/// What both roles need to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Pings to send, or to expect; `None` = until the other side ends.
    pub(crate) count: Option<u64>,
    /// Bytes of a ping.
    pub(crate) size: u32,
    /// Print each ping.
    pub(crate) verbose: bool,
    /// Compare what comes.
    pub(crate) validate: bool,
    /// How long nothing may happen.
    pub(crate) patience: Duration,
    /// Asked while waiting: whether to end early.
    pub(crate) stop: fn() -> bool,
}

/// What a client had whose pings all came back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Pinged {
    pub(crate) pings: u64,
    /// The server has confirmed the end.
    pub(crate) confirmed: bool,
}

/// Pings the server at `remote` from `local`, and disconnects.
pub(crate) fn connect(
    adapter: &Arc<Adapter>,
    local: SocketAddr,
    remote: SocketAddr,
    options: Options,
) -> Result<Pinged, Failure> {
    let (peer, pings) = connect_and_ping(adapter, local, remote, options)?;
    let confirmed = peer.session.disconnect().map_err(|failure| failure.during("disconnecting"))?;
    Ok(Pinged { pings, confirmed })
}

/// A client with all its pings behind it, still connected.
pub(crate) fn connect_and_ping(
    adapter: &Arc<Adapter>,
    local: SocketAddr,
    remote: SocketAddr,
    options: Options,
) -> Result<(Peer, u64), Failure> {
    let connector = adapter.create_connector()?;
    let mut peer = Peer::new(adapter, connector, options)?;
    peer.session
        .connect(local, remote, LIMITS)
        .map_err(|failure| failure.during(format!("connecting to {remote}")))?;
    let mut pings = 0;
    while options.count.is_none_or(|count| pings < count) {
        peer.ping(pings).map_err(|failure| failure.during(format!("ping {pings}")))?;
        pings += 1;
    }
    Ok((peer, pings))
}

/// What a client did that was served to its end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Served {
    pub(crate) pings: u64,
    /// Its end was seen.
    pub(crate) disconnected: bool,
}

/// Serves one client.
///
/// A client that has sent all its pings and then says nothing has been served too: Linux sends its DREQ
/// once when the process that disconnects exits, so that one lost packet keeps the end from us.
pub(crate) fn serve(
    adapter: &Arc<Adapter>,
    connector: Connector,
    options: Options,
) -> Result<Served, Failure> {
    let mut peer = Peer::new(adapter, connector, options)?;
    peer.session.accept(LIMITS)?;
    let served = peer.serve(options.count);
    peer.session.tell_of(served)
}

/// Where the client's data lies, or should go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Info {
    remote: Remote,
    size: u32,
}

impl Info {
    const LEN: usize = 16;

    fn encode(self) -> [u8; Self::LEN] {
        let word = u64::from(self.remote.token) << 32 | u64::from(self.size);
        (u128::from(self.remote.address) << 64 | u128::from(word)).to_be_bytes()
    }

    fn decode(bytes: &[u8; Self::LEN]) -> Self {
        let [a, b, c, d, e, f, g, h, k0, k1, k2, k3, s0, s1, s2, s3] = *bytes;
        let address = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        let token = u32::from_be_bytes([k0, k1, k2, k3]);
        Self { remote: Remote { address, token }, size: u32::from_be_bytes([s0, s1, s2, s3]) }
    }
}

/// The data of ping `number`: its name, then letters from `A` to `z` and over again, starting one
/// letter further with each ping; the last byte is zero.
fn ping_data(number: u64, size: usize) -> Vec<u8> {
    let mut data = format!("rdma-ping-{number}: ").into_bytes();
    let letters = (b'A'..=b'z').cycle().skip((number % LETTERS) as usize);
    data.extend(letters.take((size - 1).saturating_sub(data.len())));
    data.truncate(size - 1);
    data.push(0);
    data
}

/// One connection: the session, and the memory it uses.
pub(crate) struct Peer {
    session: Session,
    options: Options,
    /// Messages that came and were not looked at yet.
    arrived: VecDeque<[u8; Info::LEN]>,
    messages: Arc<Mr>,
    source: Arc<Mr>,
    sink: Arc<Mr>,
}

impl Peer {
    /// Makes an endpoint that is ready for the first message.
    fn new(
        adapter: &Arc<Adapter>,
        connector: Connector,
        options: Options,
    ) -> Result<Self, Failure> {
        let pd = adapter.create_pd()?;
        let depths = Depths { receive: RECEIVES as u32, initiator: 16, inline_len: 0 };
        let waits = Waits { patience: options.patience, busy_poll: false, cq_mod: 1 };
        let mut session = Session::new(adapter, &pd, connector, depths, waits)?;
        session.stop_when(options.stop);
        let len = SIZE_MAX as usize;
        let slots = RECEIVES + SENDS;
        let write = NDK_MR_FLAG_ALLOW_LOCAL_WRITE;
        let messages = pd.register(Buffer::new(slots * Info::LEN), write)?;
        let source = pd.register(Buffer::new(len), write | NDK_MR_FLAG_ALLOW_REMOTE_READ)?;
        let sink = pd.register(Buffer::new(len), NDK_MR_FLAG_ALLOW_REMOTE_WRITE)?;
        let arrived = VecDeque::new();
        let mut peer = Self { session, options, arrived, messages, source, sink };
        for slot in 0..RECEIVES {
            peer.session.receive(&peer.messages, range(slot), slot)?;
        }
        Ok(peer)
    }

    /// The client's part of one ping.
    fn ping(&mut self, number: u64) -> Result<(), Failure> {
        let size = self.options.size as usize;
        let data = ping_data(number, size);
        self.source.buffer().write(0, &data);
        self.tell(0, Info { remote: self.source.remote(0), size: self.options.size })?;
        self.next_message()?;
        self.tell(1, Info { remote: self.sink.remote(0), size: self.options.size })?;
        self.next_message()?;
        let mut back = vec![0; size];
        self.sink.buffer().read(0, &mut back);
        self.examine("ping data", number, &data, &back)
    }

    /// The server's part, until the client has ended.
    fn serve(&mut self, count: Option<u64>) -> Result<Served, Failure> {
        let mut pings = 0;
        let disconnected = loop {
            // Between two pings is where a client ends.
            let source = match self.next_message() {
                Err(Failure::Disconnected) => break true,
                Err(Failure::Stalled(_)) if count.is_some_and(|count| pings >= count) => {
                    break false;
                }
                other => Info::decode(&other?),
            };
            self.pong(pings, source).map_err(|failure| failure.during(format!("ping {pings}")))?;
            pings += 1;
        };
        match count {
            Some(count) if pings < count => {
                Err(Failure::Disconnected.during(format!("ping {pings}")))
            }
            _ => Ok(Served { pings, disconnected }),
        }
    }

    /// The server's part of one ping, whose data lies at `source`.
    fn pong(&mut self, number: u64, source: Info) -> Result<(), Failure> {
        if !(1..=SIZE_MAX).contains(&source.size) {
            return Err(Failure::Protocol("the client's data is longer than any rping's"));
        }
        let size = source.size as usize;
        self.session.read(&self.source, 0..size, source.remote, READ)?;
        self.wait_for(READ)?;
        let mut data = vec![0; size];
        self.source.buffer().read(0, &mut data);
        self.examine("server ping data", number, &ping_data(number, size), &data)?;
        self.go()?;
        let sink = Info::decode(&self.next_message()?);
        // The string and its end, as the client asks for no more.
        let text = data.iter().position(|byte| *byte == 0).map_or(size, |end| end + 1);
        if text > sink.size as usize {
            return Err(Failure::Protocol("the client wants back less than it gave"));
        }
        self.session.write(&self.source, 0..text, sink.remote, WRITE)?;
        self.wait_for(WRITE)?;
        self.go()
    }

    /// Prints and compares, as far as asked for.
    fn examine(
        &self,
        what: &'static str,
        number: u64,
        expected: &[u8],
        data: &[u8],
    ) -> Result<(), Failure> {
        if self.options.verbose {
            let _ = writeln!(io::stdout(), "{what}: {}", printable(data));
        }
        let wrong = expected.iter().zip(data).position(|(a, b)| a != b);
        match wrong {
            Some(offset) if self.options.validate => {
                let offset = offset as u64;
                Err(Failure::Mismatch { what, count: 1, message: number, offset })
            }
            _ => Ok(()),
        }
    }

    /// Sends `info` from one of the two slots; the answer tells that it has arrived.
    fn tell(&mut self, slot: usize, info: Info) -> Result<(), Failure> {
        let range = range(RECEIVES + slot);
        self.messages.buffer().write(range.start, &info.encode());
        self.session.send(&self.messages, range, SEND)
    }

    /// Sends the message whose content means nothing.
    fn go(&mut self) -> Result<(), Failure> {
        self.session.send(&self.messages, range(RECEIVES), SEND)
    }

    /// Waits for the end of the request that was posted with `tag`.
    fn wait_for(&mut self, tag: usize) -> Result<(), Failure> {
        loop {
            if self.turn()?.contains(&Event::Initiated { tag }) {
                return Ok(());
            }
        }
    }

    fn next_message(&mut self) -> Result<[u8; Info::LEN], Failure> {
        loop {
            if let Some(message) = self.arrived.pop_front() {
                return Ok(message);
            }
            self.turn()?;
        }
    }

    /// Waits once; keeps what has arrived and posts the receives anew.
    fn turn(&mut self) -> Result<Vec<Event>, Failure> {
        let mut events = Vec::new();
        self.session.wait(&mut events)?;
        for event in &events {
            let Event::Received { tag: slot, len } = *event else { continue };
            if len != Info::LEN {
                return Err(Failure::Protocol("the peer does not speak the rping protocol"));
            }
            let mut message = [0; Info::LEN];
            self.messages.buffer().read(range(slot).start, &mut message);
            self.arrived.push_back(message);
            self.session.receive(&self.messages, range(slot), slot)?;
        }
        Ok(events)
    }
}

/// The string in `data`, up to its end, without what a terminal would act on.
fn printable(data: &[u8]) -> String {
    let text = data.iter().take_while(|byte| **byte != 0);
    text.map(|byte| if (b' '..=b'~').contains(byte) { char::from(*byte) } else { '.' }).collect()
}

/// The bytes of a message slot.
const fn range(slot: usize) -> std::ops::Range<usize> {
    slot * Info::LEN..(slot + 1) * Info::LEN
}

/// One READ each way, as `rping` asks for.
const LIMITS: ReadLimits = ReadLimits { inbound: 1, outbound: 1 };
const LETTERS: u64 = (b'z' - b'A') as u64 + 1;
/// The protocol has one message on its way in each direction; one more does no harm.
const RECEIVES: usize = 2;
const SENDS: usize = 2;
const SEND: usize = 0;
const READ: usize = 1;
const WRITE: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// The first message of a stock `rping -c`, off the wire.
    #[test]
    fn the_info_message_is_that_of_rping() {
        let bytes = [
            0x00, 0x00, 0x55, 0x56, 0x1c, 0x3f, 0xb1, 0x90, 0x00, 0x00, 0x05, 0x23, 0x00, 0x00,
            0x00, 0x40,
        ];
        let info = Info::decode(&bytes);
        let remote = Remote { address: 0x5556_1c3f_b190, token: 0x523 };
        assert_eq!(info, Info { remote, size: 64 });
        assert_eq!(info.encode(), bytes);
    }

    /// The first two pings of a stock `rping -c`, off the wire.
    #[test]
    fn the_data_is_that_of_rping() {
        let first = b"rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr\0";
        let second = b"rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrs\0";
        assert_eq!(ping_data(0, 64), first);
        assert_eq!(ping_data(1, 64), second);
    }

    #[test]
    fn a_ping_prints_as_one_line() {
        assert_eq!(printable(b"[\\]^\n\x1b\xff\0after"), "[\\]^...");
    }

    #[test]
    fn letters_start_over_after_z() {
        let data = ping_data(57, 64);
        assert!(data.starts_with(b"rdma-ping-57: zABC"), "{}", data.escape_ascii());
        assert!(ping_data(58, 64).starts_with(b"rdma-ping-58: ABC"));
        assert_eq!(ping_data(u64::from(u32::MAX), 8), b"rdma-pi\0");
    }
}
