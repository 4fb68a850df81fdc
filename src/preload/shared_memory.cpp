#include "preload/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>

namespace penstock::preload {
namespace {

constexpr std::size_t kHeadBytes = 64;  ///< before the data: how many ranks have the block
constexpr std::size_t kBlockBytes = std::size_t{64} << 10U;
constexpr std::size_t kBlocks = 16;
constexpr std::size_t kFileBytes = kBlocks * kBlockBytes;
static_assert(kHeadBytes + SharedMemory::kMostBytes <= kBlockBytes);
constexpr std::size_t kMostMappedFiles = 1024;  ///< of processes that this one has met

/// A block in a file without a name, as other processes find it.
struct Place {
  std::int64_t process = 0;  ///< 0: there is none
  std::int64_t descriptor = -1;
  std::uint64_t device = 0;  ///< with the inode: the ranks may be in different namespaces of processes
  std::uint64_t inode = 0;
  std::uint64_t block = 0;
};

std::uint64_t& users(std::byte* block) { return *reinterpret_cast<std::uint64_t*>(block); }

std::byte* map_file(int file) {
  void* const mapped = ::mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
}

/// The files that this process has mapped, its own one and those of its peers. Never destroyed: MPI_Finalize may run in
/// an exit handler.
class Files {
 public:
  static Files& all() {
    static auto* const made = new Files;
    return *made;
  }

  /// A free block of the own file, zeroed, for `ranks`.
  Place claim(int ranks) {
    const std::lock_guard lock(mutex_);
    if (::getpid() != own_.process) make_own();  // a child of fork() has its parent's
    if (own_data_ == nullptr) return {};
    for (Place place = own_; place.block < kBlocks; ++place.block) {
      std::byte* const block = own_data_ + place.block * kBlockBytes;
      // A page that the node has no memory for would be a signal.
      if (::posix_fallocate(static_cast<int>(own_.descriptor), static_cast<off_t>(place.block * kBlockBytes),
                            kBlockBytes) != 0)
        return {};
      if (std::atomic_ref(users(block)).load(std::memory_order_acquire) != 0) continue;
      std::memset(block, 0, kBlockBytes);
      std::atomic_ref(users(block)).store(static_cast<std::uint64_t>(ranks), std::memory_order_relaxed);
      return place;
    }
    return {};
  }

  std::byte* find(const Place& place) {
    if (place.process == 0) return nullptr;
    const std::lock_guard lock(mutex_);
    const std::pair key(place.device, place.inode);
    auto at = mapped_.find(key);
    if (at == mapped_.end() && mapped_.size() < kMostMappedFiles)
      if (std::byte* const data = open(place)) at = mapped_.emplace(key, data).first;
    return at == mapped_.end() ? nullptr : at->second + place.block * kBlockBytes;
  }

 private:
  void make_own() {
    own_ = {.process = ::getpid()};
    own_data_ = nullptr;
    const int file = ::memfd_create("penstock-times", MFD_CLOEXEC);
    struct stat found {};
    if (file < 0 || ::ftruncate(file, kFileBytes) != 0 || ::fstat(file, &found) != 0) return;
    own_.descriptor = file;
    own_.device = found.st_dev;
    own_.inode = found.st_ino;
    own_data_ = map_file(file);
    if (own_data_ != nullptr) mapped_.emplace(std::pair(own_.device, own_.inode), own_data_);
  }

  static std::byte* open(const Place& place) {
    const std::string path = "/proc/" + std::to_string(place.process) + "/fd/" + std::to_string(place.descriptor);
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) return nullptr;
    struct stat found {};
    const bool is_it = ::fstat(file, &found) == 0 && found.st_dev == place.device && found.st_ino == place.inode;
    std::byte* const data = is_it ? map_file(file) : nullptr;
    ::close(file);
    return data;
  }

  std::mutex mutex_{};
  Place own_{};
  std::byte* own_data_ = nullptr;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::byte*> mapped_{};
};

Place of_first_rank(Comm& comm, Place place) {
  Collective bcast;
  bcast.kind = CollectiveKind::bcast;
  bcast.count = sizeof place;
  comm.run(bcast, {}, std::as_writable_bytes(std::span(&place, 1)));
  return place;
}

bool is_true_on_all(Comm& comm, bool value) {
  std::int32_t least = value ? 1 : 0;
  Collective allreduce;
  allreduce.kind = CollectiveKind::allreduce;
  allreduce.count = 1;
  allreduce.dtype = DType::int32;
  allreduce.op = ReduceOp::min;
  allreduce.in_place = true;
  comm.run(allreduce, {}, std::as_writable_bytes(std::span(&least, 1)));
  return least == 1;
}

}  // namespace

SharedMemory::SharedMemory(Comm& comm, int rank, int ranks) {
  const Place place = of_first_rank(comm, rank == 0 ? Files::all().claim(ranks) : Place{});
  std::byte* const block = Files::all().find(place);
  if (is_true_on_all(comm, block != nullptr))
    block_ = block;
  else if (rank == 0 && block != nullptr)
    std::atomic_ref(users(block)).store(0, std::memory_order_release);
}

SharedMemory::~SharedMemory() {
  if (block_ != nullptr) std::atomic_ref(users(block_)).fetch_sub(1, std::memory_order_release);
}

std::byte* SharedMemory::data() const noexcept { return block_ == nullptr ? nullptr : block_ + kHeadBytes; }

}  // namespace penstock::preload
