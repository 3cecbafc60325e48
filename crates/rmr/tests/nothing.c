/* Every function is given nothing, or a message without a context. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rmr.h>

#define CHECK(what)                                                            \
    do {                                                                       \
        if (!(what)) {                                                         \
            fprintf(stderr, "line %d: %s\n", __LINE__, #what);                 \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

int main(void) {
    unsigned char field[64];
    CHECK(rmr_init("no port", 0, 0) == NULL && errno == EINVAL);
    CHECK(rmr_ready(NULL) == 0 && rmr_get_rcvfd(NULL) == -1);
    CHECK(rmr_set_stimeout(NULL, 1) == -1 && rmr_init_trace(NULL, 1) == 0);
    CHECK(rmr_set_rtimeout(NULL, 1) == 0);
    rmr_close(NULL);
    rmr_set_low_latency(NULL);
    rmr_set_fack(NULL);
    rmr_free_msg(NULL);
    CHECK(rmr_alloc_msg(NULL, 10) == NULL && rmr_tralloc_msg(NULL, 10, 1, field) == NULL);
    CHECK(rmr_send_msg(NULL, NULL) == NULL && rmr_mtosend_msg(NULL, NULL, 1) == NULL && rmr_rts_msg(NULL, NULL) == NULL);
    CHECK(rmr_call(NULL, NULL) == NULL && rmr_mt_call(NULL, NULL, 2, 1) == NULL);
    CHECK(rmr_rcv_msg(NULL, NULL) == NULL && rmr_torcv_msg(NULL, NULL, 1) == NULL && rmr_mt_rcv(NULL, NULL, 1) == NULL);
    CHECK(rmr_rcv_specific(NULL, NULL, NULL, 1) == NULL);
    CHECK(rmr_wh_open(NULL, NULL) == -1 && rmr_wh_open(NULL, "a:1") == -1);
    CHECK(rmr_wh_send_msg(NULL, 0, NULL) == NULL && rmr_wh_call(NULL, 0, NULL, 2, 1) == NULL);
    CHECK(rmr_wh_state(NULL, 0) == RMR_ERR_BADARG);
    rmr_wh_close(NULL, 0);
    CHECK(rmr_payload_size(NULL) == -1 && rmr_realloc_payload(NULL, 1, 0, 0) == NULL && rmr_realloc_msg(NULL, 1) == NULL);
    CHECK(rmr_bytes2meid(NULL, field, 1) == -1 && rmr_str2meid(NULL, field) == RMR_ERR_BADARG);
    CHECK(rmr_bytes2xact(NULL, field, 1) == -1 && rmr_str2xact(NULL, field) == RMR_ERR_BADARG);
    rmr_bytes2payload(NULL, field, 1);
    rmr_str2payload(NULL, field);
    CHECK(rmr_get_meid(NULL, field) == NULL && rmr_get_xact(NULL, field) == NULL);
    CHECK(rmr_get_src(NULL, field) == NULL && rmr_get_srcip(NULL, field) == NULL);
    CHECK(rmr_get_trlen(NULL) == 0 && rmr_get_trace(NULL, field, 1) == 0 && rmr_set_trace(NULL, field, 1) == 0);
    CHECK(rmr_trace_ref(NULL, NULL) == NULL);
    CHECK(rmr_get_rx_debug_info(NULL, NULL) == EINVAL && rmr_reset_rx_debug_count(NULL) == EINVAL);
    rmr_free_consts(NULL);

    char *numbers = rmr_get_consts();
    CHECK(numbers != NULL && strstr(numbers, "\"RMR_ERR_TIMEOUT\": 12") != NULL);
    rmr_free_consts(numbers);

    /* a context without a table, at a port that the system chooses; and a message without one */
    void *context = rmr_init("0", 100, RMRFL_NOTHREAD);
    CHECK(context != NULL && rmr_ready(context) == 1);
    rmr_mbuf_t *message = rmr_alloc_msg(context, 0);
    CHECK(message != NULL && rmr_payload_size(message) == 100 && rmr_alloc_msg(context, 2147483647) == NULL);
    CHECK(rmr_send_msg(NULL, message) == message && message->state == RMR_ERR_BADARG && message->tp_state == EINVAL);
    CHECK(rmr_send_msg(context, message) == message && message->state == RMR_ERR_NOENDPT);
    CHECK(rmr_wh_send_msg(context, 0, message) == message && message->state == RMR_ERR_NOWHOPEN);
    CHECK(rmr_bytes2meid(message, NULL, 1) == -1 && rmr_bytes2meid(message, field, -1) == -1);
    memset(field, 'x', sizeof field);
    CHECK(rmr_bytes2meid(message, field, 64) == 32 && errno == EOVERFLOW);
    CHECK(strlen((char *)rmr_get_meid(message, field)) == 31);
    CHECK(rmr_str2xact(message, (unsigned char *)"0123456789012345678901234567890123") == RMR_ERR_OVERFLOW);
    message->len = 2147483647; /* more than there is */
    CHECK(rmr_send_msg(context, message) == message);
    message->len = -5;
    CHECK(rmr_send_msg(context, message) == message);
    CHECK(rmr_torcv_msg(context, message, 1) == message && message->state == RMR_ERR_TIMEOUT);
    CHECK(rmr_torcv_msg(context, NULL, 1) == NULL);
    rmr_free_msg(message);
    rmr_close(context);
    CHECK(rmr_rcv_msg(context, NULL) == NULL); /* nothing comes any more */
    return 0;
}
