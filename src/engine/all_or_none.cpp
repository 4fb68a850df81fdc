#include "engine/all_or_none.hpp"

#include <array>
#include <cstring>
#include <new>

#include "penstock/error.hpp"

namespace penstock::engine {
namespace {

using Text = std::array<std::uint64_t, 64>;

/// Allocates nothing.
Text text_of(const std::exception_ptr& failure) noexcept {
  Text text{};
  const auto write = [&](const char* what) {
    std::strncpy(reinterpret_cast<char*>(text.data()), what, sizeof text - 1);
  };
  try {
    std::rethrow_exception(failure);
  } catch (const std::bad_alloc&) {
    write("there is not enough memory for a communicator");
  } catch (const std::exception& error) {
    write(error.what());
  }
  return text;
}

}  // namespace

void throw_on_all(Transport& transport, int first, const std::exception_ptr& failure) {
  Text text{};
  if (transport.rank() == first) text = text_of(failure);
  transport.maximum(text);
  if (failure != nullptr) std::rethrow_exception(failure);
  throw Error(ErrorCode::peer_failed, reinterpret_cast<const char*>(text.data()), first);
}

}  // namespace penstock::engine
