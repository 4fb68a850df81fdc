// What a repair of a blob changes, as data: the mark gc/repair-<n> has the steps of the repair that is under way, so
// that two repairs at once take the same ones, and the next repair ends one that was cut short. See "Damage" in
// docs/design/store-repair.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "store/blob_state.hpp"
#include "store/checksum.hpp"

namespace penstock::store {

struct RepairStep {
  enum class Kind : std::uint16_t {
    put_index = 1,  ///< `content` under `object`, unless there is one
    mark_base = 2,  ///< of version `number`
    remove_delta = 3,
    remove = 4,
    remove_compacted = 5,  ///< and what confirms it, of version `number`
    unmark_base = 6,       ///< `object`: the mark
    begin_log_at = 7,      ///< version `number`
    lose_record = 8,       ///< of version `number`
  };

  Kind kind;
  std::string object;
  std::uint64_t number = 0;
  Checksum seen{};  ///< of the object that is removed or replaced; the step is left out if it has changed since
  std::vector<std::byte> content{};
};

/// The checksum of an object's bytes; that of no bytes if it is missing or cannot be read.
Checksum sum_of(const Backend& backend, const std::string& object);

/// Removed and replaced objects are copied to lost/ first. Does nothing if the step was taken before.
void take(BlobState& blob, const RepairStep& step);

/// The record that stands for one that is lost.
Record lost_record(const BlobState& blob);

std::vector<std::byte> encode(std::span<const RepairStep> steps);
/// Throws Error(corrupt) that names `source`; Error(unsupported) for a newer format.
std::vector<RepairStep> decode_repair_steps(ConstBytes sealed, const std::string& source);

}  // namespace penstock::store
