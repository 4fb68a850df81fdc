#include "store/rados_append.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <vector>

#include "store/backend.hpp"
#include "store/rados_entry.hpp"

namespace penstock::store {

namespace {

constexpr std::uint64_t kMostAtOnce = 16;
constexpr std::uint64_t kMostBytesAtOnce = 64 << 10;
/// A mark excludes repetitions of operations that are complete for us; Ceph itself recognises the newest few thousand.
constexpr std::size_t kMarksKept = 64;

}  // namespace

std::uint64_t RadosAppender::append(const std::string& shard, std::string_view prefix, std::uint64_t first,
                                    const std::string& id, const std::string& value) {
  const std::uint64_t most = std::clamp<std::uint64_t>(kMostBytesAtOnce / value.size(), 1, kMostAtOnce);
  const std::uint64_t crowd = crowd_;
  std::uint64_t count = crowd == 0 ? 1 : crowd + 2;
  for (std::uint64_t next = first;;) {
    const Outcome outcome = try_numbers(shard, prefix, next, std::min(count, most), id, value);
    if (outcome.made) {
      crowd_ = std::max(outcome.number - first, crowd - std::min<std::uint64_t>(crowd, 1));
      return outcome.number;
    }
    next = outcome.number;
    count = std::max<std::uint64_t>(4, 2 * count);
  }
}

RadosAppender::Outcome RadosAppender::try_numbers(const std::string& shard, std::string_view prefix,
                                                  std::uint64_t first, std::uint64_t count, const std::string& id,
                                                  const std::string& value) {
  // Of several attempts one can be made, as each leaves the mark that excludes the others. None leaves a hole.
  const std::string mark = grave(id);
  const std::string removed = oldest_mark(shard);
  std::deque<RadosBatch> attempts;
  for (std::uint64_t number = first; number < first + count; ++number) {
    const std::string key = numbered_key(prefix, number);
    RadosBatch::Change change{.equal = {}, .absent = {key, mark}, .present = {}, .set = {{key, value}}, .remove = {}};
    if (number > first) change.present.push_back(numbered_key(prefix, number - 1));
    if (count > 1) change.set[mark] = key;
    if (!removed.empty()) change.remove.push_back(removed);
    attempts.emplace_back(index_).change(shard, change);
  }
  std::optional<std::uint64_t> made;
  int failure = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const int status = attempts[i].wait();
    if (status == 0) made = first + i;
    if (status != 0 && status != -ECANCELED && failure == 0) failure = status;
  }
  if (!made && failure != 0) index_.fail("cannot append to " + std::string(prefix), failure);
  const Outcome outcome = made ? Outcome{true, *made} : look(shard, prefix, first, count, id);
  if (outcome.made) keep_mark(shard, count > 1 ? mark : std::string(), removed);
  return outcome;
}

/// Ceph repeats operations whose reply was lost, and remembers only its newest ones: what stands in our way may be
/// ours.
RadosAppender::Outcome RadosAppender::look(const std::string& shard, std::string_view prefix, std::uint64_t first,
                                           std::uint64_t count, const std::string& id) const {
  std::vector<std::string> keys{grave(id)};
  for (std::uint64_t number = first; number < first + count; ++number) keys.push_back(numbered_key(prefix, number));
  const RadosIo::Values found = index_.values(shard, keys);
  if (const auto at = found.find(grave(id)); at != found.end()) return {true, number_of(at->second)};
  // `first` was taken, even if it was collected since.
  std::uint64_t next = first + 1;
  for (std::uint64_t number = first; number < first + count; ++number) {
    const auto at = found.find(numbered_key(prefix, number));
    if (at == found.end()) continue;
    if (decode_rados_entry(at->second, "the entry of " + at->first).id == id) return {true, number};
    if (number == next) ++next;
  }
  return {false, next};
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
