// The shared memory of a process: one file without a name, from which all its communicators take.
//
// A process takes memory for itself alone, so no lock is shared between processes and none can be left behind by one
// that dies. Its peers map the whole heap once, whatever the number of communicators.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace penstock::engine {

/// Where the other processes of the node find a heap; travels between ranks as it is.
struct HeapAddress {
  std::int32_t process = 0;
  std::int32_t descriptor = -1;  ///< in that process
  std::uint64_t device = 0;      ///< with `inode`: which file it must be
  std::uint64_t inode = 0;
  std::uint64_t reserved_bytes = 0;
};

/// Which parts of a range of offsets are taken. Offsets and sizes are multiples of a page. One thread at a time.
class HeapRanges {
 public:
  explicit HeapRanges(std::uint64_t bytes);

  /// The lowest free range of that size. Throws Error(no_space).
  std::uint64_t take(std::uint64_t bytes);
  /// A range as it was taken.
  void give_back(std::uint64_t offset, std::uint64_t bytes);
  std::uint64_t taken_bytes() const { return taken_bytes_; }

 private:
  std::map<std::uint64_t, std::uint64_t> free_;  ///< offset to size; neighbours are joined
  std::uint64_t taken_bytes_ = 0;
};

/// The heap of this process or of a peer, as mapped here. Thread-safe. Throws Error(no_space) or Error(io) where the
/// system refuses. In a child of fork() the heaps of its parent are left alone, and it gets one of its own.
class Heap : public std::enable_shared_from_this<Heap> {
 public:
  static constexpr std::uint64_t kPageBytes = 4096;

  /// Made by the first call, and kept until the process ends.
  static std::shared_ptr<Heap> of_process();
  /// Maps it by the first call, and keeps it while the process that owns it lives.
  static std::shared_ptr<Heap> open(const HeapAddress& address);
  /// What may be taken there now, as far as that is known.
  static std::uint64_t free_bytes() noexcept;

  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  const HeapAddress& address() const { return address_; }
  std::byte* base() const { return base_; }
  /// Whether the process that owns it lives: false once it has ended, also if a child that it forked lives on.
  bool is_alive() const noexcept;
  /// Whether it belongs to the process that forked this one.
  bool is_inherited() const noexcept { return inherited_; }

  /// What somebody may still do with a range that was given back.
  enum class Use {
    some,  ///< it stays taken
    head,  ///< none, and only its head has memory
    none
  };

  /// Takes addresses, without memory, or of a range of that size and head that was given back as `Use::head` with its
  /// memory as it was left. Only of the own heap.
  std::uint64_t take(std::uint64_t bytes, std::uint64_t head_bytes = 0);
  /// Gives these addresses memory, which is zero where it is new, so that no access can fault. Of any heap.
  void commit(std::uint64_t offset, std::uint64_t bytes);
  /// Gives back what was taken, as soon as `use` (empty: now) allows: asked now, and by later calls of take() and
  /// give_back(). A few ranges whose head alone has memory keep it for the next that take the same: a communicator that
  /// was hardly used costs its successor no system calls and no page faults.
  void give_back(std::uint64_t offset, std::uint64_t bytes, std::function<Use()> use, std::uint64_t head_bytes = 0);

  std::uint64_t committed_bytes() const noexcept;
  std::uint64_t taken_bytes() const;

 private:
  struct Left {
    std::uint64_t offset;
    std::uint64_t bytes;
    std::uint64_t head_bytes;
    std::function<Use()> use;
  };
  class Registry;

  Heap() = default;
  static std::shared_ptr<Heap> make();
  void map(std::uint64_t bytes);
  void lock_as_owner();
  void close_descriptors() noexcept;
  void reclaim();
  void release(const Left& left);

  HeapAddress address_;
  int descriptor_ = -1;
  int lock_ = -1;  ///< of the own heap
  bool inherited_ = false;
  std::byte* base_ = nullptr;

  mutable std::mutex mutex_;
  HeapRanges ranges_{0};
  std::vector<Left> left_;
  std::vector<Left> kept_;  ///< with the memory of their heads
};

}  // namespace penstock::engine
