/* wsk.c: Winsock Kernel, which opens NDK adapters. */
#include "consumer.h"

static CONST WSK_CLIENT_DISPATCH ClientDispatch = { MAKE_WSK_VERSION(1, 0), 0, NULL };
static WSK_REGISTRATION Registration;
static WSK_PROVIDER_NPI Provider;
static WSK_PROVIDER_NDK_DISPATCH Ndk;
static BOOLEAN IsRegistered, IsCaptured;

/* A failed start is followed by a stop, too. */
NTSTATUS AdaptersStart(VOID)
{
    WSK_CLIENT_NPI Client = { NULL, &ClientDispatch };

    PAGED_CODE();
    TRY(WskRegister(&Client, &Registration));
    IsRegistered = TRUE;
    TRY(WskCaptureProviderNPI(&Registration, WSK_INFINITE_WAIT, &Provider));
    IsCaptured = TRUE;
    TRY(Provider.Dispatch->WskControlClient(
        Provider.Client, WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH, 0, NULL, sizeof(Ndk), &Ndk, NULL, NULL));
    return STATUS_SUCCESS;
}

VOID AdaptersStop(VOID)
{
    PAGED_CODE();
    if (IsCaptured) {
        WskReleaseProviderNPI(&Registration);
    }
    if (IsRegistered) {
        WskDeregister(&Registration);
    }
    IsCaptured = IsRegistered = FALSE;
}

/* Opens an adapter that can do what this driver needs. */
NTSTATUS AdapterOpen(NET_IFINDEX Interface, NDK_ADAPTER **Adapter)
{
    NDK_VERSION Version = { 1, 2 };
    NDK_ADAPTER_INFO Info;
    ULONG Bytes = sizeof(Info);

    PAGED_CODE();
    TRY(Ndk.WskOpenNdkAdapter(Provider.Client, Version, Interface, Adapter));
    TRY((*Adapter)->Dispatch->NdkQueryAdapterInfo(*Adapter, &Info, &Bytes));
    if ((Info.AdapterFlags & NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED) == 0
        || Info.FRMRPageCount < ADDRESS_AND_SIZE_TO_SPAN_PAGES(DATA_OFFSET, DATA_BYTES)) {
        return STATUS_NOT_SUPPORTED;
    }
    return STATUS_SUCCESS;
}

VOID AdapterClose(NDK_ADAPTER *Adapter)
{
    PAGED_CODE();
    Ndk.WskCloseNdkAdapter(Provider.Client, Adapter);
}
