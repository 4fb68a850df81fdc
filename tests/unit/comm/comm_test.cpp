// Tests what the communicator adds to the engine. The ranks are threads of this process.
#include "penstock/comm.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/state.hpp"
#include "local_transport.hpp"
#include "penstock/error.hpp"
#include "penstock/options.hpp"
#include "unit/comm/debug_level.hpp"
#include "unit/comm/outcomes.hpp"

namespace penstock::comm {
namespace {

void run_ranks(int size, const std::function<void(Comm&)>& body) {
  auto transports = engine::make_local_transports(std::vector<std::int32_t>(static_cast<std::size_t>(size)));
  std::vector<std::thread> threads;
  for (auto& transport : transports)
    threads.emplace_back([&body, transport = std::move(transport)]() mutable {
      try {
        Comm comm = make_comm([&transport] { return std::move(transport); }, {.progress_cores = 0});
        body(comm);
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

/// The error to detect. It is a data race: the thread of another rank may be reading the element.
[[gnu::noinline, gnu::no_sanitize("thread")]] void change_too_early(std::int32_t& element) { element = 2; }

TEST(Requests, AreDoneWithoutATestOfTheirOwn) {
  run_ranks(2, [](Comm& comm) {
    std::vector<std::int32_t> in(2, 1), out(2);
    const auto start = [&](std::size_t at) {
      return comm.start({.kind = CollectiveKind::allreduce, .count = 1, .dtype = DType::int32},
                        std::as_bytes(std::span(in).subspan(at, 1)),
                        std::as_writable_bytes(std::span(out).subspan(at, 1)));
    };
    EXPECT_TRUE(Request().done());
    Request first = start(0);
    Request second = start(1);
    second.wait();
    while (!first.test()) {
    }
    EXPECT_TRUE(first.done());
    EXPECT_TRUE(second.done());
    EXPECT_EQ(out, std::vector<std::int32_t>(2, 2));
    // A test of the one that is not complete moves both on.
    first = start(0);
    second = start(1);
    while (!first.done() || !second.done()) static_cast<void>((first.done() ? second : first).test());
    EXPECT_TRUE(first.test() && second.test());
  });
}

TEST(RunAgain, RunsWhatHasRunWithOtherBuffersOnly) {
  run_ranks(2, [](Comm& comm) {
    const PlainCall sum{.kind = CollectiveKind::allreduce, .dtype = DType::int32, .count = 2};
    std::vector<std::int32_t> in(2, 1), out(2), later(2, 5);
    EXPECT_FALSE(comm.run_again(sum, in.data(), out.data())) << "it has not run";
    const auto run = [&] {
      comm.run(sum.collective(), std::as_bytes(std::span(in)), std::as_writable_bytes(std::span(out)));
    };
    run();
    EXPECT_TRUE(comm.run_again(sum, later.data(), out.data()));
    EXPECT_EQ(out, std::vector<std::int32_t>(2, 10));
    // run() reports these.
    EXPECT_FALSE(comm.run_again(sum, nullptr, out.data()));
    EXPECT_FALSE(comm.run_again(sum, in.data(), nullptr));
    EXPECT_FALSE(comm.run_again(sum, out.data() + 1, out.data()));
    EXPECT_NE(comm.report().find("ran 2 times: allreduce/"), std::string::npos) << comm.report();
    comm.use(CollectiveKind::allreduce, "recursive_doubling");
    EXPECT_FALSE(comm.run_again(sum, in.data(), out.data())) << "its meaning has changed";
    run();
    EXPECT_TRUE(comm.run_again(sum, in.data(), out.data()));
    EXPECT_NE(comm.report().find("ran 2 times: allreduce/recursive_doubling"), std::string::npos) << comm.report();
  });
}

TEST(RunAgain, LeavesCallsToTheChecksOfDebugLevel1) {
  const DebugLevel level(1);
  run_ranks(2, [](Comm& comm) {
    const PlainCall barrier{};
    comm.run(barrier.collective(), {}, {});
    EXPECT_FALSE(comm.run_again(barrier, nullptr, nullptr));
  });
}

TEST(Debug, ASendBufferThatChangesTooEarlyIsAnError) {
  const DebugLevel level(1);
  run_ranks(3, [](Comm& comm) {
    for (const CollectiveKind kind : {CollectiveKind::reduce, CollectiveKind::bcast}) {
      std::vector<std::int32_t> in(1000, 1);
      std::vector<std::int32_t> out(1000, 1);
      const Collective collective{.kind = kind, .count = 1000, .dtype = DType::int32, .root = 1};
      const auto start = [&] {
        return comm.start(collective, std::as_bytes(std::span(in)), std::as_writable_bytes(std::span(out)));
      };
      start().wait();  // no change, no error

      std::vector<std::int32_t>& sent = kind == CollectiveKind::bcast ? out : in;
      Request request = start();
      if (comm.rank() == 1) change_too_early(sent[999]);
      if (comm.rank() == 1) {
        try {
          request.wait();
          ADD_FAILURE() << name(kind) << ": nothing was noticed";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
          EXPECT_NE(std::string(error.what()).find(std::string(name(kind)) + ": the send buffer changed"),
                    std::string::npos)
              << error.what();
        }
        EXPECT_NO_THROW(request.wait()) << "delivered once";
      } else {
        request.wait();
      }
    }
  });
}

// Other requests are in flight meanwhile. The thread sanitizer checks what the threads share.
TEST(Debug, SeveralThreadsMayWaitForARequest) {
  const DebugLevel level(1);
  run_ranks(2, [](Comm& comm) {
    for (int turn = 0; turn < 50; ++turn) {
      std::vector<std::int32_t> in(1000, 1);
      std::vector<std::int32_t> out(1000);
      std::vector<std::int32_t> more(1000);
      const Collective collective{.kind = CollectiveKind::allreduce, .count = 1000, .dtype = DType::int32};
      const auto start = [&](std::vector<std::int32_t>& into) {
        return comm.start(collective, std::as_bytes(std::span(in)), std::as_writable_bytes(std::span(into)));
      };
      Request first = start(out);
      Request second = start(more);
      const auto wait = [&](Request request, bool tests) {
        try {
          while (tests && !request.test()) std::this_thread::yield();
          request.wait();
        } catch (const Error& error) {
          ADD_FAILURE() << error.what();
        }
      };
      std::thread tester(wait, first, true);
      std::thread waiter(wait, first, false);
      wait(second, false);
      wait(first, false);
      tester.join();
      waiter.join();
      EXPECT_EQ(out[999] + more[999], 4);
    }
  });
}

// At least one of the waiting threads gets the error.
TEST(Debug, ADifferenceIsToldToOneOfTheThreadsThatWait) {
  const DebugLevel level(1);
  run_ranks(2, [](Comm& comm) {
    for (int turn = 0; turn < 50; ++turn) {
      std::vector<std::int32_t> in(10, 1);
      std::vector<std::int32_t> out(10);
      Request request = comm.start({.kind = CollectiveKind::allreduce,
                                    .count = 10,
                                    .dtype = DType::int32,
                                    .op = comm.rank() == 0 ? ReduceOp::sum : ReduceOp::max},
                                   std::as_bytes(std::span(in)), std::as_writable_bytes(std::span(out)));
      std::atomic<int> told{0};
      const auto wait = [&] {
        try {
          request.wait();
        } catch (const Error& error) {
          told += error.code() == ErrorCode::mismatch ? 1 : 0;
        }
      };
      std::thread other(wait);
      wait();
      other.join();
      EXPECT_GE(told, 1);
    }
  });
}

TEST(Scan, EachRankChoosesWhetherItIsInPlace) {
  constexpr int kRanks = 4;
  for (const std::vector<std::int32_t>& nodes : {std::vector<std::int32_t>{0, 0, 0, 0}, {0, 0, 1, 1}})
    for (const std::int64_t debug : {0, 1})
      for (const Algorithm& row : algorithms()) {
        if (row.kind != CollectiveKind::scan && row.kind != CollectiveKind::exscan) continue;
        const DebugLevel level(debug);
        const auto errors = outcomes(nodes, [&](Comm& comm) {
          Collective collective{.kind = row.kind, .count = 5000, .dtype = DType::int32};
          if (row.name.find("shared") != std::string_view::npos) collective.count = 16;
          if (!row.fits(comm.team(), collective)) return;
          collective.algorithm = row.name;
          collective.segment_bytes = 4096;
          collective.in_place = comm.rank() % 2 == 1;
          const std::vector<std::int32_t> in(collective.count, comm.rank() + 1);
          std::vector<std::int32_t> out = in;
          const bool receives = collective.kind == CollectiveKind::scan || comm.rank() > 0;
          comm.run(collective, collective.in_place ? ConstBytes{} : std::as_bytes(std::span(in)),
                   receives ? std::as_writable_bytes(std::span(out)) : Bytes{});
          const int last = collective.kind == CollectiveKind::scan ? comm.rank() + 1 : comm.rank();
          if (receives) {
            EXPECT_EQ(out, std::vector<std::int32_t>(collective.count, last * (last + 1) / 2));
          }
        });
        for (int rank = 0; rank < kRanks; ++rank)
          EXPECT_FALSE(errors[static_cast<std::size_t>(rank)])
              << name(row.kind) << "/" << row.name << ": " << errors[static_cast<std::size_t>(rank)]->what();
      }
}

TEST(Report, SaysWhatRanHowOftenAndWhy) {
  const std::string prefix = testing::TempDir() + "penstock-report";
  const std::string path = prefix + "." + std::to_string(::getpid()) + ".jsonl";
  std::filesystem::remove(path);
  options().report = prefix;
  const bool measured = std::exchange(options().measure_algorithms, false);  // what is the fastest here is not known
  run_ranks(2, [](Comm& comm) {
    std::vector<std::int32_t> in(100'000, 1);
    std::vector<std::int32_t> out(100'000);
    const Collective collective{.kind = CollectiveKind::allreduce, .count = in.size(), .dtype = DType::int32};
    for (int i = 0; i < 3; ++i)
      comm.run(collective, std::as_bytes(std::span(in)), std::as_writable_bytes(std::span(out)));
    EXPECT_NE(comm.report().find("ran 3 times: allreduce/staged, 100000 x int32"), std::string::npos) << comm.report();
  });
  options().measure_algorithms = measured;
  options().report.clear();
  std::ifstream file(path);
  std::vector<json::Value> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(json::Value::parse(line));
  ASSERT_EQ(lines.size(), 2u) << "one per rank";
  for (const json::Value& line : lines) {
    EXPECT_EQ(line.at("ranks").number(), 2u);
    bool found = false;
    for (const json::Value& plan : line.at("plans").items())
      found = found || (plan.at("algorithm").text() == "allreduce/staged" && plan.at("runs").number() == 3);
    EXPECT_TRUE(found);
  }
}

TEST(Explain, NamesTheSplitAndTheCores) {
  run_ranks(2, [](Comm& comm) {
    const std::string text = comm.explain({.kind = CollectiveKind::reduce, .count = 1 << 20, .split = 1});
    EXPECT_NE(text.find("\"algorithm\": \"reduce/tree\""), std::string::npos) << text;
    EXPECT_NE(text.find("\"split\": 1"), std::string::npos) << text;
    EXPECT_NE(text.find("\"progress_cores\": 0"), std::string::npos) << text;
  });
}

// Rank 0 reads the table for all ranks. It refuses a table for other runs with a reason, and the defaults stay.
TEST(Tuning, IsTheSameOnAllRanksOrNotUsed) {
  const std::string path = testing::TempDir() + "penstock-tuning-" + std::to_string(::getpid()) + ".json";
  const Collective collective{.kind = CollectiveKind::bcast, .count = 4096};
  std::string key;
  run_ranks(3, [&](Comm& comm) {
    if (comm.rank() == 0) key = comm.tuning_key();
  });
  const auto write = [&](const std::string& of_key) {
    std::ofstream(path) << R"({"format": "penstock-tuning", "version": 1, "tables": [)"
                        << of_key.substr(0, of_key.size() - 1)
                        << R"(, "operations": [{"operation": "bcast", "points": [{"bytes": 4096,
                              "native_nanoseconds": 0, "candidates": [{"algorithm": "chain", "segment_bytes": 1024,
                              "nanoseconds": 1000}]}]}]}]})";
  };
  options().tuning = path;
  write(key);
  run_ranks(3, [&](Comm& comm) {
    EXPECT_NE(comm.explain(collective).find("tuned: "), std::string::npos) << comm.explain(collective);
    EXPECT_NE(comm.explain(collective).find("bcast/chain"), std::string::npos) << comm.explain(collective);
    EXPECT_NE(comm.report().find("measured choices at 1 points"), std::string::npos) << comm.report();
    std::vector<std::byte> data(4096, static_cast<std::byte>(comm.rank() == 0));
    comm.run(collective, {}, data);
    EXPECT_EQ(data.back(), std::byte{1});
  });
  run_ranks(2, [&](Comm& comm) {
    EXPECT_EQ(comm.explain(collective).find("tuned: "), std::string::npos) << comm.explain(collective);
    EXPECT_NE(comm.report().find("placement is '0*3', here it is '0*2'"), std::string::npos) << comm.report();
  });
  std::ofstream(path) << "{ torn";
  run_ranks(2, [&](Comm& comm) {
    EXPECT_EQ(comm.explain(collective).find("tuned: "), std::string::npos) << comm.explain(collective);
    EXPECT_NE(comm.report().find("is not used"), std::string::npos) << comm.report();
  });
  options().tuning = path + ".missing";
  run_ranks(2,
            [&](Comm& comm) { EXPECT_NE(comm.report().find("cannot be opened"), std::string::npos) << comm.report(); });
  options().tuning.clear();
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace penstock::comm
