// One flat JSON object, written as it grows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::comm {

class JsonObject {
 public:
  void add(std::string_view key, std::string_view value) { append(key, quoted(value)); }
  void add(std::string_view key, std::uint64_t value) { append(key, std::to_string(value)); }
  std::string text() const { return "{" + members_ + "}"; }

 private:
  void append(std::string_view key, const std::string& json) {
    if (!members_.empty()) members_ += ", ";
    members_ += quoted(key) + ": " + json;
  }

  static std::string quoted(std::string_view text) {
    constexpr char kHex[] = "0123456789abcdef";
    std::string result = "\"";
    for (const char letter : text) {
      const auto code = static_cast<unsigned char>(letter);
      if (letter == '"' || letter == '\\') {
        result += '\\';
        result += letter;
      } else if (code < 0x20) {
        result += "\\u00";
        result += kHex[code >> 4];
        result += kHex[code & 15];
      } else {
        result += letter;
      }
    }
    return result + '"';
  }

  std::string members_;
};

}  // namespace penstock::comm
