#include "penstock/types.hpp"

#include <gtest/gtest.h>

#include "penstock/error.hpp"

namespace penstock {
namespace {

TEST(Types, NamesRoundTrip) {
  for (int i = 0; i <= static_cast<int>(DType::complex128); ++i)
    EXPECT_EQ(dtype_from_name(name(static_cast<DType>(i))), static_cast<DType>(i));
  for (int i = 0; i <= static_cast<int>(ReduceOp::lxor); ++i)
    EXPECT_EQ(reduce_op_from_name(name(static_cast<ReduceOp>(i))), static_cast<ReduceOp>(i));
}

TEST(Types, SizesAreThoseOfTheTypes) {
#define PENSTOCK_DTYPE(name, type, size, numpy) EXPECT_EQ(size_bytes(DType::name), sizeof(type)) << #name;
#define PENSTOCK_OTHER_DTYPE PENSTOCK_DTYPE
#include "penstock/dtypes.def"
#undef PENSTOCK_OTHER_DTYPE
#undef PENSTOCK_DTYPE
}

TEST(Types, UnknownNameSaysWhatIsKnown) {
  try {
    dtype_from_name("float31");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(error.message().find("float31"), std::string::npos);
    EXPECT_NE(error.message().find("float32"), std::string::npos);
  }
}

TEST(Types, OperationsAreDefinedAsInMpi) {
  EXPECT_TRUE(defined_for(ReduceOp::sum, DType::complex64));
  EXPECT_FALSE(defined_for(ReduceOp::max, DType::complex64));
  EXPECT_TRUE(defined_for(ReduceOp::max, DType::float16));
  EXPECT_FALSE(defined_for(ReduceOp::band, DType::float32));
  EXPECT_TRUE(defined_for(ReduceOp::lxor, DType::uint8));
}

}  // namespace
}  // namespace penstock
