// Samples that were made before.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "penstock/dataset.hpp"

namespace penstock::dataset {

/// Samples after some stage, by their index in the source. Thread-safe, and usable in a forked child.
class Cache {
 public:
  virtual ~Cache() = default;
  /// An iterator begins. Throws an Error if the cache cannot be used.
  virtual void begin() {}
  virtual bool contains(std::uint64_t index) const = 0;
  /// Null if it is not there. `calls` unpacks objects.
  virtual std::shared_ptr<const Sample> find(std::uint64_t index, const ObjectCalls& calls) = 0;
  /// Keeps a sample, unless it is one too many.
  virtual void insert(std::shared_ptr<const Sample> sample, const ObjectCalls& calls) = 0;
};

std::shared_ptr<Cache> memory_cache(std::uint64_t max_bytes);

/// In the files of a folder, which all processes on a node share. `digest` says what the samples are made of; it is
/// asked by begin().
///
/// Each process that adds samples appends them to a file of its own, as records with a checksum. A record is used only
/// if it is whole, so a writer that dies leaves nothing that is wrong. A file that `key` names says for which samples
/// the folder is; it is created exclusively.
std::shared_ptr<Cache> file_cache(CacheFiles files, std::function<std::string()> digest);

}  // namespace penstock::dataset
