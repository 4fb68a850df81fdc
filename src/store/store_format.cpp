#include "store/store_format.hpp"

#include <charconv>

#include "penstock/error.hpp"

namespace penstock::store {

namespace {

constexpr int kFormatVersion = 1;

}  // namespace

std::string store_format() { return "{\"penstock\": \"store\", \"format\": " + std::to_string(kFormatVersion) + "}\n"; }

void check_store_format(std::string_view text, const std::string& place, const std::string& url) {
  const std::string_view field = "\"format\":";
  int version = 0;
  const bool is_store = text.starts_with("{\"penstock\": \"store\",");
  const std::size_t at = is_store ? text.find(field) : std::string_view::npos;
  if (at != std::string_view::npos) {
    const std::size_t digits = text.find_first_not_of(' ', at + field.size());
    if (digits != std::string_view::npos) std::from_chars(text.data() + digits, text.data() + text.size(), version);
  }
  if (version < 1) {
    throw Error(ErrorCode::corrupt, place +
                                        " names no format of a store; expected {\"penstock\": "
                                        "\"store\", \"format\": 1}; restore it");
  }
  if (version > kFormatVersion) {
    throw Error(ErrorCode::unsupported, url + " is a store of format " + std::to_string(version) +
                                            ", this Penstock reads formats up to " + std::to_string(kFormatVersion) +
                                            "; use a newer Penstock");
  }
}

}  // namespace penstock::store
