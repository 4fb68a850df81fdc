// Data objects: written with a digest per chunk, read and copied with every chunk verified.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "checkpoint/staging.hpp"
#include "store/backend.hpp"

namespace penstock::checkpoint {

/// Creates the object of `data` and verifies its length. Throws exists when the key is taken.
ObjectInfo write_object(store::Backend& backend, const std::string& key, ConstBytes data, std::uint64_t chunk_bytes);

/// Where a rank's object may be found, in the order of preference.
struct Source {
  std::vector<const store::Backend*> tiers;
  std::string key;
};

/// Reads verified chunks of one object. What one tier lacks or holds damaged, the next one gives.
class ObjectReader {
 public:
  /// `warn` hears of damage that another tier made good.
  ObjectReader(Source source, const ObjectInfo& info, std::uint64_t chunk_bytes,
               std::function<void(const std::string&)> warn);

  std::uint64_t chunk_count() const;
  /// Valid until the next call. Throws corrupt, not_found or io when no tier has it intact.
  ConstBytes chunk(std::uint64_t index);

 private:
  /// Lets `read` read from one tier after the other until it succeeds, beginning with the one that served last.
  void first_intact(const std::function<void(const store::Backend&)>& read);

  const Source source_;
  const ObjectInfo info_;
  const std::uint64_t chunk_bytes_;
  const std::function<void(const std::string&)> warn_;
  std::size_t tier_ = 0;
  std::vector<Digest> digests_;
  std::vector<std::byte> buffer_;
};

/// Copies an object to another backend through `memory`, verifying every chunk on its way; then verifies the length of
/// the copy. Throws exists when the key is taken.
void copy_object(const store::Backend& from, store::Backend& to, const std::string& key, const ObjectInfo& info,
                 std::uint64_t chunk_bytes, Staging& memory);

}  // namespace penstock::checkpoint
