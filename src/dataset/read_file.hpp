// Reading a sample's bytes from a local file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "penstock/types.hpp"

namespace penstock::dataset {

struct FilePart {
  std::uint64_t begin = 0;
  std::uint64_t size_bytes = 0;
};

/// The file, or a part of it, in `buffer`, whose old content is lost. Throws as Source::read() does.
ConstBytes read_file(const std::string& path, std::uint64_t max_bytes, std::vector<std::byte>& buffer,
                     std::optional<FilePart> part = std::nullopt);

/// Throws if a sample of this size is larger than the limit.
void check_size(std::uint64_t size_bytes, std::uint64_t max_bytes);

}  // namespace penstock::dataset
