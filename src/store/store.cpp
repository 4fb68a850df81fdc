#include "penstock/store.hpp"

#include <exception>
#include <memory>
#include <set>

#include "penstock/error.hpp"
#include "store/backend.hpp"
#include "store/blob_state.hpp"
#include "store/collect.hpp"
#include "store/compression.hpp"
#include "store/counter.hpp"

namespace penstock {

namespace {

/// Calls action(blob) for every blob, and on_damage(name, error) for a damaged one. A blob that is removed during the
/// call counts as removed before.
template <typename Action, typename OnDamage>
void for_each_blob(const std::shared_ptr<store::Backend>& backend, const Action& action, const OnDamage& on_damage) {
  for (const std::string& name : store::BlobState::names(*backend)) {
    std::shared_ptr<store::BlobState> blob;
    try {
      blob = store::BlobState::find(backend, name);
      if (blob) action(blob);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::corrupt) {
        on_damage(name, error);
      } else if (error.code() != ErrorCode::not_found || !blob || !blob->is_removed()) {
        throw;
      }
    }
  }
}

}  // namespace

Store::Store(std::string_view url, const StoreOptions& options)
    : compress_level_((store::check_compress_level(options.compress_level), options.compress_level)),
      backend_(store::open_backend(url, {.create = options.create, .durable = options.durable})) {}

const std::string& Store::url() const { return backend_->url(); }

Blob Store::create(std::string_view name, const BlobOptions& options) {
  const auto state = store::BlobState::create(backend_, name, options);
  state->compress(compress_level_);
  return Blob(state);
}

Blob Store::open(std::string_view name) const {
  const auto state = store::BlobState::open(backend_, name);
  state->compress(compress_level_);
  return Blob(state);
}

bool Store::exists(std::string_view name) const { return store::BlobState::find(backend_, name) != nullptr; }

std::vector<BlobInfo> Store::list() const {
  std::vector<BlobInfo> blobs;
  const auto add = [&](const auto& blob) {
    auto [map, damage] = blob->readable_at(kLatest);
    blobs.push_back(
        {blob->name(), map->size_bytes(), blob->marks().keep_from, map->version(), blob->grows(), std::move(damage)});
  };
  for_each_blob(backend_, add, [&](const std::string& name, const Error& error) {
    blobs.push_back({.name = name, .damage = error.what()});
  });
  return blobs;
}

CheckReport Store::check() const {
  CheckReport report;
  for_each_blob(
      backend_, [&](const auto& blob) { store::check_blob(*blob, report); },
      [&](const std::string&, const Error& error) { report.problems.push_back(error.what()); });
  // Names without a blob, if damage is the cause.
  for (const std::string& name : store::BlobState::names(*backend_)) {
    try {
      if (store::BlobState::find(backend_, name)) continue;
      for (const auto& entry : store::BlobState::damaged_entries(backend_, name)) {
        report.problems.push_back(backend_->url() + ": blob '" + name + "': " + entry.reason);
      }
    } catch (const Error& error) {
      if (error.code() != ErrorCode::corrupt) throw;  // reported above
    }
  }
  return report;
}

GcReport Store::gc(const GcOptions& options) {
  if (options.keep_last == 0) {
    throw Error(ErrorCode::invalid_argument, backend_->url() + ": keep_last of gc is 0; expected at least 1");
  }
  if (options.lease.count() < 0) {
    throw Error(ErrorCode::invalid_argument,
                backend_->url() + ": the lease of gc is negative; expected 0 or more seconds");
  }
  if (options.keep_for.count() < 0) {
    throw Error(ErrorCode::invalid_argument,
                backend_->url() + ": keep_for of gc is negative; expected 0 or more seconds");
  }
  // Always durable, even in a store with durable = false: a mark must be on the device before the removals that rely on
  // it.
  const std::shared_ptr<store::Backend> backend = store::durable_backend(backend_);
  GcReport report;
  // List the folders before the entries: a folder without an entry then belongs to an unfinished or a removed blob.
  const std::set<std::string> folders = store::list_folders(*backend);
  std::set<std::string> in_use;
  std::exception_ptr damage;
  const auto collect = [&](const auto& blob) {
    in_use.insert(blob->folder());
    store::collect_blob(*blob, options, report);
  };
  for_each_blob(backend, collect, [&](const std::string&, const Error&) {
    if (!damage) damage = std::current_exception();
  });
  store::BlobState::free_names(backend, options.lease, report);
  store::collect_folders(backend, folders, in_use, options.lease, report);
  store::collect_counters(*backend, options.lease, report);
  report.bytes_freed += backend->reclaim(options.lease);
  if (damage) std::rethrow_exception(damage);
  return report;
}

Blob Store::clone(std::string_view name, std::uint64_t version, std::string_view new_name) {
  store::BlobState::open(backend_, name)->clone(version, new_name);
  return open(new_name);
}

GcReport Store::remove(std::string_view name) {
  const std::shared_ptr<store::Backend> backend = store::durable_backend(backend_);
  const auto blob = store::BlobState::open(backend, name);
  // After this mark no write succeeds, so removing the data loses none.
  if (!blob->remove()) {
    throw Error(ErrorCode::not_found, blob->title() + " was removed by another call at this moment");
  }
  return store::remove_folder(*backend, blob->folder());
}

void Store::sync() { backend_->sync(); }

}  // namespace penstock
