/*
 * wsk.h: Winsock Kernel, as far as it gives a consumer the NDK. There are no sockets.
 */
#ifndef NDKSHIM_WSK_H
#define NDKSHIM_WSK_H

#include <ndkshim.h>
#include <ws2def.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WSKAPI NTAPI
#define MAKE_WSK_VERSION(Major, Minor) ((USHORT)((Major) << 8 | (Minor)))
#define WSK_NO_WAIT 0
#define WSK_INFINITE_WAIT 0xFFFFFFFF

typedef ULONG NET_IFINDEX, *PNET_IFINDEX, IF_INDEX;
typedef struct _WSK_CLIENT WSK_CLIENT, *PWSK_CLIENT;

typedef NTSTATUS (WSKAPI *PFN_WSK_CLIENT_EVENT)(
    PVOID ClientContext,
    ULONG EventType,
    PVOID Information,
    SIZE_T InformationLength);

typedef struct _WSK_CLIENT_DISPATCH {
    USHORT Version;
    USHORT Reserved;
    PFN_WSK_CLIENT_EVENT WskClientEvent;
} WSK_CLIENT_DISPATCH, *PWSK_CLIENT_DISPATCH;

typedef struct _WSK_CLIENT_NPI {
    PVOID ClientContext;
    CONST WSK_CLIENT_DISPATCH *Dispatch;
} WSK_CLIENT_NPI, *PWSK_CLIENT_NPI;

typedef struct _WSK_REGISTRATION {
    ULONGLONG ReservedRegistrationState;
    PVOID ReservedRegistrationContext;
    KSPIN_LOCK ReservedRegistrationLock;
} WSK_REGISTRATION, *PWSK_REGISTRATION;

typedef NTSTATUS (WSKAPI *PFN_WSK_CONTROL_CLIENT)(
    PWSK_CLIENT Client,
    ULONG ControlCode,
    SIZE_T InputSize,
    PVOID InputBuffer,
    SIZE_T OutputSize,
    PVOID OutputBuffer,
    SIZE_T *OutputSizeReturned,
    PIRP Irp);

/* The members that make sockets or resolve names are NULL. */
typedef struct _WSK_PROVIDER_DISPATCH {
    USHORT Version;
    USHORT Reserved;
    PVOID WskSocket;
    PVOID WskSocketConnect;
    PFN_WSK_CONTROL_CLIENT WskControlClient;
    PVOID WskGetAddressInfo;
    PVOID WskFreeAddressInfo;
    PVOID WskGetNameInfo;
} WSK_PROVIDER_DISPATCH, *PWSK_PROVIDER_DISPATCH;

typedef struct _WSK_PROVIDER_NPI {
    PWSK_CLIENT Client;
    CONST WSK_PROVIDER_DISPATCH *Dispatch;
} WSK_PROVIDER_NPI, *PWSK_PROVIDER_NPI;

NTSTATUS WskRegister(PWSK_CLIENT_NPI WskClientNpi, PWSK_REGISTRATION WskRegistration);
NTSTATUS WskCaptureProviderNPI(
    PWSK_REGISTRATION WskRegistration,
    ULONG WaitTimeout,
    PWSK_PROVIDER_NPI WskProviderNpi);
VOID WskReleaseProviderNPI(PWSK_REGISTRATION WskRegistration);
VOID WskDeregister(PWSK_REGISTRATION WskRegistration);

#ifdef __cplusplus
}
#endif

#endif
