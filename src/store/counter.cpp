#include "store/counter.hpp"

#include <cstdio>
#include <map>
#include <random>
#include <vector>

#include "penstock/error.hpp"
#include "store/blob_state.hpp"
#include "store/encoding.hpp"
#include "store/record.hpp"

namespace penstock::store {

namespace {

constexpr std::uint32_t kCounterMagic = 0x43535350;  // "PSSC"
constexpr std::string_view kFolder = "counters";

struct Entry {
  std::uint64_t value = 0;
  std::int64_t time_ns = 0;
};

Entry read_entry(const Backend& backend, const std::string& key) {
  const std::string source = backend.url() + ": object " + key;
  const std::vector<std::byte> sealed = read_all(backend, key);
  Decoder decoder(unseal(sealed, source), source);
  decode_head(decoder, kCounterMagic, source);
  Entry entry;
  entry.value = decoder.number<std::uint64_t>();
  entry.time_ns = decoder.number<std::int64_t>();
  decoder.end();
  return entry;
}

}  // namespace

std::string Counter::new_name() {
  std::random_device random;
  char name[80];
  std::snprintf(name, sizeof name, "%020llu-%08x%08x", static_cast<unsigned long long>(now_ns()), random(), random());
  return name;
}

std::string Counter::series() const { return std::string(kFolder) + '/' + name_ + '-' + std::to_string(series_) + '-'; }

std::string Counter::key(std::uint64_t number) const {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%020llu", static_cast<unsigned long long>(number));
  return series() + digits;
}

void Counter::look() const {
  std::uint64_t step = 1;
  const std::uint64_t before = number_;
  while (backend_->exists(key(number_ + step))) {
    number_ += step;
    step *= 2;
  }
  for (step /= 2; step > 0; step /= 2) {
    if (backend_->exists(key(number_ + step))) number_ += step;
  }
  if (number_ > before) known_ = read_entry(*backend_, key(number_)).value;
  // A gc puts this mark before it removes entries. Without the mark, a missing entry has never existed.
  if (backend_->exists(series() + std::string(kGone))) {
    throw Error(ErrorCode::io, backend_->url() +
                                   ": a gc has collected the shared file pointer, because it was not used for longer "
                                   "than the lease; set it again with seek_shared");
  }
}

std::uint64_t Counter::value() const {
  look();
  return number_ == 0 ? start_ : known_;
}

std::uint64_t Counter::add(std::uint64_t amount) {
  for (;;) {
    const std::uint64_t before = value();
    if (amount > UINT64_MAX / 2 || before > UINT64_MAX / 2) {
      throw Error(ErrorCode::invalid_argument, "the shared file pointer would go beyond 2^63 etypes");
    }
    Encoder encoder;
    encode_head(encoder, kCounterMagic);
    encoder.number(before + amount);
    encoder.number(now_ns());
    const std::vector<std::byte> sealed = encoder.seal();
    const ConstBytes piece(sealed);
    if (!backend_->put_if_absent(key(number_ + 1), std::span(&piece, 1))) continue;
    ++number_;
    known_ = before + amount;
    look();  // a gc whose mark is not there by now sees our entry
    return before;
  }
}

void Counter::restart(std::uint64_t start) {
  ++series_;
  start_ = start;
  number_ = known_ = 0;
}

void Counter::clean() noexcept {
  try {
    bool gone = false;
    try {
      look();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::io) throw;
      gone = true;
    }
    std::vector<std::string> keys;
    for (std::uint64_t number = 1; number <= number_; ++number) keys.push_back(key(number));
    if (gone) keys.push_back(series() + std::string(kGone));
    if (!keys.empty()) backend_->remove_all(keys);
  } catch (const Error&) {
    // A gc removes the objects later.
  }
}

void collect_counters(Backend& backend, std::chrono::seconds lease, GcReport& report) {
  std::map<std::string, std::vector<std::string>> series;  // entries sorted by number
  for (std::string& key : backend.list(kFolder)) {
    if (!key.ends_with(kGone)) series[key.substr(0, key.find_last_of('-') + 1)].push_back(std::move(key));
  }
  const std::int64_t deadline_ns = begin_of(lease);
  for (const auto& [prefix, keys] : series) {
    try {
      if (read_entry(backend, keys.back()).time_ns > deadline_ns) continue;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::not_found) continue;  // its owners or another gc remove it
      throw;
    }
    backend.put_if_absent(prefix + std::string(kGone), {});
    report.objects_removed += backend.remove_all(keys);
  }
}

}  // namespace penstock::store
