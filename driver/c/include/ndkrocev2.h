/*
 * ndkrocev2.h: an NDK provider in this process, on an edge of its own.
 *
 * Written by the test `headers` of the package ndk-c from driver/c/src/api.rs; edit that, or
 * headers/ndkrocev2.h.in.
 *
 *     ndkrocev2_config config = { .size = sizeof config, .edge = "memory:lab", .addresses = "10.0.0.1" };
 *     ndkrocev2_provider *provider = ndkrocev2_start(&config);
 *     if (provider == NULL)
 *         fprintf(stderr, "%s\n", ndkrocev2_last_error());
 *
 * Threads: any thread may call any function. A callback of the provider may call those that wait
 * for nothing: ndkrocev2_freed, ndkrocev2_status_name, ndkrocev2_address, ndkrocev2_last_error. The
 * provider makes its callbacks from a thread of its own, at what counts as DISPATCH_LEVEL: a
 * callback must not wait.
 */
#ifndef NDKROCEV2_H
#define NDKROCEV2_H

#include <ndkbase.h>
#include <ndkpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A running provider: one adapter on one edge. */
typedef struct ndkrocev2_provider ndkrocev2_provider;

/*
 * The configuration of a provider. A member of zero has its default; size, edge and addresses have
 * none.
 */
typedef struct ndkrocev2_config {
    /* sizeof(ndkrocev2_config). */
    size_t size;
    /*
     * The edge: memory:NAME (the two providers of the process that name it are joined), tap:NAME,
     * af-packet:IFACE, udp:ADDRESS, qemu-dgram:OWN:PEER, qemu-stream:listen:PATH or
     * qemu-stream:connect:PATH. Options stand behind commas: mtu=BYTES, mac=MAC, vlan=ID, offload,
     * cores=N (of af-packet), probe=off.
     */
    const char *edge;
    /* The addresses of the adapter, with commas between them: "10.0.0.1,fd00::1". */
    const char *addresses;
    /*
     * The file that gets the frames, in the format of pcap: those that are sent, before any fault,
     * and those that arrive. It is whole after ndkrocev2_stop. By default none.
     */
    const char *pcap;
    /* Percent of the transmitted frames that vanish. */
    double loss;
    /* Percent that are sent twice. */
    double duplicate;
    /* Percent that later ones pass. */
    double reorder;
    /* Percent with a flipped bit. */
    double corrupt;
    /*
     * The seed of the faults and of the provider; two that are joined may have the same. By default
     * a random one.
     */
    uint64_t seed;
    /*
     * Layers over the tables of adapters that are opened, words with commas between them. By
     * default none.
     *
     * verify reports the consumer's mistakes, a line each on the standard error that begins with
     * the first of addresses; ndkrocev2_mistakes counts them.
     *
     * explore=SEED ends its calls in every way that the contract allows, as the number SEED
     * chooses. Behind it: limits=small, limits=connectx3 or limits=maximal, what the adapter tells;
     * versions=serving, versions=any, versions=1.2, versions=2.0 or versions=2.1, its highest
     * version; refuse=PERCENT, the creations that end with STATUS_INSUFFICIENT_RESOURCES;
     * late=MILLISECONDS, the longest delay of a callback, 0 to 255.
     */
    const char *layers;
} ndkrocev2_config;

/* Starts a provider. Returns NULL where that fails; ndkrocev2_last_error says why. */
ndkrocev2_provider *ndkrocev2_start(const ndkrocev2_config *config);

/*
 * Stops a provider and frees it. STATUS_DEVICE_BUSY, and nothing is stopped: an adapter instance is
 * open.
 */
NTSTATUS ndkrocev2_stop(ndkrocev2_provider *provider);

/*
 * Opens an adapter instance, as NDIS does for WSK; any number may be open. version is the lowest
 * minor version that the consumer supports of a major one, 1 or 2; Header.Version of the adapter
 * says which one it has. NDIS_STATUS_BAD_VERSION, NDIS_STATUS_RESOURCES.
 */
NTSTATUS ndkrocev2_open(
    ndkrocev2_provider *provider,
    NDK_VERSION version,
    NDK_ADAPTER **adapter);

/*
 * Closes an adapter instance. Returns once the consumer has closed every object under it and every
 * callback has returned, and so never where an object is forgotten: ndkrocev2_open_objects tells.
 */
void ndkrocev2_close(ndkrocev2_provider *provider, NDK_ADAPTER *adapter);

/* The objects that exist: open adapter instances, and everything under them. */
size_t ndkrocev2_open_objects(const ndkrocev2_provider *provider);

/* The adapter instances among them. */
size_t ndkrocev2_open_adapters(const ndkrocev2_provider *provider);

/*
 * The mistakes of the consumer that the layer verify has reported, each rule once for a function
 * and an object; 0 without that layer. To be asked when the adapters are closed, as their close may
 * still find some, and before ndkrocev2_stop.
 */
size_t ndkrocev2_mistakes(const ndkrocev2_provider *provider);

/*
 * Tells the layer verify of every provider that the consumer frees this memory, or gives it another
 * use: bytes, an MDL, the structure of a logical address mapping. It reports what a request or a
 * registration still uses. To be called before the memory is freed, from any thread, in a callback,
 * too. The kernel stand-in does it.
 */
void ndkrocev2_freed(const void *memory, size_t length);

/*
 * Gives the adapter these addresses, with commas between them, in place of those that it had.
 * Connections from one that is gone end at once. STATUS_INVALID_PARAMETER: one is no address.
 */
NTSTATUS ndkrocev2_set_addresses(ndkrocev2_provider *provider, const char *addresses);

/*
 * Reads an address with its port, "10.0.0.1:7174" or "[fd00::1]:7174". Returns its length in bytes,
 * and 0 where the text is no such thing.
 */
ULONG ndkrocev2_address(const char *text, SOCKADDR_INET *address);

/*
 * The reason, in words, why a function of this header last failed on this thread; "" if none did.
 * Valid until the next failure. The functions of the NDK's tables have no words, but their status,
 * which ndkrocev2_status_name names.
 */
const char *ndkrocev2_last_error(void);

/*
 * The name of a status code of ndkbase.h, as "STATUS_PENDING"; NULL for another one. Valid for
 * good.
 */
const char *ndkrocev2_status_name(NTSTATUS status);

/* The version of the library, as "0.1.0". */
const char *ndkrocev2_version(void);

#ifdef __cplusplus
}
#endif

#endif
