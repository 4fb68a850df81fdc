// A burst buffer that is local to nodes, with copies on partners: one node is lost at any moment, with its burst
// buffer.
#include <gtest/gtest.h>

#include <mutex>

#include "checkpoint/partners.hpp"
#include "unit/checkpoint/faulty_backend.hpp"
#include "unit/checkpoint/vector.hpp"

namespace penstock::checkpoint::test {
namespace {

using Level = CheckpointLevel;

constexpr std::int64_t kPartnerElements = 3000;

struct Nodes {
  std::vector<int> of_rank;
  std::shared_ptr<store::Backend> slow = memory();
  std::vector<std::shared_ptr<store::Backend>> fast;

  explicit Nodes(std::vector<int> nodes) : of_rank(std::move(nodes)) {
    for (int node = 0; node <= *std::max_element(of_rank.begin(), of_rank.end()); ++node) fast.push_back(memory());
  }

  World world() const {
    World world;
    world.ranks = static_cast<int>(of_rank.size());
    world.nodes = of_rank;
    world.options.burst_buffer = "memory:";
    world.options.partner_copies = true;
    world.options.keep = 1;
    world.options.chunk_bytes = 512;
    world.tiers = [this](int rank) {
      return folders(slow, fast[static_cast<std::size_t>(of_rank[static_cast<std::size_t>(rank)])]);
    };
    return world;
  }
};

/// The slow tier takes no data of one step, so its checkpoint is in the burst buffers only.
World undrained(const Nodes& nodes, std::uint64_t step) {
  World world = nodes.world();
  const auto faults = std::make_shared<Faults>();
  faults->on_change = [step](const std::string&, const store::Backend&, const std::string& key, Faults::When) {
    if (key == data_key({step, 1, 1}, 0)) throw Error(ErrorCode::io, "the slow tier is full");
  };
  world.tiers = [&nodes, faults](int rank) {
    return folders(std::make_shared<FaultyBackend>(nodes.slow, faults),
                   nodes.fast[static_cast<std::size_t>(nodes.of_rank[static_cast<std::size_t>(rank)])]);
  };
  return world;
}

TEST(Partners, AreAPermutationOverOtherNodes) {
  for (const std::vector<int>& nodes :
       {std::vector<int>{0, 1}, {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 1, 2}, {2, 1, 1, 0, 0, 0}, {0, 1, 2, 3, 4}}) {
    std::set<int> keepers;
    for (int rank = 0; rank < static_cast<int>(nodes.size()); ++rank) {
      const Partners partners = partners_of(nodes, rank);
      keepers.insert(partners.keeper);
      EXPECT_NE(nodes[static_cast<std::size_t>(rank)], nodes[static_cast<std::size_t>(partners.keeper)]);
      EXPECT_EQ(partners_of(nodes, partners.keeper).kept, rank);
    }
    EXPECT_EQ(keepers.size(), nodes.size());
  }
  EXPECT_THROW(partners_of({0, 0, 0, 1}, 0), Error);
  EXPECT_THROW(partners_of({0}, 0), Error);
}

TEST(PartnerCopies, OutliveTheLossOfEachNode) {
  for (const std::vector<int>& of_rank : {std::vector<int>{0, 1}, {0, 0, 1, 1}, {0, 1, 2, 0}}) {
    for (int lost = 0; lost <= *std::max_element(of_rank.begin(), of_rank.end()); ++lost) {
      SCOPED_TRACE("node " + std::to_string(lost) + " of " + std::to_string(of_rank.size()) + " ranks");
      Nodes nodes(of_rank);
      run_ranks(undrained(nodes, 2), [&](Rank& rank) {
        rank.save(1, Vector(rank, 1, kPartnerElements).arrays).wait(Level::drained);
        rank.saver().finish();
        CheckpointHandle handle = rank.save(2, Vector(rank, 2, kPartnerElements).arrays);
        EXPECT_THROW(rank.saver().finish(), Error);
        EXPECT_EQ(handle.level(), Level::fast);
      });
      nodes.fast[static_cast<std::size_t>(lost)] = memory();
      for (const int ranks : {static_cast<int>(of_rank.size()), 1}) {
        World world = nodes.world();
        world.ranks = ranks;
        world.nodes.resize(static_cast<std::size_t>(ranks));
        world.options.partner_copies = false;
        if (ranks == 1 && lost == 0) continue;  // its own node is the lost one
        if (ranks == 1 && nodes.fast.size() > 2) continue;
        run_ranks(world, [&](Rank& rank) {
          const Restored restored = rank.restore();
          EXPECT_TRUE(restored.warnings.empty()) << restored.warnings.front();
          expect_vector(restored, 2, kPartnerElements);
        });
      }
      // The next job drains, and leaves nothing of it.
      run_ranks(nodes.world(), [&](Rank& rank) {
        rank.save(3, Vector(rank, 3, kPartnerElements).arrays).wait(Level::drained);
        rank.saver().finish();
        expect_vector(rank.restore(), 3, kPartnerElements);
        EXPECT_TRUE(rank.saver().warnings().empty());
      });
      for (const auto& fast : nodes.fast) {
        for (const auto& [version, holding] : folder_tier(fast)->list()) {
          EXPECT_EQ(version.step, 3U) << "data of ranks is left over: " << holding.ranks.size();
        }
      }
    }
  }
}

/// The power of all nodes fails before any change of a burst buffer, and each node in turn never comes back.
TEST(PartnerCopies, AreWholeWheneverPowerFails) {
  bool survived = false;
  for (long at = 0; !survived; ++at) {
    ASSERT_LT(at, 1000);
    for (std::size_t lost = 0; lost < 2; ++lost) {
      SCOPED_TRACE("power fails before change " + std::to_string(at) + ", node " + std::to_string(lost) + " is lost");
      Nodes nodes({0, 1});
      const auto faults = std::make_shared<Faults>();
      World world = nodes.world();
      world.tiers = [&](int rank) {
        return folders(std::make_shared<FaultyBackend>(nodes.slow, faults),
                       std::make_shared<FaultyBackend>(nodes.fast[static_cast<std::size_t>(rank)], faults));
      };
      std::mutex mutex;
      std::uint64_t reported = 0;
      run_ranks(world, [&](Rank& rank) {
        rank.save(1, Vector(rank, 1, kPartnerElements).arrays).wait(Level::drained);
        rank.saver().finish();
        agree(rank.peers(), "arming", [&] {
          if (rank.rank() == 0) {
            faults->changes = 0;
            faults->power_loss_at = at;
          }
          return Done{};
        });
        std::vector<CheckpointHandle> handles;
        for (const std::uint64_t step : {2, 3}) {
          try {
            handles.push_back(rank.save(step, Vector(rank, step, kPartnerElements).arrays));
            handles.back().wait(Level::fast);
          } catch (const Error&) {
          }
        }
        try {
          rank.saver().finish();
        } catch (const Error&) {
        }
        const std::lock_guard lock(mutex);
        for (CheckpointHandle& handle : handles) {
          if (handle.level() >= Level::fast) reported = std::max(reported, handle.step());
        }
      });
      survived = faults->changes <= at;
      nodes.fast[lost] = memory();
      run_ranks(nodes.world(), [&](Rank& rank) {
        const Restored restored = rank.restore();
        EXPECT_GE(restored.step, std::max<std::uint64_t>(reported, 1));
        expect_vector(restored, restored.step, kPartnerElements);
        rank.save(10, Vector(rank, 10, kPartnerElements).arrays).wait(Level::drained);
        rank.saver().finish();
        expect_vector(rank.restore(), 10, kPartnerElements);
      });
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace penstock::checkpoint::test
