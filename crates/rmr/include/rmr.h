/* The interface of librmr_si.so. docs/rmr.md says what each function does, and what differs from RMR. */
#ifndef RMR_H
#define RMR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RMR_MAX_XID 32
#define RMR_MAX_MEID 32
#define RMR_MAX_SRC 64
#define RMR_MAX_SID 32
#define RMR_MAX_RCV_BYTES 2048
#define RMR_DEF_MSG_SIZE 1024
#define RMR_DEF_SIZE 0

#define RMRFL_NONE 0x00
#define RMRFL_NOTHREAD 0x01
#define RMRFL_MTCALL 0x02
#define RMRFL_AUTO_ALLOC 0x03
#define RMRFL_NAME_ONLY 0x04
#define RMRFL_NOLOCK 0x08

#define RMR_VOID_MSGTYPE (-1)
#define RMR_VOID_SUBID (-1)

#define RMR_OK 0
#define RMR_ERR_BADARG 1
#define RMR_ERR_NOENDPT 2
#define RMR_ERR_EMPTY 3
#define RMR_ERR_NOHDR 4
#define RMR_ERR_SENDFAILED 5
#define RMR_ERR_CALLFAILED 6
#define RMR_ERR_NOWHOPEN 7
#define RMR_ERR_WHID 8
#define RMR_ERR_OVERFLOW 9
#define RMR_ERR_RETRY 10
#define RMR_ERR_RCVFAILED 11
#define RMR_ERR_TIMEOUT 12
#define RMR_ERR_UNSET 13
#define RMR_ERR_TRUNC 14
#define RMR_ERR_INITFAILED 15
#define RMR_ERR_NOTSUPP 16

#define RMR_NO_CLONE 0
#define RMR_CLONE 1
#define RMR_NO_COPY 0
#define RMR_COPY 1

#define RMR_WH_CONNECTED(a) ((a) >= 0)

typedef struct {
    int state;
    int mtype;
    int len;
    unsigned char *payload;
    unsigned char *xaction;
    int sub_id;
    int tp_state;
    /* not for programs */
    void *tp_buf;
    void *header;
    unsigned char *id;
    int flags;
    int alloc_len;
    void *ring;
    int rts_fd;
    int cookie;
} rmr_mbuf_t;

typedef int rmr_whid_t;

typedef struct {
    uint64_t drop;
    uint64_t enqueue;
} rmr_rx_debug_t;

/* begin and end */
void *rmr_init(char *port, int payload, int flags);
void rmr_close(void *context);
int rmr_ready(void *context);
int rmr_get_rcvfd(void *context);
int rmr_set_stimeout(void *context, int milliseconds);
int rmr_set_rtimeout(void *context, int milliseconds);
int rmr_init_trace(void *context, int size);
void rmr_set_low_latency(void *context);
void rmr_set_fack(void *context);
void rmr_set_vlevel(int level);

/* messages */
rmr_mbuf_t *rmr_alloc_msg(void *context, int size);
rmr_mbuf_t *rmr_tralloc_msg(void *context, int size, int trace_size, unsigned const char *trace);
rmr_mbuf_t *rmr_realloc_payload(rmr_mbuf_t *message, int size, int copy, int clone);
rmr_mbuf_t *rmr_realloc_msg(rmr_mbuf_t *message, int trace_size);
void rmr_free_msg(rmr_mbuf_t *message);
int rmr_payload_size(rmr_mbuf_t *message);

int rmr_bytes2meid(rmr_mbuf_t *message, unsigned char const *from, int size);
int rmr_str2meid(rmr_mbuf_t *message, unsigned char const *from);
int rmr_bytes2xact(rmr_mbuf_t *message, unsigned char const *from, int size);
int rmr_str2xact(rmr_mbuf_t *message, unsigned char const *from);
void rmr_bytes2payload(rmr_mbuf_t *message, unsigned char const *from, int size);
void rmr_str2payload(rmr_mbuf_t *message, unsigned char const *from);
unsigned char *rmr_get_meid(rmr_mbuf_t *message, unsigned char *into);
unsigned char *rmr_get_xact(rmr_mbuf_t *message, unsigned char *into);
unsigned char *rmr_get_src(rmr_mbuf_t *message, unsigned char *into);
unsigned char *rmr_get_srcip(rmr_mbuf_t *message, unsigned char *into);
int rmr_get_trlen(rmr_mbuf_t *message);
int rmr_get_trace(rmr_mbuf_t *message, unsigned char *into, int size);
int rmr_set_trace(rmr_mbuf_t *message, unsigned const char *from, int size);
void *rmr_trace_ref(rmr_mbuf_t *message, int *size);

/* sending */
rmr_mbuf_t *rmr_send_msg(void *context, rmr_mbuf_t *message);
rmr_mbuf_t *rmr_mtosend_msg(void *context, rmr_mbuf_t *message, int most);
rmr_mbuf_t *rmr_rts_msg(void *context, rmr_mbuf_t *message);
rmr_mbuf_t *rmr_call(void *context, rmr_mbuf_t *message);
rmr_mbuf_t *rmr_mt_call(void *context, rmr_mbuf_t *message, int call_id, int milliseconds);
rmr_whid_t rmr_wh_open(void *context, char const *target);
rmr_mbuf_t *rmr_wh_send_msg(void *context, rmr_whid_t wormhole, rmr_mbuf_t *message);
rmr_mbuf_t *rmr_wh_call(void *context, rmr_whid_t wormhole, rmr_mbuf_t *message, int call_id, int milliseconds);
int rmr_wh_state(void *context, rmr_whid_t wormhole);
void rmr_wh_close(void *context, int wormhole);

/* receiving */
rmr_mbuf_t *rmr_rcv_msg(void *context, rmr_mbuf_t *message);
rmr_mbuf_t *rmr_torcv_msg(void *context, rmr_mbuf_t *message, int milliseconds);
rmr_mbuf_t *rmr_mt_rcv(void *context, rmr_mbuf_t *message, int milliseconds);
rmr_mbuf_t *rmr_rcv_specific(void *context, rmr_mbuf_t *message, char *transaction, int most);
int rmr_get_rx_debug_info(void *context, rmr_rx_debug_t *into);
int rmr_reset_rx_debug_count(void *context);

/* for programs in other languages: the numbers above as JSON */
char *rmr_get_consts(void);
void rmr_free_consts(char *text);

#ifdef __cplusplus
}
#endif

#endif
