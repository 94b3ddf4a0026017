/*
 * write.c: the smallest consumer. Two adapters joined in memory, a connection, one RDMA WRITE.
 *
 *     write [edge of the client, edge of the server]
 *
 * Both sides run in one process here. On two machines each has its own half, and address and token
 * of the region travel in a message.
 */
#include <ndkshim.h>
#include <ndkrocev2.h>
#include <stdio.h>
#include <stdlib.h>

/* A call that may end later: its status, and the object that it has made. */
typedef struct {
    KEVENT Done;
    NTSTATUS Status;
    void *Object;
} CALL;

typedef struct {
    ndkrocev2_provider *Provider;
    NDK_ADAPTER *Adapter;
    NDK_PD *Pd;
    NDK_CQ *Cq;
    NDK_QP *Qp;
    NDK_MR *Mr;
    NDK_CONNECTOR *Connector;
    NDK_LISTENER *Listener;
    char *Buffer;
    MDL *Mdl;
    KEVENT Completion;
} HOST;

static const char Message[] = "one WRITE over RoCEv2";

static void Check(NTSTATUS Status, const char *What)
{
    if (!NT_SUCCESS(Status)) {
        const char *Name = ndkrocev2_status_name(Status);

        fprintf(stderr, "%s: 0x%08X %s\n", What, (unsigned)Status, Name == NULL ? "" : Name);
        exit(1);
    }
}

static void Created(PVOID Context, NTSTATUS Status, NDK_OBJECT_HEADER *Object)
{
    CALL *Call = Context;
    Call->Object = Object;
    Call->Status = Status;
    KeSetEvent(&Call->Done, IO_NO_INCREMENT, FALSE);
}

static void Requested(PVOID Context, NTSTATUS Status)
{
    Created(Context, Status, NULL);
}

static void Closed(PVOID Context)
{
    Created(Context, STATUS_SUCCESS, NULL);
}

static void Completed(PVOID Context, NTSTATUS Status)
{
    Check(Status, "completion queue");
    KeSetEvent(Context, IO_NO_INCREMENT, FALSE);
}

/* Waits for a call that has returned Status, and gives the object. */
static void *Finish(CALL *Call, NTSTATUS Status, const char *What)
{
    if (Status == STATUS_PENDING) {
        KeWaitForSingleObject(&Call->Done, Executive, KernelMode, FALSE, NULL);
        Status = Call->Status;
    }
    Check(Status, What);
    return Call->Object;
}

static CALL *Begin(CALL *Call)
{
    KeInitializeEvent(&Call->Done, NotificationEvent, FALSE);
    return Call;
}

/* The last arguments of a call that creates an object, and of one that does not. */
#define NEW(Call) Created, Begin(&(Call)), (void *)&(Call).Object
#define DONE(Call) Requested, Begin(&(Call))

static void Open(HOST *Host, const char *Edge, const char *Address)
{
    ndkrocev2_config Config = { .size = sizeof(Config), .edge = Edge, .addresses = Address };
    NTSTATUS Status;
    CALL Call;

    Host->Provider = ndkrocev2_start(&Config);
    if (Host->Provider == NULL) {
        fprintf(stderr, "%s\n", ndkrocev2_last_error());
        exit(1);
    }
    Check(ndkrocev2_open(Host->Provider, (NDK_VERSION){ 2, 0 }, &Host->Adapter), "open");
    KeInitializeEvent(&Host->Completion, SynchronizationEvent, FALSE);
    Status = Host->Adapter->Dispatch->NdkCreateCq(
        Host->Adapter, 16, Completed, &Host->Completion, NULL, NEW(Call));
    Host->Cq = Finish(&Call, Status, "NdkCreateCq");
    Status = Host->Adapter->Dispatch->NdkCreatePd(Host->Adapter, NEW(Call));
    Host->Pd = Finish(&Call, Status, "NdkCreatePd");
    Status = Host->Pd->Dispatch->NdkCreateQp(
        Host->Pd, Host->Cq, Host->Cq, Host, 8, 8, 1, 1, 0, NEW(Call));
    Host->Qp = Finish(&Call, Status, "NdkCreateQp");
    Status = Host->Pd->Dispatch->NdkCreateMr(Host->Pd, FALSE, NEW(Call));
    Host->Mr = Finish(&Call, Status, "NdkCreateMr");
    Host->Buffer = ExAllocatePool2(POOL_FLAG_NON_PAGED, PAGE_SIZE, 'w');
    Host->Mdl = IoAllocateMdl(Host->Buffer, PAGE_SIZE, FALSE, FALSE, NULL);
    MmBuildMdlForNonPagedPool(Host->Mdl);
    Status = Host->Mr->Dispatch->NdkRegisterMr(
        Host->Mr, Host->Mdl, PAGE_SIZE, NDK_MR_FLAG_ALLOW_REMOTE_WRITE, DONE(Call));
    Finish(&Call, Status, "NdkRegisterMr");
}

static void CloseObject(NDK_FN_CLOSE_OBJECT Function, NDK_OBJECT_HEADER *Object)
{
    CALL Call;

    Finish(&Call, Function(Object, Closed, Begin(&Call)), "close");
}

static void Close(HOST *Host)
{
    CloseObject(Host->Connector->Dispatch->NdkCloseConnector, &Host->Connector->Header);
    if (Host->Listener != NULL) {
        /* Its close waits for the connectors that it has given. */
        CloseObject(Host->Listener->Dispatch->NdkCloseListener, &Host->Listener->Header);
    }
    CloseObject(Host->Qp->Dispatch->NdkCloseQp, &Host->Qp->Header);
    CloseObject(Host->Mr->Dispatch->NdkCloseMr, &Host->Mr->Header);
    CloseObject(Host->Pd->Dispatch->NdkClosePd, &Host->Pd->Header);
    CloseObject(Host->Cq->Dispatch->NdkCloseCq, &Host->Cq->Header);
    IoFreeMdl(Host->Mdl);
    ExFreePool(Host->Buffer);
    ndkrocev2_close(Host->Provider, Host->Adapter);
    Check(ndkrocev2_stop(Host->Provider), "stop");
}

/* A peer asks: the connector is taken to the thread that waits for it. */
static void Asked(PVOID Context, NDK_CONNECTOR *Connector)
{
    Created(Context, STATUS_SUCCESS, &Connector->Header);
}

static void Connect(HOST *Client, HOST *Server)
{
    SOCKADDR_INET From, To;
    ULONG FromLength = ndkrocev2_address("10.0.0.1:0", &From);
    ULONG ToLength = ndkrocev2_address("10.0.0.2:7174", &To);
    NTSTATUS Status, Connecting, Accepting;
    CALL Call, Ask, Connect, Accept;

    Status = Server->Adapter->Dispatch->NdkCreateListener(
        Server->Adapter, Asked, Begin(&Ask), NEW(Call));
    Server->Listener = Finish(&Call, Status, "NdkCreateListener");
    Status = Server->Listener->Dispatch->NdkListen(
        Server->Listener, (SOCKADDR *)&To, ToLength, DONE(Call));
    Finish(&Call, Status, "NdkListen");
    Status = Client->Adapter->Dispatch->NdkCreateConnector(Client->Adapter, NEW(Call));
    Client->Connector = Finish(&Call, Status, "NdkCreateConnector");
    /* The connect ends when the server accepts, and the accept when the client completes. */
    Connecting = Client->Connector->Dispatch->NdkConnect(
        Client->Connector, Client->Qp, (SOCKADDR *)&From, FromLength, (SOCKADDR *)&To, ToLength, 1, 1,
        NULL, 0, DONE(Connect));
    Server->Connector = Finish(&Ask, STATUS_PENDING, "the request of a peer");
    Accepting = Server->Connector->Dispatch->NdkAccept(
        Server->Connector, Server->Qp, 1, 1, NULL, 0, NULL, NULL, DONE(Accept));
    Finish(&Connect, Connecting, "NdkConnect");
    Status = Client->Connector->Dispatch->NdkCompleteConnect(
        Client->Connector, NULL, NULL, DONE(Call));
    Finish(&Call, Status, "NdkCompleteConnect");
    Finish(&Accept, Accepting, "NdkAccept");
}

static void Write(HOST *Client, HOST *Server)
{
    NDK_SGE Source = {
        .VirtualAddress = Client->Buffer,
        .Length = sizeof(Message),
        .MemoryRegionToken = Client->Mr->Dispatch->NdkGetLocalTokenFromMr(Client->Mr),
    };
    UINT32 Token = Server->Mr->Dispatch->NdkGetRemoteTokenFromMr(Server->Mr);
    NDK_RESULT Result;

    memcpy(Client->Buffer, Message, sizeof(Message));
#ifdef WRITE_AFTER_FREE
    /* A mistake, for the test that AddressSanitizer sees it: the adapter reads the buffer later. */
    ExFreePool(Client->Buffer);
#endif
    Client->Cq->Dispatch->NdkArmCq(Client->Cq, NDK_CQ_NOTIFY_ANY);
    Check(
        Client->Qp->Dispatch->NdkWrite(
            Client->Qp, NULL, &Source, 1, (UINT64)(ULONG_PTR)Server->Buffer, Token, 0),
        "NdkWrite");
    KeWaitForSingleObject(&Client->Completion, Executive, KernelMode, FALSE, NULL);
    if (Client->Cq->Dispatch->NdkGetCqResults(Client->Cq, &Result, 1) != 1) {
        Check(STATUS_UNSUCCESSFUL, "a notification without a completion");
    }
    Check(Result.Status, "the WRITE");
}

int main(int Count, char **Arguments)
{
    HOST Client = { 0 }, Server = { 0 };

    Open(&Client, Count == 3 ? Arguments[1] : "memory:write", "10.0.0.1");
    Open(&Server, Count == 3 ? Arguments[2] : "memory:write", "10.0.0.2");
    Connect(&Client, &Server);
    Write(&Client, &Server);
    printf("%zu bytes arrived: %s\n", strlen(Server.Buffer), Server.Buffer);
    if (strcmp(Server.Buffer, Message) != 0) {
        return 1;
    }
    Close(&Client);
    Close(&Server);
    return 0;
}
