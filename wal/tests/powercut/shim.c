/* A library to preload into a process: remembers how to undo what is not yet synced.
 *
 * For every path below ISTER_POWERCUT_DIR it appends to ISTER_POWERCUT_UNDO/log, before
 * a write or truncate acts, the bytes that will be lost, and, after a name operation, what
 * it did. A file that is unlinked or replaced keeps a second name in that folder. A sync
 * that succeeds is logged with the end of the log as it was when the sync began: what lies
 * before it is durable. After kill -9 `restore.py` reads the log and takes back the rest.
 *
 * Faults, from the environment or, changed at run time, from lines `name=value` in the
 * file ISTER_POWERCUT_CONTROL (names in lower case, without ISTER_; replace it by rename):
 *   ISTER_FSYNC_DELAY_MS         every fsync and fdatasync of a matching path takes longer
 *   ISTER_FSYNC_FAIL_AT          the n-th sync of a matching path answers EIO, counted from 1
 *   ISTER_FSYNC_PATTERN          fnmatch pattern on the whole path; default: all
 *   ISTER_ENOSPC_AFTER_BYTES     files may grow by this much in all; negative: no limit
 *
 * One mutex (and a lock on the log, for several processes) stands around logging plus
 * acting, so the log has the order of the acts. Syncs run outside it.
 *
 * Not seen: stdio, io_uring, symbolic links, exchange by renameat2 (refused). A writable
 * shared mapping cannot be undone and is logged, so that restore refuses. SQLite's -shm
 * files are left alone: they need not survive. O_SYNC counts as not synced.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x4e444f55u
#define SLOTS 65536
#define COPY_BYTES (1 << 20)

enum type { WRITE = 1, TRUNCATE, SYNC, LOST, CREATE, LINK, UNLINK, RENAME, MKDIR, RMDIR, SYNC_DIR, MAPPED, SYNCING };
enum slot_state { UNKNOWN, TRACKED, IGNORED };

struct record { /* 64 bytes, then `payload` bytes */
    uint32_t magic;
    uint16_t type;
    uint16_t zeros; /* the pre-image is `old_bytes` zeros and not in the payload */
    uint64_t dev, ino;
    uint64_t position; /* of a write; new size of a truncate; log end of a sync; parent of a name */
    uint64_t size;     /* of the file before; second parent of a rename */
    uint64_t length;   /* of the write */
    uint64_t old_bytes;
    uint32_t payload;
    uint32_t spare;
};

struct slot {
    dev_t dev;
    ino_t ino;
    int state;
};

static int enabled;
static char root[PATH_MAX], undo[PATH_MAX], control[PATH_MAX];
static size_t root_length;
static int log_fd = -1;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct slot slots[SLOTS];

static long long delay_ms, fail_at, syncs_seen, keep_count;
static long long space_limit = -1, space_used;
static char pattern[PATH_MAX];
static struct timespec control_time;
static ino_t control_ino;

static void die(const char *what) {
    dprintf(2, "powercut shim: %s: %s\n", what, strerror(errno));
    abort();
}

/* -- settings ---------------------------------------------------------------- */

static void set(const char *name, const char *value) {
    if (!strcasecmp(name, "fsync_delay_ms")) delay_ms = atoll(value);
    else if (!strcasecmp(name, "fsync_fail_at")) { fail_at = atoll(value); syncs_seen = 0; }
    else if (!strcasecmp(name, "fsync_pattern")) snprintf(pattern, sizeof pattern, "%s", value);
    else if (!strcasecmp(name, "enospc_after_bytes")) space_limit = atoll(value);
}

static void set_from_environment(const char *name) {
    char key[64];
    snprintf(key, sizeof key, "ISTER_%s", name);
    const char *value = getenv(key);
    if (value) set(name, value);
}

/* Under the mutex. */
static void read_control(void) {
    struct stat st;
    if (!control[0] || stat(control, &st)) return;
    if (st.st_ino == control_ino && st.st_mtim.tv_sec == control_time.tv_sec &&
        st.st_mtim.tv_nsec == control_time.tv_nsec)
        return;
    int fd = syscall(SYS_openat, AT_FDCWD, control, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    static char text[8192];
    ssize_t got = read(fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    if (got < 0) return;
    text[got] = 0;
    control_ino = st.st_ino;
    control_time = st.st_mtim;
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n"))) {
        char *equals = strchr(line, '=');
        if (!equals) continue;
        *equals = 0;
        set(line, equals + 1);
    }
}

/* -- the log ------------------------------------------------------------------ */

static void open_log(void) {
    char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/log", undo);
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) die("cannot open the undo log");
    log_fd = fcntl(fd, F_DUPFD_CLOEXEC, 900); /* out of the way of the process */
    if (log_fd < 0) log_fd = fd;
    else syscall(SYS_close, fd);
}

static void lock_all(void) {
    pthread_mutex_lock(&mutex);
    if (log_fd < 0) open_log();
    while (flock(log_fd, LOCK_EX))
        if (errno != EINTR) die("cannot lock the undo log");
}

static void unlock_all(void) {
    int saved = errno;
    flock(log_fd, LOCK_UN);
    pthread_mutex_unlock(&mutex);
    errno = saved;
}

static void after_fork(void) {
    pthread_mutex_init(&mutex, NULL);
    if (log_fd >= 0) syscall(SYS_close, log_fd);
    log_fd = -1;
}

static uint64_t log_end(void) {
    struct stat st;
    if (fstat(log_fd, &st)) die("cannot stat the undo log");
    return st.st_size;
}

static void append(struct record *record, const void *payload, size_t size) {
    record->magic = MAGIC;
    record->payload = size;
    struct iovec parts[2] = {{record, sizeof *record}, {(void *)payload, size}};
    size_t total = sizeof *record + size;
    if (syscall(SYS_writev, log_fd, parts, size ? 2 : 1) != (long)total) die("cannot write the undo log");
}

/* -- which files -------------------------------------------------------------- */

static int below_root(const char *path) {
    if (strncmp(path, root, root_length)) return 0;
    if (path[root_length] && path[root_length] != '/') return 0;
    size_t length = strlen(path);
    return length < 4 || strcmp(path + length - 4, "-shm");
}

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return -1;
    path[length] = 0;
    return 0;
}

static void forget_fd(int fd) {
    if (fd >= 0 && fd < SLOTS) slots[fd].state = UNKNOWN;
}

/* Is this descriptor one of ours? Fills `st`. Keeps errno. */
static int tracked(int fd, struct stat *st) {
    if (!enabled || fd < 0 || fd == log_fd) return 0;
    int saved = errno, answer = 0;
    char path[PATH_MAX];
    if (fstat(fd, st) || !(S_ISREG(st->st_mode) || S_ISDIR(st->st_mode))) goto out;
    if (fd < SLOTS && slots[fd].state && slots[fd].dev == st->st_dev && slots[fd].ino == st->st_ino) {
        answer = slots[fd].state == TRACKED;
        goto out;
    }
    answer = !path_of(fd, path) && below_root(path);
    if (fd < SLOTS) {
        slots[fd].dev = st->st_dev;
        slots[fd].ino = st->st_ino;
        slots[fd].state = answer ? TRACKED : IGNORED;
    }
out:
    errno = saved;
    return answer;
}

/* The absolute path without links in its directory part, and that directory's inode.
 * False if it is not below the root or cannot be. */
static int resolve(int dirfd, const char *path, char *full, uint64_t *parent) {
    if (!enabled || !path || !*path) return 0;
    int saved = errno, answer = 0;
    char joined[2 * PATH_MAX], *slash;
    if (path[0] == '/') snprintf(joined, sizeof joined, "%s", path);
    else {
        char base[PATH_MAX];
        if (dirfd == AT_FDCWD ? !getcwd(base, sizeof base) : path_of(dirfd, base)) goto out;
        snprintf(joined, sizeof joined, "%s/%s", base, path);
    }
    size_t length = strlen(joined);
    while (length > 1 && joined[length - 1] == '/') joined[--length] = 0;
    slash = strrchr(joined, '/');
    if (!slash || !slash[1]) goto out;
    char directory[PATH_MAX], name[NAME_MAX + 1];
    snprintf(name, sizeof name, "%s", slash + 1);
    *slash = 0;
    struct stat st;
    if (!realpath(joined[0] ? joined : "/", directory) || stat(directory, &st)) goto out;
    if (strlen(directory) + strlen(name) + 2 > PATH_MAX) goto out;
    sprintf(full, "%s/%s", strcmp(directory, "/") ? directory : "", name);
    *parent = st.st_ino;
    answer = below_root(full);
out:
    errno = saved;
    return answer;
}

/* -- writes ------------------------------------------------------------------- */

static int all_zeros(const char *data, size_t size) {
    return !size || (!data[0] && !memcmp(data, data + 1, size - 1));
}

/* Under the mutex: log what stands at [position, position + size). */
static void log_old(int type, int fd, const struct stat *st, off_t position, size_t length, size_t old) {
    struct record record = {.type = type, .dev = st->st_dev, .ino = st->st_ino, .position = position,
                            .size = st->st_size, .length = length, .old_bytes = old};
    if (!old) { append(&record, NULL, 0); return; }
    char *data = malloc(old);
    if (!data) die("no memory for a pre-image");
    int reader = fd;
    size_t got = 0;
    while (got < old) {
        ssize_t count = syscall(SYS_pread64, reader, data + got, old - got, position + got);
        if (count < 0 && errno == EBADF && reader == fd) { /* opened for writing only */
            char link[64];
            snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
            reader = syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC);
            if (reader < 0) die("cannot read a pre-image");
            continue;
        }
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) die("cannot read a pre-image");
        got += count;
    }
    if (reader != fd) syscall(SYS_close, reader);
    record.zeros = all_zeros(data, old);
    append(&record, data, record.zeros ? 0 : old);
    free(data);
}

/* Under the mutex: how many of the bytes fit; logs what they replace. */
static size_t begin_write(int fd, const struct stat *st, off_t position, size_t size) {
    read_control();
    off_t end = position + (off_t)size;
    off_t grow = end > st->st_size ? end - st->st_size : 0;
    if (space_limit >= 0 && grow > 0) {
        off_t room = space_limit > space_used ? space_limit - space_used : 0;
        if (grow > room) {
            off_t missing = grow - room;
            size = missing >= (off_t)size ? 0 : size - missing;
            end = position + (off_t)size;
            grow = size && end > st->st_size ? end - st->st_size : 0;
        }
    }
    if (!size) return 0;
    space_used += grow;
    off_t old = st->st_size - position;
    log_old(WRITE, fd, st, position, size, old <= 0 ? 0 : old < (off_t)size ? (size_t)old : size);
    return size;
}

static ssize_t raw_write(int fd, const struct iovec *parts, int count, off_t position, int flags) {
    if (flags) return syscall(SYS_pwritev2, fd, parts, count, (long)position, 0L, flags);
    if (position == -1) return syscall(SYS_writev, fd, parts, count);
    return syscall(SYS_pwritev, fd, parts, count, (long)position, 0L);
}

/* A position of -1 is the descriptor's own. */
static ssize_t guarded_write(int fd, const struct iovec *parts, int count, off_t position, int flags) {
    struct stat st;
    if (count < 0 || count > IOV_MAX || position < -1 || !tracked(fd, &st))
        return raw_write(fd, parts, count, position, flags);
    size_t size = 0;
    for (int i = 0; i < count; i++) size += parts[i].iov_len;
    int mode = fcntl(fd, F_GETFL);
    if (!size || mode < 0 || (mode & O_ACCMODE) == O_RDONLY)
        return raw_write(fd, parts, count, position, flags);
    lock_all();
    fstat(fd, &st); /* again: the size may have changed until the lock was ours */
    off_t start = mode & O_APPEND ? st.st_size : position < 0 ? lseek(fd, 0, SEEK_CUR) : position;
    size_t fits = begin_write(fd, &st, start, size);
    ssize_t result = -1;
    if (!fits) errno = ENOSPC;
    else if (fits == size) result = raw_write(fd, parts, count, position, flags);
    else {
        struct iovec some[IOV_MAX];
        int used = 0;
        for (size_t left = fits; left; used++) {
            some[used] = parts[used];
            if (some[used].iov_len > left) some[used].iov_len = left;
            left -= some[used].iov_len;
        }
        result = raw_write(fd, some, used, position, flags);
    }
    unlock_all();
    return result;
}

ssize_t write(int fd, const void *data, size_t size) {
    struct stat st;
    if (!tracked(fd, &st)) return syscall(SYS_write, fd, data, size);
    struct iovec part = {(void *)data, size};
    return guarded_write(fd, &part, 1, -1, 0);
}

ssize_t writev(int fd, const struct iovec *parts, int count) { return guarded_write(fd, parts, count, -1, 0); }

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t position) {
    struct stat st;
    if (position < 0 || !tracked(fd, &st)) return syscall(SYS_pwrite64, fd, data, size, position);
    struct iovec part = {(void *)data, size};
    return guarded_write(fd, &part, 1, position, 0);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t position) { return pwrite64(fd, data, size, position); }

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t position) {
    if (position < 0) { errno = EINVAL; return -1; }
    return guarded_write(fd, parts, count, position, 0);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t position) { return pwritev64(fd, parts, count, position); }

ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t position, int flags) {
    return guarded_write(fd, parts, count, position, flags);
}

ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t position, int flags) {
    return guarded_write(fd, parts, count, position, flags);
}

/* Copies inside the kernel become plain ones when their target is ours. */
static ssize_t copy(int in, off64_t *in_position, int out, off64_t *out_position, size_t size) {
    if (size > COPY_BYTES) size = COPY_BYTES;
    char *data = malloc(size ? size : 1);
    if (!data) { errno = ENOMEM; return -1; }
    ssize_t got = in_position ? syscall(SYS_pread64, in, data, size, *in_position) : syscall(SYS_read, in, data, size);
    ssize_t done = got;
    if (got > 0) done = out_position ? pwrite64(out, data, got, *out_position) : write(out, data, got);
    free(data);
    if (done < 0) done = -1;
    if (got > 0 && !in_position && done < got) lseek(in, (done < 0 ? 0 : done) - got, SEEK_CUR);
    if (done > 0 && in_position) *in_position += done;
    if (done > 0 && out_position) *out_position += done;
    return done;
}

ssize_t sendfile64(int out, int in, off64_t *position, size_t size) {
    struct stat st;
    return tracked(out, &st) ? copy(in, position, out, NULL, size) : syscall(SYS_sendfile, out, in, position, size);
}

ssize_t sendfile(int out, int in, off_t *position, size_t size) { return sendfile64(out, in, (off64_t *)position, size); }

ssize_t copy_file_range(int in, off64_t *in_position, int out, off64_t *out_position, size_t size, unsigned flags) {
    struct stat st;
    if (!tracked(out, &st)) return syscall(SYS_copy_file_range, in, in_position, out, out_position, size, flags);
    return copy(in, in_position, out, out_position, size);
}

/* -- sizes -------------------------------------------------------------------- */

/* Under the mutex. */
static void begin_truncate(int fd, const struct stat *st, off_t size) {
    log_old(TRUNCATE, fd, st, size, 0, size < st->st_size ? st->st_size - size : 0);
    space_used += size - st->st_size;
}

static int full(off_t grow) {
    read_control();
    return space_limit >= 0 && grow > 0 && space_used + grow > space_limit;
}

int ftruncate64(int fd, off64_t size) {
    struct stat st;
    if (size < 0 || !tracked(fd, &st) || (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY)
        return syscall(SYS_ftruncate, fd, size);
    lock_all();
    fstat(fd, &st);
    int result = -1;
    if (full(size - st.st_size)) errno = ENOSPC;
    else {
        begin_truncate(fd, &st, size);
        result = syscall(SYS_ftruncate, fd, size);
    }
    unlock_all();
    return result;
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

int truncate64(const char *path, off64_t size) {
    char name[PATH_MAX];
    uint64_t parent;
    if (!resolve(AT_FDCWD, path, name, &parent)) return syscall(SYS_truncate, path, size);
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return -1;
    forget_fd(fd);
    int result = ftruncate64(fd, size), saved = errno;
    forget_fd(fd);
    syscall(SYS_close, fd);
    errno = saved;
    return result;
}

int truncate(const char *path, off_t size) { return truncate64(path, size); }

int fallocate64(int fd, int mode, off64_t position, off64_t size) {
    struct stat st;
    if (!tracked(fd, &st)) return syscall(SYS_fallocate, fd, mode, position, size);
    if (mode) { errno = EOPNOTSUPP; return -1; }
    return position + size > st.st_size ? ftruncate64(fd, position + size) : 0;
}

int fallocate(int fd, int mode, off_t position, off_t size) { return fallocate64(fd, mode, position, size); }

int posix_fallocate64(int fd, off64_t position, off64_t size) {
    int saved = errno, result = fallocate64(fd, 0, position, size) ? errno : 0;
    errno = saved;
    return result;
}

int posix_fallocate(int fd, off_t position, off_t size) { return posix_fallocate64(fd, position, size); }

/* -- syncs -------------------------------------------------------------------- */

static void pause_ms(long long ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) && errno == EINTR) {}
}

static int guarded_sync(int fd, long number) {
    struct stat st;
    char path[PATH_MAX] = "";
    if (!tracked(fd, &st)) return syscall(number, fd);
    path_of(fd, path);
    lock_all();
    read_control();
    uint64_t end = log_end(); /* what is logged until now is what this sync makes durable */
    int matches = !pattern[0] || !fnmatch(pattern, path, 0);
    int fails = matches && fail_at > 0 && ++syncs_seen == fail_at;
    long long wait = matches ? delay_ms : 0;
    struct record begin = {.type = SYNCING, .dev = st.st_dev, .ino = st.st_ino, .position = end};
    append(&begin, NULL, 0); /* restore needs it not; a test can see that a sync is under way */
    unlock_all();
    if (wait > 0) pause_ms(wait);
    int result = fails ? -1 : syscall(number, fd);
    if (fails) errno = EIO;
    int saved = errno;
    lock_all();
    int directory = S_ISDIR(st.st_mode);
    struct record record = {.type = directory ? SYNC_DIR : SYNC, .dev = st.st_dev, .ino = st.st_ino, .position = end};
    if (result) record.type = LOST;
    if (!result || !directory) append(&record, NULL, 0);
    unlock_all();
    errno = saved;
    return result;
}

int fsync(int fd) { return guarded_sync(fd, SYS_fsync); }
int fdatasync(int fd) { return guarded_sync(fd, SYS_fdatasync); }

/* -- names -------------------------------------------------------------------- */

/* Under the mutex. Strings are NUL-terminated, one behind the other. */
static void log_names(int type, const struct stat *st, uint64_t parent, uint64_t second,
                      const char *first_name, const char *second_name, const char *keep) {
    char payload[3 * PATH_MAX];
    size_t size = 0;
    const char *names[3] = {first_name, second_name, keep};
    for (int i = 0; i < 3; i++) {
        size_t length = strlen(names[i]) + 1;
        memcpy(payload + size, names[i], length);
        size += length;
    }
    struct record record = {.type = type, .dev = st->st_dev, .ino = st->st_ino, .position = parent, .size = second};
    append(&record, payload, size);
}

/* Under the mutex: a second name for a file that is about to lose this one. */
static void keep_file(const char *path, const struct stat *st, char *keep) {
    keep[0] = 0;
    if (S_ISDIR(st->st_mode)) return;
    char name[PATH_MAX + 64];
    snprintf(keep, 64, "keep-%d-%lld", (int)getpid(), ++keep_count);
    snprintf(name, sizeof name, "%s/%s", undo, keep);
    if (syscall(SYS_linkat, AT_FDCWD, path, AT_FDCWD, name, 0)) die("cannot keep a file (one file system?)");
}

static void drop_keep(const char *keep) {
    char name[PATH_MAX + 64];
    int saved = errno;
    snprintf(name, sizeof name, "%s/%s", undo, keep);
    if (keep[0]) syscall(SYS_unlinkat, AT_FDCWD, name, 0);
    errno = saved;
}

static void free_space(const struct stat *st) {
    if (S_ISREG(st->st_mode) && st->st_nlink == 1) space_used -= st->st_size;
}

static int guarded_open(int dirfd, const char *path, int flags, mode_t mode) {
    char full_name[PATH_MAX];
    uint64_t parent;
    int changes = (flags & (O_CREAT | O_TRUNC)) && (flags & O_TMPFILE) != O_TMPFILE;
    if (!changes || !resolve(dirfd, path, full_name, &parent)) {
        int fd = syscall(SYS_openat, dirfd, path, flags, mode);
        forget_fd(fd);
        return fd;
    }
    lock_all();
    struct stat st;
    int saved = errno, there = !lstat(full_name, &st);
    errno = saved;
    if (there && (flags & O_TRUNC) && !(flags & O_EXCL) && S_ISREG(st.st_mode) && st.st_size > 0) {
        int fd = syscall(SYS_openat, AT_FDCWD, full_name, O_RDWR | O_CLOEXEC);
        if (fd >= 0) {
            begin_truncate(fd, &st, 0);
            syscall(SYS_close, fd);
        }
    }
    int fd = syscall(SYS_openat, dirfd, path, flags, mode);
    forget_fd(fd);
    if (fd >= 0 && !there && !fstat(fd, &st)) log_names(CREATE, &st, parent, 0, full_name, "", "");
    unlock_all();
    return fd;
}

#define OPEN_WITH_MODE(flags, mode)                      \
    mode_t mode = 0;                                     \
    if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) { \
        va_list arguments;                               \
        va_start(arguments, flags);                      \
        mode = va_arg(arguments, int);                   \
        va_end(arguments);                               \
    }

int open(const char *path, int flags, ...) { OPEN_WITH_MODE(flags, mode) return guarded_open(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { OPEN_WITH_MODE(flags, mode) return guarded_open(AT_FDCWD, path, flags, mode); }
int openat(int dirfd, const char *path, int flags, ...) { OPEN_WITH_MODE(flags, mode) return guarded_open(dirfd, path, flags, mode); }
int openat64(int dirfd, const char *path, int flags, ...) { OPEN_WITH_MODE(flags, mode) return guarded_open(dirfd, path, flags, mode); }
int creat(const char *path, mode_t mode) { return guarded_open(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }
int __open_2(const char *path, int flags) { return guarded_open(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return guarded_open(AT_FDCWD, path, flags, 0); }
int __openat_2(int dirfd, const char *path, int flags) { return guarded_open(dirfd, path, flags, 0); }
int __openat64_2(int dirfd, const char *path, int flags) { return guarded_open(dirfd, path, flags, 0); }

int close(int fd) {
    if (enabled && fd >= 0 && fd == log_fd) return 0; /* somebody closes everything: not this one */
    forget_fd(fd);
    return syscall(SYS_close, fd);
}

int linkat(int old_dirfd, const char *old, int new_dirfd, const char *new, int flags) {
    char full_name[PATH_MAX];
    uint64_t parent;
    if (!resolve(new_dirfd, new, full_name, &parent)) return syscall(SYS_linkat, old_dirfd, old, new_dirfd, new, flags);
    lock_all();
    struct stat st;
    int result = syscall(SYS_linkat, old_dirfd, old, new_dirfd, new, flags);
    if (!result && !lstat(full_name, &st)) log_names(LINK, &st, parent, 0, full_name, "", "");
    unlock_all();
    return result;
}

int link(const char *old, const char *new) { return linkat(AT_FDCWD, old, AT_FDCWD, new, 0); }

int unlinkat(int dirfd, const char *path, int flags) {
    char full_name[PATH_MAX], keep[64];
    uint64_t parent;
    if (!resolve(dirfd, path, full_name, &parent)) return syscall(SYS_unlinkat, dirfd, path, flags);
    lock_all();
    struct stat st;
    int result = -1, directory = flags & AT_REMOVEDIR;
    if (!lstat(full_name, &st)) {
        keep[0] = 0;
        if (!directory) keep_file(full_name, &st, keep);
        result = syscall(SYS_unlinkat, dirfd, path, flags);
        if (result) drop_keep(keep);
        else {
            free_space(&st);
            log_names(directory ? RMDIR : UNLINK, &st, parent, 0, full_name, "", keep);
        }
    }
    unlock_all();
    return result;
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int dirfd, const char *path, mode_t mode) {
    char full_name[PATH_MAX];
    uint64_t parent;
    if (!resolve(dirfd, path, full_name, &parent)) return syscall(SYS_mkdirat, dirfd, path, mode);
    lock_all();
    struct stat st;
    int result = syscall(SYS_mkdirat, dirfd, path, mode);
    if (!result && !lstat(full_name, &st)) log_names(MKDIR, &st, parent, 0, full_name, "", "");
    unlock_all();
    return result;
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

/* Under the mutex. A move over the border of the root is a new or a lost name. */
static int rename_inside(const char *old, const char *new, uint64_t parents[2], int inside[2], unsigned flags) {
    struct stat moved, replaced;
    char keep[64] = "", left[64] = "";
    if (lstat(old, &moved)) return -1;
    int saved = errno, replaces = !lstat(new, &replaced);
    errno = saved;
    if (replaces && replaced.st_ino == moved.st_ino && replaced.st_dev == moved.st_dev)
        return syscall(SYS_renameat2, AT_FDCWD, old, AT_FDCWD, new, flags);
    if (inside[1] && replaces) keep_file(new, &replaced, keep);
    if (inside[0] && !inside[1]) keep_file(old, &moved, left);
    int result = syscall(SYS_renameat2, AT_FDCWD, old, AT_FDCWD, new, flags);
    if (result) {
        drop_keep(keep);
        drop_keep(left);
        return result;
    }
    if (replaces && inside[1]) free_space(&replaced);
    if (inside[0] && inside[1]) log_names(RENAME, &moved, parents[0], parents[1], old, new, keep);
    else if (inside[0]) log_names(UNLINK, &moved, parents[0], 0, old, "", left);
    else {
        if (keep[0]) log_names(UNLINK, &replaced, parents[1], 0, new, "", keep);
        log_names(LINK, &moved, parents[1], 0, new, "", "");
    }
    return result;
}

int renameat2(int old_dirfd, const char *old, int new_dirfd, const char *new, unsigned flags) {
    char names[2][PATH_MAX];
    uint64_t parents[2];
    int inside[2] = {resolve(old_dirfd, old, names[0], &parents[0]), resolve(new_dirfd, new, names[1], &parents[1])};
    if (!inside[0] && !inside[1]) return syscall(SYS_renameat2, old_dirfd, old, new_dirfd, new, flags);
    if (flags & RENAME_EXCHANGE) { errno = EINVAL; return -1; }
    for (int i = 0; i < 2; i++) {
        const char *given = i ? new : old;
        if (!inside[i] && !(given[0] == '/') && (i ? new_dirfd : old_dirfd) != AT_FDCWD) { errno = EXDEV; return -1; }
        if (!inside[i]) snprintf(names[i], PATH_MAX, "%s", given);
    }
    lock_all();
    int result = rename_inside(names[0], names[1], parents, inside, flags);
    unlock_all();
    return result;
}

int renameat(int old_dirfd, const char *old, int new_dirfd, const char *new) { return renameat2(old_dirfd, old, new_dirfd, new, 0); }
int rename(const char *old, const char *new) { return renameat2(AT_FDCWD, old, AT_FDCWD, new, 0); }

/* -- mappings and free space -------------------------------------------------- */

void *mmap64(void *address, size_t size, int protection, int flags, int fd, off64_t position) {
    struct stat st;
    if (fd >= 0 && (protection & PROT_WRITE) && (flags & MAP_SHARED) && tracked(fd, &st)) {
        char path[PATH_MAX] = "";
        path_of(fd, path);
        lock_all();
        log_names(MAPPED, &st, 0, 0, path, "", "");
        unlock_all();
    }
    return (void *)syscall(SYS_mmap, address, size, protection, flags, fd, position);
}

void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t position) {
    return mmap64(address, size, protection, flags, fd, position);
}

static void limit_space(struct statvfs *result) {
    lock_all();
    read_control();
    if (space_limit >= 0) {
        long long room = space_limit > space_used ? space_limit - space_used : 0;
        result->f_bavail = result->f_bfree = room / result->f_frsize;
        result->f_blocks = space_limit / result->f_frsize + 1;
    }
    unlock_all();
}

int statvfs(const char *path, struct statvfs *result) {
    static int (*real)(const char *, struct statvfs *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "statvfs");
    char absolute[PATH_MAX];
    int answer = real(path, result), saved = errno;
    if (!answer && enabled && realpath(path, absolute) && below_root(absolute)) limit_space(result);
    errno = saved;
    return answer;
}

int fstatvfs(int fd, struct statvfs *result) {
    static int (*real)(int, struct statvfs *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "fstatvfs");
    struct stat st;
    int answer = real(fd, result);
    if (!answer && tracked(fd, &st)) limit_space(result);
    return answer;
}

/* The same layout where off_t has 64 bits, which is every machine this is built on. */
int statvfs64(const char *path, struct statvfs64 *result) { return statvfs(path, (struct statvfs *)result); }
int fstatvfs64(int fd, struct statvfs64 *result) { return fstatvfs(fd, (struct statvfs *)result); }

__attribute__((constructor)) static void start(void) {
    const char *wanted = getenv("ISTER_POWERCUT_DIR"), *place = getenv("ISTER_POWERCUT_UNDO");
    _Static_assert(sizeof(struct record) == 64, "the format that restore.py reads");
    _Static_assert(sizeof(off_t) == 8, "64-bit offsets");
    if (!wanted || !place) return;
    if (!realpath(wanted, root) || !realpath(place, undo)) die("no such directory");
    root_length = strlen(root);
    const char *file = getenv("ISTER_POWERCUT_CONTROL");
    if (file) snprintf(control, sizeof control, "%s", file);
    set_from_environment("FSYNC_DELAY_MS");
    set_from_environment("FSYNC_FAIL_AT");
    set_from_environment("FSYNC_PATTERN");
    set_from_environment("ENOSPC_AFTER_BYTES");
    pthread_atfork(NULL, NULL, after_fork);
    enabled = 1;
}
