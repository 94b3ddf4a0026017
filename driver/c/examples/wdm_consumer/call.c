/* call.c: calls that end by STATUS_PENDING and a callback, or at once. */
#include "consumer.h"

CALL *CallBegin(CALL *Call)
{
    KeInitializeEvent(&Call->Done, NotificationEvent, FALSE);
    Call->Status = STATUS_PENDING;
    Call->Object = NULL;
    return Call;
}

/* Waits for the end of a call that returned Status. */
NTSTATUS CallEnd(CALL *Call, NTSTATUS Status)
{
    PAGED_CODE();
    if (Status != STATUS_PENDING) {
        return Status;
    }
    KeWaitForSingleObject(&Call->Done, Executive, KernelMode, FALSE, NULL);
    return Call->Status;
}

VOID CallCreated(PVOID Context, NTSTATUS Status, NDK_OBJECT_HEADER *Object)
{
    CALL *Call = Context;

    ASSERT(KeGetCurrentIrql() <= DISPATCH_LEVEL);
    Call->Status = Status;
    Call->Object = Object;
    /* The waiter may return before KeSetEvent does, so this is the last look at the call. */
    KeSetEvent(&Call->Done, IO_NO_INCREMENT, FALSE);
}

VOID CallRequested(PVOID Context, NTSTATUS Status)
{
    CallCreated(Context, Status, NULL);
}

static VOID CallClosed(PVOID Context)
{
    CallCreated(Context, STATUS_SUCCESS, NULL);
}

/* Closes an object, and waits until it is silent. */
VOID CloseObject(NDK_FN_CLOSE_OBJECT Close, NDK_OBJECT_HEADER *Object)
{
    CALL Call;

    PAGED_CODE();
    NT_VERIFY(CallEnd(&Call, Close(Object, CallClosed, CallBegin(&Call))) == STATUS_SUCCESS);
}

/* Waits for an event or a thread; none that is waited for here takes half a minute. */
NTSTATUS WaitFor(PVOID Object)
{
    LARGE_INTEGER Timeout = { .QuadPart = -30LL * 10000000 };

    PAGED_CODE();
    if (KeWaitForSingleObject(Object, Executive, KernelMode, FALSE, &Timeout) == STATUS_TIMEOUT) {
        return STATUS_IO_TIMEOUT;
    }
    return STATUS_SUCCESS;
}
