// Operations on the RADOS objects of one pool and namespace. Everything here throws penstock::Error; operations wait
// for Ceph as long as it takes to recover from a failure, as those of any client of Ceph do.
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

struct RadosPlace {
  std::string url;
  std::string pool;
  std::string space;      ///< the namespace
  std::string conf;       ///< path of ceph.conf; empty: what librados looks for
  std::string id;         ///< client.<id>; empty: admin, or what the environment says
  std::string data_pool;  ///< for the stripes; empty: `pool`
  std::uint64_t stripe_bytes = 4 << 20;
};

/// Parses rados://pool/space?conf=…&id=…&data_pool=…&stripe_bytes=…; throws invalid_argument.
RadosPlace parse_rados_url(const std::string& url);

/// A connection to a cluster, shared by all who open it with the same configuration.
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

class RadosIo {
 public:
  RadosIo(std::shared_ptr<RadosCluster> cluster, const RadosPlace& place, const std::string& pool);
  ~RadosIo();
  RadosIo(const RadosIo&) = delete;
  RadosIo& operator=(const RadosIo&) = delete;

  /// Creates an object with this content; false when it exists.
  bool create(const std::string& object, std::string_view content);
  std::optional<std::string> content(const std::string& object) const;

  using Values = std::map<std::string, std::string>;
  /// Entries of an object's map, those of `keys` that it has.
  Values values(const std::string& object, const std::vector<std::string>& keys) const;
  bool has_value(const std::string& object, const std::string& key) const;
  /// Keys of an object's map that start with `prefix`, ascending; only those behind `after`, if that is not empty.
  std::vector<std::string> keys(const std::string& object, const std::string& prefix, std::string after = {}) const;
  /// The same as of one instant; nothing if there are too many to be read by one operation.
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

  /// Adds up to `most` keys behind `after`, which becomes the last one looked at; whether there may be more.
  bool add_keys(const std::string& object, const std::string& prefix, std::uint64_t most, std::string& after,
                std::vector<std::string>& all) const;

  const std::shared_ptr<RadosCluster> cluster_;
  const RadosCalls& calls_;
  const std::string url_;
  void* io_ = nullptr;
};

/// Operations that run at the same time, a window of them in flight. wait() returns when all are done; a batch that is
/// dropped waits, too, since they read and write memory of the caller.
class RadosBatch {
 public:
  explicit RadosBatch(const RadosIo& io);
  ~RadosBatch();
  RadosBatch(const RadosBatch&) = delete;
  RadosBatch& operator=(const RadosBatch&) = delete;

  /// The data is copied.
  void write(const std::string& object, ConstBytes data);
  /// `to` is filled when the batch is done; a shorter object fails with -ERANGE.
  void read(const std::string& object, std::uint64_t offset_bytes, Bytes to);
  void remove(const std::string& object);
  /// Sets entries of an object's map if `absent` have no value, `present` have one that is not empty, and all of
  /// `equal` have theirs; else -ECANCELED.
  struct Change {
    RadosIo::Values equal;
    std::vector<std::string> absent;
    std::vector<std::string> present;
    RadosIo::Values set;
    std::vector<std::string> remove;
  };
  void change(const std::string& object, const Change& change);

  /// The first status that is not 0, or 0.
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
