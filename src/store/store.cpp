#include "penstock/store.hpp"

#include <memory>
#include <set>

#include "penstock/error.hpp"
#include "store/backend.hpp"
#include "store/blob_state.hpp"
#include "store/collect.hpp"
#include "store/counter.hpp"

namespace penstock {

namespace {

/// Calls action(blob) for every blob. One that is removed meanwhile is left out, as if that had happened before.
template <typename Action>
void for_each_blob(const std::shared_ptr<store::Backend>& backend, const Action& action) {
  for (const std::string& name : store::BlobState::names(*backend)) {
    const auto blob = store::BlobState::find(backend, name);
    if (!blob) continue;
    try {
      action(blob);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::not_found || !backend->exists(blob->gone_key())) throw;
    }
  }
}

}  // namespace

Store::Store(std::string_view url, const StoreOptions& options)
    : backend_(store::open_backend(url, {.create = options.create, .durable = options.durable})) {}

const std::string& Store::url() const { return backend_->url(); }

Blob Store::create(std::string_view name, const BlobOptions& options) {
  return Blob(store::BlobState::create(backend_, name, options));
}

Blob Store::open(std::string_view name) const { return Blob(store::BlobState::open(backend_, name)); }

bool Store::exists(std::string_view name) const { return store::BlobState::find(backend_, name) != nullptr; }

std::vector<BlobInfo> Store::list() const {
  std::vector<BlobInfo> blobs;
  for_each_blob(backend_, [&](const auto& blob) {
    const auto map = blob->map_at(kLatest);
    blobs.push_back({blob->name(), map->size_bytes(), blob->marks().keep_from, map->version(), blob->grows()});
  });
  return blobs;
}

CheckReport Store::check() const {
  CheckReport report;
  for (const std::string& name : store::BlobState::names(*backend_)) {
    std::shared_ptr<store::BlobState> blob;
    try {
      blob = store::BlobState::find(backend_, name);
      if (blob) store::check_blob(*blob, report);
    } catch (const Error& error) {
      const bool gone = blob && error.code() == ErrorCode::not_found && backend_->exists(blob->gone_key());
      if (!gone) report.problems.push_back(error.what());
    }
  }
  return report;
}

GcReport Store::gc(const GcOptions& options) {
  if (options.keep_last == 0) {
    throw Error(ErrorCode::invalid_argument,
                backend_->url() + ": gc was asked to keep no version, expected at least 1");
  }
  if (options.lease.count() < 0) {
    throw Error(ErrorCode::invalid_argument, backend_->url() + ": the lease of a gc cannot be negative");
  }
  if (options.keep_for.count() < 0) {
    throw Error(ErrorCode::invalid_argument, backend_->url() + ": gc cannot keep versions for a negative time");
  }
  GcReport report;
  // In this order: a folder gets its first object after its entry in the catalog, or belongs to an unfinished clone.
  const std::set<std::string> folders = store::list_folders(*backend_);
  std::set<std::string> in_use;
  for_each_blob(backend_, [&](const auto& blob) {
    in_use.insert(blob->folder());
    store::collect_blob(*blob, options, report);
  });
  for (const std::string& name : store::BlobState::names(*backend_)) {
    store::BlobState::free_removed(backend_, name, report);
  }
  store::collect_folders(backend_, folders, in_use, options.lease, report);
  store::collect_counters(*backend_, options.lease, report);
  report.bytes_freed += backend_->reclaim(options.lease);
  return report;
}

Blob Store::clone(std::string_view name, std::uint64_t version, std::string_view new_name) {
  store::BlobState::open(backend_, name)->clone(version, new_name);
  return open(new_name);
}

GcReport Store::remove(std::string_view name) {
  const auto blob = store::BlobState::open(backend_, name);
  // From this mark on no write succeeds, so nothing is lost when its data goes.
  if (!blob->remove()) {
    throw Error(ErrorCode::not_found, blob->title() + " was removed by another call at this moment");
  }
  return store::remove_folder(*backend_, blob->folder());
}

void Store::sync() { backend_->sync(); }

}  // namespace penstock
