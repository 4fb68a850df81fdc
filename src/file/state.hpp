// What is behind a File on one rank, and the steps that all ranks take together.
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

struct File::State {
  std::optional<Comm> comm;
  std::string url;
  FileOptions options;
  std::optional<Store> store;
  std::optional<Blob> blob;
  std::optional<Snapshot> pinned;
  file::ViewMap map{FileView{}};
  std::uint64_t position = 0;  ///< of the individual pointer, in etypes of the view
  store::Counter shared;       ///< the pointer of all ranks, in etypes
  bool atomic = false;
  std::shared_future<std::uint64_t> collective;  ///< the collective access that was started last

  /// Collective accesses run one after another, in the order of the calls, as every rank's do.
  void settle() const {
    if (collective.valid()) collective.wait();
  }

  std::uint64_t etype_bytes() const { return map.view().etype_bytes; }
  int rank() const { return comm ? comm->rank() : 0; }

  /// Runs `action` on every rank, with one outcome; for a file of one process just so.
  void agree(const std::function<void()>& action);
  /// Throws on every rank unless all give the same `value`, which `text` shows to the user.
  void agree_on(std::uint64_t value, const char* what, const std::function<std::string(std::uint64_t)>& text);
  void agree_on(std::uint64_t value, const char* what);
  /// The blob is gone when this returns, by this group or another.
  void remove_together();
  /// `mine` of all ranks, by rank.
  std::vector<std::uint64_t> gather_numbers(std::uint64_t mine);

  void check_open() const;
  void check_mode(bool allowed, const char* what) const;
  void check_multiple(std::uint64_t size_bytes) const;

  std::uint64_t start_byte(std::uint64_t offset_etypes) const;
  std::vector<WriteRegion> regions_to_write(std::uint64_t offset_etypes, ConstBytes data) const;
  std::uint64_t read_from(const Snapshot& snapshot, std::uint64_t offset_etypes, Bytes data) const;
  Snapshot newest() const;

  /// The regions of all ranks become one version, or none at all.
  std::uint64_t commit_together(std::uint64_t offset_etypes, ConstBytes data);
  std::uint64_t read_together(std::uint64_t offset_etypes, Bytes data);
  /// Where this rank's data begins when all ranks put theirs one after another from the shared pointer on, in etypes.
  /// The pointer is behind all of it then.
  std::uint64_t order(std::uint64_t size_bytes);
  /// Where an access of this rank alone begins.
  std::uint64_t claim_shared(std::uint64_t size_bytes);
  /// What the shared pointer is when all ranks have come here and passed `check`.
  std::uint64_t agreed_shared(const std::function<void()>& check);
  /// All ranks have come here since the last of them has used the pointer.
  void restart_shared(std::uint64_t start_etypes);
  void open_shared(std::uint64_t start_etypes);
  std::uint64_t sought(std::int64_t offset, Whence whence, std::uint64_t current) const;

 private:
  /// The staged writes of all ranks, on rank 0.
  std::vector<StagedWrite> gather_parts(const StagedWrite& mine);
};

}  // namespace penstock
