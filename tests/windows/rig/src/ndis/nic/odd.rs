//! What few NICs do: frames of any length, many at once, in MDLs of odd shapes, and statuses of odd sizes.

use std::cell::Cell;

use super::{Event, Nic, driver, mdl, nbl};
use crate::ntos::Pointer;

thread_local! {
    /// This thread shows the image frames.
    pub(super) static INDICATES: Cell<bool> = const { Cell::new(false) };
}

/// How a frame lies in its MDLs.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// MDLs without a byte before, between and behind those of the frame.
    Gaps,
    /// Its last MDL has more bytes than the frame.
    Tail,
    /// The upper half of its length, which nobody reads, means nothing.
    UpperHalf,
    /// Its length is longer than its MDLs.
    Short,
    /// It has no MDL.
    Nothing,
}

impl Shape {
    pub const ALL: [Self; 5] =
        [Self::Gaps, Self::Tail, Self::UpperHalf, Self::Short, Self::Nothing];

    /// Whether its MDLs have the whole frame.
    pub const fn is_whole(self) -> bool {
        matches!(self, Self::Gaps | Self::Tail | Self::UpperHalf)
    }
}

impl Nic {
    /// Shows the image a frame of any length, whatever the packet filter says.
    pub fn bring(&self, frame: &[u8]) {
        let _ = self.wire.lock().unwrap().send(Event::Frame(frame.to_vec()));
    }

    /// Lends the image these frames by one call, each in one piece.
    pub fn bring_at_once(&self, frames: &[Vec<u8>]) {
        let _serving = self.serving.lock().unwrap();
        if self.is_receiving() {
            let list = |frame: &Vec<u8>| {
                nbl::make_of(&[frame], frame.len(), mdl::NON_PAGED, self.handle())
            };
            self.indicate_lists(&frames.iter().map(list).collect::<Vec<_>>(), false);
        }
    }

    /// Shows the image a frame in this shape: lent, or for the call alone.
    pub fn bring_shaped(&self, frame: &[u8], shape: Shape, is_lent: bool, is_mapped: bool) {
        let _serving = self.serving.lock().unwrap();
        if !self.is_receiving() {
            return;
        }
        let (head, rest) = frame.split_at(frame.len() / 3);
        let none: &[u8] = &[];
        let (parts, len): (&[&[u8]], _) = match shape {
            Shape::Gaps => (&[none, none, head, none, rest, none], frame.len()),
            Shape::Tail => (&[&[frame, &[0xEE; 500]].concat()], frame.len()),
            Shape::UpperHalf => (&[frame], frame.len() | 0xDEAD << 32),
            Shape::Short => (&[head, rest], frame.len() + 100),
            Shape::Nothing => (&[], frame.len()),
        };
        let flags = if is_mapped { mdl::NON_PAGED } else { mdl::PARTIAL };
        self.indicate_lists(&[nbl::make_of(parts, len, flags, self.handle())], !is_lent);
    }

    /// Tells the image a status with these bytes; none: without a buffer.
    pub fn tell(&self, code: i32, bytes: &mut [u8]) {
        let Some((protocol, _)) = driver::registered().protocol else { return };
        let len = bytes.len();
        let buffer: Pointer = if len == 0 { std::ptr::null_mut() } else { bytes.as_mut_ptr() };
        self.indicate_status(protocol.status.expect("checked"), code, buffer, len as u32);
    }
}
