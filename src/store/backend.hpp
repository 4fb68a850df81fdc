// Where objects live. A backend stores immutable objects under keys; everything above it (versions, snapshots,
// checkpoints) is built from exclusive creation alone, so no backend needs locks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/types.hpp"

namespace penstock::store {

/// Keys are relative paths of [A-Za-z0-9._-] parts separated by '/', no part starting with '.'.
/// All functions are thread-safe and blocking, and throw penstock::Error. Objects never change once they exist.
class Backend {
 public:
  virtual ~Backend() = default;

  /// Creates `key` with the pieces one after another. Returns false, and changes nothing, when the key exists.
  /// When it returns true the object is complete and, if the backend is durable, survives power loss; a reader sees
  /// all of it or nothing at any instant. On an error nothing is visible under the key.
  virtual bool put_if_absent(std::string_view key, std::span<const ConstBytes> pieces) = 0;

  /// Fills `to` from offset_bytes on. Throws not_found, or corrupt when the object ends before.
  virtual void read(std::string_view key, std::uint64_t offset_bytes, Bytes to) const = 0;

  /// Size of the object in bytes; throws not_found.
  virtual std::uint64_t size_bytes(std::string_view key) const = 0;

  virtual bool exists(std::string_view key) const = 0;

  /// Keys that start with `prefix` + '/', sorted.
  virtual std::vector<std::string> list(std::string_view prefix) const = 0;

  /// Removes an object, durably; returns false when it was not there.
  virtual bool remove(std::string_view key) = 0;

  /// For messages: the URL it was opened with.
  virtual const std::string& url() const = 0;
};

struct BackendOptions {
  bool create = true;   ///< make the root where it does not exist
  bool durable = true;  ///< fdatasync and directory fsync before an object counts as created
};

/// Opens the backend of a URL: "memory:name" (shared by all openers of that name in the process), "file:///path".
/// Schemes are rows of backends.def.
std::shared_ptr<Backend> open_backend(std::string_view url, const BackendOptions& options = {});

/// Reads a whole object.
std::vector<std::byte> read_all(const Backend& backend, std::string_view key);

}  // namespace penstock::store
