/*
 * ndkshim.h: the part of the Windows kernel that an NDK consumer needs, for C programs on Linux.
 *
 * Names and meanings are those of the driver kit. A broken rule ends the process with a sentence
 * that names the function: a wait at DISPATCH_LEVEL, a spin lock that is not held, pool that is
 * freed twice, an MDL that is freed while its pages are locked.
 *
 * The IRQL belongs to the thread. The main thread, system threads and work items begin at
 * PASSIVE_LEVEL; every other thread, such as the one that makes the provider's callbacks, is at
 * DISPATCH_LEVEL.
 */
#ifndef NDKSHIM_H
#define NDKSHIM_H

#include <ndkbase.h>
#include <sal.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Status codes beside those of the NDK. */
#define STATUS_TIMEOUT ((NTSTATUS)0x00000102)
#define STATUS_UNSUCCESSFUL ((NTSTATUS)0xC0000001)
#define STATUS_INVALID_HANDLE ((NTSTATUS)0xC0000008)
#define STATUS_NO_MEMORY ((NTSTATUS)0xC0000017)
#define STATUS_OBJECT_TYPE_MISMATCH ((NTSTATUS)0xC0000024)
#define STATUS_NOT_FOUND ((NTSTATUS)0xC0000225)

/* Of the language. */

#define UNREFERENCED_PARAMETER(Parameter) ((void)(Parameter))
#define DBG_UNREFERENCED_PARAMETER(Parameter) ((void)(Parameter))
#define FIELD_OFFSET(Type, Field) ((LONG)offsetof(Type, Field))
#define CONTAINING_RECORD(Address, Type, Field) ((Type *)((PUCHAR)(Address) - offsetof(Type, Field)))
#define RTL_NUMBER_OF(Array) (sizeof(Array) / sizeof((Array)[0]))
#define ARRAYSIZE(Array) RTL_NUMBER_OF(Array)
#ifdef __cplusplus
#define C_ASSERT(Condition) static_assert(Condition, #Condition)
#else
#define C_ASSERT(Condition) _Static_assert(Condition, #Condition)
#endif
#define ARGUMENT_PRESENT(Argument) ((Argument) != NULL)
#define MAXUSHORT 0xFFFF
#define FORCEINLINE static inline
#define DECLSPEC_ALIGN(Bytes) __attribute__((aligned(Bytes)))
#ifndef min
#define min(A, B) ((A) < (B) ? (A) : (B))
#endif
#ifndef max
#define max(A, B) ((A) > (B) ? (A) : (B))
#endif

/* Ends the process: Function broke Rule. */
__attribute__((noreturn)) VOID NdkShimFail(PCSTR Function, PCSTR Rule);

/* Assertions hold unless DBG is 0, as in a free build of Windows. */
#ifndef DBG
#define DBG 1
#endif
#define NT_VERIFY(Condition) \
    ((Condition) ? (void)0 : NdkShimFail(__func__, "fails its assertion " #Condition))
#if DBG
#define NT_ASSERT(Condition) NT_VERIFY(Condition)
#else
#define NT_ASSERT(Condition) ((void)0)
#endif
#define ASSERT(Condition) NT_ASSERT(Condition)

/* Writes to the standard error. A length of one l is dropped, as a LONG has 32 bits; I64 is known. */
ULONG DbgPrint(PCSTR Format, ...);
#define KdPrint(Arguments) DbgPrint Arguments

/* IRQL and spin locks. */

typedef UCHAR KIRQL, *PKIRQL;
#define PASSIVE_LEVEL 0
#define APC_LEVEL 1
#define DISPATCH_LEVEL 2

KIRQL KeGetCurrentIrql(VOID);
VOID KeRaiseIrql(KIRQL NewIrql, PKIRQL OldIrql);
VOID KeLowerIrql(KIRQL NewIrql);

/* Makes a thread that this stand-in has not started one of the consumer's, at PASSIVE_LEVEL. */
VOID NdkShimAttachThread(VOID);

#define PAGED_CODE() \
    (KeGetCurrentIrql() > APC_LEVEL ? NdkShimFail(__func__, "is paged code, at DISPATCH_LEVEL") : (void)0)

/* The owner of a lock that is held. */
typedef ULONG_PTR KSPIN_LOCK, *PKSPIN_LOCK;

VOID KeInitializeSpinLock(PKSPIN_LOCK SpinLock);
VOID KeAcquireSpinLock(PKSPIN_LOCK SpinLock, PKIRQL OldIrql);
VOID KeReleaseSpinLock(PKSPIN_LOCK SpinLock, KIRQL NewIrql);
VOID KeAcquireSpinLockAtDpcLevel(PKSPIN_LOCK SpinLock);
VOID KeReleaseSpinLockFromDpcLevel(PKSPIN_LOCK SpinLock);

typedef struct _KLOCK_QUEUE_HANDLE {
    PKSPIN_LOCK Lock;
    KIRQL OldIrql;
} KLOCK_QUEUE_HANDLE, *PKLOCK_QUEUE_HANDLE;

VOID KeAcquireInStackQueuedSpinLock(PKSPIN_LOCK SpinLock, PKLOCK_QUEUE_HANDLE LockHandle);
VOID KeReleaseInStackQueuedSpinLock(PKLOCK_QUEUE_HANDLE LockHandle);

/* Waits. */

typedef struct _DISPATCHER_HEADER {
    ULONG Kind;
    LONG SignalState;
} DISPATCHER_HEADER;

typedef struct _KEVENT {
    DISPATCHER_HEADER Header;
} KEVENT, *PKEVENT, *PRKEVENT;

typedef struct _KSEMAPHORE {
    DISPATCHER_HEADER Header;
    LONG Limit;
} KSEMAPHORE, *PKSEMAPHORE, *PRKSEMAPHORE;

typedef enum _EVENT_TYPE { NotificationEvent, SynchronizationEvent } EVENT_TYPE;
typedef enum _KWAIT_REASON { Executive = 0, UserRequest = 6 } KWAIT_REASON;
typedef enum _MODE { KernelMode, UserMode } MODE;
typedef CHAR KPROCESSOR_MODE;
typedef LONG KPRIORITY;
#define IO_NO_INCREMENT 0
#define EVENT_INCREMENT 1

VOID KeInitializeEvent(PRKEVENT Event, EVENT_TYPE Type, BOOLEAN State);
LONG KeSetEvent(PRKEVENT Event, KPRIORITY Increment, BOOLEAN Wait);
VOID KeClearEvent(PRKEVENT Event);
LONG KeResetEvent(PRKEVENT Event);
LONG KeReadStateEvent(PRKEVENT Event);
VOID KeInitializeSemaphore(PRKSEMAPHORE Semaphore, LONG Count, LONG Limit);
LONG KeReleaseSemaphore(PRKSEMAPHORE Semaphore, KPRIORITY Increment, LONG Adjustment, BOOLEAN Wait);

/*
 * Waits for an event, a semaphore or a thread. Timeout is in 100 ns: negative from now, positive
 * since 1601, NULL for ever. Only a timeout of 0 is allowed at DISPATCH_LEVEL.
 */
NTSTATUS KeWaitForSingleObject(
    PVOID Object,
    KWAIT_REASON WaitReason,
    KPROCESSOR_MODE WaitMode,
    BOOLEAN Alertable,
    PLARGE_INTEGER Timeout);
NTSTATUS KeDelayExecutionThread(KPROCESSOR_MODE WaitMode, BOOLEAN Alertable, PLARGE_INTEGER Interval);
LARGE_INTEGER KeQueryPerformanceCounter(PLARGE_INTEGER PerformanceFrequency);
VOID KeQuerySystemTime(PLARGE_INTEGER CurrentTime);

typedef struct _FAST_MUTEX {
    KEVENT Event;
    KIRQL OldIrql;
} FAST_MUTEX, *PFAST_MUTEX;

VOID ExInitializeFastMutex(PFAST_MUTEX FastMutex);
VOID ExAcquireFastMutex(PFAST_MUTEX FastMutex);
VOID ExReleaseFastMutex(PFAST_MUTEX FastMutex);

/* Twice the users, and 1 once the end has begun. */
typedef struct _EX_RUNDOWN_REF {
    ULONG_PTR Count;
} EX_RUNDOWN_REF, *PEX_RUNDOWN_REF;

VOID ExInitializeRundownProtection(PEX_RUNDOWN_REF RunRef);
VOID ExReInitializeRundownProtection(PEX_RUNDOWN_REF RunRef);
BOOLEAN ExAcquireRundownProtectionEx(PEX_RUNDOWN_REF RunRef, ULONG Count);
VOID ExReleaseRundownProtectionEx(PEX_RUNDOWN_REF RunRef, ULONG Count);
#define ExAcquireRundownProtection(RunRef) ExAcquireRundownProtectionEx((RunRef), 1)
#define ExReleaseRundownProtection(RunRef) ExReleaseRundownProtectionEx((RunRef), 1)
VOID ExWaitForRundownProtectionRelease(PEX_RUNDOWN_REF RunRef);
VOID ExRundownCompleted(PEX_RUNDOWN_REF RunRef);

/* Pool. */

typedef ULONG64 POOL_FLAGS;
#define POOL_FLAG_UNINITIALIZED 0x0000000000000002ULL
#define POOL_FLAG_CACHE_ALIGNED 0x0000000000000008ULL
#define POOL_FLAG_NON_PAGED 0x0000000000000040ULL
#define POOL_FLAG_NON_PAGED_EXECUTE 0x0000000000000080ULL
#define POOL_FLAG_PAGED 0x0000000000000100ULL

typedef enum _POOL_TYPE {
    NonPagedPool = 0,
    PagedPool = 1,
    NonPagedPoolNx = 512
} POOL_TYPE;

typedef enum _EX_POOL_PRIORITY {
    LowPoolPriority = 0,
    NormalPoolPriority = 16,
    HighPoolPriority = 32
} EX_POOL_PRIORITY;

/* Zeroed, unless a flag says otherwise. From a page on it begins at a page. */
PVOID ExAllocatePool2(POOL_FLAGS Flags, SIZE_T NumberOfBytes, ULONG Tag);
PVOID ExAllocatePoolZero(POOL_TYPE PoolType, SIZE_T NumberOfBytes, ULONG Tag);
PVOID ExAllocatePoolWithTag(POOL_TYPE PoolType, SIZE_T NumberOfBytes, ULONG Tag);
PVOID ExAllocatePoolWithTagPriority(
    POOL_TYPE PoolType,
    SIZE_T NumberOfBytes,
    ULONG Tag,
    EX_POOL_PRIORITY Priority);
VOID ExFreePoolWithTag(PVOID P, ULONG Tag);
VOID ExFreePool(PVOID P);

#define RtlZeroMemory(Destination, Length) memset((Destination), 0, (Length))
#define RtlFillMemory(Destination, Length, Fill) memset((Destination), (Fill), (Length))
#define RtlCopyMemory(Destination, Source, Length) memcpy((Destination), (Source), (Length))
#define RtlMoveMemory(Destination, Source, Length) memmove((Destination), (Source), (Length))
#define RtlEqualMemory(First, Second, Length) (memcmp((First), (Second), (Length)) == 0)

#define RtlUshortByteSwap(Number) __builtin_bswap16(Number)
#define RtlUlongByteSwap(Number) __builtin_bswap32(Number)
#define RtlUlonglongByteSwap(Number) __builtin_bswap64(Number)

/* The number of bytes that are equal, from the first on. */
SIZE_T RtlCompareMemory(CONST VOID *Source1, CONST VOID *Source2, SIZE_T Length);

/* MDLs. */

#define PAGE_SHIFT 12
#define PAGE_ALIGN(Va) ((PVOID)((ULONG_PTR)(Va) & ~(ULONG_PTR)(PAGE_SIZE - 1)))
#define BYTE_OFFSET(Va) ((ULONG)((ULONG_PTR)(Va) & (PAGE_SIZE - 1)))
#define BYTES_TO_PAGES(Size) (((Size) >> PAGE_SHIFT) + (((Size) & (PAGE_SIZE - 1)) != 0))
#define ROUND_TO_PAGES(Size) (((ULONG_PTR)(Size) + PAGE_SIZE - 1) & ~(ULONG_PTR)(PAGE_SIZE - 1))
#define ADDRESS_AND_SIZE_TO_SPAN_PAGES(Va, Size) \
    ((ULONG)(((ULONG_PTR)BYTE_OFFSET(Va) + (ULONG_PTR)(Size) + PAGE_SIZE - 1) >> PAGE_SHIFT))

typedef ULONG_PTR PFN_NUMBER, *PPFN_NUMBER;
typedef enum _LOCK_OPERATION { IoReadAccess, IoWriteAccess, IoModifyAccess } LOCK_OPERATION;
typedef enum _MM_PAGE_PRIORITY {
    LowPagePriority = 0,
    NormalPagePriority = 16,
    HighPagePriority = 32
} MM_PAGE_PRIORITY;
#define MdlMappingNoExecute 0x40000000
typedef struct _IRP *PIRP;

#define MmGetMdlVirtualAddress(Mdl) ((PVOID)((PUCHAR)(Mdl)->StartVa + (Mdl)->ByteOffset))
#define MmGetMdlByteCount(Mdl) ((Mdl)->ByteCount)
#define MmGetMdlByteOffset(Mdl) ((Mdl)->ByteOffset)
#define MmGetMdlPfnArray(Mdl) ((PPFN_NUMBER)((Mdl) + 1))
#define MmGetSystemAddressForMdlSafe(Mdl, Priority) NdkShimMapMdl((Mdl), (Priority))

PMDL IoAllocateMdl(
    PVOID VirtualAddress,
    ULONG Length,
    BOOLEAN SecondaryBuffer,
    BOOLEAN ChargeQuota,
    PIRP Irp);
VOID IoBuildPartialMdl(PMDL SourceMdl, PMDL TargetMdl, PVOID VirtualAddress, ULONG Length);
VOID IoFreeMdl(PMDL Mdl);
VOID MmBuildMdlForNonPagedPool(PMDL Mdl);
VOID MmProbeAndLockPages(PMDL Mdl, KPROCESSOR_MODE AccessMode, LOCK_OPERATION Operation);
VOID MmUnlockPages(PMDL Mdl);
PVOID NdkShimMapMdl(PMDL Mdl, ULONG Priority);
VOID MmUnmapLockedPages(PVOID BaseAddress, PMDL Mdl);

/* Lists. */

typedef struct _LIST_ENTRY {
    struct _LIST_ENTRY *Flink;
    struct _LIST_ENTRY *Blink;
} LIST_ENTRY, *PLIST_ENTRY;

FORCEINLINE VOID InitializeListHead(PLIST_ENTRY Head)
{
    Head->Flink = Head->Blink = Head;
}

FORCEINLINE BOOLEAN IsListEmpty(CONST LIST_ENTRY *Head)
{
    return Head->Flink == Head;
}

FORCEINLINE VOID InsertHeadList(PLIST_ENTRY Head, PLIST_ENTRY Entry)
{
    Entry->Flink = Head->Flink;
    Entry->Blink = Head;
    Head->Flink->Blink = Entry;
    Head->Flink = Entry;
}

FORCEINLINE VOID InsertTailList(PLIST_ENTRY Head, PLIST_ENTRY Entry)
{
    InsertHeadList(Head->Blink, Entry);
}

/* Whether the list is empty then. */
FORCEINLINE BOOLEAN RemoveEntryList(PLIST_ENTRY Entry)
{
    NT_ASSERT(Entry->Flink->Blink == Entry && Entry->Blink->Flink == Entry);
    Entry->Flink->Blink = Entry->Blink;
    Entry->Blink->Flink = Entry->Flink;
    return Entry->Flink == Entry->Blink;
}

FORCEINLINE PLIST_ENTRY RemoveHeadList(PLIST_ENTRY Head)
{
    PLIST_ENTRY Entry = Head->Flink;
    RemoveEntryList(Entry);
    return Entry;
}

FORCEINLINE PLIST_ENTRY RemoveTailList(PLIST_ENTRY Head)
{
    PLIST_ENTRY Entry = Head->Blink;
    RemoveEntryList(Entry);
    return Entry;
}

typedef struct _SINGLE_LIST_ENTRY {
    struct _SINGLE_LIST_ENTRY *Next;
} SINGLE_LIST_ENTRY, *PSINGLE_LIST_ENTRY;

FORCEINLINE VOID PushEntryList(PSINGLE_LIST_ENTRY Head, PSINGLE_LIST_ENTRY Entry)
{
    Entry->Next = Head->Next;
    Head->Next = Entry;
}

FORCEINLINE PSINGLE_LIST_ENTRY PopEntryList(PSINGLE_LIST_ENTRY Head)
{
    PSINGLE_LIST_ENTRY Entry = Head->Next;
    Head->Next = Entry == NULL ? NULL : Entry->Next;
    return Entry;
}

/* Interlocked operations. */

#define InterlockedIncrement(Addend) __atomic_add_fetch((Addend), 1, __ATOMIC_SEQ_CST)
#define InterlockedDecrement(Addend) __atomic_sub_fetch((Addend), 1, __ATOMIC_SEQ_CST)
#define InterlockedExchangeAdd(Addend, Value) __atomic_fetch_add((Addend), (Value), __ATOMIC_SEQ_CST)
#define InterlockedExchange(Target, Value) __atomic_exchange_n((Target), (Value), __ATOMIC_SEQ_CST)
#define InterlockedAnd(Target, Value) __atomic_fetch_and((Target), (Value), __ATOMIC_SEQ_CST)
#define InterlockedOr(Target, Value) __atomic_fetch_or((Target), (Value), __ATOMIC_SEQ_CST)
#define InterlockedIncrement64(Addend) InterlockedIncrement(Addend)
#define InterlockedDecrement64(Addend) InterlockedDecrement(Addend)
#define InterlockedExchangeAdd64(Addend, Value) InterlockedExchangeAdd((Addend), (Value))
#define InterlockedExchange64(Target, Value) InterlockedExchange((Target), (Value))
#define InterlockedExchangePointer(Target, Value) InterlockedExchange((Target), (Value))
#define KeMemoryBarrier() __atomic_thread_fence(__ATOMIC_SEQ_CST)

FORCEINLINE LONG InterlockedCompareExchange(volatile LONG *Target, LONG Value, LONG Comparand)
{
    __atomic_compare_exchange_n(Target, &Comparand, Value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return Comparand;
}

FORCEINLINE LONG64 InterlockedCompareExchange64(volatile LONG64 *Target, LONG64 Value, LONG64 Comparand)
{
    __atomic_compare_exchange_n(Target, &Comparand, Value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return Comparand;
}

FORCEINLINE PVOID InterlockedCompareExchangePointer(PVOID volatile *Target, PVOID Value, PVOID Comparand)
{
    __atomic_compare_exchange_n(Target, &Comparand, Value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return Comparand;
}

/* Drivers, devices and work items. */

typedef struct _UNICODE_STRING {
    USHORT Length;
    USHORT MaximumLength;
    PWSTR Buffer;
} UNICODE_STRING, *PUNICODE_STRING;

typedef struct _DRIVER_OBJECT DRIVER_OBJECT, *PDRIVER_OBJECT;
typedef struct _DEVICE_OBJECT DEVICE_OBJECT, *PDEVICE_OBJECT;
typedef NTSTATUS DRIVER_INITIALIZE(PDRIVER_OBJECT DriverObject, PUNICODE_STRING RegistryPath);
typedef VOID DRIVER_UNLOAD(PDRIVER_OBJECT DriverObject);

typedef DRIVER_UNLOAD *PDRIVER_UNLOAD;
typedef NTSTATUS DRIVER_DISPATCH(PDEVICE_OBJECT DeviceObject, PIRP Irp);
typedef DRIVER_DISPATCH *PDRIVER_DISPATCH;
#define IRP_MJ_CREATE 0x00
#define IRP_MJ_CLOSE 0x02
#define IRP_MJ_DEVICE_CONTROL 0x0E
#define IRP_MJ_CLEANUP 0x12
#define IRP_MJ_MAXIMUM_FUNCTION 0x1B

typedef struct _IO_STATUS_BLOCK {
    NTSTATUS Status;
    ULONG_PTR Information;
} IO_STATUS_BLOCK, *PIO_STATUS_BLOCK;

/* Nobody sends an IRP here, so dispatch routines compile, and are never called. */
typedef struct _IRP {
    IO_STATUS_BLOCK IoStatus;
} IRP;
#define IoCompleteRequest(Irp, Boost) NdkShimFail(__func__, "completes an IRP, and there is none")

struct _DRIVER_OBJECT {
    PDEVICE_OBJECT DeviceObject;
    DRIVER_UNLOAD *DriverUnload;
    DRIVER_DISPATCH *MajorFunction[IRP_MJ_MAXIMUM_FUNCTION + 1];
};

struct _DEVICE_OBJECT {
    PDRIVER_OBJECT DriverObject;
    PVOID DeviceExtension;
};

typedef ULONG DEVICE_TYPE;
#define FILE_DEVICE_UNKNOWN 0x22
#define FILE_DEVICE_NETWORK 0x12

/* A driver has one device at most. */
NTSTATUS IoCreateDevice(
    PDRIVER_OBJECT DriverObject,
    ULONG DeviceExtensionSize,
    PUNICODE_STRING DeviceName,
    DEVICE_TYPE DeviceType,
    ULONG DeviceCharacteristics,
    BOOLEAN Exclusive,
    PDEVICE_OBJECT *DeviceObject);
VOID IoDeleteDevice(PDEVICE_OBJECT DeviceObject);

typedef enum _WORK_QUEUE_TYPE { CriticalWorkQueue, DelayedWorkQueue } WORK_QUEUE_TYPE;
typedef struct _IO_WORKITEM IO_WORKITEM, *PIO_WORKITEM;
typedef VOID IO_WORKITEM_ROUTINE(PDEVICE_OBJECT DeviceObject, PVOID Context);
typedef IO_WORKITEM_ROUTINE *PIO_WORKITEM_ROUTINE;

typedef VOID IO_WORKITEM_ROUTINE_EX(PVOID IoObject, PVOID Context, PIO_WORKITEM IoWorkItem);
typedef IO_WORKITEM_ROUTINE_EX *PIO_WORKITEM_ROUTINE_EX;

PIO_WORKITEM IoAllocateWorkItem(PDEVICE_OBJECT DeviceObject);
VOID IoQueueWorkItem(
    PIO_WORKITEM IoWorkItem,
    PIO_WORKITEM_ROUTINE WorkerRoutine,
    WORK_QUEUE_TYPE QueueType,
    PVOID Context);
VOID IoQueueWorkItemEx(
    PIO_WORKITEM IoWorkItem,
    PIO_WORKITEM_ROUTINE_EX WorkerRoutine,
    WORK_QUEUE_TYPE QueueType,
    PVOID Context);
VOID IoFreeWorkItem(PIO_WORKITEM IoWorkItem);

typedef VOID WORKER_THREAD_ROUTINE(PVOID Parameter);
typedef WORKER_THREAD_ROUTINE *PWORKER_THREAD_ROUTINE;
typedef struct _WORK_QUEUE_ITEM {
    LIST_ENTRY List;
    PWORKER_THREAD_ROUTINE WorkerRoutine;
    PVOID Parameter;
} WORK_QUEUE_ITEM, *PWORK_QUEUE_ITEM;

VOID ExInitializeWorkItem(PWORK_QUEUE_ITEM Item, PWORKER_THREAD_ROUTINE Routine, PVOID Context);
VOID ExQueueWorkItem(PWORK_QUEUE_ITEM WorkItem, WORK_QUEUE_TYPE QueueType);

/* Threads. */

typedef ULONG ACCESS_MASK;
#define THREAD_ALL_ACCESS 0x001FFFFF
#define SYNCHRONIZE 0x00100000
#define OBJ_KERNEL_HANDLE 0x00000200
typedef struct _OBJECT_ATTRIBUTES {
    ULONG Length;
    ULONG Attributes;
} OBJECT_ATTRIBUTES, *POBJECT_ATTRIBUTES;
#define InitializeObjectAttributes(Object, Name, Flags, Root, Security) \
    ((Object)->Length = sizeof(OBJECT_ATTRIBUTES), (Object)->Attributes = (Flags))
typedef struct _CLIENT_ID *PCLIENT_ID;
typedef struct _KTHREAD *PKTHREAD, *PETHREAD;
typedef struct _OBJECT_TYPE *POBJECT_TYPE;
typedef VOID KSTART_ROUTINE(PVOID StartContext);
typedef KSTART_ROUTINE *PKSTART_ROUTINE;

/* A pointer to it is the type of a thread object. */
extern POBJECT_TYPE *PsThreadType;

NTSTATUS PsCreateSystemThread(
    PHANDLE ThreadHandle,
    ULONG DesiredAccess,
    POBJECT_ATTRIBUTES ObjectAttributes,
    HANDLE ProcessHandle,
    PCLIENT_ID ClientId,
    PKSTART_ROUTINE StartRoutine,
    PVOID StartContext);
NTSTATUS PsTerminateSystemThread(NTSTATUS ExitStatus);
NTSTATUS ObReferenceObjectByHandle(
    HANDLE Handle,
    ACCESS_MASK DesiredAccess,
    POBJECT_TYPE ObjectType,
    KPROCESSOR_MODE AccessMode,
    PVOID *Object,
    PVOID HandleInformation);
VOID ObDereferenceObject(PVOID Object);
NTSTATUS ZwClose(HANDLE Handle);

#ifdef __cplusplus
}
#endif

#endif
