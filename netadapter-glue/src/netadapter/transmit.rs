//! The transmit queue: the frames that Windows sends, on their way to the poll core.
//!
//! [Sending network data](https://learn.microsoft.com/windows-hardware/drivers/netcx/sending-network-data-with-net-rings)
//! tells the order of an advance: post, then drain. A posted packet is complete when the poll core has taken
//! its frame. Nothing of a packet is written but its `Scratch`
//! ([element management](https://learn.microsoft.com/windows-hardware/drivers/netcx/net-ring-element-management)).

use super::abi::NET_PACKET;
use super::wire::{Entry, Frame, Notify, Shared};
use super::{PacketRings, TransmitWire};
use crate::sleeper::ASLEEP;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ffi::c_void;
use core::sync::atomic::Ordering;

/// A transmit queue with its rings, from its creation to its end. The system's calls of one queue come one after the
/// other.
#[derive(Debug)]
pub struct TransmitQueue {
    rings: PacketRings,
    wire: Entry,
    shared: Arc<Shared>,
    /// Frames given to the wire, modulo 2^32.
    posted: u32,
    /// Of those, the ones whose packets went back to the system.
    drained: u32,
}

/// The outcome for a packet that is to be posted.
enum Posted {
    /// Its frame is on the wire.
    Sent,
    /// Its frame cannot go there: the packet is complete.
    Lost,
}

impl TransmitQueue {
    /// A queue that was just created. PASSIVE_LEVEL.
    ///
    /// # Safety
    /// `rings` are those of `queue`, a packet queue that lives until [`into_wire`](Self::into_wire), and `notify` may
    /// be called for it.
    pub unsafe fn new(
        wire: TransmitWire,
        rings: PacketRings,
        queue: *mut c_void,
        notify: Notify,
    ) -> Self {
        let TransmitWire { wire, shared, posted } = wire;
        shared.transmit.attach(queue, notify);
        Self { rings, wire, shared, posted, drained: posted }
    }

    /// `EvtPacketQueueAdvance`. IRQL <= DISPATCH_LEVEL.
    pub fn advance(&mut self) {
        self.post();
        self.drain();
    }

    /// `EvtPacketQueueSetNotificationEnabled`. PASSIVE_LEVEL.
    pub fn set_notification_enabled(&mut self, enabled: bool) {
        self.shared.transmit.enable(enabled);
        if enabled && self.has_work() {
            // It came before the permission, so nobody else tells the system.
            self.shared.transmit.fire();
        }
    }

    /// `EvtPacketQueueCancel`: gives all packets back. Their frames were copied, or are not sent. PASSIVE_LEVEL.
    pub fn cancel(&mut self) {
        self.drained = self.posted;
        let (packets, fragments) = (&mut self.rings.packets, &mut self.rings.fragments);
        let (packet_end, fragment_end) = (packets.end(), fragments.end());
        packets.set_next(packet_end);
        packets.set_begin(packet_end);
        fragments.set_next(fragment_end);
        fragments.set_begin(fragment_end);
    }

    /// Ends the queue. Its rings are not touched any more, nor is the system notified.
    #[must_use]
    pub fn into_wire(self) -> TransmitWire {
        self.shared.transmit.enable(false);
        TransmitWire { wire: self.wire, shared: self.shared, posted: self.posted }
    }

    /// Whether an advance would post or drain something.
    fn has_work(&self) -> bool {
        let packets = &self.rings.packets;
        let unposted = packets.next() != packets.end() && !self.wire.spare.is_empty();
        unposted || (packets.begin() != packets.next() && self.is_complete(packets.begin()))
    }

    fn post(&mut self) {
        let mut index = self.rings.packets.next();
        let before = self.posted;
        while index != self.rings.packets.end() {
            let packet = self.rings.packets.get(index);
            if !packet.ignore() {
                match self.send(&packet) {
                    None => break,
                    Some(Posted::Sent) => self.posted = self.posted.wrapping_add(1),
                    Some(Posted::Lost) => {
                        self.shared.transmit_lost.fetch_add(1, Ordering::Relaxed);
                        let flags = packet.Flags | NET_PACKET::SCRATCH;
                        self.rings.packets.set(index, NET_PACKET { Flags: flags, ..packet });
                    }
                }
                let fragments = &mut self.rings.fragments;
                let next = fragments.advance(packet.FragmentIndex, packet.FragmentCount.into());
                fragments.set_next(next);
            }
            index = self.rings.packets.advance(index, 1);
        }
        self.rings.packets.set_next(index);
        if self.posted != before {
            self.shared.sleeper.wake_if(ASLEEP);
        }
    }

    /// Puts the frame of a packet on the wire; `None` while there is no buffer for it.
    fn send(&mut self, packet: &NET_PACKET) -> Option<Posted> {
        if self.wire.frames.is_abandoned() {
            return Some(Posted::Lost);
        }
        let mut bytes = self.wire.spare.pop().ok()?;
        match self.gather(packet, &mut bytes) {
            Some(len) => {
                // There is a place for each buffer.
                let _ = self.wire.frames.push(Frame { bytes, len });
                Some(Posted::Sent)
            }
            None => {
                self.too_long(bytes);
                Some(Posted::Lost)
            }
        }
    }

    /// Copies the fragments of a packet into `bytes`. The result is the frame's length; `None` where it does not
    /// fit, or there is none.
    fn gather(&self, packet: &NET_PACKET, bytes: &mut [u8]) -> Option<usize> {
        let mut len = 0;
        for nth in 0..u32::from(packet.FragmentCount) {
            let index = self.rings.fragments.advance(packet.FragmentIndex, nth);
            let part = self.rings.data(index);
            bytes.get_mut(len..len + part.len())?.copy_from_slice(part);
            len += part.len();
        }
        // An empty frame is no frame.
        (len > 0).then_some(len)
    }

    /// The buffer goes the long way round, as an empty frame: only the other end returns buffers.
    fn too_long(&mut self, bytes: Box<[u8]>) {
        let _ = self.wire.frames.push(Frame { bytes, len: 0 });
    }

    fn drain(&mut self) {
        let mut index = self.rings.packets.begin();
        while index != self.rings.packets.next() && self.is_complete(index) {
            let packet = self.rings.packets.get(index);
            if !packet.ignore() {
                if !packet.scratch() && self.drained != self.posted {
                    self.drained = self.drained.wrapping_add(1);
                }
                // Its fragments go back with it.
                let fragments = &mut self.rings.fragments;
                let begin = fragments.advance(packet.FragmentIndex, packet.FragmentCount.into());
                fragments.set_begin(begin);
            }
            index = self.rings.packets.advance(index, 1);
        }
        self.rings.packets.set_begin(index);
    }

    /// Whether the posted packet at `index`, the oldest, may go back.
    fn is_complete(&self, index: u32) -> bool {
        let packet = self.rings.packets.get(index);
        packet.ignore()
            || packet.scratch()
            || self.wire.frames.is_abandoned()
            || self.shared.taken.load(Ordering::Acquire).wrapping_sub(self.drained).cast_signed()
                > 0
    }
}
