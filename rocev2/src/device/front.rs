//! A device's part that is one, however many cores it has: its connections.

use super::engine::Engine;
use super::mad_limiter::MadLimiter;
use super::{DeviceConfig, Opening};
use crate::class::prioritize;
use crate::cm::{Cm, CmTransmit, Layers, Outcome};
use crate::counters::{Counter, Counters};
use crate::env::{Instant, Memory, Rng};
use crate::ids::Qpn;
use crate::mr::Registrar;
use crate::path::{Path, PathNews, Source};
use crate::psn::Psn;
use crate::wire::mad::GSI_QKEY;
use crate::wire::{
    self, About, Bth, Deth, DropReason, Encap, Ext, Frames, MadHead, Opcode, Packet, Template,
    Unit, UnitWriter,
};
use alloc::boxed::Box;
use alloc::sync::Arc;

/// The connections of a device, QP 1, which carries their messages, and its keys.
///
/// It lives on the first core, and keeps the paths of connections there, in the first engine.
pub struct Front {
    pub(super) rng: Rng,
    pub(super) opening: Opening,
    /// In a box, as it is too large for the frame that makes the others.
    pub(super) cm: Box<Cm>,
    pub(super) mad_limiter: MadLimiter,
    pub(super) registrar: Registrar,
    socket: bool,
    gsi_psn: Psn,
    counters: Arc<Counters>,
}

impl Front {
    /// One without connections, which counts into the counters of the first core.
    #[inline(never)]
    pub(super) fn boxed(
        config: &DeviceConfig,
        registrar: Registrar,
        mut rng: Rng,
        counters: Arc<Counters>,
    ) -> Box<Self> {
        Box::new(Self {
            opening: config.opening,
            cm: Cm::boxed(config.cm.clone(), rng.fork(), Arc::clone(&counters)),
            mad_limiter: MadLimiter::new(&config.cm, &mut rng.fork()),
            registrar,
            socket: config.socket,
            gsi_psn: Psn::default(),
            rng,
            counters,
        })
    }

    /// Handles units that the first core received, oldest first: its frames as [`Engine::handle_frames`] does, and messages of
    /// connection management.
    pub fn handle_frames<'f, M: Memory>(
        &mut self,
        now: Instant,
        engine: &mut Engine,
        frames: impl IntoIterator<Item = (&'f [u8], Option<usize>)>,
        memory: &mut M,
    ) {
        engine.handle_all(now, frames, memory, Some(self));
    }

    /// Takes what the queue pairs of an engine have heard of their connections.
    #[inline]
    pub fn collect(&mut self, engine: &mut Engine) {
        engine.settle();
        if !engine.lists.heard.is_empty() {
            self.collect_heard(engine);
        }
    }

    #[inline(never)]
    fn collect_heard(&mut self, engine: &mut Engine) {
        let Engine { qps, lists, .. } = engine;
        for slot in lists.heard.drain(..) {
            let Some(entry) = qps[slot].as_deref_mut() else { continue };
            let heard = core::mem::take(&mut entry.news);
            let Some(conn) = entry.conn else { continue };
            if heard.contains(Heard::DATA) {
                self.cm.established_by_data(lists.heard_at, conn);
            }
            if heard.contains(Heard::ANSWER) {
                self.cm.peer_answered(conn);
            }
        }
    }

    /// Allows or stops the processing of received CM messages. A request lets an unknown peer allocate memory; a
    /// caller that is short of memory stops them. They are then dropped and counted, and the peers resend
    /// them.
    pub fn admit_messages(&mut self, admitted: bool) {
        self.mad_limiter.set_closed(!admitted);
    }

    /// A socket has one source port.
    pub(super) const fn set_source_port(&self, encap: &mut Encap) {
        if self.socket {
            encap.src_port = wire::ROCE_PORT;
        }
    }

    // ---- messages -----------------------------------------------------------------------------

    /// Whether a datagram to QP 1 is worked on.
    pub(super) fn allows(&mut self, now: Instant, head: &MadHead) -> bool {
        let names_connection = match head.about {
            About::Connection(id) => self.cm.knows(id, head.src),
            About::Request(_) | About::Other => false,
        };
        self.mad_limiter.allows(now, head, names_connection)
    }

    /// Handles a packet to QP 1. The caller then acts on stale queue pairs, by [`super::Device::probe_peers`].
    pub(super) fn handle_gsi(
        &mut self,
        now: Instant,
        engine: &mut Engine,
        packet: &Packet<'_>,
    ) -> Result<(), DropReason> {
        match packet.ext {
            Ext::Deth(Deth { qkey: GSI_QKEY, .. }) => {
                let repeated = self.mad_limiter.received();
                // A packet of data came before it.
                self.collect(engine);
                let Outcome { unheard, put_off } = self.cm.handle_packet(now, packet, repeated);
                if put_off {
                    self.mad_limiter.put_off(now);
                }
                // It may be forged, so it starts no more than a check.
                let path = Path { local: packet.encap.dst, remote: packet.encap.src };
                if let Some(path) = engine.paths.find(path) {
                    engine.paths.heard(now, path, Source::of(&packet.encap));
                    if unheard {
                        engine.paths.doubt(now, path, PathNews::Silent);
                    }
                }
                Ok(())
            }
            Ext::Deth(_) | Ext::DethImm(..) => Err(DropReason::QKey),
            _ => Err(DropReason::TransportMismatch),
        }
    }

    /// Whether there may be a packet of the first core to send: [`Self::poll_transmit_run`] finds none otherwise.
    #[inline]
    pub fn may_transmit(&self, engine: &mut Engine) -> bool {
        engine.may_transmit() || self.cm.has_message()
    }

    /// Writes what the first core sends, as [`Engine::poll_transmit_run`] does. CM messages go before its queue pairs, but not
    /// all the time.
    pub fn poll_transmit_run<M: Memory>(
        &mut self,
        now: Instant,
        engine: &mut Engine,
        frames: &mut impl Frames,
        max_packets: usize,
        memory: &mut M,
    ) -> bool {
        let message = self.cm.has_message();
        if message && self.mad_limiter.sends_first() && self.transmit_cm(engine, frames) {
            return true;
        }
        let units = if message { self.mad_limiter.units_before() } else { usize::MAX };
        let sent = engine.transmit_qps(now, frames, (units.max(1), max_packets), memory);
        self.mad_limiter.qp_sent(sent);
        sent > 0 || message && self.transmit_cm(engine, frames)
    }

    fn transmit_cm(&mut self, engine: &mut Engine, frames: &mut impl Frames) -> bool {
        let Some(buf) = frames.buffer() else { return false };
        let Some(unit) = self.write_cm(engine, buf) else { return false };
        frames.keep(&unit);
        true
    }

    fn write_cm(&mut self, engine: &mut Engine, buf: &mut [u8]) -> Option<Unit> {
        let CmTransmit { layers: Layers { mut encap, priority }, payload } =
            self.cm.poll_transmit()?;
        // Where the path is not in use, this is a reply to an unknown peer, and goes back to where the
        // message came from.
        if let Some(path) = engine.paths.find(Path { local: encap.src, remote: encap.dst }) {
            encap.set_hop(engine.paths.hop(path));
        }
        prioritize(&mut encap, priority);
        self.set_source_port(&mut encap);
        let bth = Bth::new(Opcode::UdSendOnly, Qpn::GSI, self.gsi_psn);
        self.gsi_psn = self.gsi_psn.add(1);
        let template = Template::new(&encap);
        let mut unit = UnitWriter::new(buf, &template, engine.ids.next);
        engine.ids.end_single();
        let ext = Ext::Deth(Deth { qkey: GSI_QKEY, src_qpn: Qpn::GSI });
        let Ok(()) = unit.push(&bth, &ext, payload.len(), |out| {
            out.copy_from_slice(&payload);
            Ok::<(), core::convert::Infallible>(())
        });
        self.counters.add(Counter::SentPkts, 1);
        self.counters.add(Counter::SentBytes, unit.wire_len() as u64);
        self.mad_limiter.sent();
        Some(unit.finish())
    }
}

/// The news of a connection that its queue pair has.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Heard(u8);

impl Heard {
    /// A packet came where the RTU is missing.
    pub(super) const DATA: Self = Self(1);
    /// The response to a probe.
    pub(super) const ANSWER: Self = Self(2);

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn contains(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}
