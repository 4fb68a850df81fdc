#include "c/status.hpp"

#include <new>
#include <string>

#include "penstock/error.hpp"

namespace penstock::c {
namespace {

struct Failure {
  std::string text;
  int rank = -1;
};

Failure& last() noexcept {
  thread_local Failure failure;
  return failure;
}

int keep(ErrorCode code, const char* text, int rank) noexcept {
  try {
    last().text = text;
  } catch (const std::bad_alloc&) {
    last().text.clear();
  }
  last().rank = rank;
  return static_cast<int>(code);
}

}  // namespace

int status_of_exception() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return keep(error.code(), error.what(), error.rank());
  } catch (const std::bad_alloc&) {
    return keep(ErrorCode::no_space, "there is not enough memory", -1);
  } catch (const std::exception& error) {
    return keep(ErrorCode::internal, error.what(), -1);
  } catch (...) {
    return keep(ErrorCode::internal, "an exception of unknown type", -1);
  }
}

void require(const void* pointer, const char* function, const char* parameter) {
  if (pointer == nullptr)
    throw Error(ErrorCode::invalid_argument, std::string(function) + ": " + parameter + " is NULL");
}

}  // namespace penstock::c

using penstock::c::last;

const char* penstock_last_error(void) { return last().text.c_str(); }

int penstock_last_error_rank(void) { return last().rank; }

const char* penstock_status_name(int status) {
  // The names are literals of errors.def, so they are zero-terminated.
  return status == PENSTOCK_success ? "success" : penstock::name(static_cast<penstock::ErrorCode>(status)).data();
}
