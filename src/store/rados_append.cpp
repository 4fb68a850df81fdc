#include "store/rados_append.hpp"

#include <algorithm>
#include <cerrno>
#include <vector>

#include "store/backend.hpp"
#include "store/rados_entry.hpp"

namespace penstock::store {

namespace {

constexpr std::uint64_t kMostAtOnce = 16;
constexpr std::uint64_t kMostBytesAtOnce = 64 << 10;
/// After this many appends the expected number of competing appends falls by one.
constexpr std::uint64_t kMemory = 8;
/// A grave makes late repetitions of an operation fail. Older graves are not needed: Ceph itself recognises repetitions
/// among its newest few thousand operations.
constexpr std::size_t kMarksKept = 64;

}  // namespace

std::uint64_t RadosAppender::append(const Entry& entry, std::uint64_t first) { return *append(entry, first, false); }

std::optional<std::uint64_t> RadosAppender::append_behind(const Entry& entry, std::uint64_t known) {
  return append(entry, known + 1, true);
}

std::optional<std::uint64_t> RadosAppender::append(const Entry& entry, std::uint64_t first, bool behind) {
  const std::uint64_t most = std::clamp<std::uint64_t>(kMostBytesAtOnce / entry.value.size(), 1, kMostAtOnce);
  const std::uint64_t crowd = crowd_;
  std::uint64_t count = crowd == 0 ? 1 : crowd / kMemory + 2;
  for (std::uint64_t next = first;;) {
    count = std::min(count, most);
    std::optional<Outcome> outcome = try_numbers(entry, next, count, behind);
    if (!outcome) outcome = look(entry, next, count, behind);
    if (!outcome) return std::nullopt;
    if (outcome->made) {
      crowd_ =
          std::max(std::min(outcome->number - first, kMostAtOnce) * kMemory, std::max<std::uint64_t>(crowd, 1) - 1);
      return outcome->number;
    }
    next = outcome->number;
    count = std::max<std::uint64_t>(4, 2 * count);
  }
}

/// Returns nothing if no operation reports success.
std::optional<RadosAppender::Outcome> RadosAppender::try_numbers(const Entry& entry, std::uint64_t first,
                                                                 std::uint64_t count, bool behind) {
  // At most one operation succeeds, since it sets the grave that excludes the others. Each needs the number before it,
  // so none leaves a hole.
  const std::string mark = grave(entry.id);
  const std::string removed = oldest_mark(entry.shard);
  std::deque<RadosBatch> attempts;
  for (std::uint64_t number = first; number < first + count; ++number) {
    const std::string key = numbered_key(entry.prefix, number);
    RadosBatch::Change change{
        .equal = {}, .absent = {key, mark}, .present = {}, .set = {{key, entry.value}}, .remove = {}};
    if (behind || number > first) change.present.push_back(numbered_key(entry.prefix, number - 1));
    if (count > 1) change.set[mark] = key;
    if (!removed.empty()) change.remove.push_back(removed);
    attempts.emplace_back(index_).change(entry.shard, change);
  }
  std::optional<std::uint64_t> made;
  int failure = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const int status = attempts[i].wait();
    if (status == 0) made = first + i;
    if (status != 0 && status != -ECANCELED && failure == 0) failure = status;
  }
  if (!made && failure != 0) index_.fail("cannot append to " + entry.prefix, failure);
  if (!made) return std::nullopt;
  keep_mark(entry.shard, count > 1 ? mark : std::string(), removed);
  return Outcome{true, *made};
}

/// Ceph repeats operations whose reply was lost, and recognises only recent repetitions. So the entry that is in the
/// way may be ours.
std::optional<RadosAppender::Outcome> RadosAppender::look(const Entry& entry, std::uint64_t first, std::uint64_t count,
                                                          bool behind) const {
  const auto key = [&](std::uint64_t number) { return numbered_key(entry.prefix, number); };
  std::vector<std::string> keys{grave(entry.id)};
  for (std::uint64_t number = first - 1; number < first + count; ++number) keys.push_back(key(number));
  const RadosIo::Values found = index_.values(entry.shard, keys);
  if (const auto at = found.find(grave(entry.id)); at != found.end()) return Outcome{true, number_of(at->second)};
  for (std::uint64_t number = first; number < first + count; ++number) {
    const auto at = found.find(key(number));
    if (at != found.end() && decode_rados_entry(at->second, "the entry of " + at->first).id == entry.id) {
      return Outcome{true, number};
    }
  }
  if (behind && !found.contains(key(first - 1)) && !found.contains(key(first))) return std::nullopt;
  // `first` was taken, even if it has been collected since.
  return Outcome{false, last_number(entry.shard, entry.prefix, first) + 1};
}

std::uint64_t RadosAppender::last_number(const std::string& shard, std::string_view prefix, std::uint64_t known) const {
  const std::string folder = std::string(prefix) + '/';
  for (const std::string& key : index_.keys(shard, folder, numbered_key(prefix, known))) {
    if (number_of(key) != known + 1) break;
    ++known;
  }
  return known;
}

std::string RadosAppender::oldest_mark(const std::string& shard) {
  const std::lock_guard lock(mutex_);
  const std::deque<std::string>& marks = marks_[shard];
  return marks.size() < kMarksKept ? std::string() : marks.front();
}

void RadosAppender::keep_mark(const std::string& shard, const std::string& mark, const std::string& removed) {
  const std::lock_guard lock(mutex_);
  std::deque<std::string>& marks = marks_[shard];
  if (!removed.empty()) std::erase(marks, removed);
  if (!mark.empty()) marks.push_back(mark);
}

}  // namespace penstock::store
