//! Two connection managers, their consumers, time, and datagrams that were altered, repeated or lost.

use super::frames;
use super::world::{LIMITS, PORT, World};
use arbitrary::{Arbitrary, Unstructured};
use rocev2::cm::{ConnId, ListenerId};
use rocev2::env::Duration;
use std::net::SocketAddr;

/// Operations in one run, at most.
const STEPS: usize = 64;
/// Datagrams that are remembered, to be repeated.
const KEPT: usize = 32;

#[derive(Arbitrary, Debug)]
enum Step {
    Listen {
        node: bool,
        backlog: u8,
    },
    Unlisten {
        node: bool,
        at: u8,
    },
    Pause {
        node: bool,
        at: u8,
        paused: bool,
    },
    CreateQp {
        node: bool,
    },
    DestroyQp {
        node: bool,
        at: u8,
    },
    Connect {
        node: bool,
        qp: u8,
        private: u8,
    },
    Accept {
        node: bool,
        at: u8,
        qp: u8,
        private: u8,
    },
    Confirm {
        node: bool,
        at: u8,
    },
    Reject {
        node: bool,
        at: u8,
        private: u8,
    },
    Disconnect {
        node: bool,
        at: u8,
    },
    Release {
        node: bool,
        at: u8,
    },
    Transmit {
        from: bool,
    },
    Deliver {
        to: bool,
        at: u8,
    },
    Lose {
        to: bool,
        at: u8,
    },
    /// One that was seen before, to either side, with bytes of the datagram replaced.
    Repeat {
        to: bool,
        at: u8,
        changes: [Option<(u8, u8)>; 4],
    },
    /// The same, and four bytes, IDs say, from another one.
    Splice {
        to: bool,
        at: u8,
        place: u8,
        other: u8,
        from: u8,
    },
    Advance {
        code: u8,
    },
    Jump,
    Settle,
}

struct Run {
    world: World,
    listeners: [Vec<ListenerId>; 2],
    kept: Vec<Vec<u8>>,
}

/// Two devices that are not connected yet.
pub fn cm(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let Ok(v6) = bool::arbitrary(&mut u) else { return };
    let mut run = Run { world: World::new(v6), listeners: Default::default(), kept: Vec::new() };
    run.world.nodes.iter_mut().for_each(super::world::Node::create_qp);
    run.listen(1, 2);
    for _ in 0..STEPS {
        if u.is_empty() {
            break;
        }
        let Ok(step) = Step::arbitrary(&mut u) else { break };
        run.take(step);
        run.world.nodes.iter_mut().for_each(super::world::Node::collect);
    }
    run.world.settle();
    run.world.finish();
}

impl Run {
    fn take(&mut self, step: Step) {
        let now = self.world.now;
        match step {
            Step::Listen { node, backlog } => self.listen(node.into(), backlog.into()),
            Step::Unlisten { node, at } => {
                let node = usize::from(node);
                if let Some(listener) = self.listener(node, at) {
                    self.world.nodes[node].device.unlisten(listener);
                }
            }
            Step::Pause { node, at, paused } => {
                let node = usize::from(node);
                if let Some(listener) = self.listener(node, at) {
                    self.world.nodes[node].device.pause(listener, paused);
                }
            }
            Step::CreateQp { node } => self.world.nodes[usize::from(node)].create_qp(),
            Step::DestroyQp { node, at } => {
                let node = &mut self.world.nodes[usize::from(node)];
                if !node.qpns.is_empty() {
                    let qpn = node.qpns.remove(usize::from(at) % node.qpns.len());
                    node.device.destroy_qp(qpn);
                }
            }
            Step::Connect { node, qp, private } => {
                self.world.connect(node.into(), qp.into(), &DATA[..private.into()]);
            }
            Step::Accept { node, at, qp, private } => {
                let node = usize::from(node);
                let Some(conn) = self.conn(node, at) else { return };
                let node = &mut self.world.nodes[node];
                let Some(qpn) = node.qpns.get(usize::from(qp)).copied() else { return };
                let data = &DATA[..private.into()];
                let _ = node.device.accept(now, conn, qpn, LIMITS, data);
            }
            Step::Confirm { node, at } => {
                let _ = self.with(node, at, |device, conn| device.confirm(now, conn).ok());
            }
            Step::Reject { node, at, private } => {
                let data = &DATA[..private.into()];
                let _ = self.with(node, at, |device, conn| device.reject(now, conn, data).ok());
            }
            Step::Disconnect { node, at } => {
                let _ = self.with(node, at, |device, conn| device.disconnect(now, conn).ok());
            }
            Step::Release { node, at } => {
                let _ = self.with(node, at, |device, conn| {
                    device.release(now, conn);
                    Some(())
                });
            }
            Step::Transmit { from } => {
                let from = usize::from(from);
                self.world.transmit(from, 1, 4);
                self.keep(1 - from);
            }
            Step::Deliver { to, at } => {
                let node = &mut self.world.nodes[usize::from(to)];
                let index = usize::from(at) % node.wire.len().max(1);
                if let Some((frame, segment_len)) = node.wire.remove(index) {
                    node.deliver(now, &frame, segment_len);
                }
            }
            Step::Lose { to, at } => {
                let wire = &mut self.world.nodes[usize::from(to)].wire;
                wire.remove(usize::from(at) % wire.len().max(1));
            }
            Step::Repeat { to, at, changes } => {
                let Some(mut frame) = self.seen(at).cloned() else { return };
                let mad = frame.len() - 4 - 256;
                for (place, value) in changes.into_iter().flatten() {
                    frame[mad + usize::from(place)] = value;
                }
                self.forge(to, frame);
            }
            Step::Splice { to, at, place, other, from } => {
                let Some(mut frame) = self.seen(at).cloned() else { return };
                let Some(other) = self.seen(other) else { return };
                let piece = |frame: &[u8], at: u8| frame.len() - 4 - 256 + usize::from(at) / 4 * 4;
                let (place, from) = (piece(&frame, place), piece(other, from));
                let other = other[from..from + 4].to_vec();
                frame[place..place + 4].copy_from_slice(&other);
                self.forge(to, frame);
            }
            Step::Advance { code } => self.world.advance(Duration::from_nanos(1 << (code % 36))),
            Step::Jump => {
                self.world.jump();
            }
            Step::Settle => {
                // What is sent first is kept.
                for from in [0, 1] {
                    self.world.transmit(from, 1, 4);
                    self.keep(1 - from);
                }
                self.world.settle();
            }
        }
    }

    fn listen(&mut self, node: usize, backlog: usize) {
        let Self { world, listeners, .. } = self;
        let endpoint = SocketAddr::new(world.nodes[node].address, PORT);
        listeners[node].extend(world.nodes[node].device.listen(endpoint, backlog));
    }

    fn listener(&self, node: usize, at: u8) -> Option<ListenerId> {
        let listeners = &self.listeners[node];
        listeners.get(usize::from(at) % listeners.len().max(1)).copied()
    }

    fn conn(&self, node: usize, at: u8) -> Option<ConnId> {
        let conns = &self.world.nodes[node].conns;
        conns.get(usize::from(at) % conns.len().max(1)).map(|(conn, _)| *conn)
    }

    /// Does what a consumer does to a connection, in whatever state that is.
    fn with(
        &mut self,
        node: bool,
        at: u8,
        call: impl FnOnce(&mut rocev2::Device, ConnId) -> Option<()>,
    ) -> Option<()> {
        let conn = self.conn(node.into(), at)?;
        call(&mut self.world.nodes[usize::from(node)].device, conn)
    }

    /// Remembers what is on the wire to a side.
    fn keep(&mut self, to: usize) {
        for (frame, _) in &self.world.nodes[to].wire {
            let datagram = frame.len() >= 14 + 20 + 8 + 12 + 8 + 256 + 4;
            if datagram && self.kept.len() < KEPT && !self.kept.contains(frame) {
                self.kept.push(frame.clone());
            }
        }
    }

    fn seen(&self, at: u8) -> Option<&Vec<u8>> {
        self.kept.get(usize::from(at) % self.kept.len().max(1))
    }

    fn forge(&mut self, to: bool, mut frame: Vec<u8>) {
        frames::seal_icrc(&mut frame);
        let now = self.world.now;
        self.world.nodes[usize::from(to)].deliver(now, &frame, 0);
    }
}

/// Private data, longer than any message takes.
const DATA: [u8; 255] = [0x77; 255];
