/* SEND with Invalidate over Linux's verbs, against an NDK consumer (`interop/invalidate.rs`).
 *
 *   verbs connect|listen ADDRESS PORT region|window
 *
 * region: the peer tells of a region of its own. WRITE and READ it, end it with SEND with Invalidate; when the
 *         peer has answered, a WRITE to it has to end with a remote access error.
 * window: binds a type 2 memory window and tells the peer of it. The peer WRITEs and READs it and ends it with
 *         SEND with Invalidate, which the receive has to report; its next WRITE has to break the connection.
 *
 * A message is struct message, big endian. Exit status 0: all of it happened.
 */
#include <endian.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LENGTH = 5000, RECEIVES = 4, PATIENCE_SECONDS = 100 };

struct message {
    uint64_t address;
    uint32_t rkey;
    uint32_t length;
};

struct memory {
    struct message received[RECEIVES];
    struct message sent;
    /* What the window shows, behind a byte that it does not show. */
    uint8_t outside;
    uint8_t data[LENGTH];
    uint8_t copy[LENGTH];
};

static struct rdma_cm_id *id;
static struct ibv_mr *mr;
static struct memory *memory;

#define CHECK(condition)                                                          \
    do {                                                                          \
        if (!(condition)) {                                                       \
            fprintf(stderr, "verbs: line %d: not so: %s (%m)\n", __LINE__, #condition); \
            exit(1);                                                              \
        }                                                                         \
    } while (0)

static void establish(int passive, char *address, char *port)
{
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_NUMERICHOST | (passive ? RAI_PASSIVE : 0)};
    struct rdma_addrinfo *found;
    CHECK(!rdma_getaddrinfo(address, port, &hints, &found));
    struct ibv_qp_init_attr qp = {
        .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
    };
    CHECK(!rdma_create_ep(&id, found, NULL, &qp));
    if (passive) {
        struct rdma_cm_id *listener = id;
        CHECK(!rdma_listen(listener, 1));
        CHECK(!rdma_get_request(listener, &id));
    }
    int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
    CHECK(memory = calloc(1, sizeof *memory));
    CHECK(mr = ibv_reg_mr(id->pd, memory, sizeof *memory, rights));
    for (int i = 0; i < RECEIVES; i++)
        CHECK(!rdma_post_recv(id, NULL, &memory->received[i], sizeof(struct message), mr));
    struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
    CHECK(!(passive ? rdma_accept(id, &param) : rdma_connect(id, &param)));
}

/* Posts a request and returns the status that it ends with. */
static enum ibv_wc_status status_of(struct ibv_send_wr *request)
{
    struct ibv_send_wr *bad;
    struct ibv_wc wc;
    CHECK(!ibv_post_send(id->qp, request, &bad));
    CHECK(rdma_get_send_comp(id, &wc) == 1);
    return wc.status;
}

static enum ibv_wc_status transfer(enum ibv_wr_opcode opcode, void *local, uint32_t length, struct message remote)
{
    struct ibv_sge element = {(uintptr_t)local, length, mr->lkey};
    struct ibv_send_wr request = {.opcode = opcode, .sg_list = &element, .num_sge = 1};
    if (opcode == IBV_WR_SEND_WITH_INV) {
        request.invalidate_rkey = remote.rkey;
    } else {
        request.wr.rdma.remote_addr = remote.address;
        request.wr.rdma.rkey = remote.rkey;
    }
    return status_of(&request);
}

static enum ibv_wc_status tell(struct message message)
{
    memory->sent = (struct message){htobe64(message.address), htobe32(message.rkey), htobe32(message.length)};
    return transfer(IBV_WR_SEND, &memory->sent, sizeof memory->sent, (struct message){0});
}

static struct ibv_wc received(void)
{
    struct ibv_wc wc;
    CHECK(rdma_get_recv_comp(id, &wc) == 1);
    return wc;
}

static int has_invalidated(struct ibv_wc wc)
{
    /* rxe hands the kernel's flag, bit 2, to user space as it is, where it is bit 3. */
    enum { KERNEL_WITH_INVALIDATE = 1 << 2 };
    return wc.wc_flags & (KERNEL_WITH_INVALIDATE | IBV_WC_WITH_INV);
}

/* The next message; the receives complete in the order in which they were posted. */
static struct message hear(void)
{
    static int next;
    struct ibv_wc wc = received();
    CHECK(wc.status == IBV_WC_SUCCESS && !has_invalidated(wc));
    CHECK(wc.byte_len == sizeof(struct message));
    struct message *message = &memory->received[next++];
    return (struct message){be64toh(message->address), be32toh(message->rkey), be32toh(message->length)};
}

static uint8_t pattern(int place)
{
    return (uint8_t)(place * 7 + place / 256 + 3);
}

static void region(void)
{
    struct message theirs = hear();
    CHECK(theirs.length == LENGTH);
    for (int i = 0; i < LENGTH; i++)
        memory->data[i] = pattern(i);
    CHECK(transfer(IBV_WR_RDMA_WRITE, memory->data, LENGTH, theirs) == IBV_WC_SUCCESS);
    CHECK(transfer(IBV_WR_RDMA_READ, memory->copy, LENGTH, theirs) == IBV_WC_SUCCESS);
    CHECK(!memcmp(memory->copy, memory->data, LENGTH));
    CHECK(transfer(IBV_WR_SEND_WITH_INV, &memory->sent, sizeof memory->sent, theirs) == IBV_WC_SUCCESS);
    hear();
    memory->data[0] = ~pattern(0);
    CHECK(transfer(IBV_WR_RDMA_WRITE, memory->data, 1, theirs) == IBV_WC_REM_ACCESS_ERR);
    printf("invalidated 0x%x, then remote access error\n", theirs.rkey);
}

static void window(void)
{
    struct ibv_mw *mw = ibv_alloc_mw(id->pd, IBV_MW_TYPE_2);
    CHECK(mw);
    struct message ours = {(uintptr_t)memory->data, ibv_inc_rkey(mw->rkey), LENGTH};
    struct ibv_send_wr bind = {.opcode = IBV_WR_BIND_MW};
    bind.bind_mw.mw = mw;
    bind.bind_mw.rkey = ours.rkey;
    bind.bind_mw.bind_info = (struct ibv_mw_bind_info){mr, ours.address, LENGTH, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
    CHECK(status_of(&bind) == IBV_WC_SUCCESS);
    CHECK(tell(ours) == IBV_WC_SUCCESS);
    struct ibv_wc wc = received();
    CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == sizeof(struct message));
    CHECK(has_invalidated(wc) && wc.invalidated_rkey == ours.rkey);
    for (int i = 0; i < LENGTH; i++)
        CHECK(memory->data[i] == pattern(i));
    /* Now the peer tries the dead key; what ends the connection may overtake the acknowledgement. */
    enum ibv_wc_status told = tell(ours);
    CHECK(told == IBV_WC_SUCCESS || told == IBV_WC_WR_FLUSH_ERR);
    CHECK(received().status == IBV_WC_WR_FLUSH_ERR);
    CHECK(memory->outside == 0 && memory->data[0] == pattern(0));
    printf("received with invalidated key 0x%x, then the connection broke\n", ours.rkey);
}

int main(int count, char **arguments)
{
    CHECK(count == 5);
    int passive = !strcmp(arguments[1], "listen");
    alarm(PATIENCE_SECONDS);
    establish(passive, arguments[2], arguments[3]);
    if (!strcmp(arguments[4], "region"))
        region();
    else
        window();
    rdma_disconnect(id);
    return 0;
}
