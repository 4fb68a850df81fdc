// Requests over HTTP, signed as S3 wants it, on connections that are kept.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/types.hpp"
#include "store/backend.hpp"
#include "store/curl_calls.hpp"

namespace penstock::store {

struct HttpRequest {
  std::string method;
  std::string url;
  std::vector<std::string> headers = {};  ///< "Name: value"
  const Stream* body = nullptr;
  Bytes into = {};  ///< where the body of a successful answer goes; empty: to HttpAnswer::body
};

struct HttpAnswer {
  long status = 0;                             ///< 0: none came, or not all of it
  std::string problem;                         ///< why
  bool has_stalled = false;                    ///< nothing moved for the time that is allowed
  bool is_too_long = false;                    ///< it does not fit `into`
  std::map<std::string, std::string> headers;  ///< by names in lower case
  std::vector<std::byte> body;
  std::size_t into_bytes = 0;  ///< how much of `into` was filled

  bool ok() const { return status >= 200 && status < 300; }
  std::string_view text() const { return {reinterpret_cast<const char*>(body.data()), body.size()}; }
};

/// Performs requests one at a time for each caller. Thread-safe: each call has a connection of its own, which later
/// calls use again. A child of fork makes its own connections.
class HttpClient {
 public:
  struct Identity {
    std::string region;
    std::string key;
    std::string secret;
    std::string session_token;  ///< may be empty
    unsigned timeout_s = 0;     ///< for connecting, and for how long nothing may move
  };

  /// Throws Error(unsupported) if libcurl is not there.
  explicit HttpClient(Identity identity);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Throws only what the body's stream throws.
  HttpAnswer perform(const HttpRequest& request);

 private:
  struct Connection {
    void* handle = nullptr;
    int socket = -1;
  };

  Connection take();
  void give_back(const Connection& connection);

  const CurlCalls& curl_;
  const Identity identity_;
  const std::string user_;
  const std::string signature_;
  std::mutex mutex_;
  std::vector<Connection> idle_;
  pid_t process_;
};

}  // namespace penstock::store
