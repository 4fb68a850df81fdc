// All checkpoints of a run in one blob of a store: each save is a version of it. docs/design/checkpoint-blob.md.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/tier.hpp"
#include "store/backend.hpp"

namespace penstock::checkpoint {

/// `run` is the name of the blob, which the first save creates. `compress_level`: see StoreOptions. Throws
/// Error(invalid_argument) for an invalid name.
std::shared_ptr<Tier> blob_tier(std::shared_ptr<store::Backend> backend, const std::string& run,
                                int compress_level = 0);

}  // namespace penstock::checkpoint
