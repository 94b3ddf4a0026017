/* A host of a storage protocol over Linux's verbs: what NVMe/RDMA does for a write (`interop/storage.rs`).
 *
 *   storage ADDRESS PORT QUEUES SLOTS ROUNDS LENGTH
 *
 * Opens QUEUES connections, each in a process of its own, and works on SLOTS commands at once in each. For a command it
 * fills LENGTH bytes, which a type 2 memory window of its own shows, and SENDs a struct command. The peer READs the
 * bytes and answers by a SEND with Invalidate of the window's key with the same struct command, which frees the slot.
 * After ROUNDS commands in each slot the queue disconnects. Exit status 0: every command was answered once, and nothing
 * failed.
 *
 * All windows are bound before the first command: rxe binds once more what lies behind a SEND that it has to repeat,
 * and ends the queue pair because that fails.
 */
#include <endian.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of a queue: a guest whose processor is kept busy, on a machine that is busy too, needs minutes. */
enum { PATIENCE_SECONDS = 900 };

/* Big endian on the wire. */
struct command {
    uint64_t address;
    uint32_t rkey;
    uint32_t slot;
    uint64_t number;
};

struct slot {
    uint8_t *data;
    struct command *command;
    uint32_t *rkeys;
    uint32_t round;
};

static struct rdma_cm_id *id;
static struct ibv_mr *mr;
static struct slot *slots;
static struct command *received;
static uint32_t slot_count, rounds, length;

#define CHECK(condition)                                                             \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "storage: line %d: not so: %s (%m)\n", __LINE__, #condition); \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

static void establish(char *address, char *port)
{
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_NUMERICHOST};
    struct rdma_addrinfo *found;
    CHECK(!rdma_getaddrinfo(address, port, &hints, &found));
    struct ibv_qp_init_attr qp = {
        .cap = {.max_send_wr = 4 * slot_count, .max_recv_wr = 2 * slot_count, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
    };
    CHECK(!rdma_create_ep(&id, found, NULL, &qp));
    size_t per_slot = length + 2 * sizeof(struct command);
    uint8_t *memory;
    CHECK(memory = calloc(slot_count, per_slot));
    CHECK(mr = ibv_reg_mr(id->pd, memory, slot_count * per_slot, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND));
    CHECK(slots = calloc(slot_count, sizeof *slots));
    received = (struct command *)memory;
    struct command *commands = received + slot_count;
    for (uint32_t i = 0; i < slot_count; i++) {
        CHECK(slots[i].rkeys = calloc(rounds, sizeof(uint32_t)));
        slots[i].command = &commands[i];
        slots[i].data = (uint8_t *)(commands + slot_count) + (size_t)i * length;
        CHECK(!rdma_post_recv(id, &received[i], &received[i], sizeof(struct command), mr));
    }
    struct rdma_conn_param param = {.responder_resources = 16, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
    CHECK(!rdma_connect(id, &param));
}

/* Binds a window to the slot's bytes, and returns its key. */
static uint32_t bound(struct slot *slot)
{
    struct ibv_mw *mw = ibv_alloc_mw(id->pd, IBV_MW_TYPE_2);
    CHECK(mw);
    uint32_t rkey = ibv_inc_rkey(mw->rkey);
    struct ibv_send_wr bind = {.opcode = IBV_WR_BIND_MW}, *bad;
    struct ibv_wc wc;
    bind.bind_mw.mw = mw;
    bind.bind_mw.rkey = rkey;
    bind.bind_mw.bind_info = (struct ibv_mw_bind_info){mr, (uintptr_t)slot->data, length, IBV_ACCESS_REMOTE_READ};
    CHECK(!ibv_post_send(id->qp, &bind, &bad));
    CHECK(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    return rkey;
}

/* Fills the slot with the bytes of its next command and tells the peer of it. */
static void submit(struct slot *slot)
{
    uint32_t index = slot - slots;
    uint64_t number = (uint64_t)slot->round * slot_count + index;
    for (uint32_t i = 0; i < length; i++)
        slot->data[i] = (uint8_t)(i * 7 + i / 256 + number);
    *slot->command = (struct command){htobe64((uintptr_t)slot->data), htobe32(slot->rkeys[slot->round]), htobe32(index), htobe64(number)};
    struct ibv_sge element = {(uintptr_t)slot->command, sizeof *slot->command, mr->lkey};
    struct ibv_send_wr send = {.opcode = IBV_WR_SEND, .sg_list = &element, .num_sge = 1}, *bad;
    CHECK(!ibv_post_send(id->qp, &send, &bad));
}

/* Tells of a failed completion, and of the one that began it, which may be on the other queue, and ends. */
static void fail(const char *queue, enum ibv_wc_status status, unsigned long answered)
{
    struct ibv_cq *queues[] = {id->send_cq, id->recv_cq};
    struct ibv_wc wc;
    fprintf(stderr, "storage: after %lu answers, %s: %s\n", answered, queue, ibv_wc_status_str(status));
    for (int i = 0; i < 2; i++)
        while (ibv_poll_cq(queues[i], 1, &wc) > 0)
            if (wc.status != IBV_WC_SUCCESS && wc.status != IBV_WC_WR_FLUSH_ERR)
                fprintf(stderr, "storage: %s queue: %s\n", i ? "receive" : "send", ibv_wc_status_str(wc.status));
    exit(1);
}

/* Without a word a peer would only meet the end of this process: its memory goes before its queue pair. */
static void give_up(int signal)
{
    static const char message[] = "storage: not done in time\n";
    (void)signal;
    (void)!write(STDERR_FILENO, message, sizeof message - 1);
    _exit(1);
}

static void work(void)
{
    unsigned long answered = 0;
    for (uint32_t i = 0; i < slot_count; i++)
        for (uint32_t round = 0; round < rounds; round++)
            slots[i].rkeys[round] = bound(&slots[i]);
    for (uint32_t i = 0; i < slot_count; i++)
        submit(&slots[i]);
    while (answered < (unsigned long)slot_count * rounds) {
        struct ibv_wc wc;
        while (ibv_poll_cq(id->send_cq, 1, &wc) > 0)
            if (wc.status != IBV_WC_SUCCESS)
                fail("a SEND", wc.status, answered);
        if (ibv_poll_cq(id->recv_cq, 1, &wc) <= 0) {
            usleep(100);
            continue;
        }
        if (wc.status != IBV_WC_SUCCESS)
            fail("a receive", wc.status, answered);
        struct command *answer = (struct command *)(uintptr_t)wc.wr_id;
        uint32_t index = be32toh(answer->slot);
        CHECK(index < slot_count);
        struct slot *slot = &slots[index];
        CHECK(be64toh(answer->number) == (uint64_t)slot->round * slot_count + index);
        CHECK(wc.invalidated_rkey == slot->rkeys[slot->round]);
        CHECK(!rdma_post_recv(id, answer, answer, sizeof *answer, mr));
        answered++;
        slot->round++;
        if (slot->round < rounds)
            submit(slot);
    }
    printf("%lu commands answered\n", answered);
}

int main(int count, char **arguments)
{
    CHECK(count == 7);
    int queues = atoi(arguments[3]);
    slot_count = atoi(arguments[4]);
    rounds = atoi(arguments[5]);
    length = atoi(arguments[6]);
    for (int queue = 0; queue < queues; queue++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            signal(SIGALRM, give_up);
            alarm(PATIENCE_SECONDS);
            establish(arguments[1], arguments[2]);
            work();
            rdma_disconnect(id);
            exit(0);
        }
    }
    int failed = 0, status;
    for (int queue = 0; queue < queues; queue++) {
        CHECK(wait(&status) > 0);
        failed += status != 0;
    }
    return failed ? 1 : 0;
}
