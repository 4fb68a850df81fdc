// A job is stopped before each change that its save makes, and a newer job takes the place over. Then the older one
// goes on, and dies some changes later or not at all.
#include <gtest/gtest.h>

#include <mutex>

#include "takes_all.hpp"
#include "unit/checkpoint/faulty_backend.hpp"
#include "unit/checkpoint/vector.hpp"

namespace penstock::checkpoint::test {
namespace {

using Level = CheckpointLevel;

constexpr std::int64_t kLength = 3000;  // more than a record of a blob holds itself

Vector vector_of(const Rank& rank, std::uint64_t step) {
  Vector vector(rank, step, kLength);
  vector.with_frozen();
  return vector;
}

class TwoJobs {
 public:
  TwoJobs(bool in_blob, bool burst_buffer)
      : tiers(in_blob ? blob_and_folder : folders), fast(burst_buffer ? memory() : nullptr) {
    older.ranks = 2;
    older.options.keep = 1;
    older.options.chunk_bytes = 512;
    older.tiers = [this](int) {
      return tiers(std::make_shared<FaultyBackend>(slow, faults),
                   fast ? std::make_shared<FaultyBackend>(fast, faults) : nullptr);
    };
    newer = older;
    newer.ranks = 3;
    newer.tiers = [this](int) { return tiers(slow, fast); };
  }

  /// The older job is stopped before change `at` of its save of step 20, until the newer one has saved. Then it makes
  /// `dies_after` more changes; negative: it goes on. Returns whether the save makes that many changes.
  bool run(long at, long dies_after) {
    std::uint64_t begun_with = 0;
    std::mutex told;
    Level acknowledged = Level::staged;
    std::atomic<long> left{-1};
    faults->on_change = [&](const std::string&, const store::Backend&, const std::string&, Faults::When when) {
      if (when == Faults::When::after || left < 0 || left-- != 0) return;
      begun_with = take_over();
      if (dies_after >= 0) faults->power_loss_at = faults->changes + dies_after;
    };
    run_ranks(older, [&](Rank& rank) {
      rank.save(10, vector_of(rank, 10).arrays).wait(Level::drained);
      rank.saver().finish();
      agree(rank.peers(), "arming", [&] {
        if (rank.rank() == 0) left = at;
        return Done{};
      });
      CheckpointHandle handle = rank.save(20, vector_of(rank, 20).arrays);
      const auto expect_fenced = [&](const Error& error) {
        if (faults->power_loss_at >= 0) return;
        // Rank 0 looks for newer jobs. Another rank does so, too, if such a job has removed what it drains; it may be
        // the only one for which that is missing.
        EXPECT_TRUE(error.code() == ErrorCode::fenced || error.code() == ErrorCode::peer_failed) << error.what();
        EXPECT_NE(error.message().find("job 2 (host "), std::string::npos) << error.message();
      };
      try {
        handle.wait(Level::drained);
        rank.saver().finish();
      } catch (const Error& error) {
        expect_fenced(error);
      }
      {
        const std::lock_guard lock(told);
        acknowledged = std::max(acknowledged, handle.level());
      }
      agree(rank.peers(), "meeting", [] { return Done{}; });
      if (begun_with == 0) return;
      // From now on nothing of this job counts.
      try {
        rank.save(30, vector_of(rank, 30).arrays).wait(Level::fast);
        ADD_FAILURE() << "a save of the older job was acknowledged";
      } catch (const Error& error) {
        expect_fenced(error);
      }
    });
    faults->on_change = [](const std::string&, const store::Backend&, const std::string&, Faults::When) {};
    if (begun_with == 0) return false;
    // What was acknowledged was there for the newer job, and stays.
    if (acknowledged >= Level::fast) {
      EXPECT_EQ(begun_with, 20u);
      run_ranks(newer, [&](Rank& rank) {
        RestoreOptions options;
        options.step = 20;
        expect_vector(rank.restore(options), 20, kLength);
      });
    }
    expect_newer_job_won();
    // Once a third job has passed all steps, nothing else is left.
    run_ranks(newer, [&](Rank& rank) {
      rank.save(100, vector_of(rank, 100).arrays).wait(Level::drained);
      rank.saver().finish();
      EXPECT_TRUE(rank.saver().warnings().empty());
    });
    const Tiers afterwards = tiers(slow, fast);
    for (const auto& tier : {afterwards.slow, afterwards.fast}) {
      if (!tier) continue;
      EXPECT_EQ(complete_steps(*tier), std::vector<std::uint64_t>{100});
      for (const auto& [version, holding] : tier->list())
        EXPECT_TRUE(holding.complete() || holding.ranks.empty()) << describe(version);
    }
    return true;
  }

 private:
  /// The newer job goes on from the newest checkpoint, and then from step 4, which is a rollback. Returns the step that
  /// it began with.
  std::uint64_t take_over() {
    std::uint64_t begun_with = 0;
    run_ranks(newer, [&](Rank& rank) {
      const Restored restored = rank.restore();
      expect_vector(restored, restored.step, kLength);
      EXPECT_TRUE(restored.warnings.empty());
      rank.save(4, vector_of(rank, 4).arrays).wait(Level::drained);
      if (rank.rank() == 0) begun_with = restored.step;
    });
    return begun_with;
  }

  /// The newest is step 4 of the newer job. What else is there is whole.
  void expect_newer_job_won() {
    run_ranks(newer, [&](Rank& rank) {
      const Restored newest = rank.restore();
      expect_vector(newest, 4, kLength);
      EXPECT_TRUE(newest.warnings.empty());
      const std::vector<Version> versions = complete_versions(rank.saver().tiers());
      agree(rank.peers(), "listing", [] { return Done{}; });
      for (const Version& version : versions) {
        RestoreOptions options;
        options.step = version.step;
        const Restored restored = rank.restore(options);
        expect_vector(restored, version.step, kLength);
        EXPECT_TRUE(restored.warnings.empty()) << restored.warnings[0];
      }
    });
  }

  const std::function<Tiers(std::shared_ptr<store::Backend>, std::shared_ptr<store::Backend>)> tiers;
  const std::shared_ptr<store::Backend> slow = memory();
  const std::shared_ptr<store::Backend> fast;
  const std::shared_ptr<Faults> faults = std::make_shared<Faults>();
  World older;
  World newer;
};

struct Form {
  const char* name;
  bool in_blob;
  bool burst_buffer;
};

void PrintTo(const Form& form, std::ostream* out) { *out << form.name; }

class Fence : public testing::TestWithParam<Form> {};

TEST_P(Fence, AnOlderJobNeverSavesOverANewerOne) {
  const long stride = fewer_if_sanitized(3);
  for (const long dies_after : {-1L, 0L, 1L, 2L, 3L}) {
    for (long at = (dies_after + 1) % stride;; at += stride) {
      SCOPED_TRACE("stopped before change " + std::to_string(at) + ", then " + std::to_string(dies_after) + " changes");
      ASSERT_LT(at, 50);
      if (!TwoJobs(GetParam().in_blob, GetParam().burst_buffer).run(at, dies_after)) {
        EXPECT_GT(at, 4);
        break;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, Fence,
                         testing::Values(Form{"Direct", false, false}, Form{"WithBurstBuffer", false, true},
                                         Form{"InABlob", true, false}, Form{"InABlobWithBurstBuffer", true, true}),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace penstock::checkpoint::test
