/* driver.c: the entry, a server that listens, and a client that tries everything against it. */
#include "consumer.h"

#define CLIENT_INTERFACE 1
#define SERVER_INTERFACE 2
#define READ_LIMIT 4

/* The passive side: its events come at DISPATCH_LEVEL, and a work item accepts. */
typedef struct _SERVER {
    ENDPOINT Endpoint;
    NDK_ADAPTER *ListenAdapter;
    NDK_LISTENER *Listener;
    PIO_WORKITEM AcceptItem;
    PVOID Asking;
    KEVENT Accepted;
    NTSTATUS AcceptStatus;
    EX_RUNDOWN_REF Events;
} SERVER;

/* Both ends of the test. */
typedef struct _DEVICE_EXTENSION {
    SERVER Server;
    ENDPOINT Client;
    NTSTATUS ClientStatus;
} DEVICE_EXTENSION;

static SOCKADDR_IN AddressOf(UCHAR Host, USHORT Port)
{
    SOCKADDR_IN Address = { .sin_family = AF_INET, .sin_port = RtlUshortByteSwap(Port) };

    Address.sin_addr.S_un.S_un_b.s_b1 = 10;
    Address.sin_addr.S_un.S_un_b.s_b4 = Host;
    return Address;
}

static IO_WORKITEM_ROUTINE AcceptWorker;

static VOID AcceptWorker(PDEVICE_OBJECT DeviceObject, PVOID Context)
{
    SERVER *Server = Context;
    NDK_CONNECTOR *Connector = Server->Asking;
    CALL Call;

    UNREFERENCED_PARAMETER(DeviceObject);
    PAGED_CODE();
    /* Known from here on, and closed with the endpoint, whether the accept succeeds or not. */
    Server->Endpoint.Connector = Connector;
    Server->AcceptStatus = CallEnd(
        &Call, Connector->Dispatch->NdkAccept(
            Connector, Server->Endpoint.Qp, READ_LIMIT, READ_LIMIT, NULL, 0, EndpointDisconnected,
            &Server->Endpoint, COMPLETION(Call)));
    KeSetEvent(&Server->Accepted, IO_NO_INCREMENT, FALSE);
    ExReleaseRundownProtection(&Server->Events);
}

static VOID Forget(PVOID Context)
{
    UNREFERENCED_PARAMETER(Context);
}

static VOID ConnectEvent(PVOID Context, NDK_CONNECTOR *Connector)
{
    SERVER *Server = Context;

    if (!ExAcquireRundownProtection(&Server->Events)) {
        Connector->Dispatch->NdkCloseConnector(&Connector->Header, Forget, NULL);
        return;
    }
    /* There is one endpoint, so a second peer is turned away. */
    if (InterlockedCompareExchangePointer(&Server->Asking, Connector, NULL) != NULL) {
        Connector->Dispatch->NdkReject(Connector, NULL, 0);
        Connector->Dispatch->NdkCloseConnector(&Connector->Header, Forget, NULL);
        ExReleaseRundownProtection(&Server->Events);
        return;
    }
    IoQueueWorkItem(Server->AcceptItem, AcceptWorker, DelayedWorkQueue, Server);
}

/* Listens by an adapter instance of its own, as a driver with many sockets does. */
static NTSTATUS ServerOpen(SERVER *Server, PDEVICE_OBJECT Device)
{
    SOCKADDR_IN Address = AddressOf(2, PORT);
    CALL Call;

    PAGED_CODE();
    KeInitializeEvent(&Server->Accepted, NotificationEvent, FALSE);
    ExInitializeRundownProtection(&Server->Events);
    Server->AcceptItem = IoAllocateWorkItem(Device);
    if (Server->AcceptItem == NULL) {
        return STATUS_INSUFFICIENT_RESOURCES;
    }
    TRY(EndpointOpen(&Server->Endpoint, SERVER_INTERFACE));
    TRY(AdapterOpen(SERVER_INTERFACE, &Server->ListenAdapter));
    TRY(CallEnd(
        &Call, Server->ListenAdapter->Dispatch->NdkCreateListener(
            Server->ListenAdapter, ConnectEvent, Server, CREATION(Call))));
    Server->Listener = (NDK_LISTENER *)Call.Object;
    TRY(CallEnd(
        &Call, Server->Listener->Dispatch->NdkListen(
            Server->Listener, (PSOCKADDR)&Address, sizeof(Address), COMPLETION(Call))));
    return STATUS_SUCCESS;
}

static VOID ServerClose(SERVER *Server)
{
    PAGED_CODE();
    if (Server->Listener != NULL) {
        Server->Listener->Dispatch->NdkControlConnectEvents(Server->Listener, TRUE);
    }
    if (Server->AcceptItem != NULL) {
        ExWaitForRundownProtectionRelease(&Server->Events);
    }
    EndpointClose(&Server->Endpoint);
    /* The close of a listener waits for the connectors that it has given. */
    if (Server->Listener != NULL) {
        CloseObject(Server->Listener->Dispatch->NdkCloseListener, &Server->Listener->Header);
    }
    if (Server->ListenAdapter != NULL) {
        AdapterClose(Server->ListenAdapter);
    }
    if (Server->AcceptItem != NULL) {
        IoFreeWorkItem(Server->AcceptItem);
    }
}

static NTSTATUS Connect(ENDPOINT *Client)
{
    SOCKADDR_IN From = AddressOf(1, 0), To = AddressOf(2, PORT);
    CALL Call;

    PAGED_CODE();
    TRY(CallEnd(&Call, Client->Adapter->Dispatch->NdkCreateConnector(Client->Adapter, CREATION(Call))));
    Client->Connector = (NDK_CONNECTOR *)Call.Object;
    TRY(CallEnd(
        &Call, Client->Connector->Dispatch->NdkConnect(
            Client->Connector, Client->Qp, (PSOCKADDR)&From, sizeof(From), (PSOCKADDR)&To, sizeof(To),
            READ_LIMIT, READ_LIMIT, NULL, 0, COMPLETION(Call))));
    TRY(CallEnd(
        &Call, Client->Connector->Dispatch->NdkCompleteConnect(
            Client->Connector, EndpointDisconnected, Client, COMPLETION(Call))));
    return STATUS_SUCCESS;
}

static VOID Fill(PUCHAR Bytes, ULONG Length, UCHAR First)
{
    for (ULONG Index = 0; Index < Length; Index++) {
        Bytes[Index] = (UCHAR)(First + Index * 7 + (Index >> 8));
    }
}

/* Counts the bytes that are not those of Fill. */
static NTSTATUS Compare(CONST UCHAR *Bytes, ULONG Length, UCHAR First)
{
    ULONG Wrong = 0;

    for (ULONG Index = 0; Index < Length; Index++) {
        Wrong += Bytes[Index] != (UCHAR)(First + Index * 7 + (Index >> 8));
    }
    if (Wrong != 0) {
        DbgPrint("%lu of %lu bytes are wrong\n", Wrong, Length);
        return STATUS_DATA_ERROR;
    }
    return STATUS_SUCCESS;
}

/* The server offers its data; the client writes and reads them. */
static NTSTATUS TryRegion(SERVER *Server, ENDPOINT *Client, OFFER *Offer)
{
    OFFER Made;
    NDK_RESULT_EX Result;

    PAGED_CODE();
    TRY(Register(&Server->Endpoint, &Made));
    TRY(Send(&Server->Endpoint, &Made, sizeof(Made), 0));
    TRY(WaitForReceive(Client, 0, &Result));
    if (Result.BytesTransferred != sizeof(*Offer) || Result.Type != NdkOperationTypeReceive) {
        return STATUS_DATA_ERROR;
    }
    RtlCopyMemory(Offer, Client->ReceiveBuffers[0].Start, sizeof(*Offer));

    Fill(Client->Data.Start, DATA_BYTES, 1);
    TRY(Write(Client, Offer));
    TRY(Compare(Server->Endpoint.Data.Start, DATA_BYTES, 1));

    Fill(Server->Endpoint.Data.Start, DATA_BYTES, 2);
    TRY(Read(Client, Offer));
    TRY(Compare(Client->Data.Start, DATA_BYTES, 2));
    return STATUS_SUCCESS;
}

/* The client sends a message, and one that ends the registration of the server. */
static NTSTATUS TryMessages(SERVER *Server, ENDPOINT *Client, CONST OFFER *Offer)
{
    UCHAR Bytes[MESSAGE_BYTES];
    NDK_RESULT_EX Result;

    PAGED_CODE();
    Fill(Bytes, sizeof(Bytes), 3);
    TRY(Send(Client, Bytes, sizeof(Bytes), 0));
    TRY(WaitForReceive(&Server->Endpoint, 0, &Result));
    TRY(Compare(Server->Endpoint.ReceiveBuffers[0].Start, Result.BytesTransferred, 3));

    TRY(Send(Client, Bytes, 1, Offer->Token));
    TRY(WaitForReceive(&Server->Endpoint, 1, &Result));
    if (Result.Type != NdkOperationTypeReceiveAndInvalidate
        || Result.TypeSpecificCompletionOutput != Server->Endpoint.RemoteToken) {
        return STATUS_DATA_ERROR;
    }
    return STATUS_SUCCESS;
}

static NTSTATUS RunClient(SERVER *Server, ENDPOINT *Client)
{
    OFFER Offer;
    CALL Call;

    PAGED_CODE();
    TRY(Connect(Client));
    TRY(WaitFor(&Server->Accepted));
    TRY(Server->AcceptStatus);
    TRY(TryRegion(Server, Client, &Offer));
    TRY(TryMessages(Server, Client, &Offer));
    /*
     * The data are gone for the peer: the WRITE fails, and the connection with it. The status is
     * STATUS_ACCESS_VIOLATION, or another one where the server's answer is lost on the way.
     */
    if (NT_SUCCESS(Write(Client, &Offer))) {
        return STATUS_DATA_ERROR;
    }
    CallEnd(&Call, Client->Connector->Dispatch->NdkDisconnect(Client->Connector, COMPLETION(Call)));
    return WaitFor(&Server->Endpoint.Disconnected);
}

static KSTART_ROUTINE ClientThread;

static VOID ClientThread(PVOID Context)
{
    DEVICE_EXTENSION *Extension = Context;

    PAGED_CODE();
    Extension->ClientStatus = EndpointOpen(&Extension->Client, CLIENT_INTERFACE);
    if (NT_SUCCESS(Extension->ClientStatus)) {
        Extension->ClientStatus = RunClient(&Extension->Server, &Extension->Client);
    }
    EndpointClose(&Extension->Client);
    PsTerminateSystemThread(STATUS_SUCCESS);
}

/* Runs the client to its end. */
static NTSTATUS TryClient(DEVICE_EXTENSION *Extension)
{
    OBJECT_ATTRIBUTES Attributes;
    PVOID Thread;
    HANDLE Handle;
    NTSTATUS Status;

    PAGED_CODE();
    InitializeObjectAttributes(&Attributes, NULL, OBJ_KERNEL_HANDLE, NULL, NULL);
    TRY(PsCreateSystemThread(
        &Handle, THREAD_ALL_ACCESS, &Attributes, NULL, NULL, ClientThread, Extension));
    Status = ObReferenceObjectByHandle(
        Handle, SYNCHRONIZE, *PsThreadType, KernelMode, &Thread, NULL);
    ZwClose(Handle);
    TRY(Status);
    KeWaitForSingleObject(Thread, Executive, KernelMode, FALSE, NULL);
    ObDereferenceObject(Thread);
    return Extension->ClientStatus;
}

static DRIVER_UNLOAD DriverUnload;

static VOID DriverUnload(PDRIVER_OBJECT DriverObject)
{
    DEVICE_EXTENSION *Extension = DriverObject->DeviceObject->DeviceExtension;

    PAGED_CODE();
    ServerClose(&Extension->Server);
    AdaptersStop();
    IoDeleteDevice(DriverObject->DeviceObject);
}

NTSTATUS DriverEntry(PDRIVER_OBJECT DriverObject, PUNICODE_STRING RegistryPath)
{
    DEVICE_EXTENSION *Extension;
    PDEVICE_OBJECT Device;
    NTSTATUS Status;

    UNREFERENCED_PARAMETER(RegistryPath);
    PAGED_CODE();
    DriverObject->DriverUnload = DriverUnload;
    TRY(IoCreateDevice(
        DriverObject, sizeof(*Extension), NULL, FILE_DEVICE_NETWORK, 0, FALSE, &Device));
    Extension = Device->DeviceExtension;
    Status = AdaptersStart();
    if (NT_SUCCESS(Status)) {
        Status = ServerOpen(&Extension->Server, Device);
    }
    if (NT_SUCCESS(Status)) {
        Status = TryClient(Extension);
    }
    if (!NT_SUCCESS(Status)) {
        DriverUnload(DriverObject);
    }
    return Status;
}
