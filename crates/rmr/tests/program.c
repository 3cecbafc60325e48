/* One of two programs: `answer` sends back what comes until it is told to end, `ask` tries everything. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rmr.h>

#define CHECK(what)                                                            \
    do {                                                                       \
        if (!(what)) {                                                         \
            fprintf(stderr, "line %d: %s\n", __LINE__, #what);                 \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

enum { PATIENCE = 30000, PLAIN = 1000, SUBSCRIBED = 1001, LAST = 9, THREADS = 4, CALLS = 50 };

static void *context;

static void answer(void) {
    rmr_mbuf_t *message = NULL;
    for (;;) {
        message = rmr_torcv_msg(context, message, PATIENCE);
        CHECK(message != NULL && message->state == RMR_OK);
        if (message->mtype == LAST) break;
        if (message->mtype == 55) { /* a reply that is longer than what came */
            message = rmr_realloc_payload(message, 100000, RMR_COPY, RMR_NO_CLONE);
            CHECK(message != NULL && rmr_payload_size(message) >= 100000);
            memset(message->payload, 'z', 100000);
            message->len = 100000;
        }
        message->mtype += 1;
        message = rmr_rts_msg(context, message);
        CHECK(message != NULL && message->state == RMR_OK);
    }
    rmr_free_msg(message);
}

static rmr_mbuf_t *fresh(int type, const char *text, const char *transaction) {
    rmr_mbuf_t *message = rmr_alloc_msg(context, 200);
    CHECK(message != NULL && message->state == RMR_OK && message->mtype == -1 && message->sub_id == -1);
    CHECK(rmr_payload_size(message) == 200);
    message->mtype = type;
    rmr_str2payload(message, (const unsigned char *)text);
    CHECK(message->len == (int)strlen(text) + 1);
    CHECK(rmr_str2xact(message, (const unsigned char *)transaction) == RMR_OK);
    return message;
}

static void *call_often(void *number) {
    int id = *(int *)number;
    char text[64], transaction[32];
    for (int i = 0; i < CALLS; i++) {
        snprintf(text, sizeof text, "call %d of %d", i, id);
        snprintf(transaction, sizeof transaction, "%d-%d", id, i);
        rmr_mbuf_t *reply = rmr_mt_call(context, fresh(PLAIN, text, transaction), id, PATIENCE);
        CHECK(reply != NULL && reply->state == RMR_OK && reply->mtype == PLAIN + 1);
        CHECK(strcmp((char *)reply->payload, text) == 0 && strcmp((char *)reply->xaction, transaction) == 0);
        rmr_free_msg(reply);
    }
    return NULL;
}

static void ask(char *other) {
    unsigned char field[64], trace[8];
    rmr_mbuf_t *message, *reply;

    /* there may be nobody yet */
    message = fresh(PLAIN, "hello", "t1");
    CHECK(rmr_str2meid(message, (const unsigned char *)"meid000") == RMR_OK);
    for (int tries = 0;; tries++) {
        message = rmr_send_msg(context, message);
        CHECK(message != NULL && tries < PATIENCE);
        if (message->state == RMR_OK) break;
        CHECK(message->state == RMR_ERR_NOENDPT && errno == ENXIO);
        usleep(1000);
    }
    CHECK(message->mtype == -1 && message->len == 0); /* it can be used again */

    /* polled */
    struct pollfd waiting = {.fd = rmr_get_rcvfd(context), .events = POLLIN};
    CHECK(poll(&waiting, 1, PATIENCE) == 1);
    message = rmr_torcv_msg(context, message, 0);
    CHECK(message != NULL && message->state == RMR_OK && message->mtype == PLAIN + 1);
    CHECK(message->len == 6 && strcmp((char *)message->payload, "hello") == 0);
    CHECK(rmr_get_meid(message, field) == field && strcmp((char *)field, "meid000") == 0);
    CHECK(rmr_get_xact(message, field) == field && strcmp((char *)field, "t1") == 0);
    CHECK(rmr_get_src(message, field) == field && strcmp((char *)field, other) == 0);
    CHECK(rmr_get_srcip(message, field) == field && strchr((char *)field, ':') != NULL);
    CHECK(rmr_torcv_msg(context, message, 0) == message && message->state == RMR_ERR_TIMEOUT);
    rmr_free_msg(message);

    /* trace data, and a subscription */
    message = rmr_tralloc_msg(context, 100, 5, (const unsigned char *)"abcde");
    CHECK(message != NULL && message->state == RMR_OK && rmr_get_trlen(message) == 5);
    CHECK(rmr_set_trace(message, (const unsigned char *)"longer", 6) == 6);
    message->mtype = SUBSCRIBED;
    message->sub_id = 7;
    rmr_bytes2payload(message, (const unsigned char *)"x", 1);
    message = rmr_send_msg(context, message);
    CHECK(message->state == RMR_OK);
    message = rmr_torcv_msg(context, message, PATIENCE);
    CHECK(message->state == RMR_OK && message->sub_id == 7 && message->len == 1);
    CHECK(rmr_get_trace(message, trace, sizeof trace) == 6 && memcmp(trace, "longer", 6) == 0);
    message->mtype = SUBSCRIBED;
    message->sub_id = 8;
    message = rmr_send_msg(context, message);
    CHECK(message->state == RMR_ERR_NOENDPT);
    rmr_free_msg(message);

    /* calls, of one thread and of several */
    reply = rmr_call(context, fresh(PLAIN, "plain", "t2"));
    CHECK(reply != NULL && strcmp((char *)reply->payload, "plain") == 0);
    rmr_free_msg(reply);
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i + 2;
        CHECK(pthread_create(&threads[i], NULL, call_often, &numbers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    message = fresh(PLAIN, "x", "x");
    CHECK(rmr_mt_call(context, message, 1, 10) == message && message->state == RMR_ERR_BADARG);
    rmr_free_msg(message);

    /* straight to somebody */
    CHECK(rmr_wh_state(context, 0) == RMR_ERR_NOWHOPEN);
    CHECK(rmr_wh_open(context, "127.0.0.1:1") == -1);
    rmr_whid_t wormhole = rmr_wh_open(context, other);
    CHECK(RMR_WH_CONNECTED(wormhole) && rmr_wh_open(context, other) == wormhole);
    CHECK(rmr_wh_state(context, wormhole) == RMR_OK && rmr_wh_state(context, 77) == RMR_ERR_WHID);
    message = rmr_wh_send_msg(context, wormhole, fresh(55, "long", "t3"));
    CHECK(message->state == RMR_OK);
    message = rmr_torcv_msg(context, message, PATIENCE);
    CHECK(message->state == RMR_OK && message->mtype == 56 && message->len == 100000);
    CHECK(message->payload[0] == 'z' && message->payload[99999] == 'z');
    rmr_mbuf_t *copy = rmr_realloc_payload(message, 200000, RMR_COPY, RMR_CLONE);
    CHECK(copy != NULL && copy != message && copy->len == 100000 && copy->payload[99999] == 'z');
    rmr_free_msg(copy);
    rmr_free_msg(message);
    reply = rmr_wh_call(context, wormhole, fresh(77, "call", "t4"), 33, PATIENCE);
    CHECK(reply != NULL && reply->mtype == 78 && strcmp((char *)reply->payload, "call") == 0);
    rmr_free_msg(reply);

    rmr_rx_debug_t counts;
    CHECK(rmr_get_rx_debug_info(context, &counts) == 0 && counts.enqueue == 3 && counts.drop == 0);
    message = rmr_wh_send_msg(context, wormhole, fresh(LAST, "", ""));
    CHECK(message->state == RMR_OK);
    rmr_free_msg(message);
    rmr_wh_close(context, wormhole);
    CHECK(rmr_wh_state(context, wormhole) == RMR_ERR_WHID);
    puts("all is well");
}

int main(int count, char **arguments) {
    CHECK(count == 4);
    context = rmr_init(arguments[2], RMR_MAX_RCV_BYTES, RMRFL_MTCALL);
    CHECK(context != NULL);
    for (int tries = 0; !rmr_ready(context); tries++) {
        CHECK(tries < PATIENCE);
        usleep(1000);
    }
    if (strcmp(arguments[1], "answer") == 0)
        answer();
    else
        ask(arguments[3]);
    rmr_close(context);
    return 0;
}
