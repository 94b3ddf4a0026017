//! The system's side of one packet queue: it owns the rings, hands elements out, takes them back and checks each call.

use super::ring::{Buffer, OwnedRing, packet_bytes};
use super::rules::{self, Breach, POISONED_PACKET, Pair, poisoned_fragment};
use core::ffi::c_void;
use core::ptr::without_provenance_mut;
use netadapter_glue::netadapter::abi::*;
use std::boxed::Box;
use std::collections::VecDeque;
use std::sync::Arc;
use std::vec::Vec;

/// The direction of a queue, from Windows' side.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Windows sends.
    Transmit,
    /// Windows receives.
    Receive,
}

/// The sizes of a queue.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Elements of the packet ring: a power of two above 1.
    pub packets: u32,
    /// Elements of the fragment ring: as above.
    pub fragments: u32,
    /// Bytes of a buffer.
    pub capacity: usize,
    /// Bytes of other extensions between a fragment and its address: a multiple of 8.
    pub others: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { packets: 32, fragments: 64, capacity: 2048, others: 8 }
    }
}

/// The rings of a queue, and what their calls did.
pub struct RingOwner {
    kind: Kind,
    sizes: Sizes,
    packets: Arc<OwnedRing>,
    fragments: Arc<OwnedRing>,
    collection: Box<NET_RING_COLLECTION>,
    /// One for each element of the fragment ring.
    buffers: Arc<[Buffer]>,
    /// First packet and first fragment that are not taken back.
    taken_back: [u32; 2],
    received: VecDeque<Vec<u8>>,
    breaches: Vec<Breach>,
}

// SAFETY: its memory belongs to no thread.
unsafe impl Send for RingOwner {}

const FRAGMENT_LEN: usize = size_of::<NET_FRAGMENT>();
/// A packet, and room for an extension of another size.
const PACKET_STRIDE: usize = 24;

impl RingOwner {
    /// Rings of which all elements are the system's.
    pub fn new(kind: Kind, sizes: Sizes) -> Self {
        let stride = FRAGMENT_LEN + sizes.others + size_of::<NET_FRAGMENT_VIRTUAL_ADDRESS>();
        let packets = Arc::new(OwnedRing::new(PACKET_STRIDE, sizes.packets));
        let fragments = Arc::new(OwnedRing::new(stride, sizes.fragments));
        let collection = NET_RING_COLLECTION { Rings: [packets.as_ptr(), fragments.as_ptr()] };
        let buffers = (0..sizes.fragments).map(|_| Buffer::new(sizes.capacity)).collect();
        Self {
            kind,
            sizes,
            packets,
            fragments,
            collection: Box::new(collection),
            buffers,
            taken_back: [0; 2],
            received: VecDeque::new(),
            breaches: Vec::new(),
        }
    }

    /// For `NetTxQueueGetRingCollection` and its like.
    pub fn collection(&self) -> *const NET_RING_COLLECTION {
        &raw const *self.collection
    }

    /// For `NetTxQueueGetExtension` and its like.
    pub fn addresses(&self) -> NET_EXTENSION {
        let first = self.fragments.element(0).wrapping_add(FRAGMENT_LEN + self.sizes.others);
        let stride = self.fragments.element(1).addr() - self.fragments.element(0).addr();
        let mut extension = NET_EXTENSION::NONE;
        extension.Reserved[0] = first.cast();
        extension.Reserved[1] = without_provenance_mut::<c_void>(stride);
        extension.Enabled = 1;
        extension
    }

    /// Packets and fragments that are the driver's.
    pub fn outstanding(&self) -> [u32; 2] {
        let (packets, fragments) = (self.packets.image(), self.fragments.image());
        [
            packets.count(packets.begin(), packets.end()),
            fragments.count(fragments.begin(), fragments.end()),
        ]
    }

    /// The breaches so far.
    pub fn breaches(&self) -> &[Breach] {
        &self.breaches
    }

    /// Notes a breach that no comparison finds.
    pub fn note(&mut self, breach: Breach) {
        if !self.breaches.contains(&breach) {
            self.breaches.push(breach);
        }
    }

    /// The oldest frame that the driver indicated.
    pub fn received(&mut self) -> Option<Vec<u8>> {
        self.received.pop_front()
    }

    /// Hands a frame to the driver, in fragments of `piece` bytes whose data begin at `offset`. False: there is no room.
    pub fn give(&mut self, frame: &[u8], piece: usize, offset: usize) -> bool {
        assert!(offset + piece <= self.sizes.capacity && !frame.is_empty());
        let (packets, fragments) = (self.packets.image(), self.fragments.image());
        let pieces: Vec<&[u8]> = frame.chunks(piece).collect();
        let room = fragments.count(fragments.advance(fragments.end(), 1), self.taken_back[1]);
        if packets.advance(packets.end(), 1) == self.taken_back[0] || (room as usize) < pieces.len()
        {
            return false;
        }
        for (nth, bytes) in pieces.iter().enumerate() {
            let index = fragments.advance(fragments.end(), nth as u32);
            self.buffers[index as usize].write(offset, bytes);
            let fragment = NET_FRAGMENT::new(bytes.len(), self.sizes.capacity, offset);
            self.attach(index, fragment);
        }
        let packet = NET_PACKET {
            FragmentIndex: fragments.end(),
            FragmentCount: pieces.len() as u16,
            ..NET_PACKET::default()
        };
        self.packets.set_element(packets.end(), &packet_bytes(&packet));
        self.fragments.set_end(fragments.advance(fragments.end(), pieces.len() as u32));
        self.packets.set_end(packets.advance(packets.end(), 1));
        true
    }

    /// Hands a packet to the driver that it has to pass by. Its other members mean nothing.
    pub fn give_ignored(&mut self) -> bool {
        let packets = self.packets.image();
        if packets.advance(packets.end(), 1) == self.taken_back[0] {
            return false;
        }
        let packet = NET_PACKET { Flags: NET_PACKET::IGNORE, ..POISONED_PACKET };
        self.packets.set_element(packets.end(), &packet_bytes(&packet));
        self.packets.set_end(packets.advance(packets.end(), 1));
        true
    }

    /// Hands out up to `most` packets and buffers to receive into, with all that the driver has to fill poisoned.
    pub fn give_buffers(&mut self, most: u32) -> bool {
        let (packets, fragments) = (self.packets.image(), self.fragments.image());
        let room = packets.count(packets.advance(packets.end(), 1), self.taken_back[0]).min(most);
        for nth in 0..room {
            let index = packets.advance(packets.end(), nth);
            self.packets.set_element(index, &packet_bytes(&POISONED_PACKET));
        }
        self.packets.set_end(packets.advance(packets.end(), room));
        let buffers =
            fragments.count(fragments.advance(fragments.end(), 1), self.taken_back[1]).min(most);
        for nth in 0..buffers {
            let index = fragments.advance(fragments.end(), nth);
            self.buffers[index as usize].spoil();
            self.attach(index, poisoned_fragment(self.sizes.capacity));
        }
        self.fragments.set_end(fragments.advance(fragments.end(), buffers));
        room + buffers > 0
    }

    /// Writes a fragment with the address of its buffer.
    fn attach(&self, index: u32, fragment: NET_FRAGMENT) {
        self.fragments.set_element(index, &fragment.0.to_le_bytes());
        let place = self.addresses().data(index).cast::<NET_FRAGMENT_VIRTUAL_ADDRESS>();
        let address = self.buffers[index as usize].as_ptr().cast();
        // SAFETY: the extension lies in the element, aligned as a pointer.
        unsafe { place.write(NET_FRAGMENT_VIRTUAL_ADDRESS { VirtualAddress: address }) };
    }

    /// Makes one call of the driver, checks it and takes elements back. The result tells whether an index moved.
    pub fn call(&mut self, call: impl FnOnce()) -> bool {
        self.checked(call, false)
    }

    fn checked(&mut self, call: impl FnOnce(), cancel: bool) -> bool {
        let (before, guarded) = (self.pair(), self.guarded());
        call();
        let after = self.pair();
        let found = match self.kind {
            Kind::Transmit => rules::transmit(&before, &after),
            Kind::Receive => rules::receive(&before, &after, cancel),
        };
        let sound = found.is_empty();
        found.into_iter().for_each(|breach| self.note(breach));
        let written = guarded.iter().any(|(index, bytes)| self.buffers[*index].bytes() != *bytes);
        if written || !self.buffers.iter().all(Buffer::guards_hold) {
            self.note(Breach::Payload);
        }
        if sound {
            self.take_back(&after);
        }
        let indices = |pair: &Pair| {
            [&pair.packets, &pair.fragments].map(|image| (image.begin(), image.next()))
        };
        indices(&before) != indices(&after)
    }

    /// `EvtPacketQueueCancel`, of a queue that has to give all back at once.
    pub fn cancel(&mut self, call: impl FnOnce()) {
        self.checked(call, true);
        if self.outstanding() != [0; 2] {
            self.note(Breach::NotReturned);
        }
    }

    /// The start of a queue: no element is the driver's, and all indices are 0.
    pub fn start(&mut self) {
        self.packets.reset();
        self.fragments.reset();
        self.taken_back = [0; 2];
    }

    /// The driver's hand on the rings, which no rule holds back.
    pub fn hand(&self) -> Hand {
        let rings = [Arc::clone(&self.packets), Arc::clone(&self.fragments)];
        Hand { rings, buffers: Arc::clone(&self.buffers), capacity: self.sizes.capacity }
    }

    fn pair(&self) -> Pair {
        Pair { packets: self.packets.image(), fragments: self.fragments.image() }
    }

    /// The buffers that the driver may not write, with their bytes.
    fn guarded(&self) -> Vec<(usize, Vec<u8>)> {
        let fragments = self.fragments.image();
        (0..self.sizes.fragments)
            .filter(|index| self.kind == Kind::Transmit || !fragments.owns(*index))
            .map(|index| (index as usize, self.buffers[index as usize].bytes()))
            .collect()
    }

    fn take_back(&mut self, after: &Pair) {
        let [first, first_fragment] = self.taken_back;
        let (packets, fragments) = (&after.packets, &after.fragments);
        if self.kind == Kind::Receive {
            for index in packets.range(first, packets.begin()) {
                let packet = packets.packet(index);
                if !packet.ignore() {
                    let frame = self.frame(after, &packet);
                    self.received.push_back(frame);
                }
            }
        }
        for index in fragments.range(first_fragment, fragments.begin()) {
            self.buffers[index as usize].spoil();
        }
        self.taken_back = [packets.begin(), fragments.begin()];
    }

    fn frame(&self, after: &Pair, packet: &NET_PACKET) -> Vec<u8> {
        let mut frame = Vec::new();
        for nth in 0..u32::from(packet.FragmentCount) {
            let index = after.fragments.advance(packet.FragmentIndex, nth);
            let fragment = after.fragments.fragment(index);
            let bytes = self.buffers[index as usize].bytes();
            frame.extend(&bytes[fragment.offset()..][..fragment.valid_len()]);
        }
        frame
    }
}

/// A driver's hand on the rings, for drivers that break a rule. A ring is 0 for packets, 1 for fragments.
pub struct Hand {
    rings: [Arc<OwnedRing>; 2],
    buffers: Arc<[Buffer]>,
    capacity: usize,
}

impl Hand {
    /// Sets `BeginIndex`.
    pub fn set_begin(&self, ring: usize, index: u32) {
        self.set_member(ring, 48, index);
    }

    /// Sets any member of a ring.
    pub fn set_member(&self, ring: usize, offset: usize, value: u32) {
        self.rings[ring].set_member(offset, value);
    }

    /// Changes a packet.
    pub fn set_packet(&self, index: u32, change: impl FnOnce(&mut NET_PACKET)) {
        let mut packet = self.rings[0].image().packet(index);
        change(&mut packet);
        self.rings[0].set_element(index, &packet_bytes(&packet));
    }

    /// Changes a fragment.
    pub fn set_fragment(&self, index: u32, change: impl FnOnce(NET_FRAGMENT) -> NET_FRAGMENT) {
        let fragment = change(self.rings[1].image().fragment(index));
        self.rings[1].set_element(index, &fragment.0.to_le_bytes());
    }

    /// Changes a byte at any place around the start of a fragment's buffer.
    pub fn poke(&self, index: u32, offset: isize) {
        let place = self.buffers[index as usize].as_ptr().wrapping_offset(offset);
        assert!(offset >= -64 && offset < self.capacity as isize + 64);
        // SAFETY: the place lies in the buffer or its guards.
        let byte = unsafe { place.read() };
        // SAFETY: as above.
        unsafe { place.write(byte ^ 0xff) };
    }
}
