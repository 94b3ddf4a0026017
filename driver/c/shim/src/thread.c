/* thread.c: system threads, and the threads that run work items. */
#define _GNU_SOURCE
#include "internal.h"

#include <stdlib.h>

typedef struct _OBJECT_TYPE {
    PCSTR Name;
} OBJECT_TYPE;

struct _KTHREAD {
    DISPATCHER_HEADER Header;
    /* The handle, the run, and each pointer that a driver has. */
    LONG References;
    PKSTART_ROUTINE StartRoutine;
    PVOID StartContext;
};

struct _IO_WORKITEM {
    WORK_QUEUE_ITEM Item;
    PDEVICE_OBJECT DeviceObject;
    /* One of the two. */
    PIO_WORKITEM_ROUTINE Routine;
    PIO_WORKITEM_ROUTINE_EX RoutineEx;
    PVOID Context;
    LONG IsQueued;
};

static OBJECT_TYPE ThreadType = { "Thread" };
static POBJECT_TYPE ThreadTypePointer = &ThreadType;
POBJECT_TYPE *PsThreadType = &ThreadTypePointer;

static LONG Threads;
static _Thread_local PKTHREAD Self;

/* Threads that run work items, more of them as long as all are busy. */
#define WORKERS_MAX 64
static LIST_ENTRY Queue = { &Queue, &Queue };
static LONG Workers, Idle;
/* Work items that are queued or run; and those that IoAllocateWorkItem has made. */
static LONG Pending, WorkItems;

static VOID Spawn(PVOID (*Routine)(PVOID), PVOID Context)
{
    pthread_t Thread;

    REQUIRE(pthread_create(&Thread, NULL, Routine, Context) == 0, "finds no thread");
    pthread_detach(Thread);
}

static VOID DereferenceThread(PKTHREAD Thread)
{
    if (InterlockedDecrement(&Thread->References) == 0) {
        InterlockedDecrement(&Threads);
        free(Thread);
    }
}

static VOID EndThread(PKTHREAD Thread)
{
    DispatcherLock();
    Thread->Header.SignalState = 1;
    DispatcherSignal();
    DispatcherUnlock();
    DereferenceThread(Thread);
}

static PVOID RunThread(PVOID Context)
{
    Self = Context;
    NdkShimAttachThread();
    Self->StartRoutine(Self->StartContext);
    REQUIRE(KeGetCurrentIrql() == PASSIVE_LEVEL, "meets a thread that ends at a raised IRQL");
    EndThread(Self);
    return NULL;
}

NTSTATUS PsCreateSystemThread(
    PHANDLE ThreadHandle,
    ULONG DesiredAccess,
    POBJECT_ATTRIBUTES ObjectAttributes,
    HANDLE ProcessHandle,
    PCLIENT_ID ClientId,
    PKSTART_ROUTINE StartRoutine,
    PVOID StartContext)
{
    PKTHREAD Thread;

    UNREFERENCED_PARAMETER(DesiredAccess);
    UNREFERENCED_PARAMETER(ObjectAttributes);
    UNREFERENCED_PARAMETER(ProcessHandle);
    UNREFERENCED_PARAMETER(ClientId);
    REQUIRE_IRQL(PASSIVE_LEVEL);
    Thread = Allocate(sizeof(*Thread));
    Thread->Header.Kind = KIND_THREAD;
    Thread->References = 2;
    Thread->StartRoutine = StartRoutine;
    Thread->StartContext = StartContext;
    InterlockedIncrement(&Threads);
    *ThreadHandle = Thread;
    Spawn(RunThread, Thread);
    return STATUS_SUCCESS;
}

NTSTATUS PsTerminateSystemThread(NTSTATUS ExitStatus)
{
    UNREFERENCED_PARAMETER(ExitStatus);
    REQUIRE_IRQL(PASSIVE_LEVEL);
    REQUIRE(Self != NULL, "is for system threads");
    EndThread(Self);
    pthread_exit(NULL);
}

NTSTATUS ObReferenceObjectByHandle(
    HANDLE Handle,
    ACCESS_MASK DesiredAccess,
    POBJECT_TYPE ObjectType,
    KPROCESSOR_MODE AccessMode,
    PVOID *Object,
    PVOID HandleInformation)
{
    PKTHREAD Thread = Handle;

    UNREFERENCED_PARAMETER(DesiredAccess);
    UNREFERENCED_PARAMETER(AccessMode);
    UNREFERENCED_PARAMETER(HandleInformation);
    REQUIRE_IRQL(PASSIVE_LEVEL);
    if (ObjectType != NULL && ObjectType != *PsThreadType) {
        return STATUS_OBJECT_TYPE_MISMATCH;
    }
    if (Thread == NULL || Thread->Header.Kind != KIND_THREAD) {
        return STATUS_INVALID_HANDLE;
    }
    InterlockedIncrement(&Thread->References);
    *Object = Thread;
    return STATUS_SUCCESS;
}

VOID ObDereferenceObject(PVOID Object)
{
    DereferenceThread(Object);
}

NTSTATUS ZwClose(HANDLE Handle)
{
    REQUIRE_IRQL(PASSIVE_LEVEL);
    DereferenceThread(Handle);
    return STATUS_SUCCESS;
}

/* The next work item; with the dispatcher's lock. */
static PWORK_QUEUE_ITEM NextItem(VOID)
{
    Idle++;
    while (IsListEmpty(&Queue)) {
        DispatcherWait(NULL);
    }
    Idle--;
    return CONTAINING_RECORD(RemoveHeadList(&Queue), WORK_QUEUE_ITEM, List);
}

static PVOID RunItems(PVOID Context)
{
    UNREFERENCED_PARAMETER(Context);
    NdkShimAttachThread();
    for (;;) {
        PWORKER_THREAD_ROUTINE Routine;
        PWORK_QUEUE_ITEM Item;
        PVOID Parameter;

        DispatcherLock();
        Item = NextItem();
        /* The routine may free the item, or queue it again. */
        Routine = Item->WorkerRoutine;
        Parameter = Item->Parameter;
        Item->List.Flink = NULL;
        DispatcherUnlock();
        Routine(Parameter);
        REQUIRE(KeGetCurrentIrql() == PASSIVE_LEVEL, "meets a work item that ends at a raised IRQL");
        InterlockedDecrement(&Pending);
    }
    return NULL;
}

VOID ExInitializeWorkItem(PWORK_QUEUE_ITEM Item, PWORKER_THREAD_ROUTINE Routine, PVOID Context)
{
    *Item = (WORK_QUEUE_ITEM){ .WorkerRoutine = Routine, .Parameter = Context };
}

VOID ExQueueWorkItem(PWORK_QUEUE_ITEM WorkItem, WORK_QUEUE_TYPE QueueType)
{
    BOOLEAN IsOneMore;

    UNREFERENCED_PARAMETER(QueueType);
    REQUIRE_IRQL(DISPATCH_LEVEL);
    InterlockedIncrement(&Pending);
    DispatcherLock();
    REQUIRE(WorkItem->List.Flink == NULL, "queues a work item that is queued");
    InsertTailList(&Queue, &WorkItem->List);
    IsOneMore = Idle == 0 && Workers < WORKERS_MAX;
    Workers += IsOneMore;
    DispatcherSignal();
    DispatcherUnlock();
    if (IsOneMore) {
        Spawn(RunItems, NULL);
    }
}

static VOID RunIoItem(PVOID Parameter)
{
    PIO_WORKITEM Item = Parameter;
    PIO_WORKITEM_ROUTINE Routine = Item->Routine;
    PIO_WORKITEM_ROUTINE_EX RoutineEx = Item->RoutineEx;
    PDEVICE_OBJECT DeviceObject = Item->DeviceObject;
    PVOID Context = Item->Context;

    /* From here on the driver may free the item. */
    InterlockedExchange(&Item->IsQueued, FALSE);
    if (Routine != NULL) {
        Routine(DeviceObject, Context);
    } else {
        RoutineEx(DeviceObject, Context, Item);
    }
}

PIO_WORKITEM IoAllocateWorkItem(PDEVICE_OBJECT DeviceObject)
{
    PIO_WORKITEM Item = Allocate(sizeof(*Item));

    REQUIRE_IRQL(DISPATCH_LEVEL);
    Item->DeviceObject = DeviceObject;
    ExInitializeWorkItem(&Item->Item, RunIoItem, Item);
    InterlockedIncrement(&WorkItems);
    return Item;
}

static VOID QueueIoItem(PIO_WORKITEM Item, WORK_QUEUE_TYPE QueueType, PVOID Context)
{
    Item->Context = Context;
    ExQueueWorkItem(&Item->Item, QueueType);
}

/* Claims an item that is not queued. */
static VOID Claim(PIO_WORKITEM Item)
{
    REQUIRE(InterlockedExchange(&Item->IsQueued, TRUE) == FALSE, "queues a work item that is queued");
}

VOID IoQueueWorkItem(
    PIO_WORKITEM IoWorkItem,
    PIO_WORKITEM_ROUTINE WorkerRoutine,
    WORK_QUEUE_TYPE QueueType,
    PVOID Context)
{
    Claim(IoWorkItem);
    IoWorkItem->Routine = WorkerRoutine;
    QueueIoItem(IoWorkItem, QueueType, Context);
}

VOID IoQueueWorkItemEx(
    PIO_WORKITEM IoWorkItem,
    PIO_WORKITEM_ROUTINE_EX WorkerRoutine,
    WORK_QUEUE_TYPE QueueType,
    PVOID Context)
{
    Claim(IoWorkItem);
    IoWorkItem->Routine = NULL;
    IoWorkItem->RoutineEx = WorkerRoutine;
    QueueIoItem(IoWorkItem, QueueType, Context);
}

VOID IoFreeWorkItem(PIO_WORKITEM IoWorkItem)
{
    REQUIRE(!IoWorkItem->IsQueued, "frees a work item that is queued");
    InterlockedDecrement(&WorkItems);
    free(IoWorkItem);
}

/* A thread or a work item ends a moment after a driver has heard of its end. */
static VOID Settle(VOID)
{
    LARGE_INTEGER Interval = { .QuadPart = -10000 };

    for (ULONG Millisecond = 0; Millisecond < 1000; Millisecond++) {
        if (__atomic_load_n(&Pending, __ATOMIC_SEQ_CST) + __atomic_load_n(&Threads, __ATOMIC_SEQ_CST) == 0) {
            return;
        }
        KeDelayExecutionThread(KernelMode, FALSE, &Interval);
    }
}

ULONG ThreadLeaks(VOID)
{
    Settle();
    return ReportLeak("system threads", Threads) + ReportLeak("work items", WorkItems)
        + ReportLeak("work items in a queue", Pending);
}
