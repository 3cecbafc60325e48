/* A clock on the wall that nobody can rely on: preloaded into a process, it is hours ahead and hours behind in turn,
   changing fifty times a second. The monotonic clock is left alone. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static void jump(struct timespec *now)
{
    struct timespec steady;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &steady);
    now->tv_sec += (steady.tv_nsec / 20000000) % 2 ? 5 * 3600 : -7 * 3600;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    long result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        jump(now);
    return (int)result;
}

int gettimeofday(struct timeval *now, void *zone)
{
    (void)zone;
    struct timespec fine;
    clock_gettime(CLOCK_REALTIME, &fine);
    now->tv_sec = fine.tv_sec;
    now->tv_usec = fine.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *into)
{
    struct timespec fine;
    clock_gettime(CLOCK_REALTIME, &fine);
    if (into)
        *into = fine.tv_sec;
    return fine.tv_sec;
}
