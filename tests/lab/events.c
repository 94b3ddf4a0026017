/* A verbs program that sleeps on its completion channel, for the comparison of `guest/main.rs`.
 *
 *   events serve ADDRESS OPERATION SIZE DEPTH COUNT
 *   events connect ADDRESS OPERATION SIZE DEPTH COUNT
 *
 * The client has DEPTH requests posted at any time, each with a completion, and prints the nanoseconds from the first
 * post to the last of COUNT completions. OPERATION is write, send or read. Exit status 0: each one succeeded.
 */
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { POLLED = 32, READS = 32 };
#define PORT "7174"

/* Where the server's memory is, as the private data of its answer. */
struct place {
    uint64_t address;
    uint32_t rkey;
};

struct load {
    enum ibv_wr_opcode opcode;
    uint32_t size;
    long depth;
    long count;
};

static struct rdma_cm_id *id;
static struct ibv_mr *mr;
static char *memory;

#define CHECK(condition)                                                          \
    do {                                                                          \
        if (!(condition)) {                                                       \
            fprintf(stderr, "events: line %d: not so: %s (%m)\n", __LINE__, #condition); \
            exit(1);                                                              \
        }                                                                         \
    } while (0)

static void create(char *address, const struct load *load, int flags)
{
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_NUMERICHOST | flags};
    struct rdma_addrinfo *found;
    CHECK(!rdma_getaddrinfo(address, PORT, &hints, &found));
    struct ibv_qp_init_attr qp = {
        .cap = {.max_send_wr = load->depth, .max_recv_wr = load->depth, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
    };
    CHECK(!rdma_create_ep(&id, found, NULL, &qp));
}

static void register_memory(const struct load *load)
{
    size_t length = load->size * load->depth;
    CHECK(memory = aligned_alloc(4096, (length + 4095) & ~(size_t)4095));
    memset(memory, 0x5a, length);
    int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    CHECK(mr = ibv_reg_mr(id->pd, memory, length, rights));
}

/* Message number `at` has its own part of the memory among those that are posted at once. */
static size_t offset(const struct load *load, long at)
{
    return (size_t)load->size * (at % load->depth);
}

static void post_receive(const struct load *load, long at)
{
    CHECK(!rdma_post_recv(id, NULL, memory + offset(load, at), load->size, mr));
}

static void post(const struct load *load, long at, struct place remote)
{
    struct ibv_sge element = {(uintptr_t)memory + offset(load, at), load->size, mr->lkey};
    struct ibv_send_wr request = {.opcode = load->opcode, .sg_list = &element, .num_sge = 1}, *bad;
    request.wr.rdma.remote_addr = remote.address + offset(load, at);
    request.wr.rdma.rkey = remote.rkey;
    CHECK(!ibv_post_send(id->qp, &request, &bad));
}

/* Takes completions, each a success. Sleeps where there is none, and may return without one. */
static int completed(struct ibv_comp_channel *channel, struct ibv_cq *cq)
{
    struct ibv_wc wc[POLLED];
    int taken = ibv_poll_cq(cq, POLLED, wc);
    CHECK(taken >= 0);
    for (int i = 0; i < taken; i++)
        CHECK(wc[i].status == IBV_WC_SUCCESS);
    if (!taken) {
        void *context;
        CHECK(!ibv_get_cq_event(channel, &cq, &context));
        ibv_ack_cq_events(cq, 1);
        CHECK(!ibv_req_notify_cq(cq, 0));
    }
    return taken;
}

static void serve(const struct load *load)
{
    struct rdma_cm_id *listener = id;
    CHECK(!rdma_listen(listener, 1));
    CHECK(!rdma_get_request(listener, &id));
    register_memory(load);
    int receives = load->opcode == IBV_WR_SEND;
    for (long at = 0; receives && at < load->depth; at++)
        post_receive(load, at);
    CHECK(!ibv_req_notify_cq(id->recv_cq, 0));
    struct place place = {(uintptr_t)memory, mr->rkey};
    struct rdma_conn_param param = {
        .private_data = &place, .private_data_len = sizeof place,
        .responder_resources = READS, .initiator_depth = READS, .rnr_retry_count = 7,
    };
    CHECK(!rdma_accept(id, &param));
    /* The connection manager leaves 655 ms, for which one late receive would stop the run. */
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .min_rnr_timer = 1};
    CHECK(!ibv_modify_qp(id->qp, &attr, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER));
    for (long done = 0; receives && done < load->count;) {
        int taken = completed(id->recv_cq_channel, id->recv_cq);
        for (int i = 0; i < taken; i++)
            post_receive(load, done++);
    }
    struct rdma_cm_event *event;
    CHECK(!rdma_get_cm_event(id->channel, &event));
    CHECK(event->event == RDMA_CM_EVENT_DISCONNECTED);
}

static long long now(void)
{
    struct timespec time;
    CHECK(!clock_gettime(CLOCK_MONOTONIC, &time));
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void connect_and_run(const struct load *load)
{
    register_memory(load);
    struct rdma_conn_param param = {
        .responder_resources = READS, .initiator_depth = READS, .retry_count = 7, .rnr_retry_count = 7,
    };
    CHECK(!rdma_connect(id, &param));
    struct place remote;
    CHECK(id->event->param.conn.private_data_len >= sizeof remote);
    memcpy(&remote, id->event->param.conn.private_data, sizeof remote);
    CHECK(!ibv_req_notify_cq(id->send_cq, 0));
    long long start = now();
    for (long posted = 0, done = 0; done < load->count;) {
        for (; posted < load->count && posted - done < load->depth; posted++)
            post(load, posted, remote);
        done += completed(id->send_cq_channel, id->send_cq);
    }
    printf("%lld\n", now() - start);
    CHECK(!rdma_disconnect(id));
}

int main(int argc, char **argv)
{
    CHECK(argc == 7);
    struct load load = {IBV_WR_SEND, atoi(argv[4]), atol(argv[5]), atol(argv[6])};
    if (!strcmp(argv[3], "write"))
        load.opcode = IBV_WR_RDMA_WRITE;
    if (!strcmp(argv[3], "read"))
        load.opcode = IBV_WR_RDMA_READ;
    int passive = !strcmp(argv[1], "serve");
    create(argv[2], &load, passive ? RAI_PASSIVE : 0);
    if (passive)
        serve(&load);
    else
        connect_and_run(&load);
    return 0;
}
