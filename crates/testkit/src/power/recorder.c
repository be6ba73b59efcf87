/* Records what a process does to the files below POWER_ROOT, in the order in which it happens, at the end of the file
   POWER_RECORD. `mod.rs` beside this file makes of that what a power cut leaves.

   An event: its kind (1 byte), the inode (8), a number (8), the length of what follows (4), little-endian.

   C  the inode is new: an empty file (0) or folder (1)
   W  bytes are written at an offset             Z  zeros are written at an offset: the 8 bytes that follow say how many
   S  the file has this size now
   N  the names of a folder, all of them: inode (8), whether it is a folder (1), length (2), name
   B  a sync begins, with its number             E  it has ended well

   The log writes its segments by system calls that no library sees (rustix). All of them are followed by a sync in the same
   thread, so a segment is compared then with what it was. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define SECTOR 512
#define SHADOWS 256
#define REAL(type, name, ...) ((type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))

/* A folder's names are recorded within the record of an open or an unlink. */
static pthread_mutex_t order = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static char root[PATH_MAX];
static int record = -1;
static uint64_t syncs;

static struct {
    ino_t file;
    off_t size;
    char *bytes;
} shadows[SHADOWS];

__attribute__((constructor)) static void begin(void)
{
    const char *to = getenv("POWER_RECORD"), *below = getenv("POWER_ROOT");
    if (to == NULL || below == NULL || realpath(below, root) == NULL)
        return;
    record = REAL(int, "open64", const char *, int, ...)(to, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static void lock(void) { pthread_mutex_lock(&order); }
static void unlock(void) { pthread_mutex_unlock(&order); }

/* Anything unforeseen ends the process: a record with a gap would prove nothing. */
static void check(int is_well)
{
    if (!is_well)
        abort();
}

static int is_below(const char *path)
{
    size_t length = strlen(root);
    return record >= 0 && strncmp(path, root, length) == 0 && (path[length] == '/' || path[length] == 0);
}

/* Whether it is a file or a folder below the root. */
static int of_fd(int fd, char path[PATH_MAX], struct stat *about)
{
    char link[64];
    if (record < 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return is_below(path) && fstat(fd, about) == 0 && (S_ISREG(about->st_mode) || S_ISDIR(about->st_mode));
}

static void event(char kind, uint64_t inode, uint64_t number, const void *bytes, uint32_t length)
{
    char head[21];
    head[0] = kind;
    memcpy(head + 1, &inode, 8);
    memcpy(head + 9, &number, 8);
    memcpy(head + 17, &length, 4);
    struct iovec parts[2] = {{head, sizeof head}, {(void *)bytes, length}};
    check(REAL(ssize_t, "writev", int, const struct iovec *, int)(record, parts, length > 0 ? 2 : 1) ==
          (ssize_t)(sizeof head + length));
}

static void written(ino_t file, off_t at, const char *bytes, size_t length)
{
    if (length > 0 && bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0) {
        uint64_t zeros = length;
        event('Z', file, (uint64_t)at, &zeros, sizeof zeros);
    } else if (length > 0) {
        event('W', file, (uint64_t)at, bytes, (uint32_t)length);
    }
}

static void names(const char *folder)
{
    struct stat about;
    DIR *entries;
    if (!is_below(folder) || stat(folder, &about) != 0 || (entries = opendir(folder)) == NULL)
        return;
    size_t length = 0, room = 1 << 16;
    char *all = malloc(room);
    struct dirent *entry;
    while ((entry = readdir(entries)) != NULL) {
        uint64_t inode = entry->d_ino;
        uint16_t bytes = (uint16_t)strlen(entry->d_name);
        if (entry->d_name[0] == '.' || (entry->d_type != DT_REG && entry->d_type != DT_DIR))
            continue;
        check(length + 11 + bytes < room);
        memcpy(all + length, &inode, 8);
        all[length + 8] = entry->d_type == DT_DIR;
        memcpy(all + length + 9, &bytes, 2);
        memcpy(all + length + 11, entry->d_name, bytes);
        length += 11u + bytes;
    }
    event('N', about.st_ino, 0, all, (uint32_t)length);
    free(all);
    closedir(entries);
}

static void names_beside(const char *path)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    char *end = strrchr(folder, '/');
    if (end != NULL) {
        *end = 0;
        names(folder);
    }
}

static int is_segment(const char *path)
{
    const char *name = strrchr(path, '/');
    return name != NULL && strncmp(name, "/segment-", 9) == 0;
}

static int shadow_of(ino_t file)
{
    int at = 0;
    while (at < SHADOWS && shadows[at].file != 0 && shadows[at].file != file)
        at++;
    check(at < SHADOWS);
    return at;
}

/* Reads a segment, and records what is new in it if it was read before. */
static void compare(int fd, const struct stat *about, int is_new)
{
    int at = shadow_of(about->st_ino);
    off_t size = about->st_size;
    char *now = calloc(1, (size_t)size + 1);
    check(now != NULL && REAL(ssize_t, "pread64", int, void *, size_t, off64_t)(fd, now, (size_t)size, 0) == size);
    for (off_t from = 0; !is_new && from < size; from += SECTOR) {
        size_t bytes = (size_t)(size - from < SECTOR ? size - from : SECTOR);
        int was_there = from + (off_t)bytes <= shadows[at].size;
        if (!was_there || memcmp(now + from, shadows[at].bytes + from, bytes) != 0)
            written(about->st_ino, from, now + from, bytes);
    }
    free(shadows[at].bytes);
    shadows[at].file = about->st_ino;
    shadows[at].size = size;
    shadows[at].bytes = now;
}

/* Bytes that were written to a segment, and are recorded. */
static void known(ino_t file, const void *bytes, off_t from, ssize_t length)
{
    int at = shadow_of(file);
    if (from + length > shadows[at].size) {
        shadows[at].bytes = realloc(shadows[at].bytes, (size_t)(from + length));
        check(shadows[at].bytes != NULL);
        memset(shadows[at].bytes + shadows[at].size, 0, (size_t)(from + length - shadows[at].size));
        shadows[at].size = from + length;
    }
    shadows[at].file = file;
    memcpy(shadows[at].bytes + from, bytes, (size_t)length);
}

/* ---- names ---- */

static int opened(int folder, const char *path, int flags, mode_t mode)
{
    struct stat about;
    char place[PATH_MAX];
    int makes = record >= 0 && (flags & O_CREAT) != 0 && (flags & O_TMPFILE) != O_TMPFILE;
    if (makes)
        lock();
    int was_there = makes && fstatat(folder, path, &about, 0) == 0;
    int fd = REAL(int, "openat64", int, const char *, int, ...)(folder, path, flags, mode);
    if (fd >= 0 && of_fd(fd, place, &about) && S_ISREG(about.st_mode)) {
        lock();
        if (makes && !was_there) {
            event('C', about.st_ino, 0, NULL, 0);
            names_beside(place);
        } else if ((flags & O_TRUNC) != 0) {
            event('S', about.st_ino, 0, NULL, 0);
        }
        int at = shadow_of(about.st_ino);
        if (is_segment(place) && (shadows[at].file == 0 || (makes && !was_there))) {
            /* A segment may be opened for writing only: read it through a handle of its own. It has no locks. */
            int other = REAL(int, "open64", const char *, int, ...)(place, O_RDONLY | O_CLOEXEC);
            check(other >= 0);
            compare(other, &about, 1);
            close(other);
        }
        unlock();
    }
    if (makes) {
        int why = errno;
        unlock();
        errno = why;
    }
    return fd;
}

#define OPEN(name, folder_in, folder)                                                                                          \
    int name(folder_in const char *path, int flags, ...)                                                                       \
    {                                                                                                                          \
        va_list more;                                                                                                          \
        va_start(more, flags);                                                                                                 \
        mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;                                         \
        va_end(more);                                                                                                          \
        return opened(folder, path, flags, mode);                                                                              \
    }
#define COMMA ,
OPEN(open, , AT_FDCWD)
OPEN(open64, , AT_FDCWD)
OPEN(openat, int folder COMMA, folder)
OPEN(openat64, int folder COMMA, folder)

int mkdir(const char *path, mode_t mode)
{
    struct stat about;
    lock();
    int made = REAL(int, "mkdir", const char *, mode_t)(path, mode);
    if (made == 0 && is_below(path) && stat(path, &about) == 0) {
        event('C', about.st_ino, 1, NULL, 0);
        names_beside(path);
    }
    unlock();
    return made;
}

int unlink(const char *path)
{
    lock();
    int done = REAL(int, "unlink", const char *)(path);
    if (done == 0)
        names_beside(path);
    unlock();
    return done;
}

int rmdir(const char *path)
{
    lock();
    int done = REAL(int, "rmdir", const char *)(path);
    if (done == 0)
        names_beside(path);
    unlock();
    return done;
}

int unlinkat(int folder, const char *path, int flags)
{
    char place[PATH_MAX];
    struct stat about;
    lock();
    int done = REAL(int, "unlinkat", int, const char *, int)(folder, path, flags);
    if (done == 0 && folder != AT_FDCWD && of_fd(folder, place, &about))
        names(place);
    else if (done == 0)
        names_beside(path);
    unlock();
    return done;
}

int rename(const char *from, const char *to)
{
    lock();
    int done = REAL(int, "rename", const char *, const char *)(from, to);
    if (done == 0) {
        names_beside(from);
        names_beside(to);
    }
    unlock();
    return done;
}

/* ---- bytes ---- */

static ssize_t after_write(int fd, ssize_t done, const void *from, off_t at)
{
    char path[PATH_MAX];
    struct stat about;
    int why = errno;
    if (done > 0 && of_fd(fd, path, &about)) {
        written(about.st_ino, at, from, (size_t)done);
        if (is_segment(path))
            known(about.st_ino, from, at, done);
    }
    errno = why;
    return done;
}

#define WRITE_AT(name, type)                                                                                                   \
    ssize_t name(int fd, const void *from, size_t bytes, type at)                                                              \
    {                                                                                                                          \
        lock();                                                                                                                \
        ssize_t done = REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t)(fd, from, bytes, at);                     \
        done = after_write(fd, done, from, at);                                                                                \
        unlock();                                                                                                              \
        return done;                                                                                                           \
    }
WRITE_AT(pwrite, off_t)
WRITE_AT(pwrite64, off64_t)

/* Sockets and pipes may block, so they do not wait for the order of the files. */
static int is_recorded(int fd)
{
    char path[PATH_MAX];
    struct stat about;
    return of_fd(fd, path, &about);
}

ssize_t write(int fd, const void *from, size_t bytes)
{
    ssize_t (*real)(int, const void *, size_t) = REAL(ssize_t, "write", int, const void *, size_t);
    if (!is_recorded(fd))
        return real(fd, from, bytes);
    lock();
    ssize_t done = real(fd, from, bytes);
    done = after_write(fd, done, from, done > 0 ? lseek(fd, 0, SEEK_CUR) - done : 0);
    unlock();
    return done;
}

/* Nobody writes a file below the root by these. */
ssize_t writev(int fd, const struct iovec *parts, int count)
{
    check(!is_recorded(fd));
    return REAL(ssize_t, "writev", int, const struct iovec *, int)(fd, parts, count);
}

#define RESIZE(name, type)                                                                                                     \
    int name(int fd, type size)                                                                                                \
    {                                                                                                                          \
        char path[PATH_MAX];                                                                                                   \
        struct stat about;                                                                                                     \
        lock();                                                                                                                \
        int done = REAL(int, "ftruncate64", int, off64_t)(fd, size);                                                           \
        if (done == 0 && of_fd(fd, path, &about))                                                                              \
            event('S', about.st_ino, (uint64_t)size, NULL, 0);                                                                 \
        unlock();                                                                                                              \
        return done;                                                                                                           \
    }
RESIZE(ftruncate, off_t)
RESIZE(ftruncate64, off64_t)

static int synced(int fd, const char *how)
{
    char path[PATH_MAX];
    struct stat about;
    if (!of_fd(fd, path, &about))
        return REAL(int, how, int)(fd);
    lock();
    uint64_t number = ++syncs;
    if (S_ISDIR(about.st_mode)) {
        names(path);
    } else {
        event('S', about.st_ino, (uint64_t)about.st_size, NULL, 0);
        if (is_segment(path))
            compare(fd, &about, 0);
    }
    event('B', about.st_ino, number, NULL, 0);
    unlock();
    int done = REAL(int, how, int)(fd);
    lock();
    if (done == 0)
        event('E', about.st_ino, number, NULL, 0);
    unlock();
    return done;
}

int fsync(int fd) { return synced(fd, "fsync"); }
int fdatasync(int fd) { return synced(fd, "fdatasync"); }
