/* The demo's emulated slow tier: a library for LD_PRELOAD that limits the rate of all reads and writes below one
   folder. All processes with the same state file share the rate, as if they shared a device. Both ways of the demo are
   slowed down alike. It needs neither root nor a kernel module.

   PENSTOCK_DEMO_TIER=<folder, absolute>    PENSTOCK_DEMO_TIER_STATE=<file of a struct Device, made by tier.py> */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct Device {
  uint64_t bytes_per_s;
  _Atomic uint64_t free_at_ns; /* CLOCK_MONOTONIC: when the device will have finished its current work */
  _Atomic uint64_t read_bytes;
  _Atomic uint64_t written_bytes;
};

enum { kDescriptors = 1 << 16, kPieceBytes = 1 << 16 };

static struct Device* device;
static const char* folder;
static size_t folder_length;
static _Atomic unsigned char is_paced[kDescriptors];

/* The C library's function of this name, looked up once. */
#define NEXT(name, result, ...)       \
  static result (*next)(__VA_ARGS__); \
  if (next == NULL) next = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

__attribute__((constructor)) static void attach(void) {
  const char* state = getenv("PENSTOCK_DEMO_TIER_STATE");
  folder = getenv("PENSTOCK_DEMO_TIER");
  if (state == NULL || folder == NULL) return;
  folder_length = strlen(folder);
  const int fd = open(state, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void* mapped = mmap(NULL, sizeof(struct Device), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped != MAP_FAILED) device = mapped;
}

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int noted(const char* path, int fd) {
  if (fd >= 0 && fd < kDescriptors) {
    const int below =
        device != NULL && path != NULL && strncmp(path, folder, folder_length) == 0 && path[folder_length] == '/';
    atomic_store(&is_paced[fd], below);
  }
  return fd;
}

/* First come, first served: reserves the device's next free time, and sleeps until that has passed. */
static ssize_t paced(int fd, ssize_t bytes, int is_write) {
  if (bytes <= 0 || fd < 0 || fd >= kDescriptors || !atomic_load(&is_paced[fd])) return bytes;
  const int error = errno;
  atomic_fetch_add(is_write ? &device->written_bytes : &device->read_bytes, (uint64_t)bytes);
  const uint64_t length_ns = (uint64_t)((double)bytes * 1e9 / (double)device->bytes_per_s);
  const uint64_t now = now_ns();
  uint64_t free_at = atomic_load(&device->free_at_ns), end;
  do {
    end = (free_at > now ? free_at : now) + length_ns;
  } while (!atomic_compare_exchange_weak(&device->free_at_ns, &free_at, end));
  const struct timespec until = {(time_t)(end / 1000000000u), (long)(end % 1000000000u)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
  }
  errno = error;
  return bytes;
}

#define OPEN(name)                               \
  int name(const char* path, int flags, ...) {   \
    NEXT(#name, int, const char*, int, ...);     \
    va_list rest;                                \
    va_start(rest, flags);                       \
    const mode_t mode = va_arg(rest, mode_t);    \
    va_end(rest);                                \
    return noted(path, next(path, flags, mode)); \
  }
#define OPENAT(name)                                   \
  int name(int at, const char* path, int flags, ...) { \
    NEXT(#name, int, int, const char*, int, ...);      \
    va_list rest;                                      \
    va_start(rest, flags);                             \
    const mode_t mode = va_arg(rest, mode_t);          \
    va_end(rest);                                      \
    return noted(path, next(at, path, flags, mode));   \
  }
/* Writes in pieces, as a device does: a concurrent reader, or a kill of the writer, finds part of the data written. */
static ssize_t written(int fd, const struct iovec* from, int n, off64_t at,
                       ssize_t (*piece)(int, const void*, size_t, off64_t)) {
  ssize_t done = 0;
  for (int i = 0; i < n; ++i) {
    for (size_t begin = 0; begin < from[i].iov_len;) {
      const size_t rest = from[i].iov_len - begin;
      const ssize_t now = paced(
          fd, piece(fd, (const char*)from[i].iov_base + begin, rest < kPieceBytes ? rest : kPieceBytes, at + done), 1);
      if (now <= 0) return done > 0 ? done : now;
      done += now;
      begin += (size_t)now;
    }
  }
  return done;
}

static ssize_t piece_here(int fd, const void* from, size_t bytes, off64_t at) {
  NEXT("write", ssize_t, int, const void*, size_t);
  (void)at;
  return next(fd, from, bytes);
}

static ssize_t piece_there(int fd, const void* from, size_t bytes, off64_t at) {
  NEXT("pwrite64", ssize_t, int, const void*, size_t, off64_t);
  return next(fd, from, bytes, at);
}

#define READ(name, parameters, types, arguments) \
  ssize_t name parameters {                      \
    NEXT(#name, ssize_t, types);                 \
    return paced(fd, next arguments, 0);         \
  }
#define WRITE(name, parameters, types, arguments, pieces)                     \
  ssize_t name parameters {                                                   \
    NEXT(#name, ssize_t, types);                                              \
    if (fd < 0 || fd >= kDescriptors || !is_paced[fd]) return next arguments; \
    return pieces;                                                            \
  }
#define TYPES(...) __VA_ARGS__

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

READ(read, (int fd, void* to, size_t bytes), TYPES(int, void*, size_t), (fd, to, bytes))
READ(pread, (int fd, void* to, size_t bytes, off_t at), TYPES(int, void*, size_t, off_t), (fd, to, bytes, at))
READ(pread64, (int fd, void* to, size_t bytes, off64_t at), TYPES(int, void*, size_t, off64_t), (fd, to, bytes, at))
READ(readv, (int fd, const struct iovec* to, int n), TYPES(int, const struct iovec*, int), (fd, to, n))
READ(preadv, (int fd, const struct iovec* to, int n, off_t at), TYPES(int, const struct iovec*, int, off_t),
     (fd, to, n, at))
READ(preadv64, (int fd, const struct iovec* to, int n, off64_t at), TYPES(int, const struct iovec*, int, off64_t),
     (fd, to, n, at))

READ(preadv2, (int fd, const struct iovec* to, int n, off_t at, int flags),
     TYPES(int, const struct iovec*, int, off_t, int), (fd, to, n, at, flags))
READ(preadv64v2, (int fd, const struct iovec* to, int n, off64_t at, int flags),
     TYPES(int, const struct iovec*, int, off64_t, int), (fd, to, n, at, flags))

#define ONE (&(struct iovec){(void*)from, bytes})
WRITE(write, (int fd, const void* from, size_t bytes), TYPES(int, const void*, size_t), (fd, from, bytes),
      written(fd, ONE, 1, 0, piece_here))
WRITE(pwrite, (int fd, const void* from, size_t bytes, off_t at), TYPES(int, const void*, size_t, off_t),
      (fd, from, bytes, at), written(fd, ONE, 1, at, piece_there))
WRITE(pwrite64, (int fd, const void* from, size_t bytes, off64_t at), TYPES(int, const void*, size_t, off64_t),
      (fd, from, bytes, at), written(fd, ONE, 1, at, piece_there))
WRITE(writev, (int fd, const struct iovec* from, int n), TYPES(int, const struct iovec*, int), (fd, from, n),
      written(fd, from, n, 0, piece_here))
WRITE(pwritev, (int fd, const struct iovec* from, int n, off_t at), TYPES(int, const struct iovec*, int, off_t),
      (fd, from, n, at), written(fd, from, n, at, piece_there))
WRITE(pwritev64, (int fd, const struct iovec* from, int n, off64_t at), TYPES(int, const struct iovec*, int, off64_t),
      (fd, from, n, at), written(fd, from, n, at, piece_there))

/* Flags mean direct or asynchronous output, which is not emulated: such calls pass through unchanged. */
#define WRITE2(name)                                                                        \
  ssize_t name(int fd, const struct iovec* from, int n, off64_t at, int flags) {            \
    NEXT(#name, ssize_t, int, const struct iovec*, int, off64_t, int);                      \
    if (fd < 0 || fd >= kDescriptors || !is_paced[fd]) return next(fd, from, n, at, flags); \
    if (flags != 0 || at == -1) return paced(fd, next(fd, from, n, at, flags), 1);          \
    return written(fd, from, n, at, piece_there);                                           \
  }
WRITE2(pwritev2)
WRITE2(pwritev64v2)

int close(int fd) {
  NEXT("close", int, int);
  if (fd >= 0 && fd < kDescriptors) atomic_store(&is_paced[fd], 0);
  return next(fd);
}
