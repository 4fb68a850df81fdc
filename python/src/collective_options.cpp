#include "collective_options.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include <nanobind/stl/string.h>

#include "penstock/error.hpp"

namespace nb = nanobind;

namespace penstock::python {
namespace {

std::int64_t whole_number(const std::string& keyword, nb::handle given, std::int64_t least) {
  std::int64_t number = 0;
  if (!nb::isinstance<nb::bool_>(given) && nb::try_cast(given, number) && number >= least) return number;
  throw Error(ErrorCode::invalid_argument, keyword + " is " + nb::cast<std::string>(nb::repr(given)) + "; expected " +
                                               (keyword == "split" ? "\"auto\" or " : "") + "a whole number from " +
                                               std::to_string(least) + " on");
}

}  // namespace

void apply(const nb::dict& options, Collective& collective) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();  // no tree has as many levels or children
  for (const auto [key, value] : options) {
    const auto keyword = nb::cast<std::string>(key);
    const bool is_text = nb::isinstance<nb::str>(value);
    const auto text = is_text ? nb::cast<std::string>(value) : std::string();
    if (keyword == "split")
      collective.split =
          text == "auto" ? Collective::kAutomatic : static_cast<int>(std::min(whole_number(keyword, value, 0), kMost));
    else if (keyword == "radix")
      collective.radix = static_cast<int>(std::min(whole_number(keyword, value, 2), kMost));
    else if (keyword == "segment_bytes")
      collective.segment_bytes = static_cast<std::uint64_t>(whole_number(keyword, value, 0));
    else if (keyword == "reproducible" && nb::isinstance<nb::bool_>(value))
      collective.reproducible = nb::cast<bool>(value);
    else if (keyword == "algorithm" && is_text)
      collective.algorithm = text;
    else
      throw Error(
          ErrorCode::invalid_argument,
          "unexpected " + keyword + "=" + nb::cast<std::string>(nb::repr(value)) +
              R"(; expected algorithm="a name", segment_bytes=, split="auto" or a number, radix=, reproducible=True or False)");
  }
}

}  // namespace penstock::python
