#include "penstock/options.hpp"

#include <gtest/gtest.h>

#include "penstock/error.hpp"

namespace penstock {
namespace {

TEST(Options, ParsesEveryType) {
  Options options;
  options.set("progress_cores", "3");
  options.set("eager_bytes", "64K");
  options.set("shared_bytes", "2g");
  options.set("single_copy", "off");
  options.set("trace", "/somewhere/run");
  EXPECT_EQ(options.progress_cores, 3);
  EXPECT_EQ(options.eager_bytes, 65536u);
  EXPECT_EQ(options.shared_bytes, std::uint64_t{2} << 30);
  EXPECT_FALSE(options.single_copy);
  EXPECT_EQ(options.trace, "/somewhere/run");
}

TEST(Options, RefusesWhatItCannotRead) {
  Options options;
  for (const auto& [name, value] : {std::pair{"progress_cores", "many"},
                                    {"progress_cores", "2x"},
                                    {"progress_cores", ""},
                                    {"eager_bytes", "-1"},
                                    {"eager_bytes", "64Q"},
                                    {"eager_bytes", "64KK"},
                                    {"eager_bytes", "99999999999G"},
                                    {"single_copy", "maybe"},
                                    {"no_such_option", "1"}}) {
    try {
      options.set(name, value);
      FAIL() << name << "=" << value;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(error.message().find(name), std::string::npos);
    }
  }
}

TEST(Options, TableListsEveryRowWithItsVariable) {
  bool found = false;
  for (const OptionRow& row : option_table()) {
    EXPECT_FALSE(row.meaning.empty());
    if (row.name == "progress_cores") found = row.environment == "PENSTOCK_PROGRESS_CORES";
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace penstock
