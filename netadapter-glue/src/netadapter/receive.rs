//! The receive queue: the poll core's frames, on their way to Windows.
//!
//! [Receiving network data](https://learn.microsoft.com/windows-hardware/drivers/netcx/receiving-network-data-with-net-rings)
//! tells the steps of an advance. The system attaches the buffers (`NetRxFragmentBufferAttachmentModeSystem`): they
//! lie in the fragment ring, and the driver binds as many as a frame needs to the next packet.

use super::abi::{NET_PACKET, NET_PACKET_LAYOUT};
use super::wire::{Exit, Notify, Shared};
use super::{PacketRings, ReceiveWire};
use crate::sleeper::STARVED;
use alloc::sync::Arc;
use core::ffi::c_void;
use core::sync::atomic::Ordering;

/// A receive queue with its rings, from its creation to its end. The system's calls of one queue come one after the
/// other.
#[derive(Debug)]
pub struct ReceiveQueue {
    rings: PacketRings,
    wire: Exit,
    shared: Arc<Shared>,
}

impl ReceiveQueue {
    /// A queue that was just created. PASSIVE_LEVEL.
    ///
    /// # Safety
    /// `rings` are those of `queue`, a packet queue that lives until [`into_wire`](Self::into_wire), and `notify` may
    /// be called for it.
    pub unsafe fn new(
        wire: ReceiveWire,
        rings: PacketRings,
        queue: *mut c_void,
        notify: Notify,
    ) -> Self {
        let ReceiveWire { wire, shared } = wire;
        shared.receive.attach(queue, notify);
        Self { rings, wire, shared }
    }

    /// `EvtPacketQueueAdvance`. IRQL <= DISPATCH_LEVEL.
    ///
    /// A NIC drains before it posts, because a buffer that is posted now is filled later. Here a frame is
    /// copied when its packet is drained, so it may have a buffer that is posted now.
    pub fn advance(&mut self) {
        self.post();
        self.drain();
    }

    /// `EvtPacketQueueSetNotificationEnabled`. PASSIVE_LEVEL.
    pub fn set_notification_enabled(&mut self, enabled: bool) {
        self.shared.receive.enable(enabled);
        if enabled && self.has_work() {
            // It came before the permission, so nobody else tells the system.
            self.shared.receive.fire();
        }
    }

    /// `EvtPacketQueueCancel`: indicates what came, and gives all other packets and buffers back unused. PASSIVE_LEVEL.
    /// [The page](https://learn.microsoft.com/windows-hardware/drivers/netcx/canceling-network-data-with-net-rings)
    /// demands it of a receive queue.
    pub fn cancel(&mut self) {
        self.drain();
        let packets = &mut self.rings.packets;
        let end = packets.end();
        let mut index = packets.begin();
        while index != end {
            let packet = packets.get(index);
            packets.set(index, NET_PACKET { Flags: packet.Flags | NET_PACKET::IGNORE, ..packet });
            index = packets.advance(index, 1);
        }
        packets.set_next(end);
        packets.set_begin(end);
        let fragments = &mut self.rings.fragments;
        let end = fragments.end();
        fragments.set_next(end);
        fragments.set_begin(end);
    }

    /// Ends the queue. Its rings are not touched any more, nor is the system notified. Frames that still wait are
    /// those of the next queue.
    #[must_use]
    pub fn into_wire(self) -> ReceiveWire {
        self.shared.receive.enable(false);
        ReceiveWire { wire: self.wire, shared: self.shared }
    }

    /// Whether an advance would indicate a frame.
    fn has_work(&self) -> bool {
        let (packets, fragments) = (&self.rings.packets, &self.rings.fragments);
        let room = packets.begin() != packets.end() && fragments.begin() != fragments.end();
        room && self.wire.frames.peek().is_ok_and(|frame| {
            let all = fragments.count(fragments.begin(), fragments.end());
            self.fragments_for(frame.len, all) != Some(0)
        })
    }

    fn post(&mut self) {
        let fragments = &mut self.rings.fragments;
        fragments.set_next(fragments.end());
    }

    fn drain(&mut self) {
        let mut index = self.rings.packets.begin();
        let mut returned = false;
        while index != self.rings.packets.end() {
            let fragments = &self.rings.fragments;
            let posted = fragments.count(fragments.begin(), fragments.next());
            let Ok(frame) = self.wire.frames.peek() else { break };
            match self.fragments_for(frame.len, posted) {
                // The frame waits for more buffers.
                Some(0) => break,
                Some(count) => {
                    self.indicate(index, count);
                    index = self.rings.packets.advance(index, 1);
                }
                None => {
                    self.shared.receive_lost.fetch_add(1, Ordering::Relaxed);
                }
            }
            let Ok(frame) = self.wire.frames.pop() else { break };
            self.wire.reuse(frame.bytes);
            returned = true;
        }
        // Unused by this driver, but a debugger shows it.
        self.rings.packets.set_next(index);
        self.rings.packets.set_begin(index);
        if returned {
            self.shared.sleeper.wake_if(STARVED);
        }
    }

    /// Of `available` fragments the number that a frame of `len` bytes takes; 0 while they are too few, and `None` where
    /// all fragments of the ring would be too few, or the frame is empty.
    fn fragments_for(&self, len: usize, available: u32) -> Option<u32> {
        let fragments = &self.rings.fragments;
        let (mut room, mut count) = (0, 0);
        while room < len && count < available {
            room += fragments.get(fragments.advance(fragments.begin(), count)).capacity();
            count += 1;
        }
        match (len, room >= len) {
            (0, _) => None,
            (_, true) => Some(count),
            // The system always keeps one element.
            _ if count == fragments.size() - 1 => None,
            _ => Some(0),
        }
    }

    /// Binds `count` fragments with the bytes of the oldest frame to the packet at `index`.
    fn indicate(&mut self, index: u32, count: u32) {
        let Ok(frame) = self.wire.frames.peek() else { return };
        let first = self.rings.fragments.begin();
        let mut rest = frame.bytes();
        for nth in 0..count {
            let at = self.rings.fragments.advance(first, nth);
            let fragment = self.rings.fragments.get(at);
            let (part, others) = rest.split_at(rest.len().min(fragment.capacity()));
            // SAFETY: the fragment is the driver's, and the part fits it.
            unsafe { self.rings.buffer(at).copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            self.rings.fragments.set(at, fragment.with_data(part.len(), 0));
            rest = others;
        }
        let packet = self.rings.packets.get(index);
        // No offload is offered, so the system looks for no other header.
        let layout = NET_PACKET_LAYOUT::ethernet(ETHERNET_HEADER_LEN);
        let reserved = packet.Layout.0[4] & 0xf0;
        let layout =
            NET_PACKET_LAYOUT([layout.0[0], layout.0[1], layout.0[2], layout.0[3], reserved]);
        self.rings.packets.set(
            index,
            NET_PACKET {
                FragmentIndex: first,
                FragmentCount: count as u16,
                Layout: layout,
                Flags: packet.Flags,
            },
        );
        // The buffers go back with their packet.
        let fragments = &mut self.rings.fragments;
        fragments.set_begin(fragments.advance(first, count));
    }
}

const ETHERNET_HEADER_LEN: u8 = 14;
