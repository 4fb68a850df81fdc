#include "base/json.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "penstock/error.hpp"

namespace penstock::json {

namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::corrupt, "JSON: " + message); }

constexpr int kMaxDepth = 32;

}  // namespace

class Value::Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Value whole() {
    Value value = parse_value(0);
    skip_space();
    if (at_ != text_.size()) fail("nothing more");
    return value;
  }

 private:
  [[noreturn]] void fail(const char* expected) const {
    refuse("expected " + std::string(expected) + " at offset " + std::to_string(at_));
  }

  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  bool take(char expected) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != expected) return false;
    ++at_;
    return true;
  }

  void demand(char expected, const char* what) {
    if (!take(expected)) fail(what);
  }

  bool take_word(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  Value parse_value(int depth) {
    if (depth > kMaxDepth) fail("less nesting");
    skip_space();
    if (at_ >= text_.size()) fail("a value");
    Value value;
    const char first = text_[at_];
    if (first == '{') {
      value.kind_ = Kind::object;
      ++at_;
      if (take('}')) return value;
      do {
        skip_space();
        std::string key = parse_text();
        demand(':', "':'");
        value.members_.emplace_back(std::move(key), parse_value(depth + 1));
      } while (take(','));
      demand('}', "',' or '}'");
    } else if (first == '[') {
      value.kind_ = Kind::array;
      ++at_;
      if (take(']')) return value;
      do {
        value.items_.push_back(parse_value(depth + 1));
      } while (take(','));
      demand(']', "',' or ']'");
    } else if (first == '"') {
      value.kind_ = Kind::text;
      value.text_ = parse_text();
    } else if (take_word("true") || take_word("false")) {
      value.kind_ = Kind::boolean;
    } else if (!take_word("null")) {
      value.kind_ = Kind::number;
      const std::size_t begin = at_;
      while (at_ < text_.size() && std::string_view("+-.0123456789eE").find(text_[at_]) != std::string_view::npos)
        ++at_;
      if (at_ == begin) fail("a value");
      value.text_ = text_.substr(begin, at_ - begin);
    }
    return value;
  }

  std::string parse_text() {
    if (at_ >= text_.size() || text_[at_] != '"') fail("a string");
    ++at_;
    std::string result;
    while (true) {
      std::size_t end = at_;
      while (end < text_.size() && text_[end] != '"' && text_[end] != '\\') ++end;
      result += text_.substr(at_, end - at_);
      at_ = end;
      if (at_ >= text_.size()) fail("the end of a string");
      if (text_[at_++] == '"') return result;
      if (at_ >= text_.size()) fail("an escape");
      const char escape = text_[at_++];
      constexpr std::string_view kEscapes = "\"\\/bfnrt";
      constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
      if (escape == 'u') {
        append_code_point(result);
      } else if (const std::size_t which = kEscapes.find(escape); which != std::string_view::npos) {
        result += kMeanings[which];
      } else {
        fail("an escape");
      }
    }
  }

  /// quoted() writes \u only for control characters, so manifests have no surrogate pairs.
  void append_code_point(std::string& to) {
    unsigned code = 0;
    const std::string_view digits = text_.substr(at_, 4);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() != 4 || error != std::errc() || end != digits.data() + 4 || code >= 0x80) {
      fail("\\u00 and two hexadecimal digits of an ASCII character");
    }
    at_ += 4;
    to += static_cast<char>(code);
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

Value Value::parse(std::string_view text) { return Parser(text).whole(); }

const Value& Value::at(std::string_view key) const {
  for (const auto& [name, value] : members_) {
    if (name == key) return value;
  }
  refuse("no member '" + std::string(key) + "'");
}

bool Value::has(std::string_view key) const {
  return std::any_of(members_.begin(), members_.end(), [&](const auto& member) { return member.first == key; });
}

const std::vector<Value>& Value::items() const {
  if (kind_ != Kind::array) refuse("expected an array");
  return items_;
}

const std::string& Value::text() const {
  if (kind_ != Kind::text) refuse("expected a string");
  return text_;
}

std::uint64_t Value::number() const {
  std::uint64_t number = 0;
  const char* end = text_.data() + text_.size();
  const auto [stop, error] = std::from_chars(text_.data(), end, number);
  if (kind_ != Kind::number || error != std::errc() || stop != end) refuse("expected a non-negative integer");
  return number;
}

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[7];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      result += escape;
    } else {
      result += c;
    }
  }
  return result + '"';
}

}  // namespace penstock::json
