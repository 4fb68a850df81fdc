#include "penstock/store.hpp"

#include <optional>
#include <set>

#include "penstock/error.hpp"
#include "store/backend.hpp"
#include "store/blob_state.hpp"
#include "store/collect.hpp"
#include "store/counter.hpp"

namespace penstock {

namespace {

std::vector<std::string> blob_names(const store::Backend& backend) {
  std::vector<std::string> names = backend.list("catalog");
  for (std::string& name : names) name.erase(0, name.find('/') + 1);
  return names;
}

/// The folder of a blob whose removal has begun; "" when its entry in the catalog is gone, too; nothing for others.
std::optional<std::string> folder_being_removed(const std::shared_ptr<store::Backend>& backend,
                                                const std::string& name) {
  try {
    const auto blob = store::BlobState::open(backend, name);
    if (!backend->exists(blob->gone_key())) return std::nullopt;
    return blob->folder();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_found) throw;
    return "";
  }
}

/// Whether `error`, met while looking at a blob, only says that it was removed meanwhile.
bool was_removed(const std::shared_ptr<store::Backend>& backend, const std::string& name, const Error& error) {
  return error.code() == ErrorCode::not_found && folder_being_removed(backend, name).has_value();
}

}  // namespace

Store::Store(std::string_view url, const StoreOptions& options)
    : backend_(store::open_backend(url, {.create = options.create, .durable = options.durable})) {}

const std::string& Store::url() const { return backend_->url(); }

Blob Store::create(std::string_view name, const BlobOptions& options) {
  return Blob(store::BlobState::create(backend_, name, options));
}

Blob Store::open(std::string_view name) const { return Blob(store::BlobState::open(backend_, name)); }

bool Store::exists(std::string_view name) const { return backend_->exists("catalog/" + std::string(name)); }

std::vector<BlobInfo> Store::list() const {
  std::vector<BlobInfo> blobs;
  for (const std::string& name : blob_names(*backend_)) {
    try {
      const auto blob = store::BlobState::open(backend_, name);
      const auto map = blob->map_at(kLatest);
      blobs.push_back({name, map->size_bytes(), blob->marks().keep_from, map->version(), blob->grows()});
    } catch (const Error& error) {
      if (!was_removed(backend_, name, error)) throw;
    }
  }
  return blobs;
}

CheckReport Store::check() const {
  CheckReport report;
  for (const std::string& name : blob_names(*backend_)) {
    try {
      store::check_blob(*store::BlobState::open(backend_, name), report);
    } catch (const Error& error) {
      if (!was_removed(backend_, name, error)) report.problems.push_back(error.what());
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
  GcReport report;
  // In this order: a folder gets its first object after its entry in the catalog, or belongs to an unfinished clone.
  const std::set<std::string> folders = store::list_folders(*backend_);
  std::set<std::string> in_use;
  for (const std::string& name : blob_names(*backend_)) {
    try {
      const auto blob = store::BlobState::open(backend_, name);
      in_use.insert(blob->folder());
      store::collect_blob(*blob, options, report);
    } catch (const Error& error) {
      if (!was_removed(backend_, name, error)) throw;
      // Whoever removed it may have died before the end. The entry stays for another remove: at this moment somebody
      // may put a new blob of that name in its place.
      const std::string folder = folder_being_removed(backend_, name).value_or("");
      if (folder.empty()) continue;
      const GcReport removed = store::remove_folder(*backend_, folder);
      report.bytes_freed += removed.bytes_freed;
      report.objects_removed += removed.objects_removed;
    }
  }
  store::collect_folders(*backend_, folders, in_use, options.lease, report);
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
  backend_->put_if_absent(blob->gone_key(), {});
  backend_->remove("catalog/" + std::string(name));
  return store::remove_folder(*backend_, blob->folder());
}

void Store::sync() { backend_->sync(); }

}  // namespace penstock
