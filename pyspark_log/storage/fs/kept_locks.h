/* File locks that are kept for a moment after use, and a thread that releases them in time.

   Locking a file, checking what other processes changed, and unlocking it takes longer than a small append. So a process
   that appends without pause keeps the lock between two appends, but never beyond a deadline. The thread enforces the
   deadline whatever the process does, because it needs no interpreter. */

#include <errno.h>
#include <pthread.h>
#include <sys/file.h>
#include <time.h>

#include "c_thread.h"

typedef struct kept_lock {
    struct kept_lock *next;
    long long until; /* by `monotonic_ns` */
    int fd;
    int is_kept;
} kept_lock;

/* The thread's polling interval in ns, and the number of idle polls before it sleeps until it is signalled. */
#define KEPT_LOCKS_PAUSE 500000
#define KEPT_LOCKS_TRIES 20

static pthread_mutex_t kept_guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t kept_call = PTHREAD_COND_INITIALIZER;
static kept_lock *kept_first = NULL;
static int kept_thread_runs = 0, kept_thread_sleeps = 0, kept_forks_are_seen = 0;

static long long monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void kept_give_back(void) {
    long long now = monotonic_ns();
    kept_lock **place = &kept_first;
    while (*place != NULL) {
        kept_lock *one = *place;
        if (one->until <= now) {
            while (flock(one->fd, LOCK_UN) && errno == EINTR) {
            }
            one->is_kept = 0;
            *place = one->next;
        } else {
            place = &one->next;
        }
    }
}

static void *kept_thread(void *unused) {
    struct timespec pause = {0, KEPT_LOCKS_PAUSE};
    int in_vain = 0;
    (void)unused;
    pthread_mutex_lock(&kept_guard);
    for (;;) {
        in_vain = kept_first == NULL ? in_vain + 1 : 0;
        if (in_vain > KEPT_LOCKS_TRIES) {
            in_vain = 0;
            kept_thread_sleeps = 1;
            pthread_cond_wait(&kept_call, &kept_guard);
            kept_thread_sleeps = 0;
        }
        kept_give_back();
        pthread_mutex_unlock(&kept_guard);
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&kept_guard);
    }
    return NULL;
}

static void kept_before_fork(void) { pthread_mutex_lock(&kept_guard); }

static void kept_in_parent(void) { pthread_mutex_unlock(&kept_guard); }

/* A forked child has neither this thread nor its parent's locks. */
static void kept_in_child(void) {
    for (; kept_first != NULL; kept_first = kept_first->next)
        kept_first->is_kept = 0;
    kept_thread_runs = kept_thread_sleeps = 0;
    pthread_cond_init(&kept_call, NULL);
    pthread_mutex_init(&kept_guard, NULL);
}

static int kept_begin_thread(void) {
    if (!kept_forks_are_seen) {
        if (pthread_atfork(kept_before_fork, kept_in_parent, kept_in_child))
            return 0;
        kept_forks_are_seen = 1;
    }
    return begin_c_thread(kept_thread, NULL);
}

/* Keeps the lock on `fd` until `until`. Returns 0 if the helper thread could not start. */
static int keep_lock(kept_lock *one, int fd, long long until) {
    int keeps;
    pthread_mutex_lock(&kept_guard);
    keeps = kept_thread_runs = kept_thread_runs || kept_begin_thread();
    if (keeps) {
        one->fd = fd;
        one->until = until;
        one->is_kept = 1;
        one->next = kept_first;
        kept_first = one;
        if (kept_thread_sleeps)
            pthread_cond_signal(&kept_call);
    }
    pthread_mutex_unlock(&kept_guard);
    return keeps;
}

/* Takes a kept lock back. Returns 0 if it was not kept or has been released. */
static int take_kept_lock(kept_lock *one) {
    int was_kept;
    kept_lock **place;
    pthread_mutex_lock(&kept_guard);
    was_kept = one->is_kept;
    if (was_kept) {
        one->is_kept = 0;
        for (place = &kept_first; *place != one; place = &(*place)->next) {
        }
        *place = one->next;
    }
    pthread_mutex_unlock(&kept_guard);
    return was_kept;
}
