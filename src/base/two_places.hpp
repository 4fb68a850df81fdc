// A small table of things that are used again and again. Each may be in either of two places, so that two that are used
// in turns do not displace each other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace penstock::base {

/// Numbers that lie close together, spread over all bits of a hash for TwoPlaces.
constexpr std::uint64_t spread(std::uint64_t number) noexcept { return number * 0x9E3779B97F4A7C15U; }

/// The hash of a collective call for TwoPlaces.
constexpr std::uint64_t hash_of_call(std::uint64_t kind, int root, std::uint64_t count) noexcept {
  return spread(count << 12U ^ static_cast<std::uint64_t>(root) << 5U ^ kind);
}

/// `hash` is that of a thing, the same in all calls for it, and decides by its highest bits.
template <typename Entry>
class TwoPlaces {
 public:
  /// The entry of the thing for which matches(entry); nullptr if it has none. Inline, so that the thing is compared in
  /// registers.
  template <typename Matches>
  [[gnu::always_inline]] Entry* find(std::uint64_t hash, const Matches& matches) noexcept {
    Entry& first = entries_[first_place(hash)];
    if (matches(first)) return &first;
    Entry& second = entries_[second_place(hash)];
    return matches(second) ? &second : nullptr;
  }

  /// Where to keep a thing that has no entry: where is_free(entry), or in place of another one. Things that displace
  /// each other come to their other places in time, if these are not used.
  template <typename IsFree>
  Entry& make_room(std::uint64_t hash, const IsFree& is_free) noexcept {
    Entry& first = entries_[first_place(hash)];
    Entry& second = entries_[second_place(hash)];
    if (is_free(first)) return first;
    if (is_free(second)) return second;
    takes_second_ = !takes_second_;
    return takes_second_ ? second : first;
  }

  void clear() { entries_.fill({}); }

 private:
  static constexpr std::size_t first_place(std::uint64_t hash) noexcept { return hash >> 60U; }
  /// Another one than the first.
  static constexpr std::size_t second_place(std::uint64_t hash) noexcept {
    return first_place(hash) ^ ((hash >> 56U & 15U) | 1U);
  }

  std::array<Entry, 16> entries_{};
  bool takes_second_ = false;
};

}  // namespace penstock::base
