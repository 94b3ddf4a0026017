/* transfer.c: what an end posts, and how it hears of completions. */
#include "consumer.h"

/* The base of a registration is a label that the consumer invents; its last bits are the offset in the first page. */
#define REGION_BASE 0x100000000ULL

/* The scatter/gather list of a whole buffer: neighbouring pages become one element. */
static ULONG ListOf(CONST ENDPOINT *Endpoint, CONST BUFFER *Buffer, ULONG Bytes, NDK_SGE *Sgl, ULONG Room)
{
    ULONG Offset = Buffer->FirstByteOffset, Count = 0;

    for (ULONG Page = 0; Bytes > 0; Page++, Offset = 0) {
        LONGLONG Address = Buffer->Lam->AdapterPageArray[Page].QuadPart + Offset;
        ULONG Length = min(Bytes, PAGE_SIZE - Offset);

        if (Count > 0 && Sgl[Count - 1].LogicalAddress.QuadPart + Sgl[Count - 1].Length == Address) {
            Sgl[Count - 1].Length += Length;
        } else {
            NT_ASSERT(Count < Room);
            Sgl[Count].LogicalAddress.QuadPart = Address;
            Sgl[Count].Length = Length;
            Sgl[Count].MemoryRegionToken = Endpoint->PrivilegedToken;
            Count++;
        }
        Bytes -= Length;
    }
    return Count;
}

/* Takes all completions, and arms the CQ again. */
static VOID Drain(NDK_CQ *Cq, NTSTATUS Status)
{
    NDK_RESULT_EX Results[8];
    ULONG Count;

    ASSERT(KeGetCurrentIrql() == DISPATCH_LEVEL);
    if (!NT_SUCCESS(Status)) {
        DbgPrint("a CQ has failed: 0x%08X\n", Status);
        return;
    }
    while ((Count = Cq->Dispatch->NdkGetCqResultsEx(Cq, Results, RTL_NUMBER_OF(Results))) != 0) {
        for (ULONG Index = 0; Index < Count; Index++) {
            WORK *Work = Results[Index].RequestContext;

            Work->Result = Results[Index];
            KeSetEvent(&Work->Done, IO_NO_INCREMENT, FALSE);
        }
    }
    Cq->Dispatch->NdkArmCq(Cq, NDK_CQ_NOTIFY_ANY);
}

VOID ReceiveNotification(PVOID Context, NTSTATUS Status)
{
    Drain(((ENDPOINT *)Context)->ReceiveCq, Status);
}

VOID InitiatorNotification(PVOID Context, NTSTATUS Status)
{
    Drain(((ENDPOINT *)Context)->InitiatorCq, Status);
}

static WORK *WorkBegin(WORK *Work)
{
    KeInitializeEvent(&Work->Done, NotificationEvent, FALSE);
    return Work;
}

/* Waits for the completion of a request whose post returned Status. */
static NTSTATUS WorkEnd(WORK *Work, NTSTATUS Status)
{
    TRY(Status);
    TRY(WaitFor(&Work->Done));
    return Work->Result.Status;
}

/* Posts the receives, which is allowed before there is a connection, and arms the CQs for the first time. */
NTSTATUS PostReceives(ENDPOINT *Endpoint)
{
    NDK_SGE Sge;

    PAGED_CODE();
    for (ULONG Index = 0; Index < RECEIVES; Index++) {
        ListOf(Endpoint, &Endpoint->ReceiveBuffers[Index], MESSAGE_BYTES, &Sge, 1);
        TRY(Endpoint->Qp->Dispatch->NdkReceive(
            Endpoint->Qp, WorkBegin(&Endpoint->Receives[Index]), &Sge, 1));
    }
    Endpoint->ReceiveCq->Dispatch->NdkArmCq(Endpoint->ReceiveCq, NDK_CQ_NOTIFY_ANY);
    Endpoint->InitiatorCq->Dispatch->NdkArmCq(Endpoint->InitiatorCq, NDK_CQ_NOTIFY_ANY);
    return STATUS_SUCCESS;
}

NTSTATUS WaitForReceive(ENDPOINT *Endpoint, ULONG Index, NDK_RESULT_EX *Result)
{
    PAGED_CODE();
    TRY(WaitFor(&Endpoint->Receives[Index].Done));
    *Result = Endpoint->Receives[Index].Result;
    return Result->Status;
}

/* Registers the data for the peer's READs and WRITEs, and says how it finds them. */
NTSTATUS Register(ENDPOINT *Endpoint, OFFER *Offer)
{
    CONST BUFFER *Data = &Endpoint->Data;
    PVOID Base = (PVOID)(ULONG_PTR)(REGION_BASE + Data->FirstByteOffset);
    WORK Work;

    PAGED_CODE();
    TRY(WorkEnd(
        &Work, Endpoint->Qp->Dispatch->NdkFastRegister(
            Endpoint->Qp, WorkBegin(&Work), Endpoint->Frmr, Data->Lam->AdapterPageCount,
            Data->Lam->AdapterPageArray, Data->FirstByteOffset, Data->Bytes, Base,
            NDK_OP_FLAG_ALLOW_REMOTE_READ | NDK_OP_FLAG_ALLOW_REMOTE_WRITE)));
    *Offer = (OFFER){ (UINT64)(ULONG_PTR)Base, Endpoint->RemoteToken, Data->Bytes };
    return STATUS_SUCCESS;
}

/* Sends a message; it ends a registration of the peer as well where a token is named. */
NTSTATUS Send(ENDPOINT *Endpoint, CONST VOID *Bytes, ULONG Length, UINT32 InvalidatedToken)
{
    CONST NDK_QP_DISPATCH *Dispatch = Endpoint->Qp->Dispatch;
    NDK_SGE Sge;
    WORK Work;

    PAGED_CODE();
    RtlCopyMemory(Endpoint->Message.Start, Bytes, Length);
    ListOf(Endpoint, &Endpoint->Message, Length, &Sge, 1);
    if (InvalidatedToken == 0) {
        return WorkEnd(&Work, Dispatch->NdkSend(Endpoint->Qp, WorkBegin(&Work), &Sge, 1, 0));
    }
    return WorkEnd(
        &Work,
        Dispatch->NdkSendAndInvalidate(Endpoint->Qp, WorkBegin(&Work), &Sge, 1, 0, InvalidatedToken));
}

NTSTATUS Write(ENDPOINT *Endpoint, CONST OFFER *Offer)
{
    NDK_SGE Sgl[4];
    ULONG Count = ListOf(Endpoint, &Endpoint->Data, Offer->Bytes, Sgl, RTL_NUMBER_OF(Sgl));
    WORK Work;

    PAGED_CODE();
    return WorkEnd(
        &Work, Endpoint->Qp->Dispatch->NdkWrite(
            Endpoint->Qp, WorkBegin(&Work), Sgl, Count, Offer->Address, Offer->Token, 0));
}

NTSTATUS Read(ENDPOINT *Endpoint, CONST OFFER *Offer)
{
    NDK_SGE Sgl[4];
    ULONG Count = ListOf(Endpoint, &Endpoint->Data, Offer->Bytes, Sgl, RTL_NUMBER_OF(Sgl));
    WORK Work;

    PAGED_CODE();
    return WorkEnd(
        &Work, Endpoint->Qp->Dispatch->NdkRead(
            Endpoint->Qp, WorkBegin(&Work), Sgl, Count, Offer->Address, Offer->Token, 0));
}
