// Texts of items, one after the other.
#pragma once

#include <string>
#include <string_view>

namespace penstock::base {

/// `text_of(item)` of each, with the separator between them.
template <typename Items, typename TextOf>
std::string joined(Items&& items, std::string_view separator, const TextOf& text_of) {
  std::string text;
  bool is_first = true;
  for (const auto& item : items) {
    if (!is_first) text += separator;
    is_first = false;
    text += text_of(item);
  }
  return text;
}

}  // namespace penstock::base
