/* Has the disk begin with what a later sync will wait for.

   Written pages go to the disk at once, if the system can be asked for that. But a disk has a cache of its own, and to
   empty that takes time in proportion to what came into it: 0.1 s for 100 MB were seen. So now and then a thread syncs
   the file, while the program goes on. It opens the file anew: an error is still reported by the program's own sync,
   as the system reports it once to each opening. */

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef SYNC_FILE_RANGE_WRITE

#include "c_thread.h"

/* After how many bytes, of all files together, the cache of the disk is emptied. */
#define EARLY_SYNC_DUE (16 * 1024 * 1024)

static long long early_sync_waiting = 0; /* bytes since then */
static pid_t early_sync_owner = 0;       /* the process whose thread is at it; a forked child has no such thread */

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

/* Begins to write a part of a file; returns whether a sync of the file was begun, too. */
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
