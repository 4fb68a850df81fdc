#include "base/json.hpp"

#include <gtest/gtest.h>

#include "penstock/error.hpp"

namespace penstock::json {
namespace {

TEST(Json, RefusesWhatIsNone) {
  for (const char* text : {"", "{", "[1,", "{\"a\" 1}", "\"\\q\"", "\"\\u12\"", "tru", "[1] 2", "\"abc", "{1: 2}"}) {
    EXPECT_THROW(Value::parse(text), Error) << text;
  }
  EXPECT_THROW(Value::parse(std::string(1000, '[')), Error);
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

}  // namespace
}  // namespace penstock::json
