//! The kernel's functions that the image calls: one list, and two sources for them.
//!
//! By default each line of the list imports a function by our own declaration. With the feature `wdk` each
//! calls the function of the same name in `wdk-sys`, made from Microsoft's headers: it compiles only where
//! every argument and the result mean the same to both.
//!
//! IRQL as the documentation of each function states it; callers repeat it where it matters.

use super::*;

macro_rules! functions {
    ($module:literal: $(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?;)*) => {
        #[cfg(not(feature = "wdk"))]
        #[link(name = $module, kind = "raw-dylib", modifiers = "+verbatim")]
        unsafe extern "system" {
            $(pub(crate) fn $name($($arg: $ty),*) $(-> $ret)?;)*
        }
        $(
            #[cfg(feature = "wdk")]
            #[inline]
            pub(crate) unsafe fn $name($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: the caller's promise.
                let result = unsafe { wdk_sys::ntddk::$name($($arg.same()),*) };
                result.same()
            }
        )*
    };
}

functions! { "ntoskrnl.exe":
    fn MmGetSystemRoutineAddress(name: *mut UNICODE_STRING) -> PVOID;
    fn ExFreePoolWithTag(block: PVOID, tag: ULONG);
    fn KeInitializeEvent(event: *mut KEVENT, kind: i32, state: BOOLEAN);
    fn KeSetEvent(event: *mut KEVENT, increment: i32, wait: BOOLEAN) -> i32;
    fn KeResetEvent(event: *mut KEVENT) -> i32;
    fn KeWaitForSingleObject(
        object: PVOID,
        reason: i32,
        mode: i8,
        alertable: BOOLEAN,
        timeout: *mut i64,
    ) -> NTSTATUS;
    fn KeInitializeDpc(dpc: *mut KDPC, routine: KDEFERRED_ROUTINE, context: PVOID);
    fn KeSetTargetProcessorDpcEx(dpc: *mut KDPC, number: *mut PROCESSOR_NUMBER) -> NTSTATUS;
    fn KeSetImportanceDpc(dpc: *mut KDPC, importance: i32);
    fn KeInsertQueueDpc(dpc: *mut KDPC, arg1: PVOID, arg2: PVOID) -> BOOLEAN;
    fn KeFlushQueuedDpcs();
    fn KeAcquireSpinLockRaiseToDpc(lock: *mut usize) -> KIRQL;
    fn KeReleaseSpinLock(lock: *mut usize, irql: KIRQL);
    fn KeGetCurrentProcessorNumberEx(number: PVOID) -> ULONG;
    fn KeQueryActiveProcessorCountEx(group: USHORT) -> ULONG;
    fn KeGetProcessorNumberFromIndex(index: ULONG, number: *mut PROCESSOR_NUMBER) -> NTSTATUS;
    fn KeSetSystemGroupAffinityThread(
        affinity: *mut GROUP_AFFINITY,
        previous: *mut GROUP_AFFINITY,
    );
    fn KeSetPriorityThread(thread: PVOID, priority: i32) -> i32;
    fn PsCreateSystemThread(
        thread: *mut PVOID,
        access: ULONG,
        attributes: PVOID,
        process: PVOID,
        client: PVOID,
        routine: KSTART_ROUTINE,
        context: PVOID,
    ) -> NTSTATUS;
    fn PsTerminateSystemThread(status: NTSTATUS) -> NTSTATUS;
    fn ObReferenceObjectByHandle(
        handle: PVOID,
        access: ULONG,
        kind: PVOID,
        mode: i8,
        object: *mut PVOID,
        information: PVOID,
    ) -> NTSTATUS;
    fn ObfDereferenceObject(object: PVOID) -> isize;
    fn ZwClose(handle: PVOID) -> NTSTATUS;
    fn ZwOpenKey(key: *mut PVOID, access: ULONG, attributes: *mut OBJECT_ATTRIBUTES) -> NTSTATUS;
    fn ZwQueryValueKey(
        key: PVOID,
        name: *mut UNICODE_STRING,
        class: i32,
        information: PVOID,
        length: ULONG,
        needed: *mut ULONG,
    ) -> NTSTATUS;
    fn ZwSetValueKey(
        key: PVOID,
        name: *mut UNICODE_STRING,
        title: ULONG,
        kind: ULONG,
        data: PVOID,
        length: ULONG,
    ) -> NTSTATUS;
    fn ZwFlushKey(key: PVOID) -> NTSTATUS;
    fn IoAllocateErrorLogEntry(object: PVOID, size: u8) -> PVOID;
    fn IoWriteErrorLogEntry(entry: PVOID);
    fn IofCompleteRequest(irp: PVOID, boost: i8);
    fn IoAllocateMdl(
        address: PVOID,
        length: ULONG,
        secondary: BOOLEAN,
        charge: BOOLEAN,
        irp: PVOID,
    ) -> *mut MDL;
    fn IoFreeMdl(mdl: *mut MDL);
    fn IoBuildPartialMdl(source: *const MDL, target: *mut MDL, address: PVOID, length: ULONG);
    fn MmBuildMdlForNonPagedPool(mdl: *mut MDL);
    fn MmMapLockedPagesSpecifyCache(
        mdl: *mut MDL,
        mode: i8,
        cache: i32,
        address: PVOID,
        bug_check: ULONG,
        priority: ULONG,
    ) -> PVOID;
}

// The kernel exports this one from Windows 10 2004 on only: before it stands in the HAL, which forwards since.
functions! { "hal.dll":
    fn KeQueryPerformanceCounter(frequency: *mut i64) -> i64;
}

// Functions that `wdk-sys` lacks: deprecated and inline ones; and performance counters, timers and shared spin locks, which
// the stand-in for its headers and libraries lacks.
#[link(name = "ntoskrnl.exe", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "system" {
    /// Deprecated for `ExAllocatePool2`, which Server 2019 does not have.
    pub(crate) fn ExAllocatePoolWithTag(kind: i32, bytes: usize, tag: ULONG) -> PVOID;
    pub(crate) fn ExAcquireSpinLockShared(lock: *mut i32) -> KIRQL;
    pub(crate) fn ExReleaseSpinLockShared(lock: *mut i32, irql: KIRQL);
    pub(crate) fn ExAllocateTimer(
        callback: EXT_CALLBACK,
        context: PVOID,
        attributes: ULONG,
    ) -> PEX_TIMER;
    pub(crate) fn ExSetTimer(timer: PEX_TIMER, due: i64, period: i64, parameters: PVOID)
    -> BOOLEAN;
    pub(crate) fn ExDeleteTimer(
        timer: PEX_TIMER,
        cancel: BOOLEAN,
        wait: BOOLEAN,
        parameters: PVOID,
    ) -> BOOLEAN;
    pub(crate) fn PcwRegister(
        registration: *mut PVOID,
        information: *const PCW_REGISTRATION_INFORMATION,
    ) -> NTSTATUS;
    pub(crate) fn PcwUnregister(registration: PVOID);
    pub(crate) fn PcwAddInstance(
        buffer: PVOID,
        name: *const UNICODE_STRING,
        id: ULONG,
        count: ULONG,
        data: *const PCW_DATA,
    ) -> NTSTATUS;
}

// Functions that the crate `tracelogging` calls by name, and declares for itself.
#[expect(dead_code, reason = "no call is written here")]
#[link(name = "ntoskrnl.exe", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "system" {
    fn EtwRegister(
        provider: *const GUID,
        enable: PVOID,
        context: PVOID,
        handle: *mut u64,
    ) -> NTSTATUS;
    fn EtwUnregister(handle: u64) -> NTSTATUS;
    fn EtwSetInformation(handle: u64, class: i32, information: PVOID, len: ULONG) -> NTSTATUS;
    fn EtwWriteTransfer(
        handle: u64,
        event: PVOID,
        activity: *const GUID,
        related: *const GUID,
        count: ULONG,
        data: PVOID,
    ) -> NTSTATUS;
    fn EtwActivityIdControl(code: ULONG, activity: *mut GUID) -> NTSTATUS;
}

#[cfg(not(feature = "wdk"))]
#[link(name = "ntoskrnl.exe", kind = "raw-dylib", modifiers = "+verbatim")]
unsafe extern "system" {
    pub(crate) fn KeBugCheckEx(code: ULONG, p1: u64, p2: u64, p3: u64, p4: u64) -> !;
}
#[cfg(feature = "wdk")]
pub(crate) use wdk_sys::ntddk::KeBugCheckEx;

/// Our declarations beside those of the headers.
#[cfg(feature = "wdk")]
mod same {
    use super::*;
    use core::mem::{offset_of, transmute};
    use wdk_sys as kit;

    /// The same bits mean the same as a `T`.
    pub(super) trait Same<T> {
        fn same(self) -> T;
    }

    impl<T> Same<T> for T {
        fn same(self) -> T {
            self
        }
    }

    macro_rules! same {
        ($($from:ty => $to:ty: $convert:expr;)*) => {
            $(impl Same<$to> for $from {
                fn same(self) -> $to {
                    let convert: fn($from) -> $to = $convert;
                    convert(self)
                }
            })*
        };
    }

    same! {
        // The C compiler decides the sign of an enumeration.
        i32 => u32: i32::cast_unsigned;
        usize => u64: |word| word as u64;
        u64 => usize: |word| word as usize;
        i64 => isize: |word| word as isize;
        *mut usize => *mut u64: |pointer| pointer.cast();
        i64 => kit::LARGE_INTEGER: |time| kit::LARGE_INTEGER { QuadPart: time };
        // SAFETY: each of its members is made of the same eight bytes.
        kit::LARGE_INTEGER => i64: |time| unsafe { time.QuadPart };
        *mut i64 => *mut kit::LARGE_INTEGER: |pointer| pointer.cast();
        NTSTATUS => i32: |status| status.0;
        i32 => NTSTATUS: NTSTATUS;
        *mut MDL => *mut kit::MDL: |pointer| pointer.cast();
        *const MDL => *mut kit::MDL: |pointer| pointer.cast_mut().cast();
        *mut kit::MDL => *mut MDL: |pointer| pointer.cast();
        // The pointer is always null here.
        PVOID => *mut kit::IRP: |pointer| pointer.cast();
        PVOID => *mut kit::OBJECT_ATTRIBUTES: |pointer| pointer.cast();
        *mut OBJECT_ATTRIBUTES => *mut kit::OBJECT_ATTRIBUTES: |pointer| pointer.cast();
        PVOID => *mut kit::CLIENT_ID: |pointer| pointer.cast();
        PVOID => *mut kit::PROCESSOR_NUMBER: |pointer| pointer.cast();
        *mut GROUP_AFFINITY => *mut kit::GROUP_AFFINITY: |pointer| pointer.cast();
        PVOID => *mut kit::_KTHREAD: |pointer| pointer.cast();
        PVOID => *mut kit::_OBJECT_TYPE: |pointer| pointer.cast();
        PVOID => *mut kit::OBJECT_HANDLE_INFORMATION: |pointer| pointer.cast();
        // SAFETY: 64-bit Windows has one calling convention, whatever it is called.
        KDEFERRED_ROUTINE => kit::KDEFERRED_ROUTINE: |routine| unsafe { transmute(routine) };
        // SAFETY: as above.
        KSTART_ROUTINE => kit::KSTART_ROUTINE: |routine| unsafe { transmute(routine) };
    }

    /// Proves that a structure of ours has the layout of the headers'.
    macro_rules! same_layout {
        ($($name:ident { $($member:ident),* };)*) => {
            $(const _: () = {
                assert!(size_of::<$name>() == size_of::<kit::$name>());
                assert!(align_of::<$name>() == align_of::<kit::$name>());
                $(assert!(offset_of!($name, $member) == offset_of!(kit::$name, $member));)*
            };)*
        };
    }

    same_layout! {
        MDL {
            Next, Size, MdlFlags, Process, MappedSystemVa, StartVa, ByteCount, ByteOffset
        };
        GUID { Data1, Data2, Data3, Data4 };
        GROUP_AFFINITY { Mask, Group, Reserved };
        OBJECT_ATTRIBUTES {
            Length, RootDirectory, ObjectName, Attributes, SecurityDescriptor, SecurityQualityOfService
        };
        IO_ERROR_LOG_PACKET { NumberOfStrings, StringOffset, ErrorCode, DumpData };
        PHYSICAL_ADDRESS {};
    }

    const _: () = {
        assert!(MDL_MAPPED_TO_SYSTEM_VA as u32 == kit::MDL_MAPPED_TO_SYSTEM_VA);
        assert!(MDL_PAGES_LOCKED as u32 == kit::MDL_PAGES_LOCKED);
        assert!(MDL_SOURCE_IS_NONPAGED_POOL as u32 == kit::MDL_SOURCE_IS_NONPAGED_POOL);
        assert!(PASSIVE_LEVEL as u32 == kit::PASSIVE_LEVEL);
        assert!(DISPATCH_LEVEL as u32 == kit::DISPATCH_LEVEL);
        assert!(NotificationEvent == kit::_EVENT_TYPE::NotificationEvent as i32);
        assert!(SynchronizationEvent == kit::_EVENT_TYPE::SynchronizationEvent as i32);
        assert!(MediumHighImportance == kit::_KDPC_IMPORTANCE::MediumHighImportance as i32);
        assert!(Executive == kit::_KWAIT_REASON::Executive as i32);
        assert!(KernelMode as i32 == kit::_MODE::KernelMode as i32);
        assert!(MmCached == kit::_MEMORY_CACHING_TYPE::MmCached as i32);
        assert!(NormalPagePriority == kit::_MM_PAGE_PRIORITY::NormalPagePriority as u32);
        assert!(THREAD_ALL_ACCESS == kit::THREAD_ALL_ACCESS);
        assert!(STATUS_PENDING.0 == kit::STATUS_PENDING);
        assert!(STATUS_INSUFFICIENT_RESOURCES.0 == kit::STATUS_INSUFFICIENT_RESOURCES);
    };
}
#[cfg(feature = "wdk")]
use same::Same as _;
