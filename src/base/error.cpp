#include "penstock/error.hpp"

#include <utility>

namespace penstock {

std::string_view name(ErrorCode code) noexcept {
  switch (code) {
#define PENSTOCK_ERROR(name, code, meaning) \
  case ErrorCode::name:                     \
    return #name;
#include "penstock/errors.def"
#undef PENSTOCK_ERROR
  }
  return "unknown";
}

Error::Error(ErrorCode code, std::string message, int rank, std::string cause, int system_error)
    : code_(code), rank_(rank), message_(std::move(message)), cause_(std::move(cause)), system_error_(system_error) {
  text_ = message_;
  if (rank_ >= 0) text_ += " [rank " + std::to_string(rank_) + "]";
  if (!cause_.empty()) text_ += ": " + cause_;
}

}  // namespace penstock
