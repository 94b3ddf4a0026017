/* driver.c: drivers, their devices, and WSK as the way to an NDK adapter. */
#define _GNU_SOURCE
#include "internal.h"

#include <ndkshim_host.h>
#include <stdlib.h>
#include <wsk.h>

/* An interface, or an open adapter, with its provider. */
typedef struct _ENTRY {
    struct _ENTRY *Next;
    ULONG_PTR Name;
    ndkrocev2_provider *Provider;
} ENTRY;

static pthread_mutex_t Lock = PTHREAD_MUTEX_INITIALIZER;
static ENTRY *Interfaces, *Adapters;
static LONG Registrations, Captures, Devices;

static VOID Add(ENTRY **List, ULONG_PTR Name, ndkrocev2_provider *Provider)
{
    ENTRY *Entry = Allocate(sizeof(*Entry));

    Entry->Name = Name;
    Entry->Provider = Provider;
    pthread_mutex_lock(&Lock);
    Entry->Next = *List;
    *List = Entry;
    pthread_mutex_unlock(&Lock);
}

static ndkrocev2_provider *Find(ENTRY **List, ULONG_PTR Name, BOOLEAN IsRemoved)
{
    ndkrocev2_provider *Provider = NULL;
    ENTRY **Link = List, *Entry;

    pthread_mutex_lock(&Lock);
    while (*Link != NULL && (*Link)->Name != Name) {
        Link = &(*Link)->Next;
    }
    Entry = *Link;
    if (Entry != NULL) {
        Provider = Entry->Provider;
        if (IsRemoved) {
            *Link = Entry->Next;
            free(Entry);
        }
    }
    pthread_mutex_unlock(&Lock);
    return Provider;
}

VOID NdkShimAddInterface(NET_IFINDEX Index, ndkrocev2_provider *Provider)
{
    REQUIRE(Find(&Interfaces, Index, FALSE) == NULL, "names an interface again");
    Add(&Interfaces, Index, Provider);
}

VOID NdkShimRemoveInterface(NET_IFINDEX Index)
{
    REQUIRE(Find(&Interfaces, Index, TRUE) != NULL, "names no interface");
}

NTSTATUS NdkShimOpenAdapter(NDK_VERSION Version, NET_IFINDEX Index, NDK_ADAPTER **Adapter)
{
    ndkrocev2_provider *Provider = Find(&Interfaces, Index, FALSE);
    NTSTATUS Status;

    REQUIRE_IRQL(PASSIVE_LEVEL);
    if (Provider == NULL) {
        return STATUS_NOT_FOUND;
    }
    Status = ndkrocev2_open(Provider, Version, Adapter);
    if (NT_SUCCESS(Status)) {
        Add(&Adapters, (ULONG_PTR)*Adapter, Provider);
    }
    return Status;
}

VOID NdkShimCloseAdapter(NDK_ADAPTER *Adapter)
{
    ndkrocev2_provider *Provider;

    REQUIRE_IRQL(PASSIVE_LEVEL);
    Provider = Find(&Adapters, (ULONG_PTR)Adapter, TRUE);
    REQUIRE(Provider != NULL, "closes an adapter that is not open");
    ndkrocev2_close(Provider, Adapter);
}

NTSTATUS NdkShimLoadDriver(DRIVER_INITIALIZE *Entry, DRIVER_OBJECT *Driver)
{
    static WCHAR Path[] = L"\\Registry\\Machine\\System\\CurrentControlSet\\Services\\NdkConsumer";
    UNICODE_STRING RegistryPath = { sizeof(Path) - sizeof(WCHAR), sizeof(Path), Path };
    NTSTATUS Status;

    *Driver = (DRIVER_OBJECT){ 0 };
    Status = Entry(Driver, &RegistryPath);
    REQUIRE(KeGetCurrentIrql() == PASSIVE_LEVEL, "meets an entry that ends at a raised IRQL");
    return Status;
}

VOID NdkShimUnloadDriver(DRIVER_OBJECT *Driver)
{
    REQUIRE(Driver->DriverUnload != NULL, "meets a driver that does not unload");
    Driver->DriverUnload(Driver);
    REQUIRE(KeGetCurrentIrql() == PASSIVE_LEVEL, "meets an unload that ends at a raised IRQL");
}

ULONG NdkShimLeaks(VOID)
{
    return PoolLeaks() + ThreadLeaks() + DriverLeaks();
}

NTSTATUS IoCreateDevice(
    PDRIVER_OBJECT DriverObject,
    ULONG DeviceExtensionSize,
    PUNICODE_STRING DeviceName,
    DEVICE_TYPE DeviceType,
    ULONG DeviceCharacteristics,
    BOOLEAN Exclusive,
    PDEVICE_OBJECT *DeviceObject)
{
    PDEVICE_OBJECT Device;

    UNREFERENCED_PARAMETER(DeviceName);
    UNREFERENCED_PARAMETER(DeviceType);
    UNREFERENCED_PARAMETER(DeviceCharacteristics);
    UNREFERENCED_PARAMETER(Exclusive);
    REQUIRE_IRQL(APC_LEVEL);
    REQUIRE(DriverObject->DeviceObject == NULL, "makes a second device");
    Device = Allocate(sizeof(*Device) + DeviceExtensionSize);
    Device->DriverObject = DriverObject;
    Device->DeviceExtension = DeviceExtensionSize == 0 ? NULL : Device + 1;
    DriverObject->DeviceObject = Device;
    InterlockedIncrement(&Devices);
    *DeviceObject = Device;
    return STATUS_SUCCESS;
}

VOID IoDeleteDevice(PDEVICE_OBJECT DeviceObject)
{
    REQUIRE_IRQL(APC_LEVEL);
    DeviceObject->DriverObject->DeviceObject = NULL;
    InterlockedDecrement(&Devices);
    free(DeviceObject);
}

/* WSK. Its client is a registration. */

static NTSTATUS OpenNdkAdapter(
    PWSK_CLIENT Client,
    NDK_VERSION NdkVersion,
    NET_IFINDEX IfIndex,
    NDK_ADAPTER **ppNdkAdapter)
{
    UNREFERENCED_PARAMETER(Client);
    return NdkShimOpenAdapter(NdkVersion, IfIndex, ppNdkAdapter);
}

static VOID CloseNdkAdapter(PWSK_CLIENT Client, NDK_ADAPTER *pNdkAdapter)
{
    UNREFERENCED_PARAMETER(Client);
    NdkShimCloseAdapter(pNdkAdapter);
}

static NTSTATUS ControlClient(
    PWSK_CLIENT Client,
    ULONG ControlCode,
    SIZE_T InputSize,
    PVOID InputBuffer,
    SIZE_T OutputSize,
    PVOID OutputBuffer,
    SIZE_T *OutputSizeReturned,
    PIRP Irp)
{
    WSK_PROVIDER_NDK_DISPATCH *Dispatch = OutputBuffer;

    UNREFERENCED_PARAMETER(Client);
    UNREFERENCED_PARAMETER(InputSize);
    UNREFERENCED_PARAMETER(InputBuffer);
    UNREFERENCED_PARAMETER(Irp);
    REQUIRE_IRQL(PASSIVE_LEVEL);
    if (ControlCode != WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH) {
        return STATUS_NOT_SUPPORTED;
    }
    /* Windows refuses the size of a pointer, too. */
    if (OutputSize < sizeof(*Dispatch) || Dispatch == NULL) {
        return STATUS_INVALID_PARAMETER;
    }
    Dispatch->WskOpenNdkAdapter = OpenNdkAdapter;
    Dispatch->WskCloseNdkAdapter = CloseNdkAdapter;
    if (OutputSizeReturned != NULL) {
        *OutputSizeReturned = sizeof(*Dispatch);
    }
    return STATUS_SUCCESS;
}

static CONST WSK_PROVIDER_DISPATCH ProviderDispatch = {
    .Version = MAKE_WSK_VERSION(1, 0),
    .WskControlClient = ControlClient,
};

NTSTATUS WskRegister(PWSK_CLIENT_NPI WskClientNpi, PWSK_REGISTRATION WskRegistration)
{
    UNREFERENCED_PARAMETER(WskClientNpi);
    REQUIRE_IRQL(PASSIVE_LEVEL);
    *WskRegistration = (WSK_REGISTRATION){ .ReservedRegistrationState = 1 };
    InterlockedIncrement(&Registrations);
    return STATUS_SUCCESS;
}

NTSTATUS WskCaptureProviderNPI(
    PWSK_REGISTRATION WskRegistration,
    ULONG WaitTimeout,
    PWSK_PROVIDER_NPI WskProviderNpi)
{
    UNREFERENCED_PARAMETER(WaitTimeout);
    REQUIRE_IRQL(PASSIVE_LEVEL);
    REQUIRE(WskRegistration->ReservedRegistrationState == 1, "has no registration");
    WskProviderNpi->Client = (PWSK_CLIENT)WskRegistration;
    WskProviderNpi->Dispatch = &ProviderDispatch;
    InterlockedIncrement(&Captures);
    return STATUS_SUCCESS;
}

VOID WskReleaseProviderNPI(PWSK_REGISTRATION WskRegistration)
{
    REQUIRE_IRQL(PASSIVE_LEVEL);
    REQUIRE(WskRegistration->ReservedRegistrationState == 1, "has no registration");
    InterlockedDecrement(&Captures);
}

VOID WskDeregister(PWSK_REGISTRATION WskRegistration)
{
    REQUIRE_IRQL(PASSIVE_LEVEL);
    REQUIRE(WskRegistration->ReservedRegistrationState == 1, "has no registration");
    WskRegistration->ReservedRegistrationState = 0;
    InterlockedDecrement(&Registrations);
}

ULONG DriverLeaks(VOID)
{
    LONG Open = 0;

    pthread_mutex_lock(&Lock);
    for (ENTRY *Entry = Adapters; Entry != NULL; Entry = Entry->Next) {
        Open++;
    }
    pthread_mutex_unlock(&Lock);
    return ReportLeak("NDK adapters", Open) + ReportLeak("devices", Devices)
        + ReportLeak("WSK captures", Captures) + ReportLeak("WSK registrations", Registrations);
}
