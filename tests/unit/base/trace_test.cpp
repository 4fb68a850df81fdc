#include "penstock/trace.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace penstock::trace {
namespace {

TEST(Trace, RecordsNothingUnlessStarted) {
  stop();
  take();
  { const Span span("reduce", "progress", 8); }
  EXPECT_TRUE(take().empty());
}

TEST(Trace, CollectsTheSpansOfAllThreadsInOrder) {
  start();
  take();
  {
    const Span outer("outer", "application");
    std::thread([] { const Span inner("inner \"quoted\"", "progress", 42); }).join();
  }
  stop();
  const auto events = take();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_STREQ(events[0].name, "outer");
  EXPECT_LE(events[0].begin_ns, events[1].begin_ns);
  EXPECT_GE(events[0].end_ns, events[1].end_ns);
  EXPECT_NE(events[0].thread, events[1].thread);
  EXPECT_EQ(events[1].bytes, 42u);
  const std::string json = to_json(events, 3);
  EXPECT_NE(json.find("\"pid\":3"), std::string::npos);
  EXPECT_NE(json.find("inner \\\"quoted\\\""), std::string::npos);
  EXPECT_TRUE(take().empty());
}

TEST(Trace, InternedNamesAreOnePerText) {
  EXPECT_EQ(intern("allreduce/ring"), intern(std::string("allreduce/") + "ring"));
}

}  // namespace
}  // namespace penstock::trace
