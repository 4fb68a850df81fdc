#include "host/pid_namespace.hpp"

#include <unistd.h>

#include <array>
#include <charconv>

namespace penstock::host {

pid_t number_in_proc() noexcept {
  std::array<char, 16> number{};
  pid_t process = 0;
  const ssize_t length = ::readlink("/proc/self", number.data(), number.size());
  if (length > 0) std::from_chars(number.data(), number.data() + length, process);
  return process;
}

bool proc_has_own_numbers() noexcept { return number_in_proc() == ::getpid(); }

}  // namespace penstock::host
