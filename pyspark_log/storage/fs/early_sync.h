/* Starts writeback early, so that a later fsync has less to wait for.

   Written pages are sent to the disk at once, if the system supports that. But a disk has a cache of its own, and flushing
   it takes time in proportion to its contents: 0.1 s for 100 MB was measured. So from time to time a thread syncs the file
   while the program continues. The thread opens the file separately: the system reports an error once to each open file,
   so the program's own sync still reports it. */

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef SYNC_FILE_RANGE_WRITE

#include "c_thread.h"

/* The number of bytes, of all files together, after which the disk's cache is flushed. */
#define EARLY_SYNC_DUE (16 * 1024 * 1024)

static long long early_sync_waiting = 0; /* bytes since then */
static pid_t early_sync_owner = 0;       /* the process whose thread is syncing; a forked child has no such thread */

static void *early_sync_thread(void *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    free(path);
    if (fd >= 0) {
        (void)!fdatasync(fd);
        close(fd);
    }
    __atomic_store_n(&early_sync_owner, 0, __ATOMIC_RELEASE);
    return NULL;
}

/* Starts writeback of a part of a file. Returns 1 if a sync of the file was started as well. */
static int early_sync(int fd, const char *path, long long position, long long size) {
    char *copy;
    pid_t owner = __atomic_load_n(&early_sync_owner, __ATOMIC_ACQUIRE), self = getpid();
    (void)!sync_file_range(fd, position, size, SYNC_FILE_RANGE_WRITE);
    if (__atomic_add_fetch(&early_sync_waiting, size, __ATOMIC_RELAXED) < EARLY_SYNC_DUE || owner == self)
        return 0;
    if (!__atomic_compare_exchange_n(&early_sync_owner, &owner, self, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return 0; /* Another thread was faster. */
    __atomic_store_n(&early_sync_waiting, 0, __ATOMIC_RELAXED);
    copy = strdup(path);
    if (copy != NULL && begin_c_thread(early_sync_thread, copy))
        return 1;
    free(copy);
    __atomic_store_n(&early_sync_owner, 0, __ATOMIC_RELEASE);
    return 0;
}

#else

static int early_sync(int fd, const char *path, long long position, long long size) { return 0; }

#endif
