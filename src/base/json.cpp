#include "base/json.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "penstock/error.hpp"

namespace penstock::json {

namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::corrupt, "JSON: " + message); }

// Values are destroyed recursively.
constexpr std::size_t kMaxDepth = 32;

}  // namespace

/// Builds a value from what the library's parser finds: the library's own tree takes twice the time and memory.
class Value::Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Value take() { return std::move(whole_); }

  bool null() override { return add({}); }
  bool boolean(bool) override { return add(Value(Kind::boolean)); }
  bool number_integer(number_integer_t) override { return add(Value(Kind::number)); }
  bool number_float(number_float_t, const string_t&) override { return add(Value(Kind::number)); }
  bool number_unsigned(number_unsigned_t number) override {
    Value value(Kind::number);
    value.number_ = number;
    return add(std::move(value));
  }
  bool string(string_t& text) override {
    Value value(Kind::text);
    value.text_ = std::move(text);
    return add(std::move(value));
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return begin(Kind::object); }
  bool start_array(std::size_t) override { return begin(Kind::array); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool key(string_t& name) override {
    open_.back()->members_.emplace_back(std::move(name), Value());
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) override {
    const std::string_view what = error.what();
    refuse(std::string(what.substr(what.find("] ") + 2)));
  }

 private:
  /// Where the next value belongs. What lies around it does not grow before it is complete, so open_ stays valid.
  Value& place() {
    if (open_.empty()) return whole_;
    Value& around = *open_.back();
    return around.kind_ == Kind::object ? around.members_.back().second : around.items_.emplace_back();
  }
  bool add(Value value) {
    place() = std::move(value);
    return true;
  }
  bool begin(Kind kind) {
    if (open_.size() == kMaxDepth) refuse("nested more than " + std::to_string(kMaxDepth) + " deep");
    Value& value = place();
    value.kind_ = kind;
    open_.push_back(&value);
    return true;
  }
  bool end() {
    open_.pop_back();
    return true;
  }

  Value whole_;
  std::vector<Value*> open_;
};

Value Value::parse(std::string_view text) {
  Builder builder;
  nlohmann::json::sax_parse(text, &builder);
  return builder.take();
}

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
  if (!number_) refuse("expected a non-negative integer");
  return *number_;
}

std::string quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string quoted_exactly(std::string_view text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    throw Error(ErrorCode::invalid_argument, "expected UTF-8, got " + quoted(text));
  }
}

}  // namespace penstock::json
