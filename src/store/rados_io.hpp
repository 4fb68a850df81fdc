// Operations on the RADOS objects of one pool and namespace. All functions throw penstock::Error. Operations wait until
// Ceph has recovered from a failure, as those of any client of Ceph do.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/types.hpp"
#include "store/rados_calls.hpp"

namespace penstock::store {

/// A parsed rados: URL.
struct RadosPlace {
  std::string url;
  std::string pool;
  std::string space;      ///< the namespace
  std::string conf;       ///< path of ceph.conf; empty: librados looks for it
  std::string id;         ///< client.<id>; empty: by the environment, else admin
  std::string data_pool;  ///< pool of the stripes; empty: `pool`
  std::uint64_t stripe_bytes = 4 << 20;
};

/// Parses rados://pool/space?conf=…&id=…&data_pool=…&stripe_bytes=…; throws Error(invalid_argument).
RadosPlace parse_rados_url(const std::string& url);

/// A connection to a cluster. All places with the same configuration share one. Thread-safe.
class RadosCluster {
 public:
  static std::shared_ptr<RadosCluster> connect(const RadosPlace& place);
  ~RadosCluster();
  RadosCluster(const RadosCluster&) = delete;
  RadosCluster& operator=(const RadosCluster&) = delete;

  void* handle() const { return handle_; }

 private:
  explicit RadosCluster(const RadosPlace& place);

  const RadosCalls& calls_;
  void* handle_ = nullptr;
};

/// Blocking operations in one pool and namespace. Thread-safe.
class RadosIo {
 public:
  RadosIo(std::shared_ptr<RadosCluster> cluster, const RadosPlace& place, const std::string& pool);
  ~RadosIo();
  RadosIo(const RadosIo&) = delete;
  RadosIo& operator=(const RadosIo&) = delete;

  /// Exclusive create of a RADOS object; false if it exists.
  bool create(const std::string& object, std::string_view content);
  /// Nothing if the object does not exist.
  std::optional<std::string> content(const std::string& object) const;

  using Values = std::map<std::string, std::string>;
  /// The entries of an object's map (omap) under `keys`, without keys that it lacks.
  Values values(const std::string& object, const std::vector<std::string>& keys) const;
  bool has_value(const std::string& object, const std::string& key) const;
  /// The keys of an object's map that start with `prefix`, ascending. If `after` is not empty, only greater ones.
  std::vector<std::string> keys(const std::string& object, const std::string& prefix, std::string after = {}) const;
  /// As keys, all of one instant. Nothing if one operation cannot read them all.
  std::optional<std::vector<std::string>> keys_at_once(const std::string& object, const std::string& prefix) const;

  struct Object {
    std::uint64_t size_bytes;
    std::time_t modified_s;
  };
  std::optional<Object> stat(const std::string& object) const;
  std::vector<std::string> objects() const;

  [[noreturn]] void fail(const std::string& what, int status) const;

 private:
  friend class RadosBatch;

  /// Adds up to `most` keys greater than `after`, and sets `after` to the last one it saw. Returns whether there may be
  /// more.
  bool add_keys(const std::string& object, const std::string& prefix, std::uint64_t most, std::string& after,
                std::vector<std::string>& all) const;

  const std::shared_ptr<RadosCluster> cluster_;
  const RadosCalls& calls_;
  const std::string url_;
  void* io_ = nullptr;
};

/// Asynchronous operations, with a bounded window of them in flight. They use memory of the caller until wait() has
/// returned; the destructor waits, too. Not thread-safe.
class RadosBatch {
 public:
  explicit RadosBatch(const RadosIo& io);
  ~RadosBatch();
  RadosBatch(const RadosBatch&) = delete;
  RadosBatch& operator=(const RadosBatch&) = delete;

  /// The data is copied.
  void write(const std::string& object, ConstBytes data);
  /// `to` is filled when the batch is done. Fails with -ERANGE if the object is shorter.
  void read(const std::string& object, std::uint64_t offset_bytes, Bytes to);
  void remove(const std::string& object);
  /// An atomic compare-and-set of an object's map: sets and removes entries if the keys in `absent` have no value, the
  /// keys in `present` have one that is not empty, and the keys in `equal` have these values. Else it changes nothing
  /// and fails with -ECANCELED.
  struct Change {
    RadosIo::Values equal;
    std::vector<std::string> absent;
    std::vector<std::string> present;
    RadosIo::Values set;
    std::vector<std::string> remove;
  };
  void change(const std::string& object, const Change& change);

  /// Waits for all operations. Returns the first status that is not 0, else 0.
  int wait();
  /// Waits for the oldest operation, if there is one.
  void wait_for_oldest();

 private:
  friend class RadosIo;
  struct Flight {
    void* completion;
    std::size_t expected_bytes;
  };
  void* start(std::size_t expected_bytes);
  void operate(void* op, const std::string& object);
  void land();

  const RadosIo& io_;
  const RadosCalls& calls_;
  std::deque<Flight> flights_;
  int status_ = 0;
};

}  // namespace penstock::store
