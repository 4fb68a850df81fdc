// Compares deltas with the log while it is replayed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "store/blob_state.hpp"

namespace penstock::store {

/// For check and repair. Give it the versions one after another, in ascending order.
class DeltaCheck {
 public:
  /// Lists the deltas. Calls report(version, why) for those that cannot be read or belong to no version up to `newest`,
  /// and later for those that differ from the log.
  DeltaCheck(BlobState& blob, std::uint64_t newest,
             std::function<void(std::uint64_t version, const std::string& why)> report);

  /// The map of a version, before the records behind it. The first one is that at the keep mark.
  void base(const VersionMap& map);
  /// The next record. Without one it cannot be read: deltas that stand for it are not compared.
  void next(std::uint64_t version, const Record* record);

  /// The first delta that stands for the record of a version; 0 if there is none. To be asked before next().
  std::uint64_t covering(std::uint64_t version) const;
  /// As read_all of the delta.
  std::vector<std::byte> content(std::uint64_t version) const;
  std::string name(std::uint64_t version) const;

 private:
  void compare(std::uint64_t version, std::uint64_t base);
  bool agrees(std::uint64_t version, std::uint64_t base) const;

  BlobState& blob_;
  const std::function<void(std::uint64_t, const std::string&)> report_;
  std::map<std::uint64_t, std::uint64_t> base_of_;  ///< version → base, of those not compared yet
  std::map<std::uint64_t, VersionMap> bases_;       ///< by version; nothing changed yet
  std::map<std::uint64_t, VersionMap> changes_;     ///< by the version behind which they begin; from the log
  // For deltas that begin at a collected version: nobody lays them on anything below the keep mark.
  std::optional<VersionMap> kept_;      ///< the map at the keep mark
  std::optional<VersionMap> replayed_;  ///< with the records since then
  bool seen_ = false;                   ///< whether base() was called
};

}  // namespace penstock::store
