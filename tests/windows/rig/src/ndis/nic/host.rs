//! The host above the NIC: its own TCP/IP, and what NDIS does between that and the image.

use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Instant;

use netadapter_glue::neighbour::Neighbours;

use super::{Event, Nic};
use crate::ndis::switch;

const DIRECTED: usize = 0x1;
const MULTICAST: usize = 0x2;
const ALL_MULTICAST: usize = 0x4;
const BROADCAST: usize = 0x8;
pub const PROMISCUOUS: usize = 0x20;
/// "NDIS for Windows 8 and later": nothing that this host sends.
pub const NO_LOCAL: usize = 0x1_0000;

/// The NIC's own TCP/IP.
pub struct Host {
    addresses: Vec<IpAddr>,
    neighbours: Neighbours,
    began: Instant,
    /// What came to its addresses.
    pub heard: Vec<Vec<u8>>,
}

/// What NDIS and the host did at this NIC.
#[derive(Default)]
pub struct Above {
    pub host: Mutex<Option<Host>>,
    /// Every packet filter that the image has set.
    pub filters: Mutex<Vec<usize>>,
    /// Frames of this host that NDIS brought back to the image.
    pub looped: Mutex<usize>,
    /// Spin locks that the image took while it was shown frames.
    pub locks: Mutex<usize>,
}

/// Whether a filter lets a frame in. The multicast list has everything.
pub fn lets_in(filter: usize, mac: [u8; 6], frame: &[u8]) -> bool {
    let kind = match frame[..frame.len().min(6)] {
        [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF] => BROADCAST,
        [first, ..] if first & 1 != 0 => MULTICAST | ALL_MULTICAST,
        _ if frame.starts_with(&mac) => DIRECTED,
        _ => 0,
    };
    filter & (kind | PROMISCUOUS) != 0
}

impl Nic {
    /// Its own TCP/IP comes up with these addresses.
    pub fn give_host(&self, addresses: &[IpAddr]) {
        let neighbours = Neighbours::new(self.mac, addresses);
        let (addresses, began) = (addresses.to_vec(), Instant::now());
        let host = Host { addresses, neighbours, began, heard: Vec::new() };
        *self.above.host.lock().unwrap() = Some(host);
    }

    /// A frame for the NIC's own TCP/IP, which drops what is not for its addresses (RFC 1122, 3.3.4.2, the strong model).
    pub(super) fn show_host(&self, frame: &[u8]) {
        if !lets_in(DIRECTED | MULTICAST | BROADCAST, self.mac, frame) {
            return;
        }
        let answers = {
            let mut above = self.above.host.lock().unwrap();
            let Some(host) = &mut *above else { return };
            host.hear(frame)
        };
        answers.iter().for_each(|frame| self.send_as_host(frame));
    }

    /// Its own TCP/IP sends a frame.
    pub fn send_as_host(&self, frame: &[u8]) {
        switch::send(self.port.load(Ordering::SeqCst), frame);
        self.loop_back(frame);
    }

    /// What NDIS does with a frame that leaves, for a binding that asks for everything and does not say that it wants none of these.
    pub(super) fn loop_back(&self, frame: &[u8]) {
        let filter = self.filter.load(Ordering::SeqCst);
        if filter & PROMISCUOUS != 0 && filter & NO_LOCAL == 0 {
            self.bring_back(frame);
        }
    }

    /// Brings a frame of this host back to the image, as where its sender asks for that.
    pub fn bring_back(&self, frame: &[u8]) {
        *self.above.looped.lock().unwrap() += 1;
        let _ = self.wire.lock().unwrap().send(Event::Looped(frame.to_vec()));
    }

    /// Frames of this host that came back so far.
    pub fn looped(&self) -> usize {
        *self.above.looped.lock().unwrap()
    }

    /// The packet filters that the image has set so far.
    pub fn filters(&self) -> Vec<usize> {
        self.above.filters.lock().unwrap().clone()
    }

    /// How often the host has heard this frame.
    pub fn host_heard(&self, frame: &[u8]) -> usize {
        let host = self.above.host.lock().unwrap();
        let heard = host.as_ref().map(|host| host.heard.iter().filter(|heard| *heard == frame));
        heard.map_or(0, Iterator::count)
    }
}

impl Host {
    fn hear(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        if destination(frame).is_some_and(|to| self.addresses.contains(&to)) {
            self.heard.push(frame.to_vec());
        }
        let now = self.began.elapsed().as_nanos() as u64;
        self.neighbours.handle_frame(now, frame);
        let mut buffer = [0; 1600];
        let mut answers = Vec::new();
        while let Some(len) = self.neighbours.poll_transmit(&mut buffer) {
            answers.push(buffer[..len].to_vec());
        }
        answers
    }
}

/// The destination of a packet of IP.
fn destination(frame: &[u8]) -> Option<IpAddr> {
    match frame.get(12..14)? {
        [8, 0] => Some(IpAddr::from(<[u8; 4]>::try_from(frame.get(30..34)?).unwrap())),
        [0x86, 0xDD] => Some(IpAddr::from(<[u8; 16]>::try_from(frame.get(38..54)?).unwrap())),
        _ => None,
    }
}
