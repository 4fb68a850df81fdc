#include "store/s3_place.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "penstock/error.hpp"
#include "unit/store/outcomes.hpp"
#include "unit/store/temporary_directory.hpp"

namespace penstock::store {
namespace {

/// An environment in which nothing of AWS is set, and a home of its own.
class S3Places : public testing::Test {
 protected:
  S3Places() {
    for (const char* const name : {"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION",
                                   "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE",
                                   "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"}) {
      ::unsetenv(name);
    }
    ::setenv("HOME", home_.path().c_str(), 1);
  }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(home_.path() + "/" + name) << text;
    ::setenv(name == "config" ? "AWS_CONFIG_FILE" : "AWS_SHARED_CREDENTIALS_FILE", (home_.path() + "/" + name).c_str(),
             1);
  }

  const TemporaryDirectory home_;
};

TEST_F(S3Places, TakeTheEnvironment) {
  ::setenv("AWS_ACCESS_KEY_ID", "key", 1);
  ::setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
  ::setenv("AWS_SESSION_TOKEN", "token", 1);
  const S3Place place = parse_s3_url("s3://bucket/a/b/");
  EXPECT_EQ(place.bucket, "bucket");
  EXPECT_EQ(place.prefix, "a/b/");
  EXPECT_EQ(place.key + place.secret + place.session_token, "keysecrettoken");
  EXPECT_EQ(place.endpoint, "https://s3.us-east-1.amazonaws.com");
  ::setenv("AWS_REGION", "eu-west-3", 1);
  EXPECT_EQ(parse_s3_url("s3://bucket").endpoint, "https://s3.eu-west-3.amazonaws.com");
  EXPECT_EQ(parse_s3_url("s3://bucket").prefix, "");
  ::setenv("AWS_ENDPOINT_URL", "http://host:1/", 1);
  EXPECT_EQ(parse_s3_url("s3://bucket").endpoint, "http://host:1");
  EXPECT_EQ(parse_s3_url("s3://bucket?endpoint=https%3A%2F%2Fother").endpoint, "https://other");
}

TEST_F(S3Places, TakeAProfile) {
  write("credentials",
        "[default]\naws_access_key_id = d\naws_secret_access_key = e\n# [lab]\n[lab]\n aws_access_key_id=l\n"
        "aws_secret_access_key =m=\r\n");
  write("config", "[default]\nregion = one\n[profile lab]\nregion = two\nendpoint_url = http://lab\n");
  EXPECT_EQ(parse_s3_url("s3://bucket").key, "d");
  EXPECT_EQ(parse_s3_url("s3://bucket").region, "one");
  const S3Place lab = parse_s3_url("s3://bucket?profile=lab");
  EXPECT_EQ(lab.key + lab.secret + lab.region + lab.endpoint, "lm=twohttp://lab");
  ::setenv("AWS_PROFILE", "lab", 1);
  EXPECT_EQ(parse_s3_url("s3://bucket").key, "l");
  // Credentials of the environment come before those of a profile that the URL does not name, and are not mixed with
  // it.
  ::setenv("AWS_ACCESS_KEY_ID", "key", 1);
  ::setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
  EXPECT_EQ(parse_s3_url("s3://bucket").secret, "secret");
  EXPECT_EQ(parse_s3_url("s3://bucket?profile=lab").secret, "m=");
}

TEST_F(S3Places, RefuseWhatTheyCannotUse) {
  EXPECT_EQ(code_of([] { parse_s3_url("s3://bucket/a"); }), ErrorCode::invalid_argument) << "no credentials";
  ::setenv("AWS_ACCESS_KEY_ID", "key", 1);
  ::setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
  for (const char* const url :
       {"s3:bucket/a", "s3://", "s3:///a", "s3://bucket//a", "s3://bucket/a b", "s3://bucket/a?colour=red",
        "s3://bucket/a?timeout_s=0", "s3://bucket/a?timeout_s=1s", "s3://bucket/a?part_bytes=1000",
        "s3://bucket/a?in_flight=", "s3://bucket/a?endpoint=host"}) {
    EXPECT_EQ(code_of([&] { parse_s3_url(url); }), ErrorCode::invalid_argument) << url;
  }
}

}  // namespace
}  // namespace penstock::store
