// Reading a sample's bytes from a local file.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "penstock/types.hpp"

namespace penstock::dataset {

struct FilePart {
  std::uint64_t begin = 0;
  std::uint64_t size_bytes = 0;
};

/// What a read may take.
struct ReadLimits {
  std::uint64_t max_bytes = 0;
  /// Called with the bytes that a sample needs, before there is memory for them; may block. May be empty.
  std::function<void(std::uint64_t bytes)> before_allocation = {};
};

/// The file, or a part of it, in `buffer`, whose old content is lost. Throws as Source::read() does.
ConstBytes read_file(const std::string& path, const ReadLimits& limits, std::vector<std::byte>& buffer,
                     std::optional<FilePart> part = std::nullopt);

/// Throws if a sample of this size is larger than the limit.
void check_size(std::uint64_t size_bytes, std::uint64_t max_bytes);

}  // namespace penstock::dataset
