/* Calls a raw-unix server of the lab, one call at a time, and times each call as the lab does: two readings of
 * CLOCK_MONOTONIC around it, every reply compared.
 *
 * usage: echo SOCKET CPU SIZE CALLS
 * A CPU below 0 is none in particular. Prints the median and the CPU time per call, both in nanoseconds.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { HEADER = 4, WARM_UP = 500 };

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int64_t now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static int64_t cpu(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000000LL +
           (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1000LL;
}

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Sends a whole message and receives a whole one of `size` bytes behind its length. */
static void ask(int server, const char *message, size_t length, char *reply, size_t size) {
    for (size_t done = 0; done < length;) {
        ssize_t sent = send(server, message + done, length - done, 0);
        if (sent <= 0) fail("send");
        done += (size_t)sent;
    }
    for (size_t done = 0; done < HEADER + size;) {
        ssize_t got = recv(server, reply + done, HEADER + size - done, 0);
        if (got <= 0) fail("recv");
        done += (size_t)got;
    }
}

int main(int count, char **words) {
    if (count != 5) return 2;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int pinned = atoi(words[2]);
    size_t size = strtoul(words[3], NULL, 10), calls = strtoul(words[4], NULL, 10);
    char *message = malloc(HEADER + size), *reply = malloc(HEADER + size);
    int64_t *times = malloc(calls * sizeof *times);
    if (!message || !reply || !times || strlen(words[1]) >= sizeof address.sun_path) fail("echo");
    strcpy(address.sun_path, words[1]);
    if (pinned >= 0) {
        cpu_set_t only;
        CPU_ZERO(&only);
        CPU_SET(pinned, &only);
        if (sched_setaffinity(0, sizeof only, &only)) fail("sched_setaffinity");
    }
    int server = socket(AF_UNIX, SOCK_STREAM, 0);
    if (server < 0 || connect(server, (struct sockaddr *)&address, sizeof address)) fail("connect");
    ask(server, "\4\0\0\0echo", HEADER + 4, reply, 0); /* names the method; the reply is empty */
    uint32_t length = (uint32_t)size;
    memcpy(message, &length, HEADER); /* little-endian, as the lab's machines are */
    memset(message + HEADER, 'A', size);
    for (int at = 0; at < WARM_UP; at++) ask(server, message, HEADER + size, reply, size);
    int64_t used = cpu();
    for (size_t at = 0; at < calls; at++) {
        int64_t begun = now();
        ask(server, message, HEADER + size, reply, size);
        times[at] = now() - begun;
        if (memcmp(message, reply, HEADER + size)) {
            fprintf(stderr, "a wrong reply\n");
            return 1;
        }
        message[HEADER + size - 1] ^= 1; /* so that an old reply is not taken for this one's */
    }
    used = cpu() - used;
    qsort(times, calls, sizeof *times, ascending);
    printf("%lld %lld\n", (long long)times[(calls - 1) / 2], (long long)(used / (int64_t)calls));
    return 0;
}
