/* A disk of SLOW_DISK_BYTES a second, shared by all threads of a process: each write to a file waits before it begins. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t disk = PTHREAD_MUTEX_INITIALIZER;

static void wait_for(int fd, size_t bytes)
{
    struct stat file;
    const char *rate = getenv("SLOW_DISK_BYTES");
    if (rate == NULL || fstat(fd, &file) != 0 || !S_ISREG(file.st_mode))
        return;
    double seconds = (double)bytes / atof(rate);
    struct timespec time = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    pthread_mutex_lock(&disk);
    nanosleep(&time, NULL);
    pthread_mutex_unlock(&disk);
}

#define NEXT(type, name) ((type)dlsym(RTLD_NEXT, name))

ssize_t write(int fd, const void *from, size_t bytes)
{
    wait_for(fd, bytes);
    return NEXT(ssize_t (*)(int, const void *, size_t), "write")(fd, from, bytes);
}

ssize_t pwrite64(int fd, const void *from, size_t bytes, off64_t at)
{
    wait_for(fd, bytes);
    return NEXT(ssize_t (*)(int, const void *, size_t, off64_t), "pwrite64")(fd, from, bytes, at);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    size_t bytes = 0;
    for (int part = 0; part < count; part++)
        bytes += parts[part].iov_len;
    wait_for(fd, bytes);
    return NEXT(ssize_t (*)(int, const struct iovec *, int), "writev")(fd, parts, count);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at)
{
    size_t bytes = 0;
    for (int part = 0; part < count; part++)
        bytes += parts[part].iov_len;
    wait_for(fd, bytes);
    return NEXT(ssize_t (*)(int, const struct iovec *, int, off64_t), "pwritev64")(fd, parts, count, at);
}
