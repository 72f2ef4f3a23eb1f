/* Preloaded into a process, it makes the time of day wrong by CLOCK_OFFSET seconds. Clocks that only measure how much
   time has passed stay right, and so do all waits. libfaketime 0.9.10 breaks the sleep of Python 3.11 and newer. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long offset_ns(void) {
    static long long found;
    static int known;
    if (!known) {
        const char *text = getenv("CLOCK_OFFSET");
        found = text ? (long long)(atof(text) * 1e9) : 0;
        known = 1;
    }
    return found;
}

int clock_gettime(clockid_t clock, struct timespec *shown) {
    int result = (int)syscall(SYS_clock_gettime, clock, shown);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        long long all = shown->tv_sec * 1000000000LL + shown->tv_nsec + offset_ns();
        shown->tv_sec = all / 1000000000LL;
        shown->tv_nsec = all % 1000000000LL;
    }
    return result;
}

int gettimeofday(struct timeval *restrict shown, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    shown->tv_sec = exact.tv_sec;
    shown->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds) {
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    if (seconds) *seconds = exact.tv_sec;
    return exact.tv_sec;
}

/* The only wait of Python, in multiprocessing, that ends at a time of day. */
int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until) {
    static int (*wait)(sem_t *, const struct timespec *);
    if (!wait) wait = (int (*)(sem_t *, const struct timespec *))dlsym(RTLD_NEXT, "sem_timedwait");
    long long all = until->tv_sec * 1000000000LL + until->tv_nsec - offset_ns();
    struct timespec right = {all / 1000000000LL, all % 1000000000LL};
    return wait(semaphore, &right);
}
