#include "file/state.hpp"

#include <algorithm>
#include <numeric>

#include "penstock/error.hpp"

namespace penstock {

void File::State::agree(const std::function<void()>& action) {
  settle();
  check_open();
  if (comm) {
    comm->agree(action);
  } else {
    action();
  }
}

void File::State::agree_on(std::uint64_t value, const char* what,
                           const std::function<std::string(std::uint64_t)>& text) {
  settle();
  const std::vector<std::uint64_t> all = gather_numbers(value);
  const auto other = std::find_if(all.begin(), all.end(), [&](std::uint64_t given) { return given != all.front(); });
  if (other == all.end()) return;
  throw Error(ErrorCode::mismatch, url + ": the " + what + " is " + text(all.front()) + " on rank 0 and " +
                                       text(*other) + " on rank " + std::to_string(other - all.begin()) +
                                       "; give the same on all ranks");
}

void File::State::agree_on(std::uint64_t value, const char* what) {
  agree_on(value, what, [](std::uint64_t number) { return std::to_string(number); });
}

void File::State::remove_together() {
  agree([&] {
    try {
      if (rank() == 0) store->remove(blob->name());
    } catch (const Error& error) {
      if (error.code() != ErrorCode::not_found) throw;
    }
  });
}

std::vector<std::uint64_t> File::State::gather_numbers(std::uint64_t mine) {
  std::vector<std::uint64_t> all(comm ? static_cast<std::size_t>(comm->size()) : 1, mine);
  if (comm) comm->allgather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

void File::State::check_open() const {
  if (!blob) throw Error(ErrorCode::invalid_argument, url + " is closed; open it again");
}

void File::State::check_mode(bool allowed, const char* what) const {
  check_open();
  if (allowed) return;
  throw Error(ErrorCode::invalid_argument, url + (pinned ? " at a pinned version" : "") + " was not opened for " +
                                               what + "; open it in another mode");
}

void File::State::check_multiple(std::uint64_t size_bytes) const {
  if (size_bytes % etype_bytes() == 0) return;
  throw Error(ErrorCode::invalid_argument, url + ": an access of " + std::to_string(size_bytes) +
                                               " bytes; expected a multiple of the etype's " +
                                               std::to_string(etype_bytes()));
}

std::vector<WriteRegion> File::State::regions_to_write(std::uint64_t offset_etypes, ConstBytes data) const {
  check_mode(options.write && !pinned, "writing");
  check_multiple(data.size());
  std::vector<WriteRegion> regions;
  std::size_t used = 0;
  map.visit(start_byte(offset_etypes), data.size(), [&](std::uint64_t offset, std::uint64_t size) {
    regions.push_back({offset, data.subspan(used, size)});
    used += size;
  });
  return regions;
}

std::uint64_t File::State::start_byte(std::uint64_t offset_etypes) const {
  if (offset_etypes > (std::uint64_t{1} << 63) / etype_bytes()) {
    throw Error(ErrorCode::invalid_argument, url + ": the offset " + std::to_string(offset_etypes) + ", in etypes of " +
                                                 std::to_string(etype_bytes()) + " bytes, is beyond 2^63 bytes");
  }
  return offset_etypes * etype_bytes();
}

std::uint64_t File::State::read_from(const Snapshot& snapshot, std::uint64_t offset_etypes, Bytes data) const {
  check_mode(options.read, "reading");
  check_multiple(data.size());
  const std::uint64_t start = start_byte(offset_etypes);
  const std::uint64_t shown = map.data_before(snapshot.size_bytes());
  data = data.first(std::min<std::uint64_t>(data.size(), shown > start ? shown - start : 0));
  std::vector<ReadRegion> regions;
  std::size_t used = 0;
  map.visit(start, data.size(), [&](std::uint64_t offset, std::uint64_t size) {
    regions.push_back({offset, data.subspan(used, size)});
    used += size;
  });
  snapshot.read(regions);
  return data.size();
}

Snapshot File::State::newest() const {
  check_open();
  return pinned ? *pinned : blob->snapshot();
}

std::uint64_t File::State::commit_together(std::uint64_t offset_etypes, ConstBytes data) {
  check_open();
  if (!comm) return blob->write(regions_to_write(offset_etypes, data));
  for (;;) {
    StagedWrite mine;
    try {
      agree([&] { mine = blob->stage(regions_to_write(offset_etypes, data)); });
    } catch (const Error&) {
      if (!mine.encoded.empty()) blob->discard(mine);
      throw;
    }
    const std::vector<StagedWrite> parts = gather_parts(mine);
    std::uint64_t version = 0;
    agree([&] {
      if (rank() == 0) version = blob->commit(parts).value_or(0);
    });
    comm->run({.kind = CollectiveKind::bcast, .count = sizeof version}, {},
              std::as_writable_bytes(std::span(&version, 1)));
    // No version: gc gave up this write, because it took longer than the lease. Stage it again.
    if (version > 0) return version;
  }
}

std::vector<StagedWrite> File::State::gather_parts(const StagedWrite& mine) {
  const std::vector<std::uint64_t> sizes = gather_numbers(mine.encoded.size());
  const std::size_t slot = *std::max_element(sizes.begin(), sizes.end());
  std::vector<std::byte> padded = mine.encoded;
  padded.resize(slot);
  std::vector<std::byte> gathered(rank() == 0 ? slot * sizes.size() : 0);
  comm->run({.kind = CollectiveKind::gather, .count = slot}, padded, gathered);
  std::vector<StagedWrite> parts;
  for (std::size_t i = 0; rank() == 0 && i < sizes.size(); ++i) {
    const auto start = gathered.begin() + static_cast<std::ptrdiff_t>(i * slot);
    parts.push_back({{start, start + static_cast<std::ptrdiff_t>(sizes[i])}});
  }
  return parts;
}

std::uint64_t File::State::read_together(std::uint64_t offset_etypes, Bytes data) {
  check_open();
  if (!comm || pinned) return read_from(newest(), offset_etypes, data);
  std::uint64_t mine = 0;
  std::uint64_t bytes = 0;
  agree([&] { mine = blob->latest(); });
  const std::vector<std::uint64_t> all = gather_numbers(mine);
  agree([&] { bytes = read_from(blob->snapshot(*std::max_element(all.begin(), all.end())), offset_etypes, data); });
  return bytes;
}

std::uint64_t File::State::order(std::uint64_t size_bytes) {
  const std::uint64_t start = agreed_shared([&] { check_multiple(size_bytes); });
  const std::vector<std::uint64_t> sizes = gather_numbers(size_bytes / etype_bytes());
  const auto mine = sizes.begin() + rank();
  restart_shared(std::accumulate(sizes.begin(), sizes.end(), start));
  return std::accumulate(sizes.begin(), mine, start);
}

std::uint64_t File::State::claim_shared(std::uint64_t size_bytes) {
  settle();
  check_open();
  check_multiple(size_bytes);
  return shared.add(size_bytes / etype_bytes());
}

std::uint64_t File::State::agreed_shared(const std::function<void()>& check) {
  std::uint64_t value = 0;
  agree(check);  // until all ranks are here, one may still advance the pointer
  agree([&] {
    if (rank() == 0) value = shared.value();
  });
  return gather_numbers(value).front();
}

void File::State::restart_shared(std::uint64_t start_etypes) {
  if (rank() == 0) shared.clean();
  shared.restart(start_etypes);
}

void File::State::open_shared(std::uint64_t start_etypes) {
  const std::string store_url = store::split_blob_url(url).first;
  // The pointer need not survive a power loss, which ends the job too.
  auto backend = store::open_backend(store_url, {.create = false, .durable = false});
  std::string name = store::Counter::new_name();
  if (comm)
    comm->run({.kind = CollectiveKind::bcast, .count = name.size()}, {}, std::as_writable_bytes(std::span(name)));
  shared = store::Counter(std::move(backend), std::move(name), start_etypes);
}

std::uint64_t File::State::sought(std::int64_t offset, Whence whence, std::uint64_t current) const {
  std::uint64_t origin = 0;
  if (whence == Whence::current) origin = current;
  if (whence == Whence::end) origin = map.data_before(newest().size_bytes()) / etype_bytes();
  const std::uint64_t target = origin + static_cast<std::uint64_t>(offset);
  if (offset < 0 ? static_cast<std::uint64_t>(-(offset + 1)) >= origin : target < origin) {
    throw Error(ErrorCode::invalid_argument, url + ": cannot seek by " + std::to_string(offset) + " from " +
                                                 std::to_string(origin) +
                                                 ", in etypes: the result is outside of the file");
  }
  return target;
}

}  // namespace penstock
