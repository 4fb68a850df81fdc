// Results of calls of the store: the bytes of a snapshot, or the code of an error.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <vector>

#include "penstock/error.hpp"
#include "penstock/store.hpp"

namespace penstock {

inline std::vector<std::byte> whole(const Snapshot& snapshot) {
  std::vector<std::byte> data(snapshot.size_bytes());
  const ReadRegion region{0, data};
  snapshot.read(std::span(&region, 1));
  return data;
}

/// The code of the error that the action must throw.
template <typename Action>
ErrorCode code_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_FALSE(error.message().empty());
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::internal;
}

}  // namespace penstock
