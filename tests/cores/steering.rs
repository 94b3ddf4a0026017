//! Frames that come to another core than their queue pair's.

use super::*;
use netadapter_glue::memory::{CoreEdge, MemoryConfig, pair_of_cores};
use netadapter_glue::{Edge, EdgeError, Received, Segments, forward_edge};
use rocev2::wire::{Packet, Template, UnitWriter, is_for_several};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Everything comes to a core that it is not for.
fn lie(frame: &[u8], cores: usize) -> usize {
    (core_of(frame, cores) + 1) % cores
}

/// Everything comes to the last core.
fn last(_: &[u8], cores: usize) -> usize {
    cores - 1
}

/// Goal: no frame is lost or taken twice, whichever core it comes to: of the transport, of connection management and of
/// address resolution.
#[test]
fn frames_that_come_to_a_wrong_core_arrive() {
    for steer in [lie, last] {
        let cores = [2, 3];
        let mesh = Mesh::new(Net::of_cores(cores, steer), cores);
        mesh.exchange();
        for (provider, made) in mesh.net.providers.iter().zip([[6, 0], [0, 6]]) {
            let counters = provider.counters();
            assert_eq!([counters.connects, counters.accepts], made);
            assert_eq!((counters.failures, counters.errors), (0, 0));
        }
        mesh.finish();
    }
}

/// The edge of the first of three cores, which gets everything and joins what it can, as a NIC does with datagrams of the
/// same addresses and ports.
struct Joins {
    edge: CoreEdge,
    /// Units for several cores.
    several: Arc<AtomicUsize>,
}

impl Edge for Joins {
    forward_edge!(self => self.edge, transmit);

    fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&[Received<'_>]),
    ) -> Result<usize, EdgeError> {
        let mut frames = Vec::new();
        let taken = self.edge.receive(budget, &mut |units| {
            frames.extend(units.iter().map(|unit| unit.frame.to_vec()));
        })?;
        let mut rest = &frames[..];
        while let [first, ..] = rest {
            let (joined, segments, count) = join(rest);
            if let Some(Segments { segment_len, .. }) = segments
                && is_for_several(&joined, Some(segment_len), 3)
            {
                self.several.fetch_add(1, Ordering::Relaxed);
            }
            let frame = if segments.is_some() { &joined[..] } else { first };
            sink(&[Received { frame, segments }]);
            rest = &rest[count..];
        }
        Ok(taken)
    }
}

/// Joins the first frames, those that may be: the unit, and how many it has.
fn join(frames: &[Vec<u8>]) -> (Vec<u8>, Option<Segments>, usize) {
    let data =
        |frame: &Vec<u8>| Packet::parse(frame).is_ok_and(|packet| packet.bth.dest_qpn.get() > 1);
    let same = |frame: &&Vec<u8>| frame.len() == frames[0].len() && data(frame);
    let packets: Vec<_> =
        frames.iter().take_while(same).map(|frame| Packet::parse(frame).unwrap()).collect();
    let [first, _, ..] = packets[..] else { return (Vec::new(), None, 1) };
    let mut buf = vec![0; MemoryConfig::default().mtu];
    let template = Template::new(&first.encap);
    let mut unit = UnitWriter::new(&mut buf, &template, first.encap.ip_id);
    for Packet { bth, ext, payload, .. } in packets {
        if !unit.fits(ext.len(), payload.len()) {
            break;
        }
        let copy = |to: &mut [u8]| {
            to.copy_from_slice(payload);
            Ok::<_, ()>(())
        };
        unit.push(&bth, &ext, payload.len(), copy).unwrap();
    }
    let unit = unit.finish();
    buf.truncate(unit.len);
    if unit.segments < 2 {
        return (Vec::new(), None, 1);
    }
    let segments = Segments { header_len: unit.header_len, segment_len: unit.segment_len };
    (buf, Some(segments), unit.segments)
}

/// Goal: a received unit with packets for several cores gives each core its own, once.
#[test]
fn a_unit_for_several_cores_is_divided() {
    let cores = [1, 3];
    let (first, second) = pair_of_cores(MemoryConfig::default(), cores, |_, _| 0);
    let several = Arc::new(AtomicUsize::new(0));
    let joins =
        |edge| -> Box<dyn Edge + Send> { Box::new(Joins { edge, several: Arc::clone(&several) }) };
    let plain = |edge| -> Box<dyn Edge + Send> { Box::new(edge) };
    let edges = [first.into_iter().map(plain).collect(), second.into_iter().map(joins).collect()];
    let mesh = Mesh::new(Net::over_cores(edges, ADDRESSES, |_| ()), cores);
    mesh.exchange();
    while several.load(Ordering::Relaxed) < 50 {
        thread::scope(|scope| {
            for (sides, _) in &mesh.pairs {
                scope.spawn(|| {
                    let [near, far] = sides;
                    for id in 0..50 {
                        far.qp.receive(id, &[far.mr.sge(0..64)]).unwrap();
                    }
                    for id in 0..50 {
                        near.qp.send(id, &[near.mr.sge(0..64)], 0).unwrap();
                    }
                    assert_eq!(near.statuses(50), [STATUS_SUCCESS; 50]);
                    let received = far.results(50);
                    let ids = received.iter().map(|result| result.RequestContext.addr());
                    assert!(ids.eq(0..50));
                });
            }
        });
    }
    mesh.finish();
}
