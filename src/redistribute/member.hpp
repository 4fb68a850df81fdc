// One pair of layouts of a batch.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "penstock/redistribute.hpp"
#include "redistribute/copies.hpp"
#include "redistribute/overlay.hpp"
#include "redistribute/segmenter.hpp"

namespace penstock::redistribute {

/// One pair of a batch: its segments, and the place of its memory in the input and the output of the plan.
class Member {
 public:
  /// Neither layout is replicated; `reads_copy` selects the ranks of the target that read this copy of the source.
  /// `given` is the placement of the whole pair. Throws Error(invalid_argument) for invalid layouts, subarrays or
  /// leading dimensions.
  Member(const Layout& source, const Layout& target, const LayoutPair& given, const RedistributionOptions& options,
         const Team& team, ReadsCopy reads_copy = {});
  Member(const Member&) = delete;  // the segmenter refers to the pairing
  Member& operator=(const Member&) = delete;

  Segmenter& segmenter() { return segmenter_; }
  /// This rank's memory for the pair.
  const Region& input() const { return input_; }
  const Region& output() const { return output_; }
  void begin_at(std::uint64_t input_bytes, std::uint64_t output_bytes) {
    input_.offset_bytes = input_bytes;
    output_.offset_bytes = output_bytes;
  }

  /// The packages of this rank: as a source, by receiver; as a target, by sender.
  std::map<std::int32_t, Package> packages(Side side);

 private:
  const std::vector<SharedRuns>& runs(Side side, std::size_t d, std::int64_t coordinate);
  std::int64_t place(Side side, const Layout& whole, const LocalMemory& given, std::vector<std::int64_t> begin,
                     const std::vector<std::int64_t>& shape);

  std::int32_t rank_;
  const MovedLayouts moved_;
  Pairing pairing_;
  Segmenter segmenter_;
  Region input_;
  Region output_;
  ReadsCopy reads_copy_;
  std::vector<std::unordered_map<std::int64_t, std::vector<SharedRuns>>> runs_[2];
};

}  // namespace penstock::redistribute
