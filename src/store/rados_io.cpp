#include "store/rados_io.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <tuple>

#include "penstock/error.hpp"

namespace penstock::store {

namespace {

constexpr std::size_t kInFlight = 16;
/// Keys of one listing operation: of the first one, and of further ones if there are more keys.
constexpr std::uint64_t kFewKeys = 16;
constexpr std::uint64_t kManyKeys = 1024;
// Constants of librados.h.
constexpr std::uint8_t kEqual = 1;
constexpr std::uint8_t kGreater = 3;  // OSDs compare map entries only by =, < and >
constexpr int kExclusive = 1;
constexpr int kFailWhenFull = 64;  // a full pool fails the call; else it would wait without end
constexpr const char* kExample = ", for example rados://pool/run7";

[[noreturn]] void refuse(const std::string& url, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, "'" + url + "' " + why + kExample);
}

std::string text_of(int status) { return std::generic_category().message(-status); }

void set_parameter(RadosPlace& place, std::string_view name, std::string_view value) {
  if (name == "conf") {
    place.conf = value;
  } else if (name == "id") {
    place.id = value;
  } else if (name == "data_pool") {
    place.data_pool = value;
  } else if (name == "stripe_bytes") {
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), place.stripe_bytes);
    if (error != std::errc() || end != value.data() + value.size() || place.stripe_bytes < (64 << 10) ||
        place.stripe_bytes > (64 << 20)) {
      refuse(place.url, "has stripe_bytes=" + std::string(value) + "; expected 65536 to 67108864");
    }
  } else {
    refuse(place.url, "has the parameter '" + std::string(name) + "'; expected conf, id, data_pool or stripe_bytes");
  }
}

}  // namespace

RadosPlace parse_rados_url(const std::string& url) {
  constexpr std::string_view kStart = "rados://";
  RadosPlace place;
  place.url = url;
  if (!url.starts_with(kStart)) refuse(url, "names no pool: expected rados://, a pool, '/' and a name");
  const std::string_view rest = std::string_view(url).substr(kStart.size());
  const std::string_view path = rest.substr(0, rest.find('?'));
  const std::size_t slash = path.find('/');
  place.pool = path.substr(0, slash);
  place.space = slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
  while (place.space.ends_with('/')) place.space.pop_back();
  while (place.space.starts_with('/')) place.space.erase(0, 1);
  if (place.pool.empty() || place.space.empty())
    refuse(url, "names no pool and store: expected a pool, '/' and a name");
  if (path.size() == rest.size()) return place;
  std::string_view query = rest.substr(path.size() + 1);
  while (!query.empty()) {
    const std::string_view parameter = query.substr(0, query.find('&'));
    const std::size_t equals = parameter.find('=');
    set_parameter(place, parameter.substr(0, equals),
                  equals == std::string_view::npos ? std::string_view() : parameter.substr(equals + 1));
    query.remove_prefix(std::min(parameter.size() + 1, query.size()));
  }
  return place;
}

std::shared_ptr<RadosCluster> RadosCluster::connect(const RadosPlace& place) {
  static std::mutex mutex;
  static std::map<std::tuple<std::string, std::string>, std::weak_ptr<RadosCluster>> open;
  const char* const environment = std::getenv("CEPH_CONF");
  const std::string conf = place.conf.empty() && environment != nullptr ? environment : place.conf;
  const std::lock_guard lock(mutex);
  std::weak_ptr<RadosCluster>& known = open[{conf, place.id}];
  auto cluster = known.lock();
  if (cluster == nullptr) {
    cluster.reset(new RadosCluster(place));
    known = cluster;
  }
  return cluster;
}

RadosCluster::RadosCluster(const RadosPlace& place) : calls_(RadosCalls::load()) {
  const auto check = [&](const std::string& what, int status, const char* advice) {
    if (status >= 0) return;
    if (handle_ != nullptr) calls_.shutdown(handle_);
    const ErrorCode code = status == -ENOENT ? ErrorCode::not_found : ErrorCode::io;
    throw Error(code, place.url + ": " + what + "; " + advice, -1, text_of(status), -status);
  };
  check("librados could not start", calls_.create(&handle_, place.id.empty() ? nullptr : place.id.c_str()),
        "check the installation of librados");
  calls_.conf_set(handle_, "client_mount_timeout", "30");
  check("no configuration of Ceph was found" + (place.conf.empty() ? "" : " at " + place.conf),
        calls_.conf_read_file(handle_, place.conf.empty() ? nullptr : place.conf.c_str()),
        "give its path as ?conf=/etc/ceph/ceph.conf or in CEPH_CONF");
  calls_.conf_parse_env(handle_, nullptr);
  check("the Ceph cluster cannot be reached", calls_.connect(handle_),
        "check that its monitors run and that the key ring of this client is found (`ceph -s` with the same settings)");
}

RadosCluster::~RadosCluster() { calls_.shutdown(handle_); }

RadosIo::RadosIo(std::shared_ptr<RadosCluster> cluster, const RadosPlace& place, const std::string& pool)
    : cluster_(std::move(cluster)), calls_(RadosCalls::load()), url_(place.url) {
  const int status = calls_.ioctx_create(cluster_->handle(), pool.c_str(), &io_);
  if (status == -ENOENT) {
    throw Error(ErrorCode::not_found, url_ + ": Ceph has no pool '" + pool + "'; make it (ceph osd pool create " +
                                          pool + ") or correct the URL");
  }
  if (status < 0) fail("cannot open the pool " + pool, status);
  calls_.ioctx_set_namespace(io_, place.space.c_str());
}

RadosIo::~RadosIo() { calls_.ioctx_destroy(io_); }

void RadosIo::fail(const std::string& what, int status) const {
  ErrorCode code = ErrorCode::io;
  std::string advice;
  if (status == -ENOSPC || status == -EDQUOT) code = ErrorCode::no_space;
  if (status == -EOPNOTSUPP) {
    code = ErrorCode::unsupported;
    advice = "; the pool has to be a replicated one (data_pool=NAME puts the data into an erasure-coded one)";
  }
  throw Error(code, url_ + ": " + what + advice, -1, text_of(status), -status);
}

bool RadosIo::create(const std::string& object, std::string_view content) {
  void* const op = calls_.create_write_op();
  calls_.write_op_create(op, kExclusive, nullptr);
  calls_.write_op_write_full(op, content.data(), content.size());
  RadosBatch batch(*this);
  batch.operate(op, object);
  const int status = batch.wait();
  if (status < 0 && status != -EEXIST) fail("cannot create " + object, status);
  return status == 0;
}

std::optional<std::string> RadosIo::content(const std::string& object) const {
  std::string text(64 << 10, '\0');
  const int status = calls_.read(io_, object.c_str(), text.data(), text.size(), 0);
  if (status == -ENOENT) return std::nullopt;
  if (status < 0) fail("cannot read " + object, status);
  text.resize(static_cast<std::size_t>(status));
  return text;
}

RadosIo::Values RadosIo::values(const std::string& object, const std::vector<std::string>& keys) const {
  std::vector<const char*> names;
  for (const std::string& key : keys) names.push_back(key.c_str());
  void* found = nullptr;
  int inner = 0;
  void* const op = calls_.create_read_op();
  calls_.read_op_omap_get_vals_by_keys(op, names.data(), names.size(), &found, &inner);
  const int status = calls_.read_op_operate(op, io_, object.c_str(), 0);
  Values values;
  if (status == 0 && inner == 0) {
    char* key = nullptr;
    char* value = nullptr;
    std::size_t size = 0;
    while (calls_.omap_get_next(found, &key, &value, &size) == 0 && key != nullptr) {
      values.emplace(key, std::string(value, size));
    }
  }
  if (found != nullptr) calls_.omap_get_end(found);
  calls_.release_read_op(op);
  if (status < 0 && status != -ENOENT) fail("cannot read the index " + object, status);
  if (inner < 0) fail("cannot read the index " + object, inner);
  return values;
}

bool RadosIo::has_value(const std::string& object, const std::string& key) const {
  void* const op = calls_.create_read_op();
  calls_.read_op_omap_cmp(op, key.c_str(), kGreater, "", 0, nullptr);
  const int status = calls_.read_op_operate(op, io_, object.c_str(), 0);
  calls_.release_read_op(op);
  if (status < 0 && status != -ENOENT && status != -ECANCELED) fail("cannot read the index " + object, status);
  return status == 0;
}

bool RadosIo::add_keys(const std::string& object, const std::string& prefix, std::uint64_t most, std::string& after,
                       std::vector<std::string>& all) const {
  void* found = nullptr;
  int inner = 0;
  unsigned char more = 0;
  void* const op = calls_.create_read_op();
  calls_.read_op_omap_get_keys2(op, after.c_str(), most, &found, &more, &inner);
  const int status = calls_.read_op_operate(op, io_, object.c_str(), 0);
  bool beyond = false;
  if (status == 0 && inner == 0) {
    char* key = nullptr;
    char* value = nullptr;
    std::size_t size = 0;
    while (!beyond && calls_.omap_get_next(found, &key, &value, &size) == 0 && key != nullptr) {
      after = key;
      beyond = !after.starts_with(prefix);
      if (!beyond) all.push_back(after);
    }
  }
  if (found != nullptr) calls_.omap_get_end(found);
  calls_.release_read_op(op);
  if (status < 0 && status != -ENOENT) fail("cannot list the index " + object, status);
  if (inner < 0) fail("cannot list the index " + object, inner);
  return !beyond && more != 0;
}

std::vector<std::string> RadosIo::keys(const std::string& object, const std::string& prefix, std::string after) const {
  std::vector<std::string> all;
  if (after.empty()) after = prefix;
  std::uint64_t most = kFewKeys;
  while (add_keys(object, prefix, most, after, all)) most = kManyKeys;
  return all;
}

std::optional<std::vector<std::string>> RadosIo::keys_at_once(const std::string& object,
                                                              const std::string& prefix) const {
  std::vector<std::string> all;
  std::string after = prefix;
  if (add_keys(object, prefix, kFewKeys, after, all)) return std::nullopt;
  return all;
}

std::optional<RadosIo::Object> RadosIo::stat(const std::string& object) const {
  Object found{};
  const int status = calls_.stat(io_, object.c_str(), &found.size_bytes, &found.modified_s);
  if (status == -ENOENT) return std::nullopt;
  if (status < 0) fail("cannot read the size of " + object, status);
  return found;
}

std::vector<std::string> RadosIo::objects() const {
  void* list = nullptr;
  int status = calls_.nobjects_list_open(io_, &list);
  if (status < 0) fail("cannot list the pool", status);
  std::vector<std::string> names;
  const char* name = nullptr;
  while ((status = calls_.nobjects_list_next(list, &name, nullptr, nullptr)) == 0) names.emplace_back(name);
  calls_.nobjects_list_close(list);
  if (status != -ENOENT) fail("cannot list the pool", status);
  return names;
}

RadosBatch::RadosBatch(const RadosIo& io) : io_(io), calls_(io.calls_) {}

RadosBatch::~RadosBatch() { wait(); }

void* RadosBatch::start(std::size_t expected_bytes) {
  if (flights_.size() >= kInFlight) land();
  void* completion = nullptr;
  const int status = calls_.aio_create_completion(nullptr, nullptr, nullptr, &completion);
  if (status < 0) io_.fail("cannot start an operation", status);
  flights_.push_back({completion, expected_bytes});
  return completion;
}

void RadosBatch::land() {
  const Flight flight = flights_.front();
  flights_.pop_front();
  if (flight.completion == nullptr) return;
  calls_.aio_wait_for_complete(flight.completion);
  const int status = calls_.aio_get_return_value(flight.completion);
  calls_.aio_release(flight.completion);
  if (status_ != 0) return;
  if (status < 0) {
    status_ = status;
  } else if (flight.expected_bytes > 0 && static_cast<std::size_t>(status) != flight.expected_bytes) {
    status_ = -ERANGE;
  }
}

void RadosBatch::wait_for_oldest() {
  if (!flights_.empty()) land();
}

int RadosBatch::wait() {
  while (!flights_.empty()) land();
  return status_;
}

void RadosBatch::operate(void* op, const std::string& object) {
  void* const completion = start(0);
  const int status = calls_.aio_write_op_operate(op, io_.io_, completion, object.c_str(), nullptr, kFailWhenFull);
  calls_.release_write_op(op);
  if (status >= 0) return;
  calls_.aio_release(completion);
  flights_.pop_back();
  if (status_ == 0) status_ = status;
}

void RadosBatch::write(const std::string& object, ConstBytes data) {
  void* const op = calls_.create_write_op();
  calls_.write_op_write_full(op, reinterpret_cast<const char*>(data.data()), data.size());
  operate(op, object);
}

void RadosBatch::remove(const std::string& object) {
  void* const op = calls_.create_write_op();
  calls_.write_op_remove(op);
  operate(op, object);
}

void RadosBatch::read(const std::string& object, std::uint64_t offset_bytes, Bytes to) {
  void* const completion = start(to.size());
  const int status =
      calls_.aio_read(io_.io_, object.c_str(), completion, reinterpret_cast<char*>(to.data()), to.size(), offset_bytes);
  if (status >= 0) return;
  calls_.aio_release(completion);
  flights_.pop_back();
  if (status_ == 0) status_ = status;
}

void RadosBatch::change(const std::string& object, const Change& change) {
  void* const op = calls_.create_write_op();
  for (const std::string& key : change.absent) calls_.write_op_omap_cmp(op, key.c_str(), kEqual, "", 0, nullptr);
  for (const std::string& key : change.present) calls_.write_op_omap_cmp(op, key.c_str(), kGreater, "", 0, nullptr);
  for (const auto& [key, value] : change.equal) {
    calls_.write_op_omap_cmp(op, key.c_str(), kEqual, value.data(), value.size(), nullptr);
  }
  std::vector<const char*> keys;
  std::vector<const char*> values;
  std::vector<std::size_t> sizes;
  for (const auto& [key, value] : change.set) {
    keys.push_back(key.c_str());
    values.push_back(value.data());
    sizes.push_back(value.size());
  }
  if (!keys.empty()) calls_.write_op_omap_set(op, keys.data(), values.data(), sizes.data(), keys.size());
  keys.clear();
  for (const std::string& key : change.remove) keys.push_back(key.c_str());
  if (!keys.empty()) calls_.write_op_omap_rm_keys(op, keys.data(), keys.size());
  operate(op, object);
}

}  // namespace penstock::store
