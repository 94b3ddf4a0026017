/* Bare frames through packet sockets, for the comparison of `guest/main.rs`.
 *
 *   raw burst FROM TO BYTES COUNT   sends COUNT frames at one NIC, 32 a call, and takes them at the other
 *   raw ping NIC BYTES COUNT        sends a frame and sleeps until one comes, COUNT times
 *   raw echo NIC BYTES COUNT        the other end of that
 *
 * Prints the nanoseconds that it took.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { BATCH = 32, FRAME_MAX = 9216, BUFFER = 8 << 20 };

/* For local experiments (IEEE 802): no protocol of the kernel's looks at it. */
enum { ETHER_TYPE = 0x88b5 };

static char frames[BATCH][FRAME_MAX];

#define CHECK(condition)                                                          \
    do {                                                                          \
        if (!(condition)) {                                                       \
            fprintf(stderr, "raw: line %d: not so: %s (%m)\n", __LINE__, #condition); \
            exit(1);                                                              \
        }                                                                         \
    } while (0)

static int open_nic(const char *name)
{
    int nic = socket(AF_PACKET, SOCK_RAW, 0), one = 1, buffer = BUFFER;
    CHECK(nic >= 0);
    CHECK(!setsockopt(nic, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one));
    CHECK(!setsockopt(nic, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer));
    CHECK(!setsockopt(nic, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof buffer));
    struct sockaddr_ll address = {
        .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = if_nametoindex(name),
    };
    CHECK(!bind(nic, (struct sockaddr *)&address, sizeof address));
    return nic;
}

static void fill(char *frame)
{
    /* To everybody, from a station that does not exist. */
    memset(frame, 0xff, ETH_ALEN);
    memset(frame + ETH_ALEN, 0x02, ETH_ALEN);
    frame[2 * ETH_ALEN] = (char)(ETHER_TYPE >> 8);
    frame[2 * ETH_ALEN + 1] = (char)ETHER_TYPE;
}

static void burst(int from, int to, size_t bytes, long count)
{
    struct iovec pieces[2][BATCH];
    struct mmsghdr messages[2][BATCH];
    static char received[BATCH][FRAME_MAX];
    memset(messages, 0, sizeof messages);
    for (int i = 0; i < BATCH; i++) {
        pieces[0][i] = (struct iovec){frames[i], bytes};
        pieces[1][i] = (struct iovec){received[i], FRAME_MAX};
        for (int side = 0; side < 2; side++) {
            messages[side][i].msg_hdr.msg_iov = &pieces[side][i];
            messages[side][i].msg_hdr.msg_iovlen = 1;
        }
    }
    for (long done = 0; done < count; done += BATCH) {
        CHECK(sendmmsg(from, messages[0], BATCH, 0) == BATCH);
        for (int taken = 0, more; taken < BATCH; taken += more)
            CHECK((more = recvmmsg(to, messages[1], BATCH - taken, 0, NULL)) > 0);
    }
}

static void take(int nic, size_t bytes)
{
    static char received[FRAME_MAX];
    CHECK(recv(nic, received, sizeof received, 0) == (ssize_t)bytes);
}

static void give(int nic, size_t bytes)
{
    CHECK(send(nic, frames[0], bytes, 0) == (ssize_t)bytes);
}

static void ping(int nic, size_t bytes, long count)
{
    for (; count > 0; count--) {
        give(nic, bytes);
        take(nic, bytes);
    }
}

static void echo(int nic, size_t bytes, long count)
{
    for (; count > 0; count--) {
        take(nic, bytes);
        give(nic, bytes);
    }
}

static long long now(void)
{
    struct timespec time;
    CHECK(!clock_gettime(CLOCK_MONOTONIC, &time));
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int argc, char **argv)
{
    CHECK(argc >= 5);
    for (int i = 0; i < BATCH; i++)
        fill(frames[i]);
    size_t bytes = atoi(argv[argc - 2]);
    long count = atol(argv[argc - 1]);
    CHECK(bytes <= FRAME_MAX);
    int nic = open_nic(argv[2]), other = argc == 6 ? open_nic(argv[3]) : -1;
    long long start = now();
    if (!strcmp(argv[1], "burst"))
        burst(nic, other, bytes, count);
    else if (!strcmp(argv[1], "ping"))
        ping(nic, bytes, count);
    else
        echo(nic, bytes, count);
    printf("%lld\n", now() - start);
    return 0;
}
