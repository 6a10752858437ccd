/* pylog-python: Python for Spark's workers, started by a fork of a process that has their modules loaded.
 *
 * Spark starts a Python process for each kind of planning, and each imports PySpark, pandas and Arrow for a second. This
 * program asks the warm process of this user and environment (server.py) for a child in its place, lends it its standard
 * streams, passes signals on, and ends as the child ends. Whatever else Python is started for, and whenever anything is
 * not as expected, it becomes the Python beside it.
 *
 * The request: a length (uint32), with the three standard streams as SCM_RIGHTS; then strings, each with a zero byte:
 * the current folder, the count of arguments, the arguments, the environment. The answer: a process id (int32) with a
 * pidfd as SCM_RIGHTS, or 0: start Python yourself. One byte lets the child begin. At its end: its exit code, or minus
 * the signal that ended it (int32).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

static char python[PATH_MAX];

/* The folder of a file, with `name` in it. */
static void beside(const char *file, const char *name, char *path) {
    const char *slash = strrchr(file, '/');
    snprintf(path, PATH_MAX, "%.*s/%s", slash ? (int)(slash - file) : 1, slash ? file : ".", name);
}

static int plain(char **argv) {
    argv[0] = python;
    execvp(python, argv);
    fprintf(stderr, "pylog-python: %s cannot be started: %s\n", python, strerror(errno));
    return 127;
}

#ifdef __linux__
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

enum {
    ANSWER_MS = 5000,    /* how long the warm process has to answer */
    AGAIN_SECONDS = 60,  /* a warm process is not started again within this time, should it not come up */
    FOLDER_SIZE = 64,    /* the path of a socket has at most 107 characters */
};

static void find_python(void) {
    char self[PATH_MAX];
    ssize_t size = readlink("/proc/self/exe", self, sizeof self - 1);
    if (size > 0) {
        self[size] = 0;
        beside(self, "python", python);
        if (access(python, X_OK) == 0)
            return;
    }
    const char *started = (const char *)getauxval(AT_EXECFN); /* where an installer has linked it from a cache */
    if (started && strchr(started, '/')) {
        beside(started, "python", python);
        if (access(python, X_OK) == 0)
            return;
    }
    strcpy(python, "python3");
}

/* ---- which warm process: all that a process inherits, and that its modules may have read when they were loaded ---- */

static uint64_t hashed(uint64_t hash, const char *data, size_t size) { /* FNV-1a */
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)data[i]) * 1099511628211u;
    return hash;
}

static const uint64_t START = 14695981039346656037u;

static int starts(const char *text, const char *start) { return strncmp(text, start, strlen(start)) == 0; }

static uint64_t of_environment(void) {
    static const char *const read_at_load[] = {"LD_", "LC_", "LANG", "TZ=", "ARROW_", "PYARROW_", "MALLOC_", "GLIBC_",
                                               "HOME=", "SPARK_HOME=", "SPARK_REMOTE="};
    uint64_t sum = 0; /* the order says nothing */
    for (char **entry = environ; *entry; entry++) {
        int counts = starts(*entry, "PYTHON") && !starts(*entry, "PYTHON_");
        for (size_t i = 0; i < sizeof read_at_load / sizeof *read_at_load; i++)
            counts |= starts(*entry, read_at_load[i]);
        if (counts)
            sum += hashed(START, *entry, strlen(*entry));
    }
    return sum;
}

/* Adds a file's text; of /proc/self/status only what is inherited. */
static uint64_t of_file(uint64_t hash, const char *path) {
    static const char *const inherited[] = {"Umask", "Uid",    "Gid",    "Groups", "SigBlk",     "SigIgn",  "CapInh",
                                            "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Cpus_allowed:"};
    int is_status = strstr(path, "status") != NULL;
    char line[4096];
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        int counts = !is_status;
        for (size_t i = 0; i < sizeof inherited / sizeof *inherited; i++)
            counts |= starts(line, inherited[i]);
        if (counts)
            hash = hashed(hash, line, strlen(line));
    }
    if (file)
        fclose(file);
    return hash;
}

static uint64_t key_of(int unbuffered) {
    static const char *const files[] = {"/proc/self/status", "/proc/self/limits", "/proc/self/cgroup",
                                        "/proc/self/oom_score_adj"};
    static const char *const links[] = {"mnt", "net", "pid", "user", "ipc", "uts", "cgroup"};
    uint64_t hash = hashed(START, python, strlen(python) + 1);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        hash = of_file(hash, files[i]);
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        char path[64], target[64];
        snprintf(path, sizeof path, "/proc/self/ns/%s", links[i]);
        ssize_t size = readlink(path, target, sizeof target);
        hash = hashed(hash, target, size < 0 ? 0 : (size_t)size);
    }
    struct stat root;
    if (stat("/", &root) == 0) {
        hash = hashed(hash, (char *)&root.st_dev, sizeof root.st_dev);
        hash = hashed(hash, (char *)&root.st_ino, sizeof root.st_ino);
    }
    int nice = getpriority(PRIO_PROCESS, 0);
    hash = hashed(hash, (char *)&nice, sizeof nice);
    return hashed(hash, (char *)&unbuffered, sizeof unbuffered) + of_environment();
}

/* ---- what only a real start of Python does right ---- */

/* Whether these are the arguments of one of Spark's processes; `-u` may be in front. */
static int is_of_spark(int argc, char **argv, int *unbuffered) {
    int i = 1;
    for (; i < argc && strcmp(argv[i], "-u") == 0; i++)
        *unbuffered = 1;
    return i + 1 < argc && strcmp(argv[i], "-m") == 0 && starts(argv[i + 1], "pyspark.");
}

/* Whether the standard streams are open, and no other file, which a child would have to inherit. */
static int has_three_files(void) {
    DIR *open_files = opendir("/proc/self/fd");
    if (!open_files)
        return 0;
    int count = 0, others = 0;
    for (struct dirent *entry; (entry = readdir(open_files));) {
        if (entry->d_name[0] == '.')
            continue;
        int file = atoi(entry->d_name);
        count += file <= 2;
        others += file > 2 && file != dirfd(open_files);
    }
    closedir(open_files);
    return count == 3 && !others;
}

static int has_absolute_paths(void) {
    const char *paths = getenv("PYTHONPATH");
    for (const char *path = paths; path && *path;) {
        const char *end = strchr(path, ':');
        if (*path != '/')
            return 0;
        path = end ? end + 1 : NULL;
    }
    return 1;
}

/* Whether the folder of the sockets is there, or could be made, and nobody else can write in it. */
static int find_folder(char *folder) {
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    struct stat status;
    if (runtime && *runtime == '/' && strlen(runtime) <= 40 && stat(runtime, &status) == 0 &&
        status.st_uid == geteuid())
        snprintf(folder, FOLDER_SIZE, "%s/pylog-python", runtime);
    else
        snprintf(folder, FOLDER_SIZE, "/tmp/pylog-python-%u", (unsigned)geteuid());
    if (mkdir(folder, 0700) < 0 && errno != EEXIST)
        return 0;
    return lstat(folder, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
           (status.st_mode & 077) == 0;
}

/* ---- the warm process ---- */

static void become_warm(const char *folder, const char *key, int unbuffered, int errors) {
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(nothing, 0);
    dup2(nothing, 1);
    dup2(errors, 2);
    /* They have secrets of a session of Spark, which would stay in the environment of a process that outlives it. */
    char **kept = environ;
    for (char **entry = environ; *entry; entry++)
        if (!starts(*entry, "PYTHON_"))
            *kept++ = *entry;
    *kept = NULL;
    const char *module = "pyspark_log.warm_python";
    if (chdir("/") == 0 && unbuffered)
        execlp(python, python, "-u", "-m", module, folder, key, NULL);
    else
        execlp(python, python, "-m", module, folder, key, NULL);
    _exit(127);
}

/* Starts the warm process beside this start, for the next ones. */
static void start_warm(const char *folder, const char *key, int unbuffered) {
    char log[FOLDER_SIZE + 32];
    struct stat status;
    snprintf(log, sizeof log, "%s/%s.log", folder, key);
    if (stat(log, &status) == 0 && time(NULL) - status.st_mtime < AGAIN_SECONDS)
        return;
    int errors = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (errors < 0)
        return;
    futimens(errors, NULL);
    pid_t first = fork();
    if (first == 0) {
        if (setsid() >= 0 && fork() == 0)
            become_warm(folder, key, unbuffered, errors);
        _exit(0);
    }
    if (first > 0)
        while (waitpid(first, NULL, 0) < 0 && errno == EINTR)
            ;
    close(errors);
}

static int connected(const char *folder, const char *key) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", folder, key);
    int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (server >= 0 && connect(server, (struct sockaddr *)&address, sizeof address) == 0 &&
        getsockopt(server, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid())
        return server;
    close(server);
    return -1;
}

static int send_all(int server, const char *data, size_t size) {
    while (size) {
        ssize_t sent = send(server, data, size, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            return -1;
        data += sent > 0 ? sent : 0;
        size -= sent > 0 ? (size_t)sent : 0;
    }
    return 0;
}

/* Sends what is to be started, with the standard streams. */
static int ask(int server, int argc, char **argv) {
    char folder[PATH_MAX], count[16];
    if (!getcwd(folder, sizeof folder))
        return -1;
    snprintf(count, sizeof count, "%d", argc);
    size_t size = strlen(folder) + strlen(count) + 2;
    for (int i = 0; i < argc; i++)
        size += strlen(argv[i]) + 1;
    for (char **entry = environ; *entry; entry++)
        size += strlen(*entry) + 1;
    char *text = malloc(size), *at = text;
    if (!text || size > UINT32_MAX)
        return -1;
    at = stpcpy(stpcpy(at, folder) + 1, count) + 1;
    for (int i = 0; i < argc; i++)
        at = stpcpy(at, argv[i]) + 1;
    for (char **entry = environ; *entry; entry++)
        at = stpcpy(at, *entry) + 1;

    uint32_t length = (uint32_t)size;
    int streams[3] = {0, 1, 2};
    union {
        char bytes[CMSG_SPACE(sizeof streams)];
        struct cmsghdr aligned;
    } control = {{0}};
    struct iovec data = {&length, sizeof length};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    struct cmsghdr *files = CMSG_FIRSTHDR(&message);
    files->cmsg_level = SOL_SOCKET;
    files->cmsg_type = SCM_RIGHTS;
    files->cmsg_len = CMSG_LEN(sizeof streams);
    memcpy(CMSG_DATA(files), streams, sizeof streams);
    int failed = sendmsg(server, &message, MSG_NOSIGNAL) != sizeof length || send_all(server, text, size);
    free(text);
    return failed ? -1 : 0;
}

/* The pidfd of the child that waits to begin; -1: Python is to be started here. */
static int answer(int server) {
    struct pollfd readable = {server, POLLIN, 0};
    if (poll(&readable, 1, ANSWER_MS) != 1)
        return -1;
    int32_t process = 0;
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } control;
    struct iovec data = {&process, sizeof process};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    if (recvmsg(server, &message, MSG_CMSG_CLOEXEC) != sizeof process || process <= 0)
        return -1;
    struct cmsghdr *files = CMSG_FIRSTHDR(&message);
    if (!files || files->cmsg_type != SCM_RIGHTS)
        return -1;
    int child;
    memcpy(&child, CMSG_DATA(files), sizeof child);
    return child;
}

static int child = -1;

static void pass_on(int number) {
    int before = errno;
    syscall(SYS_pidfd_send_signal, child, number, NULL, 0);
    errno = before;
}

static int wait_for(int server) {
    struct pollfd ends[2] = {{server, POLLIN, 0}, {child, POLLIN, 0}};
    int32_t code = 0;
    for (int timeout = -1;;) {
        int ready = poll(ends, 2, timeout);
        if (ready < 0)
            continue; /* a signal, which was passed on */
        if (ends[0].revents) {
            if (recv(server, &code, sizeof code, MSG_DONTWAIT) == sizeof code)
                break;
            ends[0].fd = -1;
        }
        if (ends[1].revents) {
            ends[1].fd = -1;
            timeout = ANSWER_MS; /* its exit code follows, if the warm process lives */
        }
        if (ready == 0 || (ends[0].fd < 0 && ends[1].fd < 0)) {
            fputs("pylog-python: the warm process was killed, so the exit code of this one is unknown\n", stderr);
            return 1;
        }
    }
    if (code >= 0)
        return code;
    struct rlimit nothing = {0, 0}; /* the core is the child's */
    setrlimit(RLIMIT_CORE, &nothing);
    signal(-code, SIG_DFL);
    raise(-code);
    return 128 - code;
}

/* Does all that Python is to do here, in a child of the warm process, and ends as it does; or returns. */
static void start_in_warm(int argc, char **argv) {
    static const int passed[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT};
    int unbuffered = 0;
    char folder[FOLDER_SIZE], key[17];
    if (!is_of_spark(argc, argv, &unbuffered) || !has_three_files() || !has_absolute_paths() || !find_folder(folder))
        return;
    snprintf(key, sizeof key, "%016llx", (unsigned long long)key_of(unbuffered));
    int server = connected(folder, key);
    if (server < 0) {
        start_warm(folder, key, unbuffered);
        return;
    }
    if (ask(server, argc, argv) < 0 || (child = answer(server)) < 0) {
        close(server);
        return;
    }
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        if (signal(passed[i], pass_on) == SIG_IGN)
            signal(passed[i], SIG_IGN);
    if (send_all(server, "", 1) == 0)
        exit(wait_for(server));
}
#else
static void find_python(void) { strcpy(python, "python3"); }
static void start_in_warm(int argc, char **argv) { (void)argc, (void)argv; }
#endif

int main(int argc, char **argv) {
    find_python();
    start_in_warm(argc, argv);
    return plain(argv);
}
