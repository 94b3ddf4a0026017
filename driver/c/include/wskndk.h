/*
 * wskndk.h: how a consumer gets an NDK adapter from Winsock Kernel.
 *
 * Written by the test `headers` of the package ndk-c; edit headers/wskndk.h.in.
 *
 * A consumer registers with WSK, captures its provider, and asks it by WskControlClient with the
 * code below for a WSK_PROVIDER_NDK_DISPATCH.
 */
#ifndef WSKNDK_H
#define WSKNDK_H

#include <ndkpi.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef _WIN32
#define WSKAPI NTAPI
typedef struct _WSK_CLIENT WSK_CLIENT, *PWSK_CLIENT;
typedef ULONG NET_IFINDEX, *PNET_IFINDEX;
#endif

/* Opens an adapter instance of an interface, at this version or a higher minor one. PASSIVE_LEVEL. */
typedef NTSTATUS (WSKAPI *PFN_WSK_NDK_OPEN_ADAPTER)(
    PWSK_CLIENT Client,
    NDK_VERSION NdkVersion,
    NET_IFINDEX IfIndex,
    NDK_ADAPTER **ppNdkAdapter);

/* Closes it; returns when every object under it is closed and silent. PASSIVE_LEVEL. */
typedef VOID (WSKAPI *PFN_WSK_NDK_CLOSE_ADAPTER)(
    PWSK_CLIENT Client,
    NDK_ADAPTER *pNdkAdapter);

/* The output of the control code. The buffer has room for the structure, not for a pointer. */
typedef struct _WSK_PROVIDER_NDK_DISPATCH {
    PFN_WSK_NDK_OPEN_ADAPTER WskOpenNdkAdapter;
    PFN_WSK_NDK_CLOSE_ADAPTER WskCloseNdkAdapter;
} WSK_PROVIDER_NDK_DISPATCH, *PWSK_PROVIDER_NDK_DISPATCH;

/* The letters NDKD. */
#define WSKNDK_GET_WSK_PROVIDER_NDK_DISPATCH ((ULONG)0x4E444B44)

#ifdef __cplusplus
}
#endif

#endif
