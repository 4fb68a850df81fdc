#include "base/json.hpp"

#include <gtest/gtest.h>

#include "penstock/error.hpp"

namespace penstock::json {
namespace {

TEST(Json, RefusesWhatIsNone) {
  for (const char* text : {"", "{", "[1,", "{\"a\" 1}", "\"\\q\"", "\"\\u12\"", "tru", "[1] 2", "\"abc", "{1: 2}"}) {
    EXPECT_THROW(Value::parse(text), Error) << text;
  }
  EXPECT_THROW(Value::parse(std::string(1'000'000, '[')), Error);
  EXPECT_THROW(Value::parse("\"\xff\""), Error);
  EXPECT_THROW(Value::parse("1.5").number(), Error);
  EXPECT_THROW(Value::parse("\"7\"").number(), Error);
  EXPECT_THROW(Value::parse("[7]").at("a"), Error);
  EXPECT_THROW(Value::parse("-1").number(), Error);
  EXPECT_THROW(Value::parse("18446744073709551616").number(), Error);
  EXPECT_EQ(Value::parse(" {\"a\": [1, {\"b\": null}, true, \"\\u000a\\\"\"]} ").at("a").items()[3].text(), "\n\"");
}

TEST(Json, WhatIsWrittenIsRead) {
  const std::string nasty = "a \"quoted\" \\ line\nand a tab\t";
  const std::string text = Object().string("text", nasty).number("number", 7u).raw("list", "[1, 2]").finish();
  const Value value = Value::parse(text);
  EXPECT_EQ(value.at("text").text(), nasty);
  EXPECT_EQ(value.at("number").number(), 7u);
  EXPECT_EQ(value.at("list").items().size(), 2u);
  EXPECT_EQ(Object().finish(), "{}");
}

TEST(Json, ReadsWhatOthersWrite) {
  const Value value =
      Value::parse(R"({"text": "\u00e9\ud83d\ude00\/", "a": {"b": [[], {}, false, -1, 2.5e3]}, "text": 1})");
  EXPECT_EQ(value.at("text").text(), "\xc3\xa9\xf0\x9f\x98\x80/");
  EXPECT_EQ(value.at("a").at("b").items().size(), 5u);
  EXPECT_TRUE(value.has("a"));
  EXPECT_FALSE(value.has("b"));
  EXPECT_EQ(Value::parse("18446744073709551615").number(), 18446744073709551615u);
}

TEST(Json, BytesThatAreNoTextAreReplacedOrRefused) {
  EXPECT_EQ(Value::parse(quoted("caf\xe9")).text(), "caf\xef\xbf\xbd");
  EXPECT_EQ(Value::parse(quoted_exactly("caf\xc3\xa9")).text(), "caf\xc3\xa9");
  EXPECT_THROW(quoted_exactly("caf\xe9"), Error);
}

}  // namespace
}  // namespace penstock::json
