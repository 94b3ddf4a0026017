/*
 * host.c: loads the driver into a Linux process, as often as its first argument says.
 *
 *     wdm_consumer [rounds [percent of reordered frames [layers]]]
 */
#include "consumer.h"

#include <ndkshim_host.h>
#include <stdio.h>
#include <stdlib.h>

static ndkrocev2_provider *Start(NET_IFINDEX Index, const char *Address, double Reorder, const char *Layers)
{
    ndkrocev2_config Config = {
        .size = sizeof(Config),
        .edge = "memory:wdm",
        .addresses = Address,
        .reorder = Reorder,
        .layers = Layers,
    };
    ndkrocev2_provider *Provider = ndkrocev2_start(&Config);

    if (Provider == NULL) {
        fprintf(stderr, "%s\n", ndkrocev2_last_error());
        exit(1);
    }
    NdkShimAddInterface(Index, Provider);
    return Provider;
}

int main(int Count, char **Arguments)
{
    int Rounds = Count > 1 ? atoi(Arguments[1]) : 1;
    double Reorder = Count > 2 ? atof(Arguments[2]) : 0;
    const char *Layers = Count > 3 ? Arguments[3] : NULL;
    ndkrocev2_provider *Client = Start(1, "10.0.0.1", Reorder, Layers);
    ndkrocev2_provider *Server = Start(2, "10.0.0.2", Reorder, Layers);
    size_t Objects, Mistakes;
    ULONG Leaks;

    for (int Round = 1; Round <= Rounds; Round++) {
        DRIVER_OBJECT Driver;
        NTSTATUS Status = NdkShimLoadDriver(DriverEntry, &Driver);

        if (!NT_SUCCESS(Status)) {
            fprintf(stderr, "round %d: 0x%08X\n", Round, (unsigned)Status);
            return 1;
        }
        NdkShimUnloadDriver(&Driver);
    }
    Objects = ndkrocev2_open_objects(Client) + ndkrocev2_open_objects(Server);
    Mistakes = ndkrocev2_mistakes(Client) + ndkrocev2_mistakes(Server);
    Leaks = NdkShimLeaks();
    printf("%d rounds, %zu objects and %u other things left\n", Rounds, Objects, Leaks);
    NdkShimRemoveInterface(1);
    NdkShimRemoveInterface(2);
    if (ndkrocev2_stop(Client) != STATUS_SUCCESS || ndkrocev2_stop(Server) != STATUS_SUCCESS) {
        fprintf(stderr, "%s\n", ndkrocev2_last_error());
        return 1;
    }
    return Rounds > 0 && Objects == 0 && Mistakes == 0 && Leaks == 0 ? 0 : 1;
}
