// Reads the chunks of an object ahead of whoever writes them elsewhere, through few buffers.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "penstock/types.hpp"

namespace penstock::checkpoint {

/// Consecutive chunks of an object.
struct ChunkRange {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

/// Adds a chunk behind the last one of `ranges`, of which none gets more than `most` chunks.
void add_chunk(std::vector<ChunkRange>& ranges, std::uint64_t chunk, std::uint64_t most = ~std::uint64_t{0});

/// Chunks of an object in their order. One thread at a time.
class ChunkStream {
 public:
  struct Piece {
    std::uint64_t first_chunk = 0;
    ConstBytes data;  ///< of whole chunks; valid until release()
  };

  virtual ~ChunkStream() = default;
  /// The next piece, verified; nothing after the last. Throws what keeps it from being read intact.
  virtual std::optional<Piece> next() = 0;
  /// Gives back the memory of all pieces so far.
  virtual void release() {}
  /// Whether next() needs a release() first.
  virtual bool full() const { return false; }
};

/// How large the buffers of a stream are.
struct StreamShape {
  std::uint64_t piece_bytes = 0;  ///< a multiple of the chunk, unless the object is smaller
  std::uint64_t buffers = 0;

  std::uint64_t memory_bytes() const { return piece_bytes * buffers; }
  /// For an object of `data_bytes`: at most 48 MiB, or two chunks if these are larger. `preferred_bytes`: of a piece.
  static StreamShape of(std::uint64_t data_bytes, std::uint64_t chunk_bytes,
                        std::uint64_t preferred_bytes = kPieceBytes);

  static constexpr std::uint64_t kPieceBytes = std::uint64_t{8} << 20;
};

/// Reads ahead on a thread of its own: while one half of the buffers is written, it fills the other one.
class ReadAhead final : public ChunkStream {
 public:
  /// Fills `to` with the chunks of a range and verifies them.
  using Load = std::function<void(const ChunkRange& range, Bytes to)>;

  /// `ranges` ascend. `memory` has shape.memory_bytes() and outlives this object.
  ReadAhead(Load load, const std::vector<ChunkRange>& ranges, std::uint64_t chunk_bytes, std::uint64_t data_bytes,
            const StreamShape& shape, Bytes memory);
  ~ReadAhead() override;
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  std::optional<Piece> next() override;
  void release() override;
  bool full() const override;

 private:
  struct Part {
    ChunkRange range;
    std::uint64_t size_bytes = 0;
  };

  Bytes buffer(std::uint64_t part) const;
  void run();

  const Load load_;
  const StreamShape shape_;
  const Bytes memory_;
  std::vector<Part> parts_;
  std::uint64_t taken_ = 0;  ///< used by the caller's thread

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t loaded_ = 0;
  std::uint64_t released_ = 0;
  std::exception_ptr failure_;
  bool closing_ = false;
  std::thread thread_;  // last member: it uses those above
};

}  // namespace penstock::checkpoint
