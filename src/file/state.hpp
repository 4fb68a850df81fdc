// The state of a File on one rank, and the steps that all ranks take together.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "file/view.hpp"
#include "penstock/file.hpp"
#include "store/counter.hpp"

namespace penstock {

/// Shared by the copies of a File. One thread at a time; a started collective access runs on a thread of its own, and
/// the next collective call waits for it (settle()).
struct File::State {
  std::optional<Comm> comm;
  std::string url;
  FileOptions options;
  std::optional<Store> store;
  std::optional<Blob> blob;
  std::optional<Snapshot> pinned;
  file::ViewMap map{FileView{}};
  std::uint64_t position = 0;  ///< individual pointer, in etypes of the view
  store::Counter shared;       ///< shared pointer, in etypes
  bool atomic = false;
  std::shared_future<std::uint64_t> collective;  ///< the last started collective access

  /// Waits for started collective accesses: they run in the order of the calls, on every rank.
  void settle() const {
    if (collective.valid()) collective.wait();
  }

  std::uint64_t etype_bytes() const { return map.view().etype_bytes; }
  int rank() const { return comm ? comm->rank() : 0; }

  /// Runs `action` on every rank, with one outcome; for a single process, just runs it.
  void agree(const std::function<void()>& action);
  /// Throws on every rank unless all ranks pass the same `value`. `text` formats it for the message.
  void agree_on(std::uint64_t value, const char* what, const std::function<std::string(std::uint64_t)>& text);
  void agree_on(std::uint64_t value, const char* what);
  /// Removes the blob. It is gone when this returns, even if another group removes it too.
  void remove_together();
  /// The values of all ranks, by rank.
  std::vector<std::uint64_t> gather_numbers(std::uint64_t mine);

  void check_open() const;
  void check_mode(bool allowed, const char* what) const;
  void check_multiple(std::uint64_t size_bytes) const;

  std::uint64_t start_byte(std::uint64_t offset_etypes) const;
  std::vector<WriteRegion> regions_to_write(std::uint64_t offset_etypes, ConstBytes data) const;
  std::uint64_t read_from(const Snapshot& snapshot, std::uint64_t offset_etypes, Bytes data) const;
  Snapshot newest() const;

  /// Commits the regions of all ranks as one version, or none of them.
  std::uint64_t commit_together(std::uint64_t offset_etypes, ConstBytes data);
  std::uint64_t read_together(std::uint64_t offset_etypes, Bytes data);
  /// The position of this rank's data, in etypes, if all ranks write one after another from the shared pointer on.
  /// Moves the pointer behind all of it.
  std::uint64_t order(std::uint64_t size_bytes);
  /// Reserves the place of an independent access at the shared pointer.
  std::uint64_t claim_shared(std::uint64_t size_bytes);
  /// The shared pointer, once all ranks are here and have passed `check`.
  std::uint64_t agreed_shared(const std::function<void()>& check);
  /// Sets the shared pointer. Call it after all ranks have stopped using it.
  void restart_shared(std::uint64_t start_etypes);
  void open_shared(std::uint64_t start_etypes);
  std::uint64_t sought(std::int64_t offset, Whence whence, std::uint64_t current) const;

 private:
  /// Gathers the staged writes of all ranks on rank 0.
  std::vector<StagedWrite> gather_parts(const StagedWrite& mine);
};

}  // namespace penstock
