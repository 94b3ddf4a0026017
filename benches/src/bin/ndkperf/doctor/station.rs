//! A host on the link without a provider: it asks questions by itself, and hears what comes.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use ndk_consumer::Host;
use netadapter_glue::host::BoxEdge;
use netadapter_glue::neighbour::address_probe::{self, Conflict};
use netadapter_glue::neighbour::ask::{Heard, Question, hear};
use netadapter_glue::neighbour::{FRAME_MAX_LEN, Neighbours};
use netadapter_glue::{Edge, EdgeError, Transmit};

use super::Path;
use super::tap::{Tap, Trace};
use crate::failure::Failure;
use crate::stop;

/// The host.
pub(super) struct Station {
    tap: Tap,
    back: Receiver<BoxEdge>,
    pub(super) trace: Arc<Trace>,
    mac: [u8; 6],
    /// Answers those who ask for us.
    neighbours: Neighbours,
}

impl Station {
    pub(super) fn new(edge: BoxEdge, path: &Path) -> Self {
        let trace = Trace::new();
        let mac = edge.link().mac;
        let neighbours = Neighbours::new(mac, &[path.own_ip]);
        let (tap, back) = Tap::lend(edge, &trace);
        Self { tap, back, trace, mac, neighbours }
    }

    pub(super) const fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// The hosts that have our address.
    pub(super) fn conflicts(&mut self, path: &Path) -> Result<Vec<Conflict>, Failure> {
        address_probe::conflicts(&mut self.tap, path.vlan, &[path.own_ip]).map_err(edge_failed)
    }

    /// Frames that the edge gave up.
    pub(super) fn given_up(&self) -> u64 {
        self.tap.drops().transmit
    }

    /// Sends questions, in the VLAN that each has.
    pub(super) fn ask(
        &mut self,
        questions: impl IntoIterator<Item = (Question, Option<u16>)>,
    ) -> Result<(), Failure> {
        let mut questions = questions.into_iter().peekable();
        let deadline = Instant::now() + ASK_LIMIT;
        while questions.peek().is_some() && Instant::now() < deadline {
            let mac = self.mac;
            let sent = self.tap.transmit_each(usize::MAX, |buffer| {
                let (question, vlan) = questions.next()?;
                let len = question.write(buffer, mac, vlan);
                Some(Transmit { len, segments: None })
            });
            if sent.map_err(edge_failed)? == 0 {
                thread::sleep(NAP);
            }
        }
        Ok(())
    }

    /// Hears what comes within `time`, or until `enough` says so.
    pub(super) fn listen(
        &mut self,
        time: Duration,
        mut enough: impl FnMut(&Heard) -> bool,
    ) -> Result<Vec<Heard>, Failure> {
        let deadline = Instant::now() + time;
        let (mut heard, mut is_enough) = (Vec::new(), false);
        loop {
            let Self { tap, neighbours, trace, .. } = self;
            let now_ns = trace.now_ns();
            let taken = tap.receive_each(64, |unit| {
                neighbours.handle_frame(now_ns, unit.frame);
                if let Some(news) = hear(unit.frame) {
                    is_enough |= enough(&news);
                    heard.push(news);
                }
            });
            let taken = taken.map_err(edge_failed)?;
            self.answer()?;
            if stop::requested() {
                return Err(Failure::Interrupted);
            }
            if is_enough || Instant::now() >= deadline {
                return Ok(heard);
            }
            if taken == 0 {
                thread::sleep(NAP);
            }
        }
    }

    /// Asks again and again, with a pause between, until `enough` says so.
    pub(super) fn insist(
        &mut self,
        question: Question,
        vlan: Option<u16>,
        mut enough: impl FnMut(&Heard) -> bool,
    ) -> Result<Vec<Heard>, Failure> {
        let mut heard = Vec::new();
        for _ in 0..TRIES {
            self.ask([(question, vlan)])?;
            let mut found = false;
            let news = self.listen(PAUSE, |news| {
                found |= enough(news);
                found
            })?;
            heard.extend(news);
            if found {
                break;
            }
        }
        Ok(heard)
    }

    /// Whether the host at `mac` answers when it is asked alone, and whether it answers a ping.
    pub(super) fn is_there(&mut self, path: &Path, mac: [u8; 6]) -> Result<Signs, Failure> {
        let Path { own_ip, peer, vlan, .. } = *path;
        let place = Question::Place { own_ip, ip: peer, at: Some(mac) };
        let (mut by_address, mut by_ping) = (false, false);
        self.insist(place, vlan, |news| {
            by_address |= holds(news, peer).is_some_and(|link| link.mac == mac);
            by_address
        })?;
        let ping = Question::Ping { own_ip, ip: peer, mac, id: SIGN, seq: 0 };
        self.insist(ping, vlan, |news| {
            by_ping |= matches!(news, Heard::Pong { from, id: SIGN, .. } if *from == peer);
            by_ping
        })?;
        Ok(Signs { by_address, by_ping })
    }

    /// Lends the edge to a provider until `work` is done.
    pub(super) fn with_host<T>(
        self,
        path: &Path,
        work: impl FnOnce(&Host, &Arc<Trace>) -> Result<T, Failure>,
    ) -> Result<(Self, T), Failure> {
        let Self { tap, back, trace, .. } = self;
        let host = path.builder().start(tap)?;
        let done = work(&host, &trace);
        drop(host);
        let done = done?;
        let gone = Failure::Protocol("the provider kept the edge");
        let edge = back.recv_timeout(ASK_LIMIT).map_err(|_| gone)?;
        let (tap, back) = Tap::lend(edge, &trace);
        let mac = tap.link().mac;
        let neighbours = Neighbours::new(mac, &[path.own_ip]);
        Ok((Self { tap, back, trace, mac, neighbours }, done))
    }

    fn answer(&mut self) -> Result<(), Failure> {
        let Self { tap, neighbours, .. } = self;
        let answers = tap.transmit_each(usize::MAX, |buffer| {
            let len = neighbours.poll_transmit(&mut buffer[..FRAME_MAX_LEN])?;
            Some(Transmit { len, segments: None })
        });
        answers.map(|_| ()).map_err(edge_failed)
    }
}

/// The signs of life of a host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Signs {
    /// It answers a query for its Ethernet address that is sent to it alone.
    pub(super) by_address: bool,
    /// It answers pings.
    pub(super) by_ping: bool,
}

/// The place of the host that has `ip`, in the answer that it gives.
pub(super) fn holds(news: &Heard, wanted: IpAddr) -> Option<netadapter_glue::neighbour::Link> {
    match news {
        Heard::Holder { ip, link, answers: true } if *ip == wanted => Some(*link),
        Heard::Holder { .. } | Heard::Pong { .. } | Heard::Refused { .. } => None,
    }
}

/// An Ethernet address for the reader.
pub(super) fn mac_text(mac: [u8; 6]) -> String {
    netadapter_glue::host::MacAddress(mac).to_string()
}

fn edge_failed(error: EdgeError) -> Failure {
    Failure::Edge { edge: "the edge".into(), source: std::io::Error::other(error.to_string()) }
}

/// Tries of a question, and the pause between two.
const TRIES: usize = 8;
const PAUSE: Duration = Duration::from_millis(150);
/// Between two looks at the edge.
const NAP: Duration = Duration::from_micros(200);
/// No edge takes longer to take a few thousand frames.
const ASK_LIMIT: Duration = Duration::from_secs(5);
/// The series of the pings that ask for a sign of life.
const SIGN: u16 = 0xd0c1;
