// The memory that the ranks of one node share for one communicator: how it is laid out, made and given back.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/doorbell.hpp"
#include "engine/message.hpp"

namespace penstock::engine {

/// A message on its way: a link of the receiver's queue, then header and payload.
struct Cell {
  std::atomic<std::uint32_t> next{0};    ///< index + 1 of the next cell of the queue
  std::atomic<std::uint32_t> in_use{0};  ///< the receiver's local rank + 1, set by the owner; 0 from the receiver: free
  Header header;

  std::byte* payload() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
};
static_assert(sizeof(Cell) == 64);

/// What one rank shows to the others of its node.
struct RankSlot {
  static constexpr std::uint64_t kFailureBits = 4096;

  alignas(64) std::atomic<std::uint32_t> queue_tail{0};  ///< index of the last cell of the queue of messages to it
  alignas(64) std::atomic<std::uint32_t> sending{0};  ///< index + 1 of the cell that it is appending to a queue; or 0
  alignas(64) Doorbell bell;
  alignas(64) std::atomic<std::uint64_t> completed_before{0};  ///< all operations with a smaller sequence are over
  std::atomic<std::uint64_t> past_flags_of{0};  ///< it reads no flags of operations with a smaller sequence any more
  std::atomic<std::uint64_t> failed[kFailureBits / 64]{};  ///< see Failures
};

struct SegmentLayout {
  std::uint32_t ranks = 0;
  std::uint32_t cells_per_rank = 0;
  std::uint64_t payload_bytes = 0;  ///< of a cell
  std::uint64_t arena_bytes = 0;    ///< of a rank
  std::uint64_t cell_stride_bytes = 0;
  std::uint64_t cells_offset_bytes = 0;
  std::uint64_t flags_offset_bytes = 0;
  std::uint64_t board_offset_bytes = 0;  ///< 0: there is no board, so no shared tasks
  std::uint64_t arenas_offset_bytes = 0;
  std::uint64_t total_bytes = 0;

  /// The largest useful layout within `limit_bytes`; ranks == 0 when not even the smallest fits.
  static SegmentLayout fit(std::uint32_t ranks, std::uint64_t eager_bytes, std::uint64_t limit_bytes);
};

/// One rank's mapping of the segment. Throws Error(no_space) or Error(io) where the system refuses.
class Segment {
 public:
  /// Makes the segment under a new name in /dev/shm, with all its memory reserved, so that no later access can fault.
  static std::unique_ptr<Segment> make(const SegmentLayout& layout, std::uint32_t local_rank);
  /// What may be reserved there now, as far as that is known.
  static std::uint64_t free_bytes() noexcept;
  static std::unique_ptr<Segment> open(const std::string& name, const SegmentLayout& layout, std::uint32_t local_rank);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  /// Removes the name; the memory lives until the last rank has unmapped it, even by dying.
  void unlink() noexcept;

  const std::string& name() const { return name_; }
  const SegmentLayout& layout() const { return layout_; }
  std::uint32_t local_rank() const { return local_rank_; }

  RankSlot& slot(std::uint32_t local_rank) const;
  /// Cells of all ranks, rank after rank, then one stub per rank for the ends of the queues.
  Cell& cell(std::uint32_t index) const;
  std::uint32_t stub(std::uint32_t local_rank) const { return layout_.ranks * layout_.cells_per_rank + local_rank; }
  std::byte* arena(std::uint32_t local_rank) const;
  std::byte* flags(std::uint32_t local_rank) const;
  std::byte* board() const { return base_ + layout_.board_offset_bytes; }

  /// Whether that rank still has the segment open: false once its process has ended or it has given the segment back,
  /// also if a child that it forked lives on.
  bool is_alive(std::uint32_t local_rank) const noexcept;

 private:
  Segment(std::string name, const SegmentLayout& layout, std::uint32_t local_rank)
      : name_(std::move(name)), layout_(layout), local_rank_(local_rank) {}
  void map(int open_flags);

  class Mapping;
  class OpenInProcess;
  std::string name_;
  SegmentLayout layout_;
  std::uint32_t local_rank_;
  int descriptor_ = -1;
  bool linked_ = false;
  std::shared_ptr<Mapping> mapping_;
  std::byte* base_ = nullptr;
};

}  // namespace penstock::engine
