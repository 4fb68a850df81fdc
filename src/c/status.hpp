// Turns exceptions into a status, and a text per thread.
#pragma once

#include <exception>
#include <type_traits>
#include <utility>

#include "penstock/error.hpp"
#include "penstock/export.hpp"
#include "penstock/penstock.h"

namespace penstock::c {

/// The status of the current exception. Stores its text for penstock_last_error().
PENSTOCK_API int status_of_exception() noexcept;

/// Runs `action`. Returns 0, or the status of the exception that it threw.
template <typename Action>
int guarded(Action&& action) noexcept {
  try {
    std::forward<Action>(action)();
    return PENSTOCK_success;
  } catch (...) {
    return status_of_exception();
  }
}

/// Runs `check` on the arguments of a collective operation. If it throws, the next operation of `target` fails on all
/// ranks, which would otherwise wait for this one.
template <typename Target, typename Check>
auto or_fail(Target&& target, Check&& check) {
  try {
    return std::forward<Check>(check)();
  } catch (const Error& error) {
    target.fail_next(error.message());
    throw;
  } catch (const std::exception& error) {
    target.fail_next(error.what());
    throw;
  }
}

/// Throws Error(invalid_argument) that names the function and the parameter when `pointer` is null.
PENSTOCK_API void require(const void* pointer, const char* function, const char* parameter);

}  // namespace penstock::c
