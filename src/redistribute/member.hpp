// One pair of layouts in a plan of several.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "penstock/redistribute.hpp"
#include "redistribute/copies.hpp"
#include "redistribute/overlaps.hpp"
#include "redistribute/overlay.hpp"

namespace penstock::redistribute {

/// One pair of a batch: its overlaps, and where its memory begins in the input and the output of the plan.
class Member {
 public:
  /// Throws Error(invalid_argument) where the layouts, the part of them or the leading dimensions are wrong.
  /// Of the target only the parts of ranks that `serves` names are moved. Neither layout is replicated.
  /// `given` says where the whole pair lies, whatever copies of it the layouts are.
  Member(const Layout& source, const Layout& target, const LayoutPair& given, const RedistributionOptions& options,
         const Team& team, Serves serves = {});
  Member(const Member&) = delete;  // the overlaps refer to the pairing
  Member& operator=(const Member&) = delete;

  Overlaps& overlaps() { return overlaps_; }
  /// Of this rank's memory for the pair.
  const Region& input() const { return input_; }
  const Region& output() const { return output_; }
  void begin_at(std::uint64_t input_bytes, std::uint64_t output_bytes) {
    input_.offset_bytes = input_bytes;
    output_.offset_bytes = output_bytes;
  }

  /// The packages of this rank as a source (by receiver) or as a target (by sender).
  std::map<std::int32_t, Package> packages(Side side);

 private:
  const std::vector<SharedRuns>& runs(Side side, std::size_t d, std::int64_t coordinate);
  std::int64_t place(Side side, const Layout& whole, const LocalMemory& given, std::vector<std::int64_t> begin,
                     const std::vector<std::int64_t>& shape);

  std::int32_t rank_;
  const MovedParts parts_;
  Pairing pairing_;
  Overlaps overlaps_;
  Region input_;
  Region output_;
  Serves serves_;
  std::vector<std::unordered_map<std::int64_t, std::vector<SharedRuns>>> runs_[2];
};

}  // namespace penstock::redistribute
