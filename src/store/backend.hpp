// Where objects live. A backend stores immutable objects under keys; everything above it (versions, snapshots,
// checkpoints) is built from exclusive creation alone, so no backend needs locks.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
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
  /// all of it or nothing at any instant. On an error nothing is visible under the key, with one exception: when the
  /// very last sync fails, the object may be there, complete but not known to be durable.
  virtual bool put_if_absent(std::string_view key, std::span<const ConstBytes> pieces) = 0;

  /// Creates `key` for an object that nobody else knows of or looks for until this has returned, which spares the
  /// backend half of its work: if the writer dies or the power fails meanwhile, part of the object may stay there.
  /// Throws exists. On any other error nothing is there.
  virtual void put_unannounced(std::string_view key, std::span<const ConstBytes> pieces);

  /// Creates `prefix`/<number as 20 digits> for the first free number from `first` on and returns that number; the
  /// promises of put_if_absent hold. Numbers below the result exist by then or were removed.
  virtual std::uint64_t append(std::string_view prefix, std::uint64_t first, std::span<const ConstBytes> pieces);

  /// As append from `known` + 1 on, without asking how long the log is before. Nothing, and nothing is made, where the
  /// object of number `known` is not there any more, or where asking costs next to nothing.
  virtual std::optional<std::uint64_t> append_behind(std::string_view prefix, std::uint64_t known,
                                                     std::span<const ConstBytes> pieces);

  /// The last of the numbers known + 1, known + 2, … without a gap that exist below `prefix`, or `known`.
  virtual std::uint64_t last_number(std::string_view prefix, std::uint64_t known) const;

  /// Whether last_number takes a few cheap accesses from any number on. Otherwise one that is near is worth a listing.
  virtual bool finds_last_by_asking() const { return true; }

  /// Fills `to` from offset_bytes on. Throws not_found, or corrupt when the object ends before.
  virtual void read(std::string_view key, std::uint64_t offset_bytes, Bytes to) const = 0;

  /// As read, for bytes that follow one another in the object: fills the first target, then the next.
  virtual void read_scattered(std::string_view key, std::uint64_t offset_bytes, std::span<const Bytes> targets) const;

  /// How a large read is best divided.
  struct ReadShape {
    std::size_t piece_bytes;   ///< of one call of read
    unsigned in_flight;        ///< calls at a time, each on a thread of its own
    std::size_t thread_bytes;  ///< a further thread is worth its start for this many bytes; 0: for every call
  };
  /// By default: pieces that stay in a core's cache until they are verified, on the cores of this process.
  virtual ReadShape read_shape() const;

  /// Size of the object in bytes; throws not_found.
  virtual std::uint64_t size_bytes(std::string_view key) const = 0;

  /// The whole object; throws not_found.
  virtual std::vector<std::byte> contents(std::string_view key) const;

  /// Several small objects by fewer accesses; empty for those that are not there or had better be read by themselves.
  virtual std::vector<std::vector<std::byte>> contents_of(std::span<const std::string> keys) const;

  virtual bool exists(std::string_view key) const = 0;

  /// Keys that start with `prefix` + '/', sorted.
  virtual std::vector<std::string> list(std::string_view prefix) const = 0;

  /// The first parts of the keys that start with `prefix` + '/', behind it, sorted. A backend may also name parts whose
  /// keys were all removed.
  virtual std::vector<std::string> list_parts(std::string_view prefix) const;

  /// As list, as two listings in a row saw them, or as all keys were at one instant. Of keys that only go when others
  /// have come that stand for them, one listing may miss both; two equal ones cannot: see "Marks" in
  /// docs/design/store.md.
  virtual std::vector<std::string> list_unchanged(std::string_view prefix) const;

  /// Removes an object, durably; returns false when it was not there.
  virtual bool remove(std::string_view key) = 0;

  /// Removes many objects, durably as a whole, in their order; returns how many were there.
  virtual std::size_t remove_all(std::span<const std::string> keys);

  /// Gives objects second keys, which nobody else knows of, durably as a whole: first → second of each pair. Where the
  /// backend can it shares the bytes, which live until both are removed. Throws not_found, exists.
  virtual void copy_all(std::span<const std::pair<std::string, std::string>> keys);

  /// Makes all objects durable, also those of other processes on this host that did not wait for that.
  virtual void sync();

  /// The same place, where every put is durable; null if this one is such already. For what must not be lost although
  /// the caller does not wait for anything else: see durable_backend.
  virtual std::shared_ptr<Backend> durable_twin() const { return nullptr; }

  /// Called when an object was put that relies on older ones: makes durable what processes that do not wait for the
  /// device have put here before it. Costs a look where there are no such processes, and nothing where puts are not
  /// durable. Throws unsupported where such processes run on other hosts and their data cannot be reached.
  virtual void settle() {}

  /// Whether a process that did not wait for the device was here, and not under the running kernel: if that ended by a
  /// loss of power, objects may be torn or missing.
  virtual bool may_be_torn() const { return false; }
  /// All objects that are here are whole; may_be_torn is false until another kernel runs.
  virtual void declare_whole() {}

  /// Puts `pieces` in the place of an object, durably; other readers see the old or the new one. For repair alone,
  /// which replaces objects that nobody can read. By default in two steps: readers may see neither.
  virtual void replace(std::string_view key, std::span<const ConstBytes> pieces);

  /// All keys that started with `prefix` + '/' were removed: frees what the backend itself keeps for them.
  virtual void prune(std::string_view prefix);

  /// Frees what writers that died inside a put have left behind, if it is older than `age`. A writer that lives and
  /// is slower than that has to write a second time. Returns the number of bytes freed.
  virtual std::uint64_t reclaim(std::chrono::seconds age);

  /// For messages: the URL it was opened with.
  virtual const std::string& url() const = 0;
};

struct BackendOptions {
  bool create = true;   ///< make the root where it does not exist
  bool durable = true;  ///< fdatasync and directory fsync before an object counts as created
};

/// Opens the backend of a URL: "memory:name" (shared by all openers of that name until the process ends;
/// "memory:" alone is a new one that its last owner frees), "file:///path", "rados://pool/name". Schemes are rows of
/// backends.def.
std::shared_ptr<Backend> open_backend(std::string_view url, const BackendOptions& options = {});

/// The place of `backend`, where every put is durable.
std::shared_ptr<Backend> durable_backend(const std::shared_ptr<Backend>& backend);

/// Throws invalid_argument unless `key` has the form that Backend describes.
void check_key(std::string_view key);

/// `prefix`/<number as 20 digits>, which sorts by number.
std::string numbered_key(std::string_view prefix, std::uint64_t number);

/// The number that numbered_key put at the end of `key`; throws corrupt for any other key.
std::uint64_t number_of(std::string_view key);

/// Reads a whole object.
inline std::vector<std::byte> read_all(const Backend& backend, std::string_view key) { return backend.contents(key); }

/// What a store's safety rests on, tried out on objects of its own, which are gone afterwards: an object that exists is
/// not put again, and is read as it was put. Throws unsupported where the backend does not keep that.
void probe_safety(Backend& backend);

/// "…/run7/field?x=y" → the URL "…/run7?x=y" of the store, and "field". Throws invalid_argument.
std::pair<std::string, std::string> split_blob_url(std::string_view url);

}  // namespace penstock::store
