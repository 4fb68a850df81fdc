// How the C interface ends: exceptions become a status and a text that belongs to the thread.
#pragma once

#include <exception>
#include <type_traits>
#include <utility>

#include "penstock/export.hpp"
#include "penstock/penstock.h"

namespace penstock::c {

/// The status of the exception that is being handled; keeps its text for penstock_last_error().
PENSTOCK_API int status_of_exception() noexcept;

/// Runs `action`; 0, or the status of what it threw.
template <typename Action>
int guarded(Action&& action) noexcept {
  try {
    std::forward<Action>(action)();
    return PENSTOCK_success;
  } catch (...) {
    return status_of_exception();
  }
}

/// Throws Error(invalid_argument) that names the function and the parameter when `pointer` is null.
PENSTOCK_API void require(const void* pointer, const char* function, const char* parameter);

}  // namespace penstock::c
