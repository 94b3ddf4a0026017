/*
 * shim.c: one mistake for each rule of the stand-in, chosen by the first argument, for tests/programs.rs. Without
 * one it uses everything rightly.
 */
#include <ndkshim_host.h>
#include <stdio.h>
#include <wsk.h>

static KEVENT Event;
static KSPIN_LOCK Lock;
static PMDL Mdl;
static KIRQL Irql;
static LARGE_INTEGER Soon = { .QuadPart = -100000 };
static LONG Ran;

static NTSTATUS Wait(PVOID Object, PLARGE_INTEGER Timeout)
{
    return KeWaitForSingleObject(Object, Executive, KernelMode, FALSE, Timeout);
}

static VOID WaitsAtDispatch(VOID)
{
    KeRaiseIrql(DISPATCH_LEVEL, &Irql);
    Wait(&Event, NULL);
}

static VOID RunsPagedCodeAtDispatch(VOID)
{
    KeRaiseIrql(DISPATCH_LEVEL, &Irql);
    PAGED_CODE();
}

static VOID AllocatesPagedPoolAtDispatch(VOID)
{
    KeRaiseIrql(DISPATCH_LEVEL, &Irql);
    ExAllocatePool2(POOL_FLAG_PAGED, 1, 't');
}

static VOID TakesALockTwice(VOID)
{
    KeAcquireSpinLock(&Lock, &Irql);
    KeAcquireSpinLock(&Lock, &Irql);
}

static VOID ReleasesAFreeLock(VOID)
{
    KeRaiseIrql(DISPATCH_LEVEL, &Irql);
    KeReleaseSpinLock(&Lock, Irql);
}

static VOID FreesTwice(VOID)
{
    PVOID Block = ExAllocatePool2(POOL_FLAG_NON_PAGED, 1, 't');

    ExFreePool(Block);
    ExFreePool(Block);
}

static VOID FreesByAnotherTag(VOID)
{
    ExFreePoolWithTag(ExAllocatePool2(POOL_FLAG_NON_PAGED, 1, 't'), 'u');
}

static VOID FreesALockedMdl(VOID)
{
    MmProbeAndLockPages(Mdl, KernelMode, IoModifyAccess);
    IoFreeMdl(Mdl);
}

static VOID MapsUnlockedPages(VOID)
{
    MmGetSystemAddressForMdlSafe(Mdl, NormalPagePriority);
}

static VOID SetsAnEventThatIsNone(VOID)
{
    KEVENT None = { 0 };

    KeSetEvent(&None, IO_NO_INCREMENT, FALSE);
}

static VOID ClosesAnAdapterThatIsNone(VOID)
{
    NdkShimCloseAdapter((NDK_ADAPTER *)&Event);
}

static VOID Sleep(PVOID Context)
{
    UNREFERENCED_PARAMETER(Context);
    KeDelayExecutionThread(KernelMode, FALSE, &Soon);
}

static VOID QueuesAnItemTwice(VOID)
{
    static WORK_QUEUE_ITEM Item;

    ExInitializeWorkItem(&Item, Sleep, NULL);
    for (ULONG Time = 0; Time < 1000; Time++) {
        ExQueueWorkItem(&Item, DelayedWorkQueue);
    }
}

/* Everything that can be left. */
static VOID Leaks(VOID)
{
    static WSK_REGISTRATION Registration;
    WSK_PROVIDER_NPI Provider;
    HANDLE Thread;

    ExAllocatePool2(POOL_FLAG_NON_PAGED, 7, 0x6B61656C);
    IoAllocateWorkItem(NULL);
    WskRegister(NULL, &Registration);
    WskCaptureProviderNPI(&Registration, WSK_NO_WAIT, &Provider);
    PsCreateSystemThread(&Thread, 0, NULL, NULL, NULL, Sleep, NULL);
    printf("%u left\n", NdkShimLeaks());
}

static VOID Work(PVOID Context)
{
    NT_ASSERT(KeGetCurrentIrql() == PASSIVE_LEVEL);
    InterlockedIncrement(&Ran);
    KeReleaseSemaphore(Context, IO_NO_INCREMENT, 1, FALSE);
}

static VOID WorkOfDevice(PDEVICE_OBJECT DeviceObject, PVOID Context)
{
    UNREFERENCED_PARAMETER(DeviceObject);
    Work(Context);
}

/* Locks, waits and time. */
static VOID UsesWaits(VOID)
{
    LARGE_INTEGER Zero = { .QuadPart = 0 }, Before = KeQueryPerformanceCounter(NULL), At;
    EX_RUNDOWN_REF Rundown;
    FAST_MUTEX Mutex;

    KeAcquireSpinLock(&Lock, &Irql);
    NT_ASSERT(KeGetCurrentIrql() == DISPATCH_LEVEL && Irql == PASSIVE_LEVEL);
    NT_ASSERT(Wait(&Event, &Zero) == STATUS_TIMEOUT);
    KeReleaseSpinLock(&Lock, Irql);
    NT_ASSERT(Wait(&Event, &Soon) == STATUS_TIMEOUT);
    KeQuerySystemTime(&At);
    At.QuadPart -= Soon.QuadPart;
    NT_ASSERT(Wait(&Event, &At) == STATUS_TIMEOUT);
    NT_ASSERT(KeQueryPerformanceCounter(NULL).QuadPart - Before.QuadPart > 2 * 90000);
    NT_ASSERT(KeSetEvent(&Event, IO_NO_INCREMENT, FALSE) == 0);
    NT_ASSERT(Wait(&Event, NULL) == STATUS_SUCCESS && KeReadStateEvent(&Event) == 0);
    ExInitializeFastMutex(&Mutex);
    ExAcquireFastMutex(&Mutex);
    NT_ASSERT(KeGetCurrentIrql() == APC_LEVEL);
    ExReleaseFastMutex(&Mutex);
    ExInitializeRundownProtection(&Rundown);
    NT_ASSERT(ExAcquireRundownProtection(&Rundown));
    ExReleaseRundownProtection(&Rundown);
    ExWaitForRundownProtectionRelease(&Rundown);
    NT_ASSERT(!ExAcquireRundownProtection(&Rundown));
}

/* Pool and MDLs. */
static VOID UsesMemory(VOID)
{
    PUCHAR Block = ExAllocatePool2(POOL_FLAG_NON_PAGED, 3 * PAGE_SIZE, 't');
    PMDL Whole = IoAllocateMdl(Block + 16, 2 * PAGE_SIZE, FALSE, FALSE, NULL);
    PMDL Part = IoAllocateMdl(Block + PAGE_SIZE, 16, FALSE, FALSE, NULL);

    NT_ASSERT(BYTE_OFFSET(Block) == 0 && Block[0] == 0);
    NT_ASSERT(ADDRESS_AND_SIZE_TO_SPAN_PAGES(Block + 16, 2 * PAGE_SIZE) == 3);
    MmBuildMdlForNonPagedPool(Whole);
    NT_ASSERT(MmGetSystemAddressForMdlSafe(Whole, NormalPagePriority) == Block + 16);
    IoBuildPartialMdl(Whole, Part, Block + PAGE_SIZE, 16);
    NT_ASSERT(MmGetSystemAddressForMdlSafe(Part, NormalPagePriority) == Block + PAGE_SIZE);
    NT_ASSERT(MmGetMdlPfnArray(Part)[0] == MmGetMdlPfnArray(Whole)[1]);
    IoFreeMdl(Part);
    IoFreeMdl(Whole);
    MmProbeAndLockPages(Mdl, KernelMode, IoModifyAccess);
    NT_ASSERT(MmGetSystemAddressForMdlSafe(Mdl, NormalPagePriority) == &Event);
    MmUnlockPages(Mdl);
    IoFreeMdl(Mdl);
    ExFreePoolWithTag(Block, 't');
}

/* Lists, work items and threads. */
static VOID UsesThreads(VOID)
{
    PIO_WORKITEM IoItem = IoAllocateWorkItem(NULL);
    WORK_QUEUE_ITEM Item;
    LIST_ENTRY Head, First, Second;
    KSEMAPHORE Ended;
    HANDLE Handle;
    PVOID Thread;

    InitializeListHead(&Head);
    InsertTailList(&Head, &Second);
    InsertHeadList(&Head, &First);
    NT_ASSERT(RemoveTailList(&Head) == &Second && RemoveHeadList(&Head) == &First && IsListEmpty(&Head));
    KeInitializeSemaphore(&Ended, 0, 3);
    ExInitializeWorkItem(&Item, Work, &Ended);
    ExQueueWorkItem(&Item, DelayedWorkQueue);
    IoQueueWorkItem(IoItem, WorkOfDevice, DelayedWorkQueue, &Ended);
    PsCreateSystemThread(&Handle, THREAD_ALL_ACCESS, NULL, NULL, NULL, Work, &Ended);
    NT_ASSERT(ObReferenceObjectByHandle(Handle, 0, *PsThreadType, KernelMode, &Thread, NULL) == 0);
    ZwClose(Handle);
    NT_ASSERT(Wait(Thread, NULL) == STATUS_SUCCESS);
    ObDereferenceObject(Thread);
    for (ULONG End = 0; End < 3; End++) {
        Wait(&Ended, NULL);
    }
    NT_ASSERT(Ran == 3);
    IoFreeWorkItem(IoItem);
}

static VOID UsesEverything(VOID)
{
    UsesWaits();
    UsesMemory();
    UsesThreads();
    DbgPrint("%lu %08lX %I64d %s%%\n", 7, 0xC0000001, -1LL, "text");
    printf("%u left\n", NdkShimLeaks());
}

static const struct {
    PCSTR Name;
    VOID (*Run)(VOID);
} Cases[] = {
    { "", UsesEverything },
    { "leaks", Leaks },
    { "waits at DISPATCH_LEVEL", WaitsAtDispatch },
    { "is paged code", RunsPagedCodeAtDispatch },
    { "is for IRQL <= APC_LEVEL", AllocatesPagedPoolAtDispatch },
    { "waits for its own lock", TakesALockTwice },
    { "releases the lock of another", ReleasesAFreeLock },
    { "frees what is no block of pool", FreesTwice },
    { "frees a block of another tag", FreesByAnotherTag },
    { "frees an MDL whose pages are locked", FreesALockedMdl },
    { "maps pages that are not locked", MapsUnlockedPages },
    { "meets an event that was not initialized", SetsAnEventThatIsNone },
    { "closes an adapter that is not open", ClosesAnAdapterThatIsNone },
    { "queues a work item that is queued", QueuesAnItemTwice },
};

int main(int Count, char **Arguments)
{
    KeInitializeEvent(&Event, SynchronizationEvent, FALSE);
    KeInitializeSpinLock(&Lock);
    Mdl = IoAllocateMdl(&Event, sizeof(Event), FALSE, FALSE, NULL);
    for (SIZE_T Index = 0; Index < RTL_NUMBER_OF(Cases); Index++) {
        if (strcmp(Cases[Index].Name, Count > 1 ? Arguments[1] : "") == 0) {
            Cases[Index].Run();
            return 0;
        }
    }
    return 2;
}
