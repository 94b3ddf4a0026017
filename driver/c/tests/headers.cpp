/* headers.cpp: includes every header, and opens an adapter, for tests/programs.rs. */
#include <ntddk.h>
#include <wdm.h>
#include <wsk.h>
#include <ws2def.h>
#include <ws2ipdef.h>
#include <winapifamily.h>
#include <ndkinfo.h>
#include <ndkpi.h>
#include <ndkrocev2.h>
#include <wskndk.h>
#include <ndkshim_host.h>
#include <stdio.h>

C_ASSERT(sizeof(ULONG) == 4);

int main()
{
    ndkrocev2_config config = ndkrocev2_config();
    NDK_VERSION version = { 2, 0 };
    NDK_ADAPTER *adapter;

    config.size = sizeof config;
    config.edge = "memory:cpp";
    config.addresses = "10.0.0.1";
    ndkrocev2_provider *provider = ndkrocev2_start(&config);
    if (provider == NULL || !NT_SUCCESS(ndkrocev2_open(provider, version, &adapter))) {
        fprintf(stderr, "%s\n", ndkrocev2_last_error());
        return 1;
    }
    version = adapter->Header.Version;
    printf("NDK %d.%d\n", version.Major, version.Minor);
    ndkrocev2_close(provider, adapter);
    return ndkrocev2_stop(provider) == STATUS_SUCCESS ? 0 : 1;
}
