//! An object as its consumer holds it, and as the poll core finds it behind the consumer's pointer.
#![allow(unsafe_code, reason = "objects are known by their C pointers")]

pub(crate) use super::id::{Context, ObjectId};
use crate::abi::*;
use crate::message::Control;
use crate::object::done::CloseDone;
use crate::shard::Shard;
use crate::sync::{Exclusive, Letter};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

/// An object as the consumer holds it: the C part first, the provider's after it.
#[repr(C)]
pub(crate) struct Object<N, S> {
    pub(crate) ndk: N,
    pub(crate) base: Base,
    pub(crate) shared: S,
}

/// The common state of every object.
pub(crate) struct Base {
    pub(crate) id: ObjectId,
    pub(crate) shard: Arc<Shard>,
    /// The version at which its adapter was opened.
    pub(crate) version: NDK_VERSION,
    /// The consumer has closed it, and what it asks of it now is a mistake.
    pub(super) closing: AtomicBool,
    /// The memory of its close.
    letter: Exclusive<Option<Letter<Control>>>,
}

impl Base {
    pub(crate) fn new(id: ObjectId, version: NDK_VERSION, shard: Arc<Shard>) -> Self {
        let letter = Exclusive::new(Some(Letter::new()));
        Self { id, shard, version, closing: AtomicBool::new(false), letter }
    }

    /// Sends the close of the object, once. The core may have freed the object when this returns.
    pub(crate) fn close(&self, done: CloseDone) {
        let letter = self.letter.enter().and_then(|mut letter| letter.take());
        if let Some(letter) = letter {
            let shard = self.shard();
            shard.close(letter, self.id, done);
        }
    }

    /// Whether the consumer has closed the object.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// # Errors
    /// `STATUS_NOT_SUPPORTED`: the adapter was opened at 1.x, which lacks what 2.1 brought.
    pub(crate) const fn check_2_1(&self) -> Result<(), NTSTATUS> {
        if self.version.Major < 2 { Err(STATUS_NOT_SUPPORTED) } else { Ok(()) }
    }

    /// The shard, to use beyond the object's life.
    pub(crate) fn shard(&self) -> Arc<Shard> {
        Arc::clone(&self.shard)
    }
}

/// The beginning of every [`Object`].
pub(super) type Prefix = Object<NDK_ADAPTER, ()>;

const _: () = {
    assert!(core::mem::offset_of!(Prefix, base) == 0x30);
};

impl Prefix {
    /// The common beginning of an object, if it is one of `kind`.
    ///
    /// # Safety
    /// As for [`Object::check`].
    pub(super) unsafe fn find<'a>(
        pointer: *mut Self,
        kind: NDK_OBJECT_TYPE,
    ) -> Result<&'a Self, NTSTATUS> {
        // SAFETY: the caller's promise; every object begins with the prefix.
        let prefix = unsafe { pointer.as_ref() }.ok_or(STATUS_INVALID_PARAMETER)?;
        let fits = prefix.ndk.Header.ObjectType == kind;
        if fits { Ok(prefix) } else { Err(STATUS_INVALID_PARAMETER) }
    }
}

impl<N, S> Object<N, S> {
    /// The object behind a consumer's pointer.
    ///
    /// # Safety
    /// `pointer` is an open object of this provider and of this type, and it stays open for `'a`.
    pub(crate) unsafe fn from_ndk<'a>(pointer: *mut N) -> &'a Self {
        // SAFETY: the caller's promise; the C part is the first field.
        unsafe { &*pointer.cast::<Self>() }
    }

    /// The object behind a pointer that a consumer passes, as far as a mistake can be seen.
    ///
    /// # Errors
    /// `STATUS_INVALID_PARAMETER`: a null pointer, or an object of another type.
    /// `STATUS_INVALID_DEVICE_STATE`: the consumer has closed it.
    ///
    /// # Safety
    /// `pointer` is null or an object of this provider, of whatever type, that lives for `'a`.
    pub(crate) unsafe fn check<'a>(pointer: *mut N) -> Result<&'a Self, NTSTATUS>
    where
        N: NdkObject,
    {
        // SAFETY: the caller's promise.
        let prefix = unsafe { Prefix::find(pointer.cast(), N::TYPE) }?;
        if prefix.base.is_closing() {
            return Err(STATUS_INVALID_DEVICE_STATE);
        }
        // SAFETY: of this type, by its header.
        Ok(unsafe { Self::from_ndk(pointer) })
    }

    /// The consumer's pointer to the object.
    pub(crate) fn as_ndk(self: &Arc<Self>) -> *mut N {
        Arc::as_ptr(self).cast_mut().cast()
    }

    /// Whether both belong to one provider.
    pub(crate) fn same_provider<O, T>(&self, other: &Object<O, T>) -> bool {
        Arc::ptr_eq(&self.base.shard, &other.base.shard)
    }
}
