// The interface to object stores. A backend keeps immutable objects under keys. Versions, snapshots and checkpoints
// need only exclusive create, list and remove, so no backend needs locks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/types.hpp"

namespace penstock::store {

/// An object that is made while it is stored, so that it never lies in memory as a whole.
struct Stream {
  std::uint64_t size_bytes = 0;  ///< of all pieces together
  /// Starts from the first piece; a backend may have to do so again. The result returns the next piece, which is valid
  /// until the next call, and an empty one after the last. If it throws, nothing is stored.
  std::function<std::function<ConstBytes()>()> begin;
  /// Whether it is read soon. If not, a durable backend does not leave it in the page cache, where it would take the
  /// place of what is.
  bool read_soon = true;
};

/// A stream of pieces in memory, which have to stay until it was read.
Stream stream_of(std::span<const ConstBytes> pieces);

/// One object store. A key is a relative path: parts of [A-Za-z0-9._-], separated by '/'; no part starts with '.'.
/// An object never changes once it exists. All functions are thread-safe and blocking, and throw penstock::Error.
class Backend {
 public:
  virtual ~Backend() = default;

  /// Exclusive create: makes object `key` of the pieces, one after another. Returns false, and changes nothing, if the
  /// key exists. At any instant a reader sees the complete object or none. When the call returns true, the object is
  /// durable if the backend is. After an error no object is visible, with one exception: if the very last sync fails,
  /// the complete object may be there without being durable.
  virtual bool put_if_absent(std::string_view key, std::span<const ConstBytes> pieces) = 0;

  /// As put_if_absent, for an object that may be larger than the memory that is left. By default it is collected in
  /// memory first.
  virtual bool put_stream_if_absent(std::string_view key, const Stream& stream);

  /// Creates an object that no other process looks for until the call returns. This is cheaper than put_if_absent:
  /// if the writer dies or the power fails during the call, part of the object may remain under the key. Throws
  /// Error(exists). After any other error no object is there. `read_soon` as in Stream.
  virtual void put_unannounced(std::string_view key, std::span<const ConstBytes> pieces, bool read_soon = true);

  /// Creates `prefix`/<number as 20 digits> under the first free number from `first` on, and returns that number. The
  /// guarantees of put_if_absent hold. Each number from `first` to the result existed before the call returned.
  virtual std::uint64_t append(std::string_view prefix, std::uint64_t first, std::span<const ConstBytes> pieces);

  /// As append from `known` + 1 on, for a caller that has not looked for the end of the log. Returns nothing, and
  /// creates nothing, if object `known` no longer exists or if the backend finds the end at next to no cost.
  virtual std::optional<std::uint64_t> append_behind(std::string_view prefix, std::uint64_t known,
                                                     std::span<const ConstBytes> pieces);

  /// The end of the unbroken sequence known + 1, known + 2, … of existing numbers below `prefix`; `known` if it is
  /// empty.
  virtual std::uint64_t last_number(std::string_view prefix, std::uint64_t known) const;

  /// Whether last_number needs only a few cheap accesses from any `known`. If false, a listing that gives a `known`
  /// near the end pays.
  virtual bool finds_last_by_asking() const { return true; }

  /// Fills `to` with the bytes from offset_bytes on. Throws Error(not_found); Error(corrupt) if the object is too
  /// short.
  virtual void read(std::string_view key, std::uint64_t offset_bytes, Bytes to) const = 0;

  /// As read, for one contiguous range of the object: fills the targets one after another.
  virtual void read_scattered(std::string_view key, std::uint64_t offset_bytes, std::span<const Bytes> targets) const;

  /// How to divide a large read.
  struct ReadShape {
    std::size_t piece_bytes;   ///< of one call of read
    unsigned in_flight;        ///< most concurrent calls, each on its own thread
    std::size_t thread_bytes;  ///< how many bytes justify one more thread; 0: each call does
  };
  /// By default: pieces that stay in a core's cache until they are verified, and one thread for each usable core.
  virtual ReadShape read_shape() const;

  /// Size of an object; throws Error(not_found).
  virtual std::uint64_t size_bytes(std::string_view key) const = 0;

  /// The whole object; throws Error(not_found).
  virtual std::vector<std::byte> contents(std::string_view key) const;

  /// Contents of several small objects in fewer accesses. Empty for an object that is missing, or that the backend
  /// leaves to a call of contents. It may do so for objects of more than `most_bytes`.
  virtual std::vector<std::vector<std::byte>> contents_of(std::span<const std::string> keys,
                                                          std::uint64_t most_bytes = UINT64_MAX) const;

  virtual bool exists(std::string_view key) const = 0;

  /// Keys that start with `prefix` + '/', sorted.
  virtual std::vector<std::string> list(std::string_view prefix) const = 0;

  /// The distinct parts that follow `prefix` + '/' in keys, sorted. A backend may also list a part whose keys were all
  /// removed.
  virtual std::vector<std::string> list_parts(std::string_view prefix) const;

  /// As list, but consistent: the result of two equal listings in a row, or all keys of one instant. A key may be
  /// removed after another key has replaced it. A single listing may then miss both; two equal listings cannot. See
  /// "Marks" in docs/design/store-collecting.md.
  virtual std::vector<std::string> list_unchanged(std::string_view prefix) const;

  /// Removes an object, durably. Returns false if it was not there.
  virtual bool remove(std::string_view key) = 0;

  /// Removes objects in this order. All removals are durable when the call returns. Returns how many were there.
  virtual std::size_t remove_all(std::span<const std::string> keys);

  /// Copies objects: first → second of each pair. All copies are durable when the call returns. No other process may
  /// know the new keys. A backend may share the bytes, which then live until both keys are removed. Throws
  /// Error(not_found), exists.
  virtual void copy_all(std::span<const std::pair<std::string, std::string>> keys);

  /// Makes all objects durable, including those of non-durable writers on this host.
  virtual void sync();

  /// The same place with durable puts; null if this backend is durable already. Callers use durable_backend.
  virtual std::shared_ptr<Backend> durable_twin() const { return nullptr; }

  /// Makes durable what non-durable writers have put so far. Call it before you rely on their objects: after a put, or
  /// before a removal. Costs one listing if there are no such writers, and nothing if this backend is not durable.
  /// Throws Error(unsupported) if such a writer may run on another host whose page cache no sync reaches.
  virtual void settle() {}

  /// Whether a non-durable writer was here under another kernel, that is, before the machine started anew or on another
  /// host. If that kernel lost power, objects may be torn or missing.
  virtual bool may_be_torn() const { return false; }
  /// States that all objects are whole: forgets the non-durable writers of other kernels, so that may_be_torn returns
  /// false.
  virtual void declare_whole() {}

  /// Replaces an object by `pieces`, durably. A reader sees the old or the new object. Only repair calls this, for
  /// objects that are unreadable. By default it takes two steps, and a reader may see neither object.
  virtual void replace(std::string_view key, std::span<const ConstBytes> pieces);

  /// Frees what the backend itself keeps for keys that start with `prefix` + '/'. All of these were removed.
  virtual void prune(std::string_view prefix);

  /// Frees what writers that died inside a put have left behind, if it is older than `age`. A live writer that is
  /// slower than `age` has to write a second time. Returns the number of bytes freed.
  virtual std::uint64_t reclaim(std::chrono::seconds age);

  /// The URL that the backend was opened with, for messages.
  virtual const std::string& url() const = 0;
};

struct BackendOptions {
  bool create = true;   ///< make the root if it does not exist
  bool durable = true;  ///< every put syncs the data and its directory entry; false: they may be in the page cache
};

/// Opens the backend of a URL: "file:///path", "rados://pool/name", "s3://bucket/name" or "memory:name". All openers of
/// "memory:name" share one backend until the process ends. "memory:" alone is a new backend, which its last owner
/// frees. Schemes are rows of backends.def.
std::shared_ptr<Backend> open_backend(std::string_view url, const BackendOptions& options = {});

/// The durable twin of `backend`, or `backend` itself if it is durable. For objects that must survive a loss of power
/// even in a store that is opened with durable = false.
std::shared_ptr<Backend> durable_backend(const std::shared_ptr<Backend>& backend);

/// Throws Error(internal) unless the pieces of a stream had as many bytes as it says.
void check_streamed(const Stream& stream, std::uint64_t found_bytes, const std::string& what);

/// Throws Error(invalid_argument) unless `key` has the form that Backend describes.
void check_key(std::string_view key);

/// `prefix`/<number as 20 digits>. Such keys sort by number.
std::string numbered_key(std::string_view prefix, std::uint64_t number);

/// The number at the end of a key of numbered_key; throws Error(corrupt) for any other key.
std::uint64_t number_of(std::string_view key);

/// Backend::read_scattered by one call of read and a copy, for backends whose calls take as long as copying megabytes.
void read_together(const Backend& backend, std::string_view key, std::uint64_t offset_bytes,
                   std::span<const Bytes> targets);

inline std::vector<std::byte> read_all(const Backend& backend, std::string_view key) { return backend.contents(key); }

/// Tests what the store relies on: a second put of a key fails, and an object reads as it was put. Uses objects of its
/// own and removes them. Throws Error(unsupported) if a test fails.
void probe_safety(Backend& backend);

/// probe_safety, once per process and URL: for servers, which keep their properties while a process runs.
void probe_once(Backend& backend);

/// Splits a blob's URL into the store's URL and the blob's name: "…/run7/field?x=y" → "…/run7?x=y", "field". Throws
/// invalid_argument.
std::pair<std::string, std::string> split_blob_url(std::string_view url);

}  // namespace penstock::store
