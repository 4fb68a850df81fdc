// Where a store in S3 is, and as whom to ask.
#pragma once

#include <cstdint>
#include <string>

namespace penstock::store {

/// A parsed s3: URL with what the environment adds to it.
struct S3Place {
  std::string url;
  std::string bucket;
  std::string prefix;    ///< of all keys; empty, or ends with '/'
  std::string endpoint;  ///< http://host:port or https://host, without '/' at the end
  std::string region;
  std::string key;
  std::string secret;
  std::string session_token;             ///< may be empty
  unsigned timeout_s = 60;               ///< how long a request is repeated, and how long nothing may move
  std::uint64_t part_bytes = 16 << 20;   ///< what one request reads, or writes of an object in parts
  std::uint64_t put_bytes = 5ULL << 30;  ///< most bytes of an object that one request may make
  unsigned in_flight = 8;                ///< requests of one read or write
};

/// Parses s3://bucket/prefix?endpoint=…&region=…&profile=…&timeout_s=…&part_bytes=…&put_bytes=…&in_flight=…. What the
/// URL does not say is taken from where the tools of AWS take it: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION,
/// AWS_DEFAULT_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_PROFILE and the files
/// ~/.aws/credentials and ~/.aws/config, which AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE may name.
/// Throws Error(invalid_argument).
S3Place parse_s3_url(const std::string& url);

}  // namespace penstock::store
