/* The study's own measurement of RMR: one program sends as fast as it can, the other counts and times what comes.
 *
 *   one_way receive PORT MESSAGES       writes "ready", then messages per second from the first to the last
 *   one_way send PORT MESSAGES SIZE     by the table that RMR_SEED_RT names
 *
 * What is declared here is RMR's published interface, which any librmr_si.so has.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, RETRY = 10, TIMEOUT = 12, TYPE = 1000, PATIENCE_MS = 10000, TRIES = 10000 };

typedef struct {
    int state;
    int mtype;
    int len;
    unsigned char *payload;
    unsigned char *xaction;
    int sub_id;
    int tp_state;
} message_t;

extern void *rmr_init(char *port, int payload, int flags);
extern int rmr_ready(void *context);
extern message_t *rmr_alloc_msg(void *context, int size);
extern message_t *rmr_send_msg(void *context, message_t *message);
extern message_t *rmr_torcv_msg(void *context, message_t *message, int milliseconds);

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int fail(const char *what, int state) {
    fprintf(stderr, "%s: state %d\n", what, state);
    return 1;
}

static int receive(void *context, long expected) {
    message_t *message = NULL;
    double begin = 0;
    long count = 0;
    puts("ready");
    fflush(stdout);
    while (count < expected) {
        message = rmr_torcv_msg(context, message, PATIENCE_MS);
        if (message == NULL) return fail("rmr_torcv_msg returned nothing", -1);
        if (message->state == TIMEOUT) {
            fprintf(stderr, "%ld of %ld messages came\n", count, expected);
            return 1;
        }
        if (message->state != OK) return fail("rmr_torcv_msg", message->state);
        if (count++ == 0) begin = now();
    }
    printf("%.1f\n", (double)(expected - 1) / (now() - begin));
    return 0;
}

static int send(void *context, long messages, int size) {
    unsigned char *data = calloc(1, (size_t)size);
    message_t *message = rmr_alloc_msg(context, size);
    int tries = 0;
    for (long i = 0; i < messages;) {
        memcpy(message->payload, data, (size_t)size);
        message->mtype = TYPE;
        message->sub_id = -1;
        message->len = size;
        message = rmr_send_msg(context, message);
        if (message == NULL) return fail("rmr_send_msg returned nothing", -1);
        if (message->state == OK) {
            i++;
        } else if (message->state != RETRY) {
            if (i > 0 || ++tries > TRIES) return fail("rmr_send_msg", message->state);
            usleep(1000); /* nobody is connected yet */
        }
    }
    puts("sent");
    fflush(stdout);
    getchar(); /* what the library has not sent yet would be lost: this program ends when it is told to */
    return 0;
}

int main(int count, char **words) {
    if (count < 4) return fail("arguments", count);
    int size = count > 4 ? atoi(words[4]) : 4096;
    void *context = rmr_init(words[2], size, 0);
    if (context == NULL) return fail("rmr_init takes no messages there", -1);
    if (strcmp(words[1], "receive") == 0) return receive(context, atol(words[3]));
    for (int tries = 0; !rmr_ready(context); tries++) {
        if (tries > TRIES) return fail("rmr_ready says no", -1);
        usleep(1000);
    }
    return send(context, atol(words[3]), size);
}
