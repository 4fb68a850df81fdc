// Reads pieces of many data objects in as few and as long accesses as possible, and verifies every chunk that they
// touch while it is still in a cache. Large reads take several threads where this process may use several cores.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "penstock/types.hpp"
#include "store/backend.hpp"
#include "store/data_object.hpp"

namespace penstock::store {

class ScatteredRead {
 public:
  explicit ScatteredRead(const Backend& backend) : backend_(backend), shape_(backend.read_shape()) {}

  /// Asks for `to.size()` bytes of a source. Both must live until run() has returned.
  void add(const Source& source, std::uint64_t offset_bytes, Bytes to);
  /// Fills all that was asked for. Throws what the first failed read threw; corrupt for damaged or missing bytes.
  void run();

 private:
  struct Piece {
    const Source* source;
    std::uint64_t offset_bytes;
    Bytes to;
    std::uint64_t end_bytes() const { return offset_bytes + to.size(); }
  };
  /// Chunks of one source that follow one another and are read at once, for these pieces, which do not overlap.
  struct Run {
    std::span<const Source::Chunk> chunks;
    std::span<const Piece> pieces;
  };
  /// The part of a piece that lies in a run.
  struct Part {
    std::uint64_t offset_bytes;
    Bytes to;
  };
  class Buffer;

  void sort();
  void load_tables();
  void plan();
  void plan(std::span<const Piece> pieces);
  void execute(const Run& run, Buffer& buffer) const;
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
