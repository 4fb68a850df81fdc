#include "engine/segment.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <random>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/board.hpp"
#include "engine/flags.hpp"
#include "penstock/error.hpp"

namespace penstock::engine {
namespace {

constexpr std::uint64_t kPage = 4096;
// Far from where arrays begin, which copies like best (kernels/copy.hpp): at the begin of a page or a little behind it.
constexpr std::uint64_t kArenaBehindPage = kPage / 2;
constexpr std::uint64_t kSlotBytes = (sizeof(RankSlot) + 127) / 128 * 128;

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t to) { return (value + to - 1) / to * to; }

[[noreturn]] void throw_system(const std::string& what, int error) {
  throw Error(error == ENOSPC || error == ENOMEM ? ErrorCode::no_space : ErrorCode::io, what, -1,
              std::generic_category().message(error));
}

std::string new_name() {
  std::random_device random;
  return "/penstock-" + std::to_string(::getpid()) + "-" + std::to_string(random());
}

SegmentLayout arrange(std::uint32_t ranks, std::uint32_t cells, std::uint64_t payload_bytes, std::uint64_t arena,
                      std::uint64_t board_bytes) {
  SegmentLayout layout;
  layout.ranks = ranks;
  layout.cells_per_rank = cells;
  layout.payload_bytes = payload_bytes;
  layout.arena_bytes = arena;
  layout.cell_stride_bytes = round_up(sizeof(Cell) + payload_bytes, 64);
  layout.cells_offset_bytes = round_up(ranks * kSlotBytes, kPage);
  layout.flags_offset_bytes =
      round_up(layout.cells_offset_bytes + (std::uint64_t{ranks} * cells + ranks) * layout.cell_stride_bytes, kPage);
  const std::uint64_t flags_end_bytes = round_up(layout.flags_offset_bytes + ranks * Flags::kBytesPerRank, kPage);
  layout.board_offset_bytes = board_bytes > 0 ? flags_end_bytes : 0;
  layout.arenas_offset_bytes = round_up(flags_end_bytes + board_bytes, kPage) + kArenaBehindPage;
  layout.total_bytes = layout.arenas_offset_bytes + ranks * arena;
  return layout;
}

struct Descriptor {
  explicit Descriptor(int opened) : number(opened) {}
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  const int number;
};

struct flock byte_lock(std::uint32_t local_rank, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = local_rank;
  lock.l_len = 1;
  return lock;
}

}  // namespace

/// The memory of a segment in this process. Ranks that are threads of one process share it, so that all agree on the
/// addresses; the thread sanitizer then sees that they synchronize.
class Segment::Mapping {
 public:
  static std::shared_ptr<Mapping> of(const std::string& name, int descriptor, std::uint64_t bytes) {
    static std::mutex mutex;
    static auto* known = new std::map<std::string, std::weak_ptr<Mapping>>;
    const std::lock_guard lock(mutex);
    std::erase_if(*known, [](const auto& entry) { return entry.second.expired(); });
    if (auto mapping = (*known)[name].lock()) return mapping;
    void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (base == MAP_FAILED) throw_system("cannot map the shared memory " + name, errno);
    std::shared_ptr<Mapping> mapping(new Mapping(static_cast<std::byte*>(base), bytes));
    (*known)[name] = mapping;
    return mapping;
  }
  ~Mapping() { ::munmap(base_, bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* base() const { return base_; }

 private:
  Mapping(std::byte* base, std::uint64_t bytes) : base_(base), bytes_(bytes) {}

  std::byte* base_;
  std::uint64_t bytes_;
};

/// The segments that this process has open. A child of fork() shares the open files, and with them the locks that tell
/// the peers that its parent lives: it closes them before it runs anything else. (A program that the child executes
/// has them closed by O_CLOEXEC.)
class Segment::OpenInProcess {
 public:
  static OpenInProcess& instance() {
    static auto* const open = new OpenInProcess;  // leaked: fork() may be called while static objects are destroyed
    return *open;
  }

  /// While it is held there is no fork(): no child gets a descriptor that is not in the list yet.
  std::mutex mutex;
  std::vector<Segment*> segments;

 private:
  OpenInProcess() {
    ::pthread_atfork([] { instance().mutex.lock(); }, [] { instance().mutex.unlock(); },
                     [] {
                       for (Segment* segment : instance().segments) {
                         if (segment->descriptor_ >= 0) ::close(std::exchange(segment->descriptor_, -1));
                         segment->linked_ = false;  // the name is the parent's to remove
                       }
                       instance().segments.clear();
                       instance().mutex.unlock();
                     });
  }
};

SegmentLayout SegmentLayout::fit(std::uint32_t ranks, std::uint64_t eager_bytes, std::uint64_t limit_bytes) {
  constexpr std::uint64_t kSmallestPayload = 1024;
  const std::uint64_t payload = std::max(round_up(eager_bytes, 64), kSmallestPayload);
  constexpr std::uint64_t kOrdinaryArenaBytes = 1 << 20;
  constexpr std::uint64_t kMostInLargeArenasBytes = 16 << 20;  // every communicator has a segment of its own
  for (const std::uint64_t arena : {4u << 20, 2u << 20, 1u << 20, 256u << 10, 64u << 10}) {
    if (arena > kOrdinaryArenaBytes && arena * ranks > kMostInLargeArenasBytes) continue;
    for (const std::uint32_t cells : {64u, 32u, 16u}) {
      const SegmentLayout layout = arrange(ranks, cells, payload, arena, Board::bytes(ranks));
      if (layout.total_bytes <= limit_bytes) return layout;
    }
  }
  for (const std::uint32_t cells : {16u, 8u}) {
    const SegmentLayout layout = arrange(ranks, cells, kSmallestPayload, 16 << 10, 0);
    if (layout.total_bytes <= limit_bytes) return layout;
  }
  return {};
}

std::unique_ptr<Segment> Segment::make(const SegmentLayout& layout, std::uint32_t local_rank) {
  std::unique_ptr<Segment> segment(new Segment(new_name(), layout, local_rank));
  segment->map(O_CREAT | O_EXCL);
  for (std::uint32_t rank = 0; rank < layout.ranks; ++rank) {
    auto* slot = new (&segment->slot(rank)) RankSlot;
    new (&segment->cell(segment->stub(rank))) Cell;
    slot->queue_tail.store(segment->stub(rank));
  }
  for (std::uint32_t index = 0; index < layout.ranks * layout.cells_per_rank; ++index) new (&segment->cell(index)) Cell;
  for (std::uint32_t rank = 0; rank < layout.ranks; ++rank)
    for (std::uint32_t entry = 0; entry < Flags::kEntries; ++entry)
      new (segment->flags(rank) + entry * Flags::kStrideBytes) Flag;
  if (layout.board_offset_bytes != 0) Board::make(segment->board(), layout.ranks);
  return segment;
}

std::uint64_t Segment::free_bytes() noexcept {
  struct statvfs facts {};
  // A file system without a limit has no blocks.
  if (::statvfs("/dev/shm", &facts) != 0 || facts.f_blocks == 0) return std::numeric_limits<std::uint64_t>::max();
  return std::uint64_t{facts.f_bavail} * facts.f_frsize;
}

std::unique_ptr<Segment> Segment::open(const std::string& name, const SegmentLayout& layout, std::uint32_t local_rank) {
  std::unique_ptr<Segment> segment(new Segment(name, layout, local_rank));
  segment->map(0);
  return segment;
}

void Segment::map(int open_flags) {
  OpenInProcess& open = OpenInProcess::instance();
  const std::lock_guard lock_out_forks(open.mutex);
  open.segments.push_back(this);
  const Descriptor memory(::shm_open(name_.c_str(), O_RDWR | O_CLOEXEC | open_flags, 0600));
  if (memory.number < 0) throw_system("cannot open the shared memory " + name_, errno);
  if (open_flags & O_CREAT) {
    linked_ = true;
    // Without the reservation a full /dev/shm would show as SIGBUS at some later access.
    int error = 0;
    do {
      error = ::posix_fallocate(memory.number, 0, static_cast<off_t>(layout_.total_bytes));
    } while (error == EINTR);  // a signal of the application's, such as a profiler's timer
    if (error != 0)
      throw_system("cannot reserve " + std::to_string(layout_.total_bytes) +
                       " bytes of shared memory in /dev/shm; make it larger or lower PENSTOCK_SHARED_BYTES",
                   error);
  }
  mapping_ = Mapping::of(name_, memory.number, layout_.total_bytes);
  base_ = mapping_->base();
  // Held by the open file, so the kernel drops it whenever and however this rank goes; see is_alive(). Not the one that
  // is mapped: a child of fork() keeps its mappings, and they their file.
  descriptor_ = ::shm_open(name_.c_str(), O_RDWR | O_CLOEXEC, 0600);
  if (descriptor_ < 0) throw_system("cannot open the shared memory " + name_, errno);
  struct flock lock = byte_lock(local_rank_, F_WRLCK);
  if (::fcntl(descriptor_, F_OFD_SETLK, &lock) != 0) throw_system("cannot lock the shared memory " + name_, errno);
}

Segment::~Segment() {
  unlink();
  OpenInProcess& open = OpenInProcess::instance();
  const std::lock_guard lock(open.mutex);
  std::erase(open.segments, this);
  if (descriptor_ >= 0) ::close(descriptor_);
}

void Segment::unlink() noexcept {
  if (linked_) ::shm_unlink(name_.c_str());
  linked_ = false;
}

RankSlot& Segment::slot(std::uint32_t local_rank) const {
  return *reinterpret_cast<RankSlot*>(base_ + local_rank * kSlotBytes);
}

Cell& Segment::cell(std::uint32_t index) const {
  return *reinterpret_cast<Cell*>(base_ + layout_.cells_offset_bytes + index * layout_.cell_stride_bytes);
}

std::byte* Segment::arena(std::uint32_t local_rank) const {
  return base_ + layout_.arenas_offset_bytes + local_rank * layout_.arena_bytes;
}

std::byte* Segment::flags(std::uint32_t local_rank) const {
  return base_ + layout_.flags_offset_bytes + local_rank * Flags::kBytesPerRank;
}

bool Segment::is_alive(std::uint32_t local_rank) const noexcept {
  if (local_rank == local_rank_) return true;
  struct flock lock = byte_lock(local_rank, F_RDLCK);
  if (::fcntl(descriptor_, F_OFD_GETLK, &lock) != 0) return true;
  return lock.l_type != F_UNLCK;
}

}  // namespace penstock::engine
