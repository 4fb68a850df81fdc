#include "penstock/types.hpp"

#include <array>
#include <string>

#include "penstock/error.hpp"

namespace penstock {
namespace {

struct DTypeRow {
  std::string_view name;
  std::size_t size_bytes;
};

constexpr std::array kDTypes = {
#define PENSTOCK_DTYPE(name, type, size, numpy) DTypeRow{#name, size},
#define PENSTOCK_OTHER_DTYPE PENSTOCK_DTYPE
#include "penstock/dtypes.def"
#undef PENSTOCK_OTHER_DTYPE
#undef PENSTOCK_DTYPE
};

constexpr std::array kReduceOps = {
#define PENSTOCK_REDUCE_OP(name) std::string_view{#name},
#include "penstock/reduce_ops.def"
#undef PENSTOCK_REDUCE_OP
};

[[noreturn]] void throw_unknown(std::string_view what, std::string_view given, const std::string& known) {
  throw Error(ErrorCode::invalid_argument,
              "unknown " + std::string(what) + " '" + std::string(given) + "'; expected one of " + known);
}

}  // namespace

std::size_t size_bytes(DType dtype) noexcept { return kDTypes[static_cast<std::size_t>(dtype)].size_bytes; }
std::string_view name(DType dtype) noexcept { return kDTypes[static_cast<std::size_t>(dtype)].name; }
std::string_view name(ReduceOp op) noexcept { return kReduceOps[static_cast<std::size_t>(op)]; }

DType dtype_from_name(std::string_view given) {
  std::string known;
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    if (kDTypes[i].name == given) return static_cast<DType>(i);
    known += (i ? ", " : "") + std::string(kDTypes[i].name);
  }
  throw_unknown("dtype", given, known);
}

ReduceOp reduce_op_from_name(std::string_view given) {
  std::string known;
  for (std::size_t i = 0; i < kReduceOps.size(); ++i) {
    if (kReduceOps[i] == given) return static_cast<ReduceOp>(i);
    known += (i ? ", " : "") + std::string(kReduceOps[i]);
  }
  throw_unknown("reduction operation", given, known);
}

bool is_complex(DType dtype) noexcept {
  return dtype == DType::complex64 || dtype == DType::complex128 || dtype == DType::clongdouble;
}

bool is_number(DType dtype) noexcept { return dtype < DType::bool8; }

bool defined_for(ReduceOp op, DType dtype) noexcept {
  const bool is_integer = dtype <= DType::uint64;
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::prod: return is_number(dtype);
    case ReduceOp::min:
    case ReduceOp::max: return is_number(dtype) && !is_complex(dtype);
    case ReduceOp::land:
    case ReduceOp::lor:
    case ReduceOp::lxor: return is_integer || dtype == DType::bool8;
    case ReduceOp::minloc:
    case ReduceOp::maxloc: return dtype > DType::bool8;
    default: return is_integer;
  }
}

}  // namespace penstock
