/* Connections that carry nothing, one after the other, for `interop/churn.rs`.
 *
 *   churn serve ADDRESS COUNT
 *   churn connect ADDRESS COUNT
 *
 * The client disconnects. Exit status 0: each connection stood and ended.
 */
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT "7174"

#define CHECK(condition)                                                          \
    do {                                                                          \
        if (!(condition)) {                                                       \
            fprintf(stderr, "churn: line %d: not so: %s (%m)\n", __LINE__, #condition); \
            exit(1);                                                              \
        }                                                                         \
    } while (0)

static struct rdma_conn_param param = {
    .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7,
};

static struct rdma_cm_id *create(char *address, int flags)
{
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_NUMERICHOST | flags};
    struct rdma_addrinfo *found;
    CHECK(!rdma_getaddrinfo(address, PORT, &hints, &found));
    struct ibv_qp_init_attr qp = {
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    struct rdma_cm_id *id;
    CHECK(!rdma_create_ep(&id, found, NULL, &qp));
    rdma_freeaddrinfo(found);
    return id;
}

static void serve(struct rdma_cm_id *listener, long count)
{
    CHECK(!rdma_listen(listener, 8));
    for (long at = 0; at < count; at++) {
        struct rdma_cm_id *id;
        struct rdma_cm_event *event;
        CHECK(!rdma_get_request(listener, &id));
        CHECK(!rdma_accept(id, &param));
        CHECK(!rdma_get_cm_event(id->channel, &event));
        CHECK(event->event == RDMA_CM_EVENT_DISCONNECTED);
        CHECK(!rdma_ack_cm_event(event));
        rdma_destroy_ep(id);
    }
    rdma_destroy_ep(listener);
}

static void connect_and_leave(char *address)
{
    struct rdma_cm_id *id = create(address, 0);
    CHECK(!rdma_connect(id, &param));
    CHECK(!rdma_disconnect(id));
    rdma_destroy_ep(id);
}

int main(int argc, char **argv)
{
    CHECK(argc == 4);
    long count = atol(argv[3]);
    if (!strcmp(argv[1], "serve"))
        serve(create(argv[2], RAI_PASSIVE), count);
    else
        for (long at = 0; at < count; at++)
            connect_and_leave(argv[2]);
    return 0;
}
