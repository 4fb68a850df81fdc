// The one exception type of Penstock.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "penstock/export.hpp"

namespace penstock {

enum class ErrorCode : int {
#define PENSTOCK_ERROR(name, code, meaning) name = code,
#include "penstock/errors.def"
#undef PENSTOCK_ERROR
};

/// The name of a code as errors.def spells it, for example "invalid_argument".
PENSTOCK_API std::string_view name(ErrorCode code) noexcept;

/// Every C++ function of Penstock that fails throws this. The message says what was given, what was expected and what
/// to do. `rank` is the rank that failed first, or -1 if no communicator is involved.
class PENSTOCK_API Error : public std::exception {
 public:
  /// `system_error` is an errno; see below.
  Error(ErrorCode code, std::string message, int rank = -1, std::string cause = {}, int system_error = 0);

  const char* what() const noexcept override { return text_.c_str(); }
  ErrorCode code() const noexcept { return code_; }
  int rank() const noexcept { return rank_; }
  const std::string& message() const noexcept { return message_; }
  /// The text of the system or library error behind this one; empty if there is none.
  const std::string& cause() const noexcept { return cause_; }
  /// The errno of the system call that failed; 0 if none did, or if another rank has reported the error.
  int system_error() const noexcept { return system_error_; }

 private:
  ErrorCode code_;
  int rank_;
  std::string message_;
  std::string cause_;
  int system_error_;
  std::string text_;
};

}  // namespace penstock
