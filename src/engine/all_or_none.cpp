#include "engine/all_or_none.hpp"

#include <array>
#include <cstring>
#include <new>

#include "penstock/error.hpp"

namespace penstock::engine {
namespace {

/// The rank that has failed, and a text.
using Told = std::array<std::uint64_t, 64>;

const char* text_of(const Told& told) { return reinterpret_cast<const char*>(told.data() + 1); }

/// What the rank `first` tells. Allocates nothing.
Told told_of(int first, const std::exception_ptr& failure) noexcept {
  Told told{static_cast<std::uint64_t>(first)};
  const auto write = [&](const char* what) {
    std::strncpy(reinterpret_cast<char*>(told.data() + 1), what, sizeof told - sizeof told[0] - 1);
  };
  try {
    std::rethrow_exception(failure);
  } catch (const std::bad_alloc&) {
    write("there is not enough memory for a communicator");
  } catch (const Error& error) {
    // In an operation that another rank has failed.
    if (error.code() == ErrorCode::peer_failed && error.rank() >= 0) told[0] = static_cast<std::uint64_t>(error.rank());
    write(error.what());
  } catch (const std::exception& error) {
    write(error.what());
  }
  return told;
}

}  // namespace

void throw_on_all(Transport& transport, int first, const std::exception_ptr& failure) {
  Told told{};
  if (transport.rank() == first) told = told_of(first, failure);
  transport.maximum(told, {});
  if (failure != nullptr) std::rethrow_exception(failure);
  throw Error(ErrorCode::peer_failed, text_of(told), static_cast<int>(told[0]));
}

}  // namespace penstock::engine
