// Looking after a blob as a whole: verifying all of it, and freeing what nobody can reach any more.
#pragma once

#include <chrono>
#include <set>
#include <string>

#include "penstock/store.hpp"
#include "store/blob_state.hpp"

namespace penstock::store {

/// Adds what it finds to `report`.
void check_blob(BlobState& blob, CheckReport& report);

/// Removes a blob's objects, those that appear meanwhile included if collect_folders comes by later. What stays is a
/// mark that tells writers so. For blobs that were removed, or that no entry will ever name.
GcReport remove_folder(Backend& backend, const std::string& folder);
/// Removes what remove_folder leaves of a folder that no entry names any more. Folders that Penstock 0.1 made keep it.
void erase_folder(Backend& backend, const std::string& folder);
/// All folders that blobs may have for their own.
std::set<std::string> list_folders(const Backend& backend);
/// Removes those of `folders` that are not in use, by removed blobs or by clones that nobody completed in time.
void collect_folders(const std::shared_ptr<Backend>& backend, const std::set<std::string>& folders,
                     const std::set<std::string>& in_use, std::chrono::seconds lease, GcReport& report);
/// Announces that versions below are collected.
void put_keep_mark(BlobState& blob, std::uint64_t version);
/// Throws corrupt or not_found where any byte of a data object is not as it was written.
void verify_object(const Backend& backend, const Source& source);
/// See docs/design/store-collecting.md. Adds what it does to `report`.
void collect_blob(BlobState& blob, const GcOptions& options, GcReport& report);

}  // namespace penstock::store
