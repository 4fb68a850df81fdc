// Stops saves, drains, restores, removals, collections and repairs at each of their file system calls: the process is
// killed before the call, or the call fails. PENSTOCK_TEST_ALL=1 (`./dev test --all`) takes every call, else some of
// them.
//
// Invariant: afterwards the newest checkpoint, or version, that was reported durable or a newer one is there, whole,
// and a process that goes on finds nothing in its way. What is left over is garbage that a collection removes.
#include <gtest/gtest.h>

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "faults/traced_process.hpp"
#include "penstock/checkpoint.hpp"
#include "penstock/error.hpp"
#include "penstock/store.hpp"
#include "takes_all.hpp"
#include "unit/store/frequent_deltas.hpp"
#include "unit/store/temporary_directory.hpp"

#if PENSTOCK_TEST_CAN_TRACE

namespace penstock {
namespace {

using test::Injection;
using test::Traced;

/// What the traced process has been told. It is in memory that its parent shares.
struct Told {
  std::uint64_t fast = 0;     ///< the newest step that is durable in the burst buffer
  std::uint64_t drained = 0;  ///< likewise in the slow tier
  std::uint64_t version = 0;  ///< of a blob
  std::uint64_t errors = 0;
};

struct Scenario {
  const char* name;
  std::function<void(const std::string& root)> prepare;
  /// Runs in the traced process.
  std::function<void(const std::string& root, Told& told)> act;
  /// Runs afterwards, without faults.
  std::function<void(const std::string& root, const Told& told)> verify;
};

void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }

/// An error is what a user sees of a fault; it does not end the program.
template <typename Action>
bool tolerating(Told& told, const Action& action) {
  try {
    action();
    return true;
  } catch (const Error&) {
    ++told.errors;
    return false;
  }
}

std::string url(const std::string& root, const char* name) { return "file://" + root + "/" + name; }

void expect_sound(const std::string& url) {
  Store store(url, {.create = false});
  const CheckReport before = store.check();
  EXPECT_TRUE(before.problems.empty()) << before.problems.front();
  store.gc({.lease = std::chrono::seconds(0)});
  const CheckReport after = store.check();
  EXPECT_TRUE(after.problems.empty()) << "after gc: " << after.problems.front();
  EXPECT_EQ(after.garbage_objects, 0U);
}

// -- blobs ---------------------------------------------------------------------------------------------------------

constexpr std::uint64_t kBlobBytes = 100'000;
constexpr std::uint64_t kNoiseFrom = 64 << 10;
constexpr const char* kBlob = "field";

/// More than a record of a version holds itself, so there is a data object, of two chunks: the first one compresses
/// well, the second one not at all.
std::vector<std::byte> contents_of(std::uint64_t value) {
  std::vector<std::byte> data(kBlobBytes, static_cast<std::byte>(value));
  std::mt19937 noise(static_cast<unsigned>(value));
  for (std::uint64_t i = kNoiseFrom; i < kBlobBytes; ++i) data[i] = static_cast<std::byte>(noise());
  return data;
}

void write_value(Blob& blob, std::uint64_t value) {
  const std::vector<std::byte> data = contents_of(value);
  const WriteRegion region{0, data};
  blob.write(std::span(&region, 1));
}

/// The value of a version; fails the test if it is a mixture.
std::uint64_t stored_value(const Snapshot& snapshot) {
  EXPECT_EQ(snapshot.damage(), "");
  std::vector<std::byte> data(kBlobBytes);
  const ReadRegion region{0, data};
  snapshot.read(std::span(&region, 1));
  EXPECT_EQ(data, contents_of(std::to_integer<std::uint64_t>(data[0])));
  return std::to_integer<std::uint64_t>(data[0]);
}

/// `level`: see StoreOptions::compress_level.
void prepare_blob_with(int level, const std::string& root) {
  Store store(url(root, "store"), {.compress_level = level});
  Blob blob = store.create(kBlob, {.size_bytes = kBlobBytes});
  for (std::uint64_t value = 1; value <= 3; ++value) write_value(blob, value);
}

void prepare_blob(const std::string& root) { prepare_blob_with(0, root); }

/// All numbers of versions that were ever told have their values, which are equal to the numbers here.
void verify_blob(const std::string& root, const Told& told) {
  {
    Store store(url(root, "store"), {.create = false});
    Blob blob = store.open(kBlob);
    const std::uint64_t newest = stored_value(blob.snapshot());
    EXPECT_GE(newest, std::max<std::uint64_t>(told.version, 3));
    const std::uint64_t next = newest == 250 ? 251 : 250;
    write_value(blob, next);
    EXPECT_EQ(stored_value(blob.snapshot()), next);
    for (const BlobInfo& info : store.list()) {
      if (info.name != kBlob) {
        EXPECT_EQ(stored_value(store.open(info.name).snapshot()), 2U) << info.name;
      }
    }
    for (const Tag& tag : blob.tags()) EXPECT_EQ(stored_value(blob.snapshot(tag.version)), 3U) << tag.name;
  }
  expect_sound(url(root, "store"));
}

void write_and_tell_with(int level, const std::string& root, Told& told) {
  tolerating(told, [&] {
    Store store(url(root, "store"), {.create = false, .compress_level = level});
    Blob blob = store.open(kBlob);
    for (std::uint64_t value = 4; value <= 6; ++value) {
      if (tolerating(told, [&] { write_value(blob, value); })) told.version = value;
    }
  });
}

void write_and_tell(const std::string& root, Told& told) { write_and_tell_with(0, root, told); }

void manage_blob_with(int level, const std::string& root, Told& told) {
  tolerating(told, [&] {
    Store store(url(root, "store"), {.create = false, .compress_level = level});
    Blob blob = store.open(kBlob);
    tolerating(told, [&] { blob.tag("good", 3); });
    tolerating(told, [&] { store.clone(kBlob, 2, "copy"); });
    tolerating(told, [&] { blob.compact(3); });
    tolerating(told, [&] { store.remove("copy"); });
    tolerating(told, [&] { store.gc({.keep_last = 1, .lease = std::chrono::seconds(0)}); });
  });
}

void manage_blob(const std::string& root, Told& told) { manage_blob_with(0, root, told); }

/// The files in folders of that name, in the order of their own.
std::vector<std::filesystem::path> files_in(const std::string& root, const std::string& folder,
                                            const std::string& extension = "") {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    const bool fits = extension.empty() || entry.path().extension() == extension;
    if (fits && entry.is_regular_file() && entry.path().parent_path().filename() == folder) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// Flips a bit.
void damage(const std::filesystem::path& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(12);
  const char before = static_cast<char>(file.get());
  file.seekp(12);
  file.put(static_cast<char>(before ^ 4));
}

void prepare_damaged(const std::string& root) {
  prepare_blob(root);
  damage(files_in(root, "versions").at(1));
}

void repair_blob(const std::string& root, Told& told) {
  tolerating(told, [&] { Store(url(root, "store"), {.create = false}).repair({.apply = true}); });
}

void verify_repaired(const std::string& root, const Told& told) {
  Store store(url(root, "store"), {.create = false});
  const RepairReport repaired = store.repair({.apply = true});
  EXPECT_TRUE(repaired.remaining.empty()) << repaired.remaining.front();
  EXPECT_TRUE(store.repair({}).actions.empty());
  const Blob blob = store.open(kBlob);
  EXPECT_EQ(stored_value(blob.snapshot(1)), 1U);
  EXPECT_EQ(stored_value(blob.snapshot(2)), 1U);  // what version 2 wrote is lost
  verify_blob(root, told);
}

/// The same with a delta of each version, so of the damaged one, too: what it wrote is not lost.
void prepare_blob_with_deltas(const std::string& root) {
  const store::FrequentDeltas often(1);
  prepare_blob(root);
}

void write_with_deltas(const std::string& root, Told& told) {
  const store::FrequentDeltas often(1);
  write_and_tell(root, told);
}

void prepare_damaged_with_deltas(const std::string& root) {
  prepare_blob_with_deltas(root);
  damage(files_in(root, "versions").at(1));
}

void verify_repaired_with_deltas(const std::string& root, const Told& told) {
  Store store(url(root, "store"), {.create = false});
  EXPECT_EQ(stored_value(store.open(kBlob).snapshot(2)), 2U);
  EXPECT_EQ(stored_value(store.open(kBlob).snapshot(3)), 3U);
  store.repair({.apply = true});
  EXPECT_TRUE(store.repair({}).actions.empty());
  EXPECT_EQ(stored_value(store.open(kBlob).snapshot(2)), 2U);
  verify_blob(root, told);
}

constexpr int kLevel = 3;

void prepare_compressed(const std::string& root) {
  prepare_blob_with(kLevel, root);
  EXPECT_LT(std::filesystem::file_size(files_in(root, "data").at(0)), kNoiseFrom);
}

void write_compressed(const std::string& root, Told& told) { write_and_tell_with(kLevel, root, told); }

void manage_compressed(const std::string& root, Told& told) { manage_blob_with(kLevel, root, told); }

/// One object of each kind, or it is missing. What versions 1 and 2 wrote is lost.
void prepare_widely_damaged(const std::string& root) {
  prepare_blob_with(kLevel, root);
  {
    Store store(url(root, "store"), {.create = false});
    Blob blob = store.open(kBlob);
    blob.tag("bad", 2);
    blob.tag("good", 3);
    blob.compact(3);
  }
  damage(files_in(root, "tags").at(0));
  damage(files_in(root, "index").at(0));
  damage(files_in(root, "compact").at(0));
  damage(files_in(root, "catalog").at(0));
  damage(files_in(root, "data").at(0));
  std::filesystem::remove(files_in(root, "versions").at(1));
}

constexpr RepairOptions kRepairAll{.apply = true, .drop_damaged_data = true};

void repair_all(const std::string& root, Told& told) {
  tolerating(told, [&] { Store(url(root, "store"), {.create = false}).repair(kRepairAll); });
}

void verify_widely_repaired(const std::string& root, const Told& told) {
  Store store(url(root, "store"), {.create = false});
  const RepairReport repaired = store.repair(kRepairAll);
  EXPECT_TRUE(repaired.remaining.empty()) << repaired.remaining.front();
  EXPECT_TRUE(store.repair({.drop_damaged_data = true}).actions.empty());
  const Blob blob = store.open(kBlob);
  for (const std::uint64_t version : {1, 2}) {
    std::vector<std::byte> data(kBlobBytes, std::byte{1});
    const ReadRegion region{0, data};
    blob.read(std::span(&region, 1), version);
    EXPECT_EQ(data, std::vector<std::byte>(kBlobBytes)) << version;
  }
  ASSERT_EQ(blob.tags().size(), 1U);
  EXPECT_EQ(blob.tags()[0].name, "good");
  EXPECT_EQ(stored_value(blob.snapshot(3)), 3U);
  verify_blob(root, told);
}

// -- checkpoints ---------------------------------------------------------------------------------------------------

struct Form {
  bool in_blob;  ///< the slow tier
  bool burst_buffer;
  int compress_level = 0;
};

constexpr std::int64_t kElements = 5000;

/// What a job that went back saves.
constexpr const char* kAgain = "again";

std::vector<std::byte> state_of(std::uint64_t step, const std::string& metadata) {
  std::vector<std::byte> data(kElements * 4);
  const std::uint64_t first = step * 31 + (metadata == kAgain ? 100 : 0);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(first + i / 7);
  return data;
}

CheckpointerOptions options_of(const std::string& root, const Form& form) {
  CheckpointerOptions options;
  options.keep = 1;
  options.chunk_bytes = 4096;
  options.staging_buffers = 2;
  if (form.burst_buffer) options.burst_buffer = url(root, "fast");
  if (form.in_blob) options.run = "run";
  options.compress_level = form.compress_level;
  return options;
}

CheckpointPlace place_of(const std::string& root, const Form& form) {
  return {url(root, "slow"), form.burst_buffer ? url(root, "fast") : "", form.in_blob ? "run" : ""};
}

CheckpointHandle save(Checkpointer& checkpoints, std::uint64_t step, const std::string& metadata = "metadata") {
  static std::map<std::pair<std::uint64_t, std::string>, std::vector<std::byte>> states;
  const std::vector<std::byte>& state = states.try_emplace({step, metadata}, state_of(step, metadata)).first->second;
  return checkpoints.save(step, {{"v", DType::float32, Layout::whole({kElements}), state}}, metadata);
}

void expect_whole(const Restored& restored) {
  ASSERT_EQ(restored.arrays.size(), 1U);
  EXPECT_TRUE(std::ranges::equal(restored.arrays[0].local, state_of(restored.step, restored.metadata)))
      << "step " << restored.step;
}

void prepare_checkpoints(const std::string& root, const Form& form) {
  Checkpointer checkpoints(url(root, "slow"), options_of(root, form));
  for (const std::uint64_t step : {1, 2}) save(checkpoints, step).wait(CheckpointLevel::drained);
  checkpoints.finish();
}

/// Steps 1 to 3, all of which stay.
void prepare_three(const std::string& root, const Form& form) {
  CheckpointerOptions options = options_of(root, form);
  options.keep = 0;
  Checkpointer checkpoints(url(root, "slow"), options);
  for (const std::uint64_t step : {1, 2, 3}) save(checkpoints, step).wait(CheckpointLevel::drained);
  checkpoints.finish();
}

/// The first save takes the generation and removes what is older; that of step 4 overlaps the drain of step 3.
void save_checkpoints(const std::string& root, const Form& form, Told& told) {
  tolerating(told, [&] {
    Checkpointer checkpoints(url(root, "slow"), options_of(root, form));
    std::vector<CheckpointHandle> handles;
    const auto tell = [&] {
      for (CheckpointHandle& handle : handles) {
        const CheckpointLevel level = handle.level();
        if (level >= CheckpointLevel::fast) told.fast = std::max(told.fast, handle.step());
        if (level >= CheckpointLevel::drained) told.drained = std::max(told.drained, handle.step());
      }
    };
    for (std::uint64_t step = 3; step <= 5; ++step) {
      tolerating(told, [&] {
        handles.push_back(save(checkpoints, step));
        handles.back().wait(step == 3 ? CheckpointLevel::fast : CheckpointLevel::drained);
      });
      tell();
    }
    tolerating(told, [&] { checkpoints.finish(); });
    tell();
  });
}

void remove_checkpoints(const std::string& root, const Form& form, Told& told) {
  tolerating(told, [&] { remove_checkpoint(place_of(root, form), 2); });
}

/// `least`: the step that must be there in the slow tier, and in any tier.
void verify_checkpoints_of(const std::string& root, const Form& form, std::uint64_t least_slow,
                           std::uint64_t least_fast) {
  Form slow_only = form;
  slow_only.burst_buffer = false;
  for (const auto& [tiers, least] : {std::pair(slow_only, least_slow), std::pair(form, least_fast)}) {
    Checkpointer checkpoints(url(root, "slow"), options_of(root, tiers));
    const std::optional<Restored> restored = checkpoints.try_restore();
    EXPECT_EQ(restored.has_value() || least == 0, true);
    if (!restored) continue;
    EXPECT_GE(restored->step, least);
    EXPECT_TRUE(restored->warnings.empty()) << restored->warnings.front();
    expect_whole(*restored);
  }
  for (const CheckpointVerified& verified : verify_checkpoints(place_of(root, form))) {
    EXPECT_TRUE(verified.problems.empty()) << verified.tier << ": " << verified.problems.front();
  }
  // The next job finds nothing in its way, and leaves nothing of the dead one.
  {
    Checkpointer checkpoints(url(root, "slow"), options_of(root, form));
    for (const std::uint64_t step : {20, 21}) save(checkpoints, step).wait(CheckpointLevel::drained);
    checkpoints.finish();
    EXPECT_TRUE(checkpoints.warnings().empty()) << checkpoints.warnings().front();
    const Restored restored = checkpoints.restore();
    EXPECT_EQ(restored.step, 21U);
    expect_whole(restored);
    EXPECT_EQ(checkpoints.steps(), std::vector<std::uint64_t>{21});
  }
  if (form.in_blob) expect_sound(url(root, "slow"));
}

Scenario saving(const char* name, const Form& form) {
  return {name, [form](const std::string& root) { prepare_checkpoints(root, form); },
          [form](const std::string& root, Told& told) { save_checkpoints(root, form, told); },
          [form](const std::string& root, const Told& told) {
            verify_checkpoints_of(root, form, std::max<std::uint64_t>(told.drained, 2),
                                  std::max<std::uint64_t>({told.drained, told.fast, 2}));
          }};
}

Scenario removing(const char* name, const Form& form) {
  return {name, [form](const std::string& root) { prepare_checkpoints(root, form); },
          [form](const std::string& root, Told& told) { remove_checkpoints(root, form, told); },
          [form](const std::string& root, const Told&) { verify_checkpoints_of(root, form, 0, 0); }};
}

/// The steps of a list, of which each must come back as itself.
std::set<std::uint64_t> whole_steps(const std::string& root, const Form& form) {
  std::set<std::uint64_t> steps;
  Checkpointer checkpoints(url(root, "slow"), options_of(root, form));
  for (const CheckpointEntry& entry : list_checkpoints(place_of(root, form))) {
    EXPECT_EQ(entry.damage, "") << "step " << entry.step;
    RestoreOptions options;
    options.step = entry.step;
    const Restored restored = checkpoints.restore(options);
    EXPECT_EQ(restored.step, entry.step);
    expect_whole(restored);
    steps.insert(entry.step);
  }
  return steps;
}

/// Of three, the one in the middle, and then the newest one; `version` is the last that is said to be removed.
void remove_two(const std::string& root, const Form& form, Told& told) {
  for (const std::uint64_t step : {2, 3}) {
    if (tolerating(told, [&] { remove_checkpoint(place_of(root, form), step); })) told.version = step;
  }
}

void verify_two_removed(const std::string& root, const Form& form, const Told& told) {
  Form slow_only = form;
  slow_only.burst_buffer = false;
  for (const Form& tiers : {slow_only, form}) {
    const std::set<std::uint64_t> left = whole_steps(root, tiers);
    EXPECT_TRUE(left.contains(1));
    EXPECT_FALSE(left.contains(2) && told.version >= 2 && told.errors == 0);
    EXPECT_FALSE(left.contains(3) && told.version >= 3);
  }
  // Whoever removes them again ends it.
  for (const std::uint64_t step : {2, 3}) {
    try {
      remove_checkpoint(place_of(root, form), step);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::not_found) << error.what();
    }
  }
  for (const Form& tiers : {slow_only, form}) EXPECT_EQ(whole_steps(root, tiers), std::set<std::uint64_t>{1});
  verify_checkpoints_of(root, form, 1, 1);
}

Scenario removing_two(const char* name, const Form& form) {
  return {name, [form](const std::string& root) { prepare_three(root, form); },
          [form](const std::string& root, Told& told) { remove_two(root, form, told); },
          [form](const std::string& root, const Told& told) { verify_two_removed(root, form, told); }};
}

/// From step 3 to step 1. The new line ends the old one when it has drained step 3.
void go_back(const std::string& root, const Form& form, Told& told) {
  tolerating(told, [&] {
    Checkpointer checkpoints(url(root, "slow"), options_of(root, form));
    RestoreOptions options;
    options.step = 1;
    if (checkpoints.restore(options).step != 1) throw std::logic_error("restore() gave another step");
    for (const std::uint64_t step : {2, 3}) {
      save(checkpoints, step, kAgain).wait(CheckpointLevel::drained);
      told.drained = step;
    }
    checkpoints.finish();
  });
}

void verify_gone_back(const std::string& root, const Form& form, const Told& told) {
  {
    Checkpointer checkpoints(url(root, "slow"), options_of(root, form));
    const Restored restored = checkpoints.restore();
    EXPECT_TRUE(restored.warnings.empty()) << restored.warnings.front();
    expect_whole(restored);
    if (told.drained > 0) {
      EXPECT_EQ(restored.metadata, kAgain);
      EXPECT_GE(restored.step, told.drained);
    } else {
      EXPECT_TRUE(restored.metadata == kAgain || restored.step == 3) << restored.step;
    }
  }
  verify_checkpoints_of(root, form, 2, 2);
}

Scenario going_back(const char* name, const Form& form) {
  return {name, [form](const std::string& root) { prepare_three(root, form); },
          [form](const std::string& root, Told& told) { go_back(root, form, told); },
          [form](const std::string& root, const Told& told) { verify_gone_back(root, form, told); }};
}

/// The record and the index of step 2 are damaged.
void prepare_damaged_run(const std::string& root, const Form& form) {
  prepare_three(root, form);
  std::uint64_t version = 0;
  for (const Tag& tag : Store(url(root, "slow"), {.create = false}).open("run").tags()) {
    if (tag.name.starts_with("step-2.")) version = tag.version;
  }
  for (const char* const folder : {"versions", "index"}) {
    for (const std::filesystem::path& path : files_in(root, folder)) {
      if (std::stoull(path.filename()) == version) damage(path);
    }
  }
}

void repair_run(const std::string& root, Told& told) {
  tolerating(told, [&] { Store(url(root, "slow"), {.create = false}).repair({.apply = true}); });
}

void verify_repaired_run(const std::string& root, const Form& form) {
  {
    Store store(url(root, "slow"), {.create = false});
    const RepairReport repaired = store.repair({.apply = true});
    EXPECT_TRUE(repaired.remaining.empty()) << repaired.remaining.front();
    EXPECT_TRUE(store.repair({}).actions.empty());
  }
  // What step 2 wrote is lost, and its tag is not taken for another checkpoint. Step 3 wrote all chunks anew.
  for (const CheckpointEntry& entry : list_checkpoints(place_of(root, form))) {
    EXPECT_EQ(entry.damage.empty(), entry.step != 2) << entry.step << ": " << entry.damage;
  }
  remove_checkpoint(place_of(root, form), 2);
  EXPECT_EQ(whole_steps(root, form), (std::set<std::uint64_t>{1, 3}));
  verify_checkpoints_of(root, form, 3, 3);
}

Scenario repairing(const char* name, const Form& form) {
  return {name, [form](const std::string& root) { prepare_damaged_run(root, form); }, repair_run,
          [form](const std::string& root, const Told&) { verify_repaired_run(root, form); }};
}

/// Steps 3 and 4 of a job that died are in the burst buffer alone.
void prepare_undrained(const std::string& root, const Form& form) {
  prepare_checkpoints(root, form);
  // To a slow tier that is thrown away.
  std::filesystem::copy(root + "/slow", root + "/kept", std::filesystem::copy_options::recursive);
  CheckpointerOptions options = options_of(root, form);
  options.keep = 0;
  {
    Checkpointer checkpoints(url(root, "slow"), options);
    save(checkpoints, 3).wait(CheckpointLevel::drained);
    checkpoints.finish();
    // The second save would remove it from the burst buffer.
    std::filesystem::copy(root + "/fast", root + "/of-step-3", std::filesystem::copy_options::recursive);
    save(checkpoints, 4).wait(CheckpointLevel::drained);
    checkpoints.finish();
  }
  std::filesystem::copy(root + "/of-step-3", root + "/fast",
                        std::filesystem::copy_options::recursive | std::filesystem::copy_options::skip_existing);
  std::filesystem::remove_all(root + "/of-step-3");
  std::filesystem::remove_all(root + "/slow");
  std::filesystem::rename(root + "/kept", root + "/slow");
}

/// With `keep` = 2 both are drained, and step 2 goes.
void resume_drains_of(const std::string& root, const Form& form, Told& told) {
  tolerating(told, [&] {
    CheckpointerOptions options = options_of(root, form);
    options.keep = 2;
    Checkpointer checkpoints(url(root, "slow"), options);
    checkpoints.resume_drains();
    checkpoints.finish();
    told.errors += checkpoints.warnings().empty() ? 0 : 1;
    told.drained = told.errors == 0 ? 4 : 0;
  });
}

void verify_resumed(const std::string& root, const Form& form, const Told& told) {
  const CheckpointPlace place{url(root, "slow"), url(root, "fast"), form.in_blob ? "run" : ""};
  std::map<std::uint64_t, CheckpointEntry> held;
  for (const CheckpointEntry& entry : list_checkpoints(place)) held[entry.step] = entry;
  for (const std::uint64_t step : {3, 4}) {
    ASSERT_TRUE(held.contains(step)) << step;
    EXPECT_EQ(held[step].damage, "");
    EXPECT_TRUE(held[step].drained || held[step].fast);
    EXPECT_TRUE(held[step].drained || told.drained == 0);
  }
  // Another job ends it, whatever the dead one had begun.
  Told again;
  resume_drains_of(root, form, again);
  EXPECT_EQ(again.errors, 0U);
  for (const CheckpointEntry& entry : list_checkpoints({place.url, "", place.run})) held[entry.step] = entry;
  for (const std::uint64_t step : {3, 4}) EXPECT_EQ(name(held[step].state), "drained") << step;
  verify_checkpoints_of(root, form, 4, 4);
}

Scenario resuming(const char* name, const Form& form) {
  return {name, [form](const std::string& root) { prepare_undrained(root, form); },
          [form](const std::string& root, Told& told) { resume_drains_of(root, form, told); },
          [form](const std::string& root, const Told& told) { verify_resumed(root, form, told); }};
}

/// What comes back is whole, or an error.
Scenario restoring(const char* name, const Form& form) {
  return {name, [form](const std::string& root) { prepare_checkpoints(root, form); },
          [form](const std::string& root, Told& told) {
            tolerating(told, [&] {
              Checkpointer checkpoints(url(root, "slow"), options_of(root, form));
              const Restored restored = checkpoints.restore();
              const std::vector<std::byte> saved = state_of(restored.step, restored.metadata);
              if (!std::ranges::equal(restored.arrays.at(0).local, saved)) {
                throw std::logic_error("restore() gave wrong data");
              }
            });
          },
          [form](const std::string& root, const Told&) { verify_checkpoints_of(root, form, 2, 2); }};
}

// -- the enumeration -----------------------------------------------------------------------------------------------

class EveryCall : public testing::TestWithParam<Scenario> {
 protected:
  void SetUp() override {
    GetParam().prepare(directory_.path() + "/before");
    told_ = static_cast<Told*>(mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(told_, MAP_FAILED);
    try {
      test::run_traced(directory_.path(), {}, [] {});
    } catch (const std::system_error& error) {
      GTEST_SKIP() << "this system lets no process trace its child: " << error.what();
    }
  }
  void TearDown() override { munmap(told_, sizeof(Told)); }

  /// In a fresh copy of what was prepared.
  Traced run(const Injection& injection) {
    const std::string root = directory_.path() + "/now";
    std::filesystem::remove_all(root);
    std::filesystem::copy(directory_.path() + "/before", root, std::filesystem::copy_options::recursive);
    *told_ = {};
    return test::run_traced(root, injection, [&] { GetParam().act(root, *told_); });
  }

  void for_every_call(Injection injection) {
    Injection counting = injection;
    counting.what = Injection::What::nothing;
    const long calls = run(counting).calls;
    GetParam().verify(directory_.path() + "/now", *told_);
    ASSERT_EQ(told_->errors, 0U) << "without a fault";
    const long some = 8 / fewer_if_sanitized(2);
    const long stride = takes_all() ? 1 : std::max(1L, calls / some);
    // Threads run in another order each time, so the calls of one run may be a few more than those of another.
    for (long at = 1;; at += stride) {
      injection.at = at;
      const Traced traced = run(injection);
      SCOPED_TRACE("at call " + std::to_string(at) + " of " + std::to_string(calls) + ": " + traced.at);
      if (injection.what != Injection::What::kill || traced.at.empty()) {
        EXPECT_FALSE(traced.was_killed);
        EXPECT_EQ(traced.exit_status, 0);
      } else {
        EXPECT_TRUE(traced.was_killed);
      }
      try {
        GetParam().verify(directory_.path() + "/now", *told_);
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
      if (traced.at.empty() || HasFailure()) return;  // it made fewer calls
    }
  }

  const TemporaryDirectory directory_;
  Told* told_ = nullptr;
};

TEST_P(EveryCall, Killed) { for_every_call({.what = Injection::What::kill}); }

TEST_P(EveryCall, FailsOnce) { for_every_call({.what = Injection::What::fail_once, .error = EIO, .reads = true}); }

TEST_P(EveryCall, FullDisk) { for_every_call({.what = Injection::What::fail_on, .error = ENOSPC, .removes = false}); }

TEST_P(EveryCall, ReadOnlyFromThere) { for_every_call({.what = Injection::What::fail_on, .error = EROFS}); }

/// For what changes nothing.
class EveryRead : public EveryCall {};

TEST_P(EveryRead, Killed) { for_every_call({.what = Injection::What::kill, .reads = true}); }

TEST_P(EveryRead, FailsOnce) { for_every_call({.what = Injection::What::fail_once, .error = EIO, .reads = true}); }

const auto name_of_scenario = [](const auto& tested) { return std::string(tested.param.name); };

INSTANTIATE_TEST_SUITE_P(
    Faults, EveryCall,
    testing::Values(Scenario{"Write", prepare_blob, write_and_tell, verify_blob},
                    Scenario{"TagCloneCompactRemoveCollect", prepare_blob, manage_blob, verify_blob},
                    Scenario{"Repair", prepare_damaged, repair_blob, verify_repaired},
                    Scenario{"WriteWithDeltas", prepare_blob_with_deltas, write_with_deltas, verify_blob},
                    Scenario{"RepairWithDeltas", prepare_damaged_with_deltas, repair_blob, verify_repaired_with_deltas},
                    saving("SaveInFolder", {false, false}), saving("SaveAndDrainInFolders", {false, true}),
                    saving("SaveInBlob", {true, false}), saving("SaveAndDrainInBlob", {true, true}),
                    resuming("ResumeDrainsInFolders", {false, true}), resuming("ResumeDrainsInBlob", {true, true}),
                    removing("RemoveFromFolders", {false, true}), removing("RemoveFromBlob", {true, true}),
                    removing_two("RemoveTwoFromFolders", {false, true}),
                    removing_two("RemoveTwoFromBlob", {true, true}), going_back("GoBackInFolders", {false, true}),
                    going_back("GoBackInBlob", {true, true}), repairing("RepairRun", {true, false}),
                    Scenario{"WriteCompressed", prepare_compressed, write_compressed, verify_blob},
                    Scenario{"ManageCompressed", prepare_compressed, manage_compressed, verify_blob},
                    saving("SaveInBlobCompressed", {true, false, kLevel}),
                    saving("SaveAndDrainInBlobCompressed", {true, true, kLevel}),
                    Scenario{"RepairAll", prepare_widely_damaged, repair_all, verify_widely_repaired}),
    name_of_scenario);

INSTANTIATE_TEST_SUITE_P(Faults, EveryRead,
                         testing::Values(restoring("RestoreFromFolders", {false, true}),
                                         restoring("RestoreFromBlob", {true, true})),
                         name_of_scenario);

}  // namespace
}  // namespace penstock

#endif
