// Checks a whole blob, and collects garbage: old versions, removed blobs, and data of dead writers. The protocol:
// docs/design/store-collecting.md. A collector only adds marks or removes what is unreachable under them, so several
// may run at once and the next run finishes the work of one that died.
#pragma once

#include <chrono>
#include <set>
#include <string>

#include "penstock/store.hpp"
#include "store/blob_state.hpp"

namespace penstock::store {

/// Reads and verifies all of a blob. Adds the findings to `report`.
void check_blob(BlobState& blob, CheckReport& report);

/// Removes the objects of a blob that was removed or that no entry will ever name. The mark gc/gone stays and tells
/// writers. A later collect_folders removes objects that appear during the call.
GcReport remove_folder(Backend& backend, const std::string& folder);
/// Removes the marks that remove_folder leaves. For folders that no entry names any more. Keeps gc/gone in a folder
/// that Penstock 0.1 made.
void erase_folder(Backend& backend, const std::string& folder);
/// All folders that may belong to a blob.
std::set<std::string> list_folders(const Backend& backend);
/// Removes those of `folders` that are not `in_use` and are older than the lease: folders of removed blobs, and of
/// blobs whose creator died before it made the entry.
void collect_folders(const std::shared_ptr<Backend>& backend, const std::set<std::string>& folders,
                     const std::set<std::string>& in_use, std::chrono::seconds lease, GcReport& report);
/// The key of a mark such as gc/keep-<number>; `kind` is "keep-", for example. See blob_state.hpp.
std::string mark_key(const BlobState& blob, const char* kind, std::uint64_t number);
/// Returns false if it is there already.
bool put_mark(BlobState& blob, const char* kind, std::uint64_t number);
/// Reads a whole data object. Throws Error(corrupt) or Error(not_found) if any byte is not as it was written.
void verify_object(const Backend& backend, const Source& source);
/// Removes what the options do not keep of one blob. Adds what it does to `report`.
void collect_blob(BlobState& blob, const GcOptions& options, GcReport& report);

}  // namespace penstock::store
