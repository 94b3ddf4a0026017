//! The way in: checks and converts the pointers of the consumer before safe code runs.
#![allow(unsafe_code, reason = "the one place that believes the consumer's pointers")]

use super::shared::Object;
use crate::abi::*;
use core::cell::Cell;
use core::ffi::c_void;
use core::marker::PhantomData;
use core::mem::{MaybeUninit, offset_of};
use core::net::SocketAddr;

/// Makes a table's C function out of a safe one.
///
/// | Argument | Its C parameters | The safe function gets |
/// | --- | --- | --- |
/// | `a: &Object` | the object's pointer | the object; the call is refused if it is none ([`Object::check`]) |
/// | `a: T = make(b: B, c: C)` | `b` and `c` | the safe value that `make` makes of them |
/// | `a: T` | itself | itself |
///
/// The body may use `?`: an error is the status that the consumer gets. A function that returns no status then returns
/// 0 or nothing.
macro_rules! entry {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($argument:tt)+) $(-> $Answer:ident)? $body:block) => {
        $crate::object::entry::entry! {
            @ { $(#[$doc])* $vis $name [$($Answer)?] $body } [] [] [] $($argument)+
        }
    };
    // Each argument in turn: its C parameters, its safe parameter, and what makes this of those.
    (
        @ $head:tt [$($c:tt)*] [$($safe:tt)*] [$($made:tt)*]
        $name:ident: &$Object:ident $(, $($rest:tt)*)?
    ) => {
        $crate::object::entry::entry! {
            @ $head
            [$($c)* $name: *mut <$Object as $crate::object::entry::Known>::Ndk,]
            [$($safe)* $name: &$Object,]
            [
                $($made)*
                // SAFETY: null or not freed before this returns, by the contract of the function.
                match unsafe { $Object::check($name) } {
                    Ok(object) => object,
                    Err(status) => return $crate::object::entry::Answer::refused(status),
                },
            ]
            $($($rest)*)?
        }
    };
    (
        @ $head:tt [$($c:tt)*] [$($safe:tt)*] [$($made:tt)*]
        $name:ident: $Type:ty = $($make:ident)::+($($from:ident: $From:ty),+ $(,)?) $(, $($rest:tt)*)?
    ) => {
        $crate::object::entry::entry! {
            @ $head
            [$($c)* $($from: $From,)+]
            [$($safe)* $name: $Type,]
            [
                $($made)*
                // SAFETY: null or valid while this runs, by the contract of the function.
                unsafe { $($make)::+($($from),+) },
            ]
            $($($rest)*)?
        }
    };
    (
        @ $head:tt [$($c:tt)*] [$($safe:tt)*] [$($made:tt)*]
        $name:ident: $Type:ty $(, $($rest:tt)*)?
    ) => {
        $crate::object::entry::entry! {
            @ $head [$($c)* $name: $Type,] [$($safe)* $name: $Type,] [$($made)* $name,] $($($rest)*)?
        }
    };
    (
        @ { $(#[$doc:meta])* $vis:vis $name:ident [$($Answer:ident)?] $body:block }
        [$($c:tt)*] [$($safe:tt)*] [$($made:tt)*]
    ) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// Every object is null or one of this provider, and is not freed before this returns; every other pointer is
        /// null or valid, for the length beside it and for as long as the page of the function says.
        #[allow(unsafe_code, reason = "the way in from C")]
        $vis unsafe extern "system" fn $name($($c)*) $(-> $Answer)? {
            #[allow(clippy::too_many_arguments, reason = "as many as the header's function has")]
            #[deny(unsafe_code)]
            #[inline]
            fn safe($($safe)*) -> Result<$crate::object::entry::answer!($($Answer)?), NTSTATUS> $body

            safe($($made)*).unwrap_or_else($crate::object::entry::Answer::refused)
        }
    };
}
pub(crate) use entry;

/// The type that a C function returns.
macro_rules! answer {
    () => {
        ()
    };
    ($Answer:ident) => {
        $Answer
    };
}
pub(crate) use answer;

/// The value that a consumer gets when its call is refused.
pub(crate) trait Answer {
    fn refused(status: NTSTATUS) -> Self;
}

impl Answer for NTSTATUS {
    fn refused(status: NTSTATUS) -> Self {
        status
    }
}

/// A count or a token: there is none.
impl Answer for ULONG {
    fn refused(_: NTSTATUS) -> Self {
        0
    }
}

/// The function has no way to fail.
impl Answer for () {
    fn refused(_: NTSTATUS) -> Self {}
}

/// An object of ours, by the name that C has for it.
pub(crate) trait Known {
    type Ndk;
}

impl<N, S> Known for Object<N, S> {
    type Ndk = N;
}

/// An object that the consumer names, checked when it is opened. `O` is what the provider makes of objects of its C
/// type: one of the aliases in the `shared` files.
pub(crate) struct Handle<'a, O> {
    pointer: *mut NDK_OBJECT_HEADER,
    object: PhantomData<&'a O>,
}

impl<'a, O> Handle<'a, O> {
    /// # Safety
    /// `pointer` is null or an object of this provider, of whatever type, that lives for `'a`.
    pub(crate) const unsafe fn new<T>(pointer: *mut T) -> Self {
        Self { pointer: pointer.cast(), object: PhantomData }
    }

    /// The same, to be opened as an object of another type.
    pub(crate) const fn cast<P>(&self) -> Handle<'a, P> {
        Handle { pointer: self.pointer, object: PhantomData }
    }

    /// The type that the object's header tells.
    pub(crate) fn kind(&self) -> Result<NDK_OBJECT_TYPE, NTSTATUS> {
        // SAFETY: by `new`; every object begins with the header.
        let header = unsafe { self.pointer.as_ref() };
        header.map(|header| header.ObjectType).ok_or(STATUS_INVALID_PARAMETER)
    }
}

impl<'a, N: NdkObject, S> Handle<'a, Object<N, S>> {
    /// The object, as [`Object::check`] gives it.
    pub(crate) fn open(&self) -> Result<&'a Object<N, S>, NTSTATUS> {
        // SAFETY: by `new`.
        unsafe { Object::check(self.pointer.cast()) }
    }
}

/// A list of the consumer's, which may change while a call runs, though the consumer promises that it does not. So there are
/// no references into it: each element is read once, and what was checked is what is used.
pub(crate) struct List<'a, T> {
    data: *const T,
    count: ULONG,
    lent: PhantomData<&'a [T]>,
}

/// The scatter/gather list of a request. Where flags may say that the request is inline, its elements name memory that can
/// then be read during the call.
pub(crate) type Sgl<'a> = List<'a, NDK_SGE>;

/// An element of a list.
pub(crate) trait Element: Copy {
    /// Reads each field once.
    ///
    /// # Safety
    /// `from` is readable.
    unsafe fn read(from: *const Self) -> Self;
}

impl Element for NDK_SGE {
    #[inline(always)]
    unsafe fn read(from: *const Self) -> Self {
        let field = |at| from.wrapping_byte_add(at);
        let address = field(offset_of!(Self, Address)).cast::<PVOID>();
        let length = field(offset_of!(Self, Length)).cast::<ULONG>();
        let token = field(offset_of!(Self, MemoryRegionToken)).cast::<UINT32>();
        // SAFETY: the caller's promise; a logical address has as many bytes as a pointer.
        let address = unsafe { address.read_volatile() };
        // SAFETY: the caller's promise.
        let length = unsafe { length.read_volatile() };
        // SAFETY: the caller's promise.
        Self::from_virtual(address, length, unsafe { token.read_volatile() })
    }
}

impl Element for NDK_LOGICAL_ADDRESS {
    #[inline(always)]
    unsafe fn read(from: *const Self) -> Self {
        // SAFETY: the caller's promise.
        unsafe { from.read_volatile() }
    }
}

impl<'a, T: Element> List<'a, T> {
    /// # Safety
    /// `data` is null or readable for `count` elements for `'a`, and so is what they name if the request is inline.
    pub(crate) const unsafe fn new(data: *const T, count: ULONG) -> Self {
        Self { data, count, lent: PhantomData }
    }

    /// As [`Self::new`], of a C array whose length comes first.
    ///
    /// # Safety
    /// As for [`Self::new`].
    pub(crate) const unsafe fn counted(count: ULONG, data: *const T) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::new(data, count) }
    }

    /// The number of its elements; none where the pointer is null.
    pub(crate) const fn len(&self) -> usize {
        if self.data.is_null() { 0 } else { self.count as usize }
    }

    /// The element, if there is one and no other, as in most requests.
    #[inline(always)]
    pub(crate) fn single(&self) -> Option<T> {
        if self.count != 1 || self.data.is_null() {
            return None;
        }
        // SAFETY: by `new`.
        Some(unsafe { T::read(self.data) })
    }

    /// The elements, each as it is when its turn comes.
    pub(crate) fn elements(self) -> impl ExactSizeIterator<Item = T> + 'a {
        // SAFETY: by `new`; the place lies inside.
        (0..self.len()).map(move |at| unsafe { T::read(self.data.wrapping_add(at)) })
    }
}

/// Bytes that the consumer passes.
pub(crate) struct Bytes<'a> {
    data: *const u8,
    len: ULONG,
    lent: PhantomData<&'a [u8]>,
}

impl<'a> Bytes<'a> {
    /// # Safety
    /// `data` is null or readable for `len` bytes for `'a`.
    pub(crate) const unsafe fn new(data: *const c_void, len: ULONG) -> Self {
        Self { data: data.cast(), len, lent: PhantomData }
    }

    /// The bytes.
    ///
    /// # Errors
    /// `STATUS_INVALID_BUFFER_SIZE`: they are more than `max`. `STATUS_INVALID_PARAMETER`: a null pointer to some.
    pub(crate) fn at_most(&self, max: usize) -> Result<&'a [u8], NTSTATUS> {
        if self.len as usize > max {
            return Err(STATUS_INVALID_BUFFER_SIZE);
        }
        if self.data.is_null() && self.len > 0 {
            return Err(STATUS_INVALID_PARAMETER);
        }
        // SAFETY: by `new`.
        Ok(unsafe { slice(self.data, self.len) })
    }
}

/// The group and the mask of processors that an affinity names; `None` where there is none, or it names none.
///
/// # Safety
/// `affinity` is null or readable.
pub(crate) unsafe fn processors(affinity: *const GROUP_AFFINITY) -> Option<(u16, u64)> {
    if affinity.is_null() {
        return None;
    }
    // SAFETY: the caller's promise. It is read once, as a list is.
    let affinity = unsafe { affinity.read_volatile() };
    (affinity.Mask != 0).then_some((affinity.Group, affinity.Mask as u64))
}

/// An array that the consumer lets us fill; empty for a null pointer.
///
/// # Safety
/// `data` is null or writable for `len` elements, and nobody else's for `'a`.
pub(crate) unsafe fn places<'a, T>(data: *mut T, len: ULONG) -> &'a mut [MaybeUninit<T>] {
    // SAFETY: the caller's promise; a place may hold anything.
    unsafe { slice_mut(data.cast(), len) }
}

/// An out parameter, which may be null.
pub(crate) struct Out<'a, T>(*mut T, PhantomData<&'a mut T>);

impl<T> Out<'_, T> {
    /// # Safety
    /// `pointer` is null or writable for `'a`.
    pub(crate) const unsafe fn new(pointer: *mut T) -> Self {
        Self(pointer, PhantomData)
    }

    pub(crate) const fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Stores the value, if there is a place for it.
    pub(crate) fn set(&self, value: T) {
        if !self.0.is_null() {
            // SAFETY: by `new`.
            unsafe { self.0.write(value) };
        }
    }
}

/// A buffer of the consumer, with the place of its length, where the length of what it asks for is stored.
pub(crate) struct Buffer<'a> {
    data: *mut u8,
    len: *mut ULONG,
    lent: PhantomData<&'a mut [u8]>,
}

impl<'a> Buffer<'a> {
    /// # Safety
    /// `len` is null or valid for reads and writes, and `data` null or writable for `*len` bytes, for `'a`.
    pub(crate) const unsafe fn new<T>(data: *mut T, len: *mut ULONG) -> Self {
        Self { data: data.cast(), len, lent: PhantomData }
    }

    /// # Errors
    /// `STATUS_INVALID_PARAMETER`: a null pointer to the length.
    pub(crate) fn len(&self) -> Result<&'a Cell<ULONG>, NTSTATUS> {
        // SAFETY: by `new`.
        unsafe { self.len.cast::<Cell<ULONG>>().as_ref() }.ok_or(STATUS_INVALID_PARAMETER)
    }

    /// Room for `needed` bytes, after that number is stored as the length.
    ///
    /// # Errors
    /// `STATUS_INVALID_PARAMETER`: a null pointer to the length. `STATUS_BUFFER_TOO_SMALL`: less room, or none.
    pub(crate) fn room(self, needed: ULONG) -> Result<Room<'a>, NTSTATUS> {
        let room = self.len()?.replace(needed);
        if self.data.is_null() || room < needed {
            return Err(STATUS_BUFFER_TOO_SMALL);
        }
        Ok(Room { data: self.data, len: needed as usize, lent: PhantomData })
    }

    /// Stores as much of `bytes` as fits, and the length of all; a null buffer only asks for that.
    ///
    /// # Errors
    /// `STATUS_INVALID_PARAMETER`: a null pointer to the length, or to a buffer that has one.
    pub(crate) fn put_part(self, bytes: &[u8]) -> Result<NTSTATUS, NTSTATUS> {
        let len = self.len()?;
        let room = len.get() as usize;
        if self.data.is_null() && room > 0 {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let part = room.min(bytes.len());
        if part > 0 {
            // SAFETY: by `new`: the buffer is not null, as it has `room` bytes.
            unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.data, part) };
        }
        len.set(bytes.len() as ULONG);
        let all = self.data.is_null() || part == bytes.len();
        Ok(if all { STATUS_SUCCESS } else { STATUS_BUFFER_TOO_SMALL })
    }

    /// Stores a socket address.
    pub(crate) fn put_address(self, address: SocketAddr) -> NTSTATUS {
        // SAFETY: by `new`.
        unsafe { write_sockaddr(address, self.data.cast(), self.len) }
    }
}

/// The consumer's memory for an answer of known length.
pub(crate) struct Room<'a> {
    data: *mut u8,
    len: usize,
    lent: PhantomData<&'a mut [u8]>,
}

impl Room<'_> {
    /// Stores the value `at` bytes from the beginning, as far as there is room for it.
    pub(crate) fn put<T: Copy>(&self, at: usize, value: &T) {
        let len = self.len.saturating_sub(at).min(size_of::<T>());
        let to = self.data.wrapping_add(at);
        // SAFETY: `at + len` is no more than the room where `len` is not 0; the value has as many bytes.
        unsafe { core::ptr::copy_nonoverlapping(core::ptr::from_ref(value).cast(), to, len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr::null_mut;

    #[test]
    fn an_answer_never_leaves_its_room() {
        let (mut bytes, mut len) = ([0xAA_u8; 8], 6);
        // SAFETY: the array has more than `len` bytes.
        let buffer = unsafe { Buffer::new(bytes.as_mut_ptr(), &raw mut len) };
        let room = buffer.room(5).unwrap();
        room.put(0, &[1_u8, 2, 3]);
        room.put(3, &[4_u8, 5, 6]);
        room.put(5, &7_u8);
        room.put(usize::MAX, &8_u8);
        assert_eq!((bytes, len), ([1, 2, 3, 4, 5, 0xAA, 0xAA, 0xAA], 5));
    }

    /// A list that changes as soon as an element was read: what was read stays, and is not read again.
    #[test]
    fn an_element_is_read_once() {
        let sge = |length| NDK_SGE::from_virtual(null_mut(), length, length + 1);
        let memory = [1, 2, 3].map(|length| Cell::new(sge(length)));
        // SAFETY: three elements, which this thread alone changes.
        let list = unsafe { List::new(memory.as_ptr().cast::<NDK_SGE>(), 3) };
        assert_eq!((list.len(), list.single().is_none()), (3, true));
        let mut read = [0; 3];
        for (element, read) in list.elements().zip(&mut read) {
            memory.iter().for_each(|place| place.set(sge(u32::MAX - 1)));
            assert_eq!(element.MemoryRegionToken, element.Length + 1);
            *read = element.Length;
        }
        assert_eq!(read, [1, u32::MAX - 1, u32::MAX - 1]);
        // SAFETY: null.
        let none = unsafe { Sgl::new(core::ptr::null(), 3) };
        assert_eq!((none.len(), none.elements().count()), (0, 0));
    }

    #[test]
    fn a_part_fits_and_the_whole_length_is_told() {
        let part = |data: *mut u8, len: &mut ULONG| {
            // SAFETY: null, or an array of at least `len` bytes.
            unsafe { Buffer::new(data, len) }.put_part(b"callee")
        };
        let (mut bytes, mut len) = ([0_u8; 8], 4);
        assert_eq!(part(bytes.as_mut_ptr(), &mut len), Ok(STATUS_BUFFER_TOO_SMALL));
        assert_eq!((&bytes, len), (b"call\0\0\0\0", 6));
        assert_eq!(part(bytes.as_mut_ptr(), &mut len), Ok(STATUS_SUCCESS));
        assert_eq!((&bytes, len), (b"callee\0\0", 6));
        assert_eq!((part(null_mut(), &mut len), len), (Err(STATUS_INVALID_PARAMETER), 6));
        len = 0;
        assert_eq!((part(null_mut(), &mut len), len), (Ok(STATUS_SUCCESS), 6));
    }

    #[test]
    fn bytes_are_counted_before_they_are_looked_for() {
        let at_most = |data: *const c_void, len| {
            // SAFETY: null, or a string of at least `len` bytes.
            unsafe { Bytes::new(data, len) }.at_most(3)
        };
        assert_eq!(at_most(null_mut(), 4), Err(STATUS_INVALID_BUFFER_SIZE));
        assert_eq!(at_most(null_mut(), 3), Err(STATUS_INVALID_PARAMETER));
        assert_eq!(at_most(null_mut(), 0), Ok([].as_slice()));
        assert_eq!(at_most(b"abc".as_ptr().cast(), 3), Ok(b"abc".as_slice()));
    }
}
