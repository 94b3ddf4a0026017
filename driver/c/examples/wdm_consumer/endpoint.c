/* endpoint.c: the objects and the buffers of one end of a connection. */
#include "consumer.h"

/* Describes pool to the adapter: an MDL, and the logical addresses of its pages. */
static NTSTATUS BufferOpen(BUFFER *Buffer, NDK_ADAPTER *Adapter, ULONG Bytes, ULONG Offset)
{
    ULONG Pages = ADDRESS_AND_SIZE_TO_SPAN_PAGES(Offset, Bytes);
    ULONG LamBytes = FIELD_OFFSET(NDK_LOGICAL_ADDRESS_MAPPING, AdapterPageArray)
        + Pages * sizeof(NDK_LOGICAL_ADDRESS);
    CALL Call;

    PAGED_CODE();
    Buffer->Pool = ExAllocatePool2(POOL_FLAG_NON_PAGED, (SIZE_T)Pages * PAGE_SIZE, CONSUMER_TAG);
    Buffer->Lam = ExAllocatePool2(POOL_FLAG_NON_PAGED, LamBytes, CONSUMER_TAG);
    if (Buffer->Pool == NULL || Buffer->Lam == NULL) {
        return STATUS_INSUFFICIENT_RESOURCES;
    }
    Buffer->Start = Buffer->Pool + Offset;
    Buffer->Bytes = Bytes;
    Buffer->Mdl = IoAllocateMdl(Buffer->Start, Bytes, FALSE, FALSE, NULL);
    if (Buffer->Mdl == NULL) {
        return STATUS_INSUFFICIENT_RESOURCES;
    }
    MmBuildMdlForNonPagedPool(Buffer->Mdl);
    TRY(CallEnd(
        &Call, Adapter->Dispatch->NdkBuildLAM(
            Adapter, Buffer->Mdl, Bytes, COMPLETION(Call), Buffer->Lam, &LamBytes,
            &Buffer->FirstByteOffset)));
    ASSERT(Buffer->Lam->AdapterPageCount == Pages);
    ASSERT(Buffer->FirstByteOffset == Offset);
    return STATUS_SUCCESS;
}

static VOID BufferClose(BUFFER *Buffer, NDK_ADAPTER *Adapter)
{
    PAGED_CODE();
    /* An MDL without pages in the mapping was never given to the adapter. */
    if (Buffer->Lam != NULL && Buffer->Lam->AdapterPageCount != 0) {
        Adapter->Dispatch->NdkReleaseLAM(Adapter, Buffer->Lam);
    }
    if (Buffer->Mdl != NULL) {
        IoFreeMdl(Buffer->Mdl);
    }
    if (Buffer->Lam != NULL) {
        ExFreePoolWithTag(Buffer->Lam, CONSUMER_TAG);
    }
    if (Buffer->Pool != NULL) {
        ExFreePoolWithTag(Buffer->Pool, CONSUMER_TAG);
    }
}

static NTSTATUS CreateQueues(ENDPOINT *Endpoint)
{
    NDK_ADAPTER *Adapter = Endpoint->Adapter;
    CALL Call;

    PAGED_CODE();
    TRY(CallEnd(&Call, Adapter->Dispatch->NdkCreatePd(Adapter, CREATION(Call))));
    Endpoint->Pd = (NDK_PD *)Call.Object;
    Endpoint->Pd->Dispatch->NdkGetPrivilegedMemoryRegionToken(Endpoint->Pd, &Endpoint->PrivilegedToken);
    TRY(CallEnd(
        &Call, Adapter->Dispatch->NdkCreateCq(
            Adapter, QUEUE_DEPTH, ReceiveNotification, Endpoint, NULL, CREATION(Call))));
    Endpoint->ReceiveCq = (NDK_CQ *)Call.Object;
    TRY(CallEnd(
        &Call, Adapter->Dispatch->NdkCreateCq(
            Adapter, QUEUE_DEPTH, InitiatorNotification, Endpoint, NULL, CREATION(Call))));
    Endpoint->InitiatorCq = (NDK_CQ *)Call.Object;
    TRY(CallEnd(
        &Call, Endpoint->Pd->Dispatch->NdkCreateQp(
            Endpoint->Pd, Endpoint->ReceiveCq, Endpoint->InitiatorCq, Endpoint, QUEUE_DEPTH, QUEUE_DEPTH,
            1, 4, 0, CREATION(Call))));
    Endpoint->Qp = (NDK_QP *)Call.Object;
    return STATUS_SUCCESS;
}

/* A region for fast registration. Its token is the same for every registration. */
static NTSTATUS CreateRegion(ENDPOINT *Endpoint)
{
    ULONG Pages = ADDRESS_AND_SIZE_TO_SPAN_PAGES(DATA_OFFSET, DATA_BYTES);
    CALL Call;

    PAGED_CODE();
    TRY(CallEnd(&Call, Endpoint->Pd->Dispatch->NdkCreateMr(Endpoint->Pd, TRUE, CREATION(Call))));
    Endpoint->Frmr = (NDK_MR *)Call.Object;
    TRY(CallEnd(
        &Call, Endpoint->Frmr->Dispatch->NdkInitializeFastRegisterMr(
            Endpoint->Frmr, Pages, TRUE, COMPLETION(Call))));
    Endpoint->RemoteToken = Endpoint->Frmr->Dispatch->NdkGetRemoteTokenFromMr(Endpoint->Frmr);
    return STATUS_SUCCESS;
}

NTSTATUS EndpointOpen(ENDPOINT *Endpoint, NET_IFINDEX Interface)
{
    PAGED_CODE();
    RtlZeroMemory(Endpoint, sizeof(*Endpoint));
    KeInitializeEvent(&Endpoint->Disconnected, NotificationEvent, FALSE);
    TRY(AdapterOpen(Interface, &Endpoint->Adapter));
    TRY(CreateQueues(Endpoint));
    TRY(CreateRegion(Endpoint));
    TRY(BufferOpen(&Endpoint->Data, Endpoint->Adapter, DATA_BYTES, DATA_OFFSET));
    TRY(BufferOpen(&Endpoint->Message, Endpoint->Adapter, MESSAGE_BYTES, 0));
    for (ULONG Index = 0; Index < RECEIVES; Index++) {
        TRY(BufferOpen(&Endpoint->ReceiveBuffers[Index], Endpoint->Adapter, MESSAGE_BYTES, 0));
    }
    return PostReceives(Endpoint);
}

/* Closes what an open has made, the newest first. */
VOID EndpointClose(ENDPOINT *Endpoint)
{
    PAGED_CODE();
    if (Endpoint->Qp != NULL) {
        Endpoint->Qp->Dispatch->NdkFlush(Endpoint->Qp);
    }
    if (Endpoint->Connector != NULL) {
        CloseObject(Endpoint->Connector->Dispatch->NdkCloseConnector, &Endpoint->Connector->Header);
    }
    if (Endpoint->Qp != NULL) {
        CloseObject(Endpoint->Qp->Dispatch->NdkCloseQp, &Endpoint->Qp->Header);
    }
    if (Endpoint->InitiatorCq != NULL) {
        CloseObject(Endpoint->InitiatorCq->Dispatch->NdkCloseCq, &Endpoint->InitiatorCq->Header);
    }
    if (Endpoint->ReceiveCq != NULL) {
        CloseObject(Endpoint->ReceiveCq->Dispatch->NdkCloseCq, &Endpoint->ReceiveCq->Header);
    }
    if (Endpoint->Frmr != NULL) {
        CloseObject(Endpoint->Frmr->Dispatch->NdkCloseMr, &Endpoint->Frmr->Header);
    }
    if (Endpoint->Pd != NULL) {
        CloseObject(Endpoint->Pd->Dispatch->NdkClosePd, &Endpoint->Pd->Header);
    }
    for (ULONG Index = 0; Index < RECEIVES; Index++) {
        BufferClose(&Endpoint->ReceiveBuffers[Index], Endpoint->Adapter);
    }
    BufferClose(&Endpoint->Message, Endpoint->Adapter);
    BufferClose(&Endpoint->Data, Endpoint->Adapter);
    if (Endpoint->Adapter != NULL) {
        AdapterClose(Endpoint->Adapter);
    }
    RtlZeroMemory(Endpoint, sizeof(*Endpoint));
}

/* The peer has ended the connection. */
VOID EndpointDisconnected(PVOID Context)
{
    ENDPOINT *Endpoint = Context;

    KeSetEvent(&Endpoint->Disconnected, IO_NO_INCREMENT, FALSE);
}
