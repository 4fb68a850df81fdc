#include "host/heap.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <random>
#include <string>
#include <system_error>
#include <utility>

#include "host/pid_namespace.hpp"
#include "penstock/error.hpp"

namespace penstock::host {
namespace {

// Addresses without memory: room for more than ten thousand communicators.
constexpr std::uint64_t kMostReservedBytes = std::uint64_t{64} << 30;
constexpr std::uint64_t kFewestReservedBytes = std::uint64_t{64} << 20;
constexpr std::size_t kMostKept = 4;  // of some pages each
/// A tail keeps its memory if this many would fit into what is free: each process of the node may keep one.
constexpr std::uint64_t kFreeForTail = 1024;

[[noreturn]] void throw_system(const std::string& what, int error) {
  throw Error(error == ENOSPC || error == ENOMEM ? ErrorCode::no_space : ErrorCode::io, what, -1,
              std::generic_category().message(error), error);
}

std::string path_of(std::int32_t process, std::int32_t descriptor) {
  return "/proc/" + std::to_string(process) + "/fd/" + std::to_string(descriptor);
}

/// An unnamed file in /dev/shm: nothing is left behind when processes die.
int open_nameless() {
  const int nameless = ::open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (nameless >= 0) return nameless;
  const std::string name = "/penstock-" + std::to_string(::getpid()) + "-" + std::to_string(std::random_device{}());
  const int named = ::shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  if (named < 0) throw_system("cannot make a file in /dev/shm", errno);
  ::shm_unlink(name.c_str());
  return named;
}

/// A size such that the heaps of one process per CPU fit in a process's address space.
std::uint64_t wanted_bytes() {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kMostReservedBytes;
  const auto heaps = static_cast<std::uint64_t>(std::max(::sysconf(_SC_NPROCESSORS_ONLN), 1l)) + 1;
  const std::uint64_t fair = limit.rlim_cur / 2 / heaps / Heap::kPageBytes * Heap::kPageBytes;
  return std::clamp(fair, kFewestReservedBytes, kMostReservedBytes);
}

struct flock owner_lock(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_len = 1;
  return lock;
}

}  // namespace

/// The heaps that this process has open. A child of fork() inherits the open files, and with them the lock that tells
/// peers that its parent lives, so it closes them first. (exec closes them by O_CLOEXEC.)
class Heap::Registry {
 public:
  /// fork() takes it too, so no child inherits a descriptor that is not in the list.
  static std::mutex& mutex() {
    static auto* const mutex = new std::mutex;  // leaked: fork() may be called while static objects are destroyed
    return *mutex;
  }
  /// Call it with the mutex.
  static Registry& of_process() {
    static const bool registered = ::pthread_atfork([] { mutex().lock(); }, [] { mutex().unlock(); },
                                                    [] {
                                                      if (current_ != nullptr) current_->leave_to_parent();
                                                      mutex().unlock();
                                                    }) == 0;
    static_cast<void>(registered);
    if (current_ == nullptr || current_->is_inherited_) current_ = new Registry(current_);
    return *current_;
  }

  std::shared_ptr<Heap> own;
  std::vector<std::shared_ptr<Heap>> peers;

 private:
  explicit Registry(Registry* inherited) : inherited_from_(inherited) {}
  void leave_to_parent() noexcept {
    is_inherited_ = true;
    if (own != nullptr) own->close_descriptors();
    for (const auto& peer : peers) peer->close_descriptors();
  }

  static Registry* current_;
  Registry* const inherited_from_;  ///< the parent's; its memory may still be read here, so it is never unmapped
  bool is_inherited_ = false;
};

Heap::Registry* Heap::Registry::current_ = nullptr;

void Heap::close_descriptors() noexcept {
  inherited_ = true;
  for (int* descriptor : {&descriptor_, &lock_})
    if (*descriptor >= 0) ::close(std::exchange(*descriptor, -1));
}

std::shared_ptr<Heap> Heap::of_process() {
  const std::lock_guard lock_out_forks(Registry::mutex());
  Registry& open = Registry::of_process();
  if (open.own == nullptr) open.own = make();
  return open.own;
}

std::shared_ptr<Heap> Heap::make() {
  std::shared_ptr<Heap> heap(new Heap);
  heap->descriptor_ = open_nameless();
  struct stat facts {};
  if (::fstat(heap->descriptor_, &facts) != 0)
    throw_system("cannot read the status of the file of the shared memory (fstat)", errno);
  std::uint64_t bytes = wanted_bytes();
  for (;; bytes /= 2) try {
      heap->map(bytes);
      break;
    } catch (const Error&) {
      if (bytes / 2 < kFewestReservedBytes) throw;
    }
  heap->address_ = {host::number_in_proc(), heap->descriptor_, facts.st_dev, facts.st_ino, bytes};
  heap->ranges_ = HeapRanges(bytes);
  heap->lock_as_owner();
  return heap;
}

std::shared_ptr<Heap> Heap::open(const HeapAddress& address) {
  const std::lock_guard lock_out_forks(Registry::mutex());
  Registry& known = Registry::of_process();
  const auto is_it = [&](const std::shared_ptr<Heap>& heap) {
    return heap != nullptr && heap->address_.device == address.device && heap->address_.inode == address.inode;
  };
  if (is_it(known.own)) return known.own;
  if (const auto found = std::ranges::find_if(known.peers, is_it); found != known.peers.end()) return *found;
  std::erase_if(known.peers, [](const auto& heap) { return heap.use_count() == 1 && !heap->is_alive(); });

  const std::string path = path_of(address.process, address.descriptor);
  std::shared_ptr<Heap> heap(new Heap);
  heap->address_ = address;
  heap->descriptor_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (heap->descriptor_ < 0) throw_system("cannot open the shared memory " + path, errno);
  struct stat facts {};
  // If ranks do not see each other's process ids (PID namespaces), it may be a file of another process.
  if (::fstat(heap->descriptor_, &facts) != 0 || facts.st_dev != address.device || facts.st_ino != address.inode)
    throw Error(ErrorCode::io, "cannot open the shared memory " + path + ": it is another file");
  heap->map(address.reserved_bytes);
  known.peers.push_back(heap);
  return heap;
}

void Heap::map(std::uint64_t bytes) {
  void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor_, 0);
  if (base == MAP_FAILED) throw_system("cannot map " + std::to_string(bytes) + " bytes of shared memory", errno);
  ::madvise(base, bytes, MADV_DONTDUMP);  // or core files would have all these addresses
  base_ = static_cast<std::byte*>(base);
  address_.reserved_bytes = bytes;
}

// The lock belongs to an open file, so the kernel drops it when this process ends in any way. It is not the file that
// is mapped: mappings keep their file open, and a child of fork() keeps the mappings.
void Heap::lock_as_owner() {
  lock_ = ::open(("/proc/self/fd/" + std::to_string(descriptor_)).c_str(), O_RDWR | O_CLOEXEC);
  if (lock_ < 0) throw_system("cannot open the file of the shared memory for its lock", errno);
  struct flock lock = owner_lock(F_WRLCK);
  if (::fcntl(lock_, F_OFD_SETLK, &lock) != 0) throw_system("cannot lock the file of the shared memory (fcntl)", errno);
}

Heap::~Heap() {
  if (base_ != nullptr) ::munmap(base_, address_.reserved_bytes);
  close_descriptors();
}

bool Heap::is_alive() const noexcept {
  if (lock_ >= 0 || descriptor_ < 0) return true;
  struct flock lock = owner_lock(F_RDLCK);
  if (::fcntl(descriptor_, F_OFD_GETLK, &lock) != 0) return true;
  return lock.l_type != F_UNLCK;
}

std::uint64_t Heap::free_bytes() const noexcept {
  struct statfs facts {};  // by the open file: looking up the path takes longer than the rest
  // A file system without a limit has no blocks.
  if (::fstatfs(descriptor_, &facts) != 0 || facts.f_blocks == 0) return std::numeric_limits<std::uint64_t>::max();
  return std::uint64_t{facts.f_bavail} * static_cast<std::uint64_t>(facts.f_frsize);
}

std::uint64_t Heap::take(std::uint64_t bytes, std::uint64_t head_bytes) {
  const std::lock_guard lock(mutex_);
  reclaim();
  const auto fits = [&](const Left& left) { return left.bytes == bytes && left.memory.head_bytes == head_bytes; };
  auto same = std::ranges::find_if(kept_, [&](const Left& left) { return fits(left) && left.offset == with_tail_; });
  if (same == kept_.end()) same = std::ranges::find_if(kept_, fits);
  if (same != kept_.end()) {
    const std::uint64_t offset = same->offset;
    kept_.erase(same);
    return offset;
  }
  const std::uint64_t offset = take_addresses(bytes);
  try {
    if (head_bytes > 0) commit(offset, head_bytes);
  } catch (...) {
    release({offset, bytes, {}, {}});
    throw;
  }
  return offset;
}

std::uint64_t Heap::take_addresses(std::uint64_t bytes) {
  try {
    return ranges_.take(bytes);
  } catch (const Error&) {
    if (kept_.empty()) throw;
  }
  for (; !kept_.empty(); kept_.pop_back()) release(kept_.back());
  return ranges_.take(bytes);
}

void Heap::commit(std::uint64_t offset, std::uint64_t bytes) {
  std::uint64_t begin = offset / kPageBytes * kPageBytes;
  const std::uint64_t end = offset + bytes;
  std::uint64_t at_once = end - begin;
  int error = 0;
  // Allocates the pages now. Otherwise, if /dev/shm is full, a later access would raise SIGBUS.
  while (begin < end && error == 0) {
    const std::uint64_t piece = std::min(at_once, end - begin);
    error = ::posix_fallocate(descriptor_, static_cast<off_t>(begin), static_cast<off_t>(piece));
    if (error == 0) begin += piece;
    if (error != EINTR) continue;
    // A signal of the application's. Older kernels then undo all, and a profiler's timer may fire faster than that much
    // is allocated.
    error = 0;
    at_once = std::max(kPageBytes, at_once / 2);
  }
  if (error != 0)
    throw_system("cannot take " + std::to_string(bytes) +
                     " bytes of shared memory in /dev/shm; make it larger or lower PENSTOCK_SHARED_BYTES",
                 error);
}

void Heap::give_back(std::uint64_t offset, std::uint64_t bytes, std::function<Use()> use, RangeMemory memory) {
  const std::lock_guard lock(mutex_);
  left_.push_back({offset, bytes, memory, std::move(use)});
  reclaim();
}

void Heap::reclaim() {
  for (std::size_t i = 0; i < left_.size();) {
    Left& left = left_[i];
    const Use use = left.use ? left.use() : Use::none;
    if (use == Use::some) {
      ++i;
      continue;
    }
    if (use == Use::head || (use == Use::more && keep_tail(left)))
      keep(left);
    else
      release(left);  // if that throws, the range stays for the next time
    if (i + 1 < left_.size()) left = std::move(left_.back());
    left_.pop_back();
  }
}

void Heap::keep(const Left& left) {
  if (kept_.size() == kMostKept) {
    // The oldest goes: its size may be one that nobody takes any more.
    release(kept_.front());
    kept_.erase(kept_.begin());
  }
  kept_.push_back({left.offset, left.bytes, left.memory, {}});
}

/// Whether only the head and the tail of the range have memory now.
bool Heap::keep_tail(const Left& left) {
  const auto& [head_bytes, tail_begin, tail_bytes] = left.memory;
  if (head_bytes == 0 || tail_bytes == 0 || (with_tail_ && with_tail_ != left.offset)) return false;
  if (tail_bytes > free_bytes() / kFreeForTail) return false;
  const std::uint64_t end = left.offset + left.bytes;
  const std::uint64_t tail = left.offset + tail_begin;
  drop_memory(left.offset + head_bytes, tail / kPageBytes * kPageBytes);
  drop_memory(std::min((tail + tail_bytes + kPageBytes - 1) / kPageBytes * kPageBytes, end), end);
  with_tail_ = left.offset;
  return true;
}

void Heap::release(const Left& left) {
  drop_memory(left.offset, left.offset + left.bytes);
  if (with_tail_ == left.offset) with_tail_.reset();
  ranges_.give_back(left.offset, left.bytes);
}

void Heap::drop_memory(std::uint64_t begin, std::uint64_t end) {
  if (begin < end)
    ::fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
                static_cast<off_t>(end - begin));
}

std::uint64_t Heap::committed_bytes() const noexcept {
  struct stat facts {};
  return ::fstat(descriptor_, &facts) == 0 ? static_cast<std::uint64_t>(facts.st_blocks) * 512 : 0;
}

std::uint64_t Heap::taken_bytes() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t taken = ranges_.taken_bytes();
  for (const Left& left : kept_) taken -= left.bytes;
  return taken;
}

}  // namespace penstock::host
