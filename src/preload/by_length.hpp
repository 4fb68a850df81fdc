// One thing for each operation and length of message. Lengths with the same number of binary digits share one.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "penstock/collective.hpp"

namespace penstock::preload {

template <typename Thing>
class ByLength {
 public:
  /// Makes it from the length, if there is none.
  Thing& of(CollectiveKind kind, std::uint64_t bytes) {
    auto& of_kind = all_[static_cast<std::size_t>(kind)];
    if (of_kind == nullptr) of_kind = std::make_unique<OfKind>();
    auto& thing = (*of_kind)[static_cast<std::size_t>(std::bit_width(bytes))];
    if (thing == nullptr) thing = std::make_unique<Thing>(bytes);
    return *thing;
  }

  /// That of the longest length that is shorter and not the same. nullptr if there is none.
  const Thing* shorter(CollectiveKind kind, std::uint64_t bytes) const noexcept {
    const auto& of_kind = all_[static_cast<std::size_t>(kind)];
    if (of_kind == nullptr) return nullptr;
    for (auto digits = static_cast<std::size_t>(std::bit_width(bytes)); digits-- > 0;)
      if ((*of_kind)[digits] != nullptr) return (*of_kind)[digits].get();
    return nullptr;
  }

  template <typename Visit>
  void for_each(CollectiveKind kind, Visit visit) const {
    if (const auto& of_kind = all_[static_cast<std::size_t>(kind)])
      for (const auto& thing : *of_kind)
        if (thing != nullptr) visit(*thing);
  }

 private:
  using OfKind = std::array<std::unique_ptr<Thing>, 65>;
  std::array<std::unique_ptr<OfKind>, kCollectiveKinds> all_{};
};

}  // namespace penstock::preload
