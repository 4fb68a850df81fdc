// Data objects: written with one digest per chunk; every chunk that is read or copied is verified.
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

/// Creates an object from `data` and verifies its length. Throws Error(exists) if the key is taken.
ObjectInfo write_object(store::Backend& backend, const std::string& key, ConstBytes data, std::uint64_t chunk_bytes);

/// The backends that may hold a rank's object, preferred ones first.
struct Source {
  std::vector<const store::Backend*> tiers;
  std::string key;
};

/// Reads verified chunks of one object. If one tier lacks the object or holds it damaged, it reads the next tier.
class ObjectReader {
 public:
  /// `warn` receives damage that another tier could replace.
  ObjectReader(Source source, const ObjectInfo& info, std::uint64_t chunk_bytes,
               std::function<void(const std::string&)> warn);

  std::uint64_t chunk_count() const;
  /// Valid until the next call. Throws Error(corrupt), Error(not_found) or Error(io) if no tier has it intact.
  ConstBytes chunk(std::uint64_t index);

 private:
  /// Calls `read` with one tier after the other until it succeeds, starting with the tier that succeeded last.
  void first_intact(const std::function<void(const store::Backend&)>& read);

  const Source source_;
  const ObjectInfo info_;
  const std::uint64_t chunk_bytes_;
  const std::function<void(const std::string&)> warn_;
  std::size_t tier_ = 0;
  std::vector<Digest> digests_;
  std::vector<std::byte> buffer_;
};

/// Copies an object to another backend through `memory`. Verifies every chunk on the way, then the length of the copy.
/// Throws Error(exists) if the key is taken.
void copy_object(const store::Backend& from, store::Backend& to, const std::string& key, const ObjectInfo& info,
                 std::uint64_t chunk_bytes, Staging& memory);

}  // namespace penstock::checkpoint
