// The settings of this process, read once from PENSTOCK_* environment variables.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/export.hpp"

namespace penstock {

/// One member per row of options.def, holding the default.
struct Options {
  using Integer = std::int64_t;
  using Size = std::uint64_t;
  using Switch = bool;
  using Text = std::string;
#define PENSTOCK_OPTION(name, type, default_value, meaning) type name = default_value;
#include "penstock/options.def"
#undef PENSTOCK_OPTION

  /// Sets an option by its name. Throws Error(invalid_argument) that says what is expected.
  PENSTOCK_API void set(std::string_view name, std::string_view value);
};

/// The options of this process. The first call reads the environment. It throws Error(invalid_argument) if a PENSTOCK_*
/// variable of the table cannot be parsed. Change options only before other parts of Penstock are used.
PENSTOCK_API Options& options();

struct OptionRow {
  std::string name;
  std::string environment;
  std::string type;
  std::string value;  ///< the current one
  std::string meaning;
};

/// All options with their current values, in the order of the table.
PENSTOCK_API std::vector<OptionRow> option_table();

}  // namespace penstock
