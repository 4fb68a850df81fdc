#include "penstock/options.hpp"

#include <cctype>
#include <charconv>
#include <cstdlib>

#include "penstock/error.hpp"
#include "penstock/trace.hpp"

namespace penstock {
namespace {

[[noreturn]] void throw_bad_value(std::string_view name, std::string_view value, std::string_view expected) {
  throw Error(ErrorCode::invalid_argument, "option " + std::string(name) + " cannot be '" + std::string(value) +
                                               "'; expected " + std::string(expected));
}

void parse(std::string_view name, std::string_view text, std::int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) throw_bad_value(name, text, "a whole number");
}

void parse(std::string_view name, std::string_view text, std::uint64_t& value) {
  constexpr std::string_view kExpected = "a size in bytes such as 65536, 64K, 16M or 1G";
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) throw_bad_value(name, text, kExpected);
  const std::string_view suffix(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (suffix.empty()) return;
  constexpr std::string_view kSuffixes = "KMG";
  const auto power = kSuffixes.find(static_cast<char>(std::toupper(static_cast<unsigned char>(suffix[0]))));
  if (suffix.size() != 1 || power == std::string_view::npos) throw_bad_value(name, text, kExpected);
  const unsigned shift = 10 * (static_cast<unsigned>(power) + 1);
  if (value > (UINT64_MAX >> shift)) throw_bad_value(name, text, "a size below 2^64 bytes");
  value <<= shift;
}

void parse(std::string_view name, std::string_view text, bool& value) {
  if (text == "on" || text == "1" || text == "true" || text == "yes") {
    value = true;
  } else if (text == "off" || text == "0" || text == "false" || text == "no") {
    value = false;
  } else {
    throw_bad_value(name, text, "on or off");
  }
}

void parse(std::string_view, std::string_view text, std::string& value) { value = text; }

std::string print(std::int64_t value) { return std::to_string(value); }
std::string print(std::uint64_t value) { return std::to_string(value); }
std::string print(bool value) { return value ? "on" : "off"; }
std::string print(const std::string& value) { return value; }

std::string environment_name(std::string_view name) {
  std::string result = "PENSTOCK_";
  for (const char c : name) result += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

Options from_environment() {
  Options result;
#define PENSTOCK_OPTION(name, type, default_value, meaning) \
  if (const char* value = std::getenv(environment_name(#name).c_str())) result.set(#name, value);
#include "penstock/options.def"
#undef PENSTOCK_OPTION
  return result;
}

}  // namespace

void Options::set(std::string_view given, std::string_view value) {
#define PENSTOCK_OPTION(name, type, default_value, meaning) \
  if (given == #name) return parse(#name, value, name);
#include "penstock/options.def"
#undef PENSTOCK_OPTION
  std::string known;
#define PENSTOCK_OPTION(name, type, default_value, meaning) known += (known.empty() ? "" : ", ") + std::string(#name);
#include "penstock/options.def"
#undef PENSTOCK_OPTION
  throw Error(ErrorCode::invalid_argument, "unknown option '" + std::string(given) + "'; expected one of " + known);
}

Options& options() {
  static Options instance = [] {
    Options read = from_environment();
    if (!read.trace.empty()) trace::write_at_exit(read.trace);
    return read;
  }();
  return instance;
}

std::vector<OptionRow> option_table() {
  std::vector<OptionRow> rows;
#define PENSTOCK_OPTION(name, type, default_value, meaning) \
  rows.push_back({#name, environment_name(#name), #type, print(options().name), meaning});
#include "penstock/options.def"
#undef PENSTOCK_OPTION
  return rows;
}

}  // namespace penstock
