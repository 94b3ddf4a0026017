/*
 * ndkshim_host.h: the stand-in from outside, for the program that loads a driver into itself.
 */
#ifndef NDKSHIM_HOST_H
#define NDKSHIM_HOST_H

#include <ndkshim.h>
#include <wsk.h>
#include <ndkrocev2.h>
#include <wskndk.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a provider the NDK adapter of an interface, which a driver asks for by its index. */
VOID NdkShimAddInterface(NET_IFINDEX Index, ndkrocev2_provider *Provider);
VOID NdkShimRemoveInterface(NET_IFINDEX Index);

/* Opens and closes an adapter of an interface, as WSK's two functions do. PASSIVE_LEVEL. */
NTSTATUS NdkShimOpenAdapter(NDK_VERSION Version, NET_IFINDEX Index, NDK_ADAPTER **Adapter);
VOID NdkShimCloseAdapter(NDK_ADAPTER *Adapter);

/* Calls a driver's entry, and its unload routine. A driver whose entry fails is not loaded. */
NTSTATUS NdkShimLoadDriver(DRIVER_INITIALIZE *Entry, DRIVER_OBJECT *Driver);
VOID NdkShimUnloadDriver(DRIVER_OBJECT *Driver);

/* The number of things that drivers have not given back, each kind with a line on the standard error. */
ULONG NdkShimLeaks(VOID);

#ifdef __cplusplus
}
#endif

#endif
