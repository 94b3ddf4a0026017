//! Lists of bounded length in memory of the machine.
#![allow(unsafe_code, reason = "memory without an allocator")]

use core::ptr::NonNull;

use crate::{Failure, Machine};

/// A list with room for so many values from its start.
pub(crate) struct Table<T> {
    start: NonNull<T>,
    room: usize,
    len: usize,
    machine: &'static dyn Machine,
}

impl<T: Copy> Table<T> {
    pub(crate) fn new(machine: &'static dyn Machine, room: usize) -> Result<Self, Failure> {
        let bytes = room * size_of::<T>();
        let start = NonNull::new(machine.allocate(bytes).cast::<T>());
        let start = start.ok_or(Failure::Memory { bytes })?;
        Ok(Self { start, room, len: 0, machine })
    }

    /// Gives the memory back.
    pub(crate) fn free(self) {
        let bytes = self.room * size_of::<T>();
        // SAFETY: from `new`, with this length, and used by nobody else.
        unsafe { self.machine.free(self.start.as_ptr().cast(), bytes) };
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Adds a value, and returns its place.
    ///
    /// # Errors
    /// [`Failure::Memory`] where there is no room.
    pub(crate) fn push(&mut self, value: T) -> Result<usize, Failure> {
        if self.len == self.room {
            return Err(Failure::Memory { bytes: size_of::<T>() });
        }
        // SAFETY: within the memory.
        unsafe { self.start.as_ptr().wrapping_add(self.len).write(value) };
        self.len += 1;
        Ok(self.len - 1)
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: written by `push`, and within the memory.
        Some(unsafe { self.start.as_ptr().wrapping_add(self.len).read() })
    }

    /// The value at a place, if it has one.
    pub(crate) fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        if place >= self.len {
            return None;
        }
        // SAFETY: written by `push`, and within the memory; borrowed with the list.
        Some(unsafe { &mut *self.start.as_ptr().wrapping_add(place) })
    }
}
