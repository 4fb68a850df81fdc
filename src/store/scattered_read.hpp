// Reads many pieces of many sources: sorts and joins them into few long accesses, and verifies every chunk that they
// touch while it is in the core's cache.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "penstock/types.hpp"
#include "store/backend.hpp"
#include "store/data_object.hpp"
#include "store/read_buffer.hpp"

namespace penstock::store {

/// One read of many pieces: add() them, then run() once. run() uses several threads for a large read, but the object is
/// not thread-safe. `backend` must outlive it.
class ScatteredRead {
 public:
  explicit ScatteredRead(const Backend& backend) : backend_(backend), shape_(backend.read_shape()) {}

  /// Asks for `to.size()` bytes of a source. The caller owns `source` and `to` until run() has returned.
  void add(const Source& source, std::uint64_t offset_bytes, Bytes to);
  /// Fills all targets. Throws the first exception of a read; Error(corrupt) for damaged or missing bytes.
  void run();

 private:
  struct Piece {
    const Source* source;
    std::uint64_t offset_bytes;
    Bytes to;
    std::uint64_t end_bytes() const { return offset_bytes + to.size(); }
  };
  /// One access: consecutive chunks of one source, and the disjoint pieces that need them.
  struct Run {
    std::span<const Source::Chunk> chunks;
    std::span<const Piece> pieces;
  };
  /// The part of a piece that lies in a run.
  struct Part {
    std::uint64_t offset_bytes;
    Bytes to;
  };

  void sort();
  void load_tables();
  void plan();
  void plan(std::span<const Piece> pieces);
  void execute(const Run& run, ReadBuffer& buffer) const;
  static std::vector<Part> parts_of(const Run& run);
  static bool can_go_straight(const Run& run, std::span<const Part> parts);
  void verify(const Source& source, const Source::Chunk& chunk, ConstBytes found) const;

  const Backend& backend_;
  const Backend::ReadShape shape_;
  std::vector<Piece> pieces_;
  std::vector<Run> runs_;
  std::uint64_t total_bytes_ = 0;
};

}  // namespace penstock::store
