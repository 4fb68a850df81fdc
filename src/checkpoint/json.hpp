// As much JSON as a manifest needs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::checkpoint {

/// `text` in quotes, with what JSON demands escaped. Bytes beyond ASCII pass as they are.
std::string quoted(std::string_view text);

/// A parsed value. Accessors throw Error(corrupt) that names what was expected.
class Json {
 public:
  /// The whole text must be one value.
  static Json parse(std::string_view text);

  const Json& at(std::string_view key) const;
  const std::vector<Json>& items() const;
  const std::string& text() const;
  std::uint64_t number() const;  ///< a non-negative integer below 2^64

 private:
  enum class Kind { null, boolean, number, text, array, object };
  class Parser;

  Kind kind_ = Kind::null;
  std::string text_;  ///< of strings; the digits of numbers
  std::vector<Json> items_;
  std::vector<std::pair<std::string, Json>> members_;
};

}  // namespace penstock::checkpoint
