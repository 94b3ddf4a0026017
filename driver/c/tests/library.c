/*
 * library.c: calls each function of the library rightly and wrongly, for tests/programs.rs. Its argument is a file
 * for the frames of a provider.
 */
#include <ndkshim.h>
#include <ndkrocev2.h>
#include <stdio.h>

static const NDK_VERSION Version = { 2, 0 };

static BOOLEAN Says(PCSTR Text)
{
    return strstr(ndkrocev2_last_error(), Text) != NULL;
}

static VOID RefusesConfigurations(VOID)
{
    ndkrocev2_config Config = { .size = sizeof(Config), .edge = "memory:a", .addresses = "10.0.0.1" };
    ndkrocev2_config Other = Config;

    NT_ASSERT(ndkrocev2_start(NULL) == NULL && Says("NULL"));
    Other.size--;
    NT_ASSERT(ndkrocev2_start(&Other) == NULL && Says("size"));
    Other = Config;
    Other.edge = NULL;
    NT_ASSERT(ndkrocev2_start(&Other) == NULL && Says("edge is missing"));
    Other.edge = "cable:1";
    NT_ASSERT(ndkrocev2_start(&Other) == NULL && Says("edge cable:1: not one of memory:NAME"));
    Other.edge = "\xFF";
    NT_ASSERT(ndkrocev2_start(&Other) == NULL && Says("edge is not UTF-8"));
    Other = Config;
    Other.addresses = "10.0.0.1,host";
    NT_ASSERT(ndkrocev2_start(&Other) == NULL && Says("host is not the address of a host"));
    Other = Config;
    Other.corrupt = 101;
    NT_ASSERT(ndkrocev2_start(&Other) == NULL && Says("corrupt is not a percentage"));
}

static VOID ReadsAddresses(VOID)
{
    SOCKADDR_INET Address;

    NT_ASSERT(ndkrocev2_address("10.0.0.1:7174", &Address) == sizeof(SOCKADDR_IN));
    NT_ASSERT(Address.si_family == AF_INET && Address.Ipv4.sin_port == RtlUshortByteSwap(7174));
    NT_ASSERT(Address.Ipv4.sin_addr.S_un.S_un_b.s_b4 == 1);
    NT_ASSERT(ndkrocev2_address("[fd00::1]:445", &Address) == sizeof(SOCKADDR_IN6));
    NT_ASSERT(Address.si_family == AF_INET6 && Address.Ipv6.sin6_addr.u.Byte[15] == 1);
    NT_ASSERT(ndkrocev2_address("10.0.0.1", &Address) == 0 && Says("10.0.0.1 is not an address with a port"));
    NT_ASSERT(ndkrocev2_address(NULL, &Address) == 0 && Says("missing"));
}

static VOID NamesStatuses(VOID)
{
    PCSTR Name = ndkrocev2_status_name(STATUS_PENDING);

    NT_ASSERT(strcmp(ndkrocev2_status_name(STATUS_INVALID_DEVICE_STATE), "STATUS_INVALID_DEVICE_STATE") == 0);
    NT_ASSERT(strcmp(ndkrocev2_status_name(NDIS_STATUS_BAD_VERSION), "NDIS_STATUS_BAD_VERSION") == 0);
    NT_ASSERT(strcmp(Name, "STATUS_PENDING") == 0 && ndkrocev2_status_name(STATUS_PENDING) == Name);
    NT_ASSERT(ndkrocev2_status_name(12345) == NULL);
}

static VOID Counts(PCSTR Record)
{
    ndkrocev2_config Config = {
        .size = sizeof(Config), .edge = "memory:b", .addresses = "10.0.0.1", .pcap = Record, .seed = 7
    };
    ndkrocev2_provider *Provider = ndkrocev2_start(&Config);
    NDK_ADAPTER *First, *Second;

    NT_ASSERT(Provider != NULL && ndkrocev2_open_objects(Provider) == 0);
    NT_ASSERT(ndkrocev2_open(Provider, (NDK_VERSION){ 3, 0 }, &First) == NDIS_STATUS_BAD_VERSION);
    NT_ASSERT(Says("opening the adapter: NDIS_STATUS_BAD_VERSION"));
    NT_ASSERT(ndkrocev2_open(Provider, Version, &First) == STATUS_SUCCESS);
    NT_ASSERT(ndkrocev2_open(Provider, (NDK_VERSION){ 1, 0 }, &Second) == STATUS_SUCCESS);
    NT_ASSERT(First->Header.ObjectType == NdkObjectTypeAdapter && First->Header.Version.Minor == 1);
    NT_ASSERT(Second->Header.Version.Major == 1 && Second->Header.Version.Minor == 2);
    NT_ASSERT(ndkrocev2_open_adapters(Provider) == 2 && ndkrocev2_open_objects(Provider) == 2);
    NT_ASSERT(ndkrocev2_stop(Provider) == STATUS_DEVICE_BUSY && Says("open adapter instances: 2"));
    ndkrocev2_close(Provider, First);
    ndkrocev2_close(Provider, Second);
    NT_ASSERT(ndkrocev2_open_objects(Provider) == 0);
    NT_ASSERT(ndkrocev2_set_addresses(Provider, "10.0.0.3,fd00::3") == STATUS_SUCCESS);
    NT_ASSERT(ndkrocev2_set_addresses(Provider, "") == STATUS_INVALID_PARAMETER);
    NT_ASSERT(ndkrocev2_set_addresses(Provider, NULL) == STATUS_INVALID_PARAMETER);
    NT_ASSERT(ndkrocev2_stop(Provider) == STATUS_SUCCESS);
}

/* A call that pends, and what it makes. */
typedef struct _CALL {
    KEVENT Done;
    NTSTATUS Status;
    NDK_OBJECT_HEADER *Object;
} CALL;

static VOID Made(PVOID Context, NTSTATUS Status, NDK_OBJECT_HEADER *Object)
{
    CALL *Call = Context;

    Call->Status = Status;
    Call->Object = Object;
    KeSetEvent(&Call->Done, IO_NO_INCREMENT, FALSE);
}

static VOID Requested(PVOID Context, NTSTATUS Status)
{
    Made(Context, Status, NULL);
}

static VOID Closed(PVOID Context)
{
    Made(Context, STATUS_SUCCESS, NULL);
}

static CALL *Begin(CALL *Call)
{
    KeInitializeEvent(&Call->Done, NotificationEvent, FALSE);
    return Call;
}

static NDK_OBJECT_HEADER *End(CALL *Call, NTSTATUS Status)
{
    NT_ASSERT(Status == STATUS_PENDING);
    KeWaitForSingleObject(&Call->Done, Executive, KernelMode, FALSE, NULL);
    NT_ASSERT(Call->Status == STATUS_SUCCESS);
    return Call->Object;
}

/* A provider with an open adapter and a protection domain. */
typedef struct _HOST {
    ndkrocev2_provider *Provider;
    NDK_ADAPTER *Adapter;
    NDK_PD *Pd;
} HOST;

static HOST Open(PCSTR Addresses, PCSTR Layers)
{
    ndkrocev2_config Config = {
        .size = sizeof(Config), .edge = "memory:c", .addresses = Addresses, .layers = Layers
    };
    HOST Host = { .Provider = ndkrocev2_start(&Config) };
    NTSTATUS Status;
    CALL Call;

    NT_ASSERT(Host.Provider != NULL);
    NT_ASSERT(ndkrocev2_open(Host.Provider, Version, &Host.Adapter) == STATUS_SUCCESS);
    Status = Host.Adapter->Dispatch->NdkCreatePd(Host.Adapter, Made, Begin(&Call), &Host.Pd);
    Host.Pd = (NDK_PD *)End(&Call, Status);
    NT_ASSERT(ndkrocev2_mistakes(Host.Provider) == 0);
    return Host;
}

/* Closes everything, and gives the number of mistakes. */
static size_t Close(HOST *Host)
{
    size_t Count;
    CALL Call;

    End(&Call, Host->Pd->Dispatch->NdkClosePd(&Host->Pd->Header, Closed, Begin(&Call)));
    ndkrocev2_close(Host->Provider, Host->Adapter);
    Count = ndkrocev2_mistakes(Host->Provider);
    NT_ASSERT(ndkrocev2_stop(Host->Provider) == STATUS_SUCCESS);
    return Count;
}

/* Closes an object twice: the second call goes no further than the verifier. */
static VOID ClosesTwice(VOID)
{
    HOST Host = Open("10.0.0.7,fd00::7", "verify");
    NTSTATUS Status;
    NDK_MR *Mr;
    CALL Call;

    Status = Host.Pd->Dispatch->NdkCreateMr(Host.Pd, FALSE, Made, Begin(&Call), &Mr);
    Mr = (NDK_MR *)End(&Call, Status);
    End(&Call, Mr->Dispatch->NdkCloseMr(&Mr->Header, Closed, Begin(&Call)));
    Status = Mr->Dispatch->NdkCloseMr(&Mr->Header, Closed, &Call);
    NT_ASSERT(Status == STATUS_INVALID_DEVICE_STATE);
    NT_ASSERT(Close(&Host) == 1);
}

static VOID Free(PMDL Mdl, PVOID Buffer)
{
    MmUnlockPages(Mdl);
    IoFreeMdl(Mdl);
    ExFreePool(Buffer);
}

/* Registers memory, and frees it before the deregistration or behind it. */
static size_t Registers(PCSTR Layers, BOOLEAN IsFreedEarly)
{
    HOST Host = Open("10.0.0.8", Layers);
    PVOID Buffer = ExAllocatePool2(POOL_FLAG_NON_PAGED, 3 * PAGE_SIZE, 't');
    PMDL Mdl = IoAllocateMdl(Buffer, 3 * PAGE_SIZE, FALSE, FALSE, NULL);
    NTSTATUS Status;
    NDK_MR *Mr;
    CALL Call;

    MmProbeAndLockPages(Mdl, KernelMode, IoModifyAccess);
    Status = Host.Pd->Dispatch->NdkCreateMr(Host.Pd, FALSE, Made, Begin(&Call), &Mr);
    Mr = (NDK_MR *)End(&Call, Status);
    Status = Mr->Dispatch->NdkRegisterMr(
        Mr, Mdl, 3 * PAGE_SIZE, NDK_MR_FLAG_ALLOW_LOCAL_WRITE, Requested, Begin(&Call));
    End(&Call, Status);
    if (IsFreedEarly) {
        Free(Mdl, Buffer);
    }
    End(&Call, Mr->Dispatch->NdkDeregisterMr(Mr, Requested, Begin(&Call)));
    if (!IsFreedEarly) {
        Free(Mdl, Buffer);
    }
    End(&Call, Mr->Dispatch->NdkCloseMr(&Mr->Header, Closed, Begin(&Call)));
    return Close(&Host);
}

int main(int Count, char **Arguments)
{
    NT_ASSERT(Count == 2 && strcmp(ndkrocev2_last_error(), "") == 0);
    NT_ASSERT(strchr(ndkrocev2_version(), '.') != NULL);
    RefusesConfigurations();
    ReadsAddresses();
    NamesStatuses();
    Counts(Arguments[1]);
    ClosesTwice();
    NT_ASSERT(Registers(NULL, TRUE) == 0);
    NT_ASSERT(Registers("verify", FALSE) == 0);
    /* The MDL and the buffer. */
    NT_ASSERT(Registers("verify", TRUE) == 2);
    puts("all as said");
    return 0;
}
