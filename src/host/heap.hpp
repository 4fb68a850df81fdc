// The shared memory of a process: one unnamed file, from which all its communicators allocate.
//
// A process allocates for itself only, so no lock is shared between processes, and a process that dies leaves none
// behind. Peers map the whole heap once for all communicators.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "host/heap_ranges.hpp"

namespace penstock::host {

/// How the other processes of the node find a heap. Ranks exchange it as bytes.
struct HeapAddress {
  std::int32_t process = 0;      ///< its number in the /proc that it sees
  std::int32_t descriptor = -1;  ///< in that process
  std::uint64_t device = 0;      ///< with `inode`: identifies the file
  std::uint64_t inode = 0;
  std::uint64_t reserved_bytes = 0;
};

/// What has memory in a range that is given back. Offsets are those behind its begin.
struct RangeMemory {
  std::uint64_t head_bytes = 0;
  std::uint64_t tail_begin = 0;  ///< of memory that a successor may find useful
  std::uint64_t tail_bytes = 0;
};

/// The heap of this process or of a peer, as mapped here. Thread-safe. Throws Error(no_space) or Error(io) if the
/// system refuses. A child of fork() does not use its parent's heaps; it gets its own.
class Heap : public std::enable_shared_from_this<Heap> {
 public:
  static constexpr std::uint64_t kPageBytes = 4096;

  /// This process's heap. The first call makes it; it lives until the process ends.
  static std::shared_ptr<Heap> of_process();
  /// A peer's heap. The first call maps it; it stays mapped while its process lives.
  static std::shared_ptr<Heap> open(const HeapAddress& address);
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  const HeapAddress& address() const { return address_; }
  std::byte* base() const { return base_; }
  /// Whether its process lives. False once it has ended, even if a forked child lives on.
  bool is_alive() const noexcept;
  /// Whether it belongs to the process that forked this one.
  bool is_inherited() const noexcept { return inherited_; }

  /// How a range that was given back is still used. The head of a range is its first `head_bytes` bytes.
  enum class Use {
    some,  ///< a peer may still access it: it stays taken
    head,  ///< nobody accesses it, and nothing behind its head has got memory since it was taken
    more,  ///< nobody accesses it
    none   ///< nobody accesses it, but one that has died may have been about to commit more
  };

  /// Allocates addresses of which the head has memory: new memory, which is zero, or as a range of that size and head
  /// was left that was given back as Use::head or Use::more. Of the latter the tail may have memory, too. Only for this
  /// process's own heap.
  std::uint64_t take(std::uint64_t bytes, std::uint64_t head_bytes = 0);
  /// Gives memory to these addresses, so that no access faults. New memory is zero, but that of a tail is as it was
  /// left. For any heap.
  void commit(std::uint64_t offset, std::uint64_t bytes);
  /// Frees what take() returned as soon as `use` does not return Use::some; an empty `use` means at once. This call and
  /// later calls of take() and give_back() ask `use`. A few ranges keep the memory of their heads for the next take()
  /// of the same size: the successor of a hardly used communicator needs no system calls and has no page faults. One
  /// range at a time, taken or not, keeps that of its tail, too, if it is little of what is free.
  void give_back(std::uint64_t offset, std::uint64_t bytes, std::function<Use()> use, RangeMemory memory = {});

  /// The memory that can be committed now, as far as that is known.
  std::uint64_t free_bytes() const noexcept;
  std::uint64_t committed_bytes() const noexcept;
  std::uint64_t taken_bytes() const;

 private:
  struct Left {
    std::uint64_t offset;
    std::uint64_t bytes;
    RangeMemory memory;
    std::function<Use()> use;
  };
  class Registry;

  Heap() = default;
  static std::shared_ptr<Heap> make();
  void map(std::uint64_t bytes);
  void lock_as_owner();
  void close_descriptors() noexcept;
  void reclaim();
  std::uint64_t take_addresses(std::uint64_t bytes);
  void keep(const Left& left);
  bool keep_tail(const Left& left);
  void release(const Left& left);
  void drop_memory(std::uint64_t begin, std::uint64_t end);

  HeapAddress address_;
  int descriptor_ = -1;
  int lock_ = -1;  ///< only of this process's own heap
  bool inherited_ = false;
  std::byte* base_ = nullptr;

  mutable std::mutex mutex_;
  HeapRanges ranges_{0};
  std::vector<Left> left_;
  std::vector<Left> kept_;                  ///< with the memory of their heads
  std::optional<std::uint64_t> with_tail_;  ///< the offset of the range whose tail has kept its memory, taken or not
};

}  // namespace penstock::host
