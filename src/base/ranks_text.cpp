#include "base/ranks_text.hpp"

namespace penstock::base {
namespace {

constexpr std::size_t kMostNamed = 8;

}  // namespace

std::string ranks_text(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i == kMostNamed && ranks.size() > kMostNamed + 2)
      return text + " and " + std::to_string(ranks.size() - i) + " others";
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

}  // namespace penstock::base
