//! The peers of staged paths.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ndk_consumer::{Connector, Host, HostBuilder};
use netadapter_glue::memory::MemoryEdge;
use netadapter_glue::neighbour::ask::Question;
use netadapter_glue::neighbour::{FRAME_MAX_LEN, Neighbours};
use netadapter_glue::{Edge, Transmit};

use super::super::tap::checksum;
use super::wire::is_roce;
use crate::completions::{Waits, never};
use crate::{perf, rping as program};

/// A peer on a thread of its own, until it is dropped.
pub(super) struct Running {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn new(run: impl FnOnce(&AtomicBool) + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let its = Arc::clone(&stop);
        Self { stop, thread: Some(thread::spawn(move || run(&its))) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || ended.is_some_and(|ended| ended.is_ok()), "the peer failed");
    }
}

/// A host that has `ips` and hands each connection to `serve`.
fn listening(
    edge: MemoryEdge,
    ips: &[IpAddr],
    port: u16,
    serve: impl Fn(&Host, Connector) + Send + 'static,
) -> Running {
    let builder = HostBuilder::new(ips.iter().copied()).configure(|config| {
        config.cm.disconnect_limit = Duration::from_millis(300);
    });
    let host = builder.start(edge).unwrap();
    let listener = host.adapter().listen(SocketAddr::new(ips[0], port)).unwrap();
    Running::new(move |stop| {
        while !stop.load(Ordering::Relaxed) {
            if let Some(connector) = listener.next(Duration::from_millis(20)) {
                serve(&host, connector);
            }
        }
    })
}

/// `ndkperf serve`.
pub(super) fn serving(edge: MemoryEdge, ips: &[IpAddr], port: u16) -> Running {
    let waits = Waits { patience: PATIENCE, busy_poll: false, cq_mod: 1 };
    listening(edge, ips, port, move |host, connector| {
        // A client that the wire cuts off is part of the test.
        let incoming = perf::Groups::default().take(connector, 1).unwrap();
        let _ = perf::serve(host.adapter(), &incoming, waits, &perf::Memory::default(), never);
    })
}

/// `ndkperf rping serve`.
pub(super) fn rping(edge: MemoryEdge, ip: IpAddr, port: u16) -> Running {
    let options = program::Options {
        count: None,
        size: program::SIZE,
        verbose: false,
        validate: true,
        patience: PATIENCE,
        stop: never,
    };
    listening(edge, &[ip], port, move |host, connector| {
        let _ = program::serve(host.adapter(), connector, options);
    })
}

/// A listener that wants nobody.
pub(super) fn rejecting(edge: MemoryEdge, ip: IpAddr, port: u16) -> Running {
    listening(edge, &[ip], port, |_, connector| connector.reject(&[]).unwrap())
}

/// A listener that is busy with other things.
pub(super) fn hesitating(edge: MemoryEdge, ip: IpAddr, port: u16) -> Running {
    listening(edge, &[ip], port, |_, connector| {
        thread::sleep(PATIENCE);
        drop(connector);
    })
}

/// A host without a provider: it does what `act` makes of each frame, and of each turn without one.
fn bare(
    mut edge: MemoryEdge,
    mut act: impl FnMut(Option<&[u8]>) -> Vec<Vec<u8>> + Send + 'static,
) -> Running {
    Running::new(move |stop| {
        while !stop.load(Ordering::Relaxed) {
            let mut answers = act(None);
            edge.receive_each(64, |unit| answers.extend(act(Some(unit.frame)))).unwrap();
            let mut answers = answers.into_iter();
            edge.transmit_each(64, |buffer| {
                let frame = answers.next()?;
                buffer[..frame.len()].copy_from_slice(&frame);
                Some(Transmit { len: frame.len(), segments: None })
            })
            .unwrap();
            thread::sleep(Duration::from_millis(1));
        }
    })
}

/// A host whose kernel answers for its address and pings, and UDP with this code of ICMP unreachable.
pub(super) fn kernel(edge: MemoryEdge, ip: IpAddr, code: u8) -> Running {
    let mut neighbours = Neighbours::new(edge.link().mac, &[ip]);
    bare(edge, move |frame| match frame {
        Some(frame) if is_roce(frame) => vec![unreachable(frame, code)],
        Some(frame) => answers(&mut neighbours, frame),
        None => Vec::new(),
    })
}

/// Two hosts behind one wire that have one address.
pub(super) fn twins(edge: MemoryEdge, ip: IpAddr) -> Running {
    let mut hosts = [1, 2].map(|host| Neighbours::new([2, 0, 0, 0, 1, host], &[ip]));
    bare(edge, move |frame| {
        let frame = frame.into_iter();
        frame
            .flat_map(|frame| hosts.each_mut().map(|host| answers(host, frame)))
            .flatten()
            .collect()
    })
}

/// The frames with which a host answers one.
fn answers(host: &mut Neighbours, frame: &[u8]) -> Vec<Vec<u8>> {
    host.handle_frame(0, frame);
    let mut buffer = [0; FRAME_MAX_LEN];
    std::iter::from_fn(|| host.poll_transmit(&mut buffer).map(|len| buffer[..len].to_vec()))
        .collect()
}

/// A host that hears nobody and asks for us.
pub(super) fn nagging(edge: MemoryEdge, ip: IpAddr, wanted: IpAddr) -> Running {
    let (mac, mut turns) = (edge.link().mac, 0);
    bare(edge, move |frame| {
        turns += u32::from(frame.is_none());
        if frame.is_some() || turns % 50 > 0 {
            return Vec::new();
        }
        let mut buffer = [0; FRAME_MAX_LEN];
        let question = Question::Place { own_ip: ip, ip: wanted, at: None };
        let len = question.write(&mut buffer, mac, None);
        vec![buffer[..len].to_vec()]
    })
}

/// The ICMP error about an IPv4 packet (RFC 792): its header and the first 8 bytes behind it.
fn unreachable(frame: &[u8], code: u8) -> Vec<u8> {
    let (to_mac, from_mac) = (&frame[6..12], &frame[..6]);
    let quoted = &frame[14..42];
    let mut ip = vec![0x45, 0, 0, 56, 0, 0, 0, 0, 64, 1, 0, 0];
    ip.extend([&quoted[16..20], &quoted[12..16]].concat());
    checksum(&mut ip);
    // The checksum of ICMP is left out: who hears it looks at the quoted packet.
    let icmp = [3, code, 0, 0, 0, 0, 0, 0];
    [to_mac, from_mac, &[0x08, 0x00], &ip, &icmp, quoted].concat()
}

const PATIENCE: Duration = Duration::from_secs(5);
