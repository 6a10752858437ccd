/* Files that a forked child does not share with its parent.

   A `flock` belongs to the open file, and ends when the last process that has it open closes it. So a child that is forked
   while its parent holds a lock, or before, would hold it until it ends, also after its parent was killed. Python's hooks
   see `os.fork` alone; these see each `fork` of the C library. (What calls the kernel itself is not seen.) */

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

typedef struct unshared_file {
    struct unshared_file *next;
    int fd;
} unshared_file;

static pthread_mutex_t unshared_guard = PTHREAD_MUTEX_INITIALIZER;
static unshared_file *unshared_first = NULL;

static void unshared_before_fork(void) { pthread_mutex_lock(&unshared_guard); }

static void unshared_in_parent(void) { pthread_mutex_unlock(&unshared_guard); }

/* The numbers stay in use, since objects of the child have them: they name /dev/null from now on. */
static void unshared_in_child(void) {
    int null = unshared_first == NULL ? -1 : open("/dev/null", O_RDWR | O_CLOEXEC);
    for (; null >= 0 && unshared_first != NULL; unshared_first = unshared_first->next) {
        dup2(null, unshared_first->fd);
        fcntl(unshared_first->fd, F_SETFD, FD_CLOEXEC);
    }
    if (null >= 0)
        close(null);
    unshared_first = NULL;
    pthread_mutex_init(&unshared_guard, NULL);
}

static void unshared_see_forks(void) { pthread_atfork(unshared_before_fork, unshared_in_parent, unshared_in_child); }

static void unshare_at_fork(unshared_file *one, int fd) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, unshared_see_forks);
    pthread_mutex_lock(&unshared_guard);
    one->fd = fd;
    one->next = unshared_first;
    unshared_first = one;
    pthread_mutex_unlock(&unshared_guard);
}

/* Before the file is closed. A file that is not in the list is ignored; in a forked child the list is empty. */
static void share_again(unshared_file *one) {
    unshared_file **place;
    pthread_mutex_lock(&unshared_guard);
    for (place = &unshared_first; *place != NULL && *place != one; place = &(*place)->next) {
    }
    if (*place != NULL)
        *place = one->next;
    pthread_mutex_unlock(&unshared_guard);
}
