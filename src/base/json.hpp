// JSON of reports, manifests and tuning tables. It is read by nlohmann's library, which this header keeps out of sight.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::json {

/// `text` as a JSON string. What is not UTF-8 in it becomes U+FFFD.
std::string quoted(std::string_view text);

/// `text` as a JSON string, from which Value::parse gives it again. Throws Error(invalid_argument) if it is not UTF-8.
std::string quoted_exactly(std::string_view text);

/// An object, written member by member.
class Object {
 public:
  /// A member whose value is given as JSON.
  Object& raw(std::string_view key, std::string_view value) {
    ((text_ += text_.empty() ? "{" : ", ") += quoted(key)) += ": ";
    text_ += value;
    return *this;
  }
  Object& number(std::string_view key, auto value) { return raw(key, std::to_string(value)); }
  Object& string(std::string_view key, std::string_view value) { return raw(key, quoted(value)); }
  std::string finish() const { return text_.empty() ? "{}" : text_ + "}"; }

 private:
  std::string text_;
};

/// A parsed value. Accessors of the wrong type throw Error(corrupt), which names the expected type.
class Value {
 public:
  Value() = default;
  /// Parses a text that is one value, in UTF-8. Of members with the same name, the first counts.
  static Value parse(std::string_view text);

  const Value& at(std::string_view key) const;
  /// Whether an object has this member.
  bool has(std::string_view key) const;
  const std::vector<Value>& items() const;
  const std::string& text() const;
  std::uint64_t number() const;  ///< a non-negative integer below 2^64

 private:
  enum class Kind { null, boolean, number, text, array, object };
  class Builder;
  explicit Value(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::null;
  std::string text_;
  std::optional<std::uint64_t> number_;  ///< of numbers that are non-negative integers below 2^64
  std::vector<Value> items_;
  std::vector<std::pair<std::string, Value>> members_;
};

}  // namespace penstock::json
