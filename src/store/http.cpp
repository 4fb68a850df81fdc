#include "store/http.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <exception>
#include <optional>

namespace penstock::store {

namespace {

/// Longer bodies are sent as they are read, and wait for the server's word first.
constexpr std::size_t kInMemoryBytes = 1 << 20;
constexpr std::size_t kAbortRead = 0x10000000;  // CURL_READFUNC_ABORT
constexpr int kCannotSeek = 2;                  // CURL_SEEKFUNC_CANTSEEK
constexpr int kTimedOut = 28;                   // CURLE_OPERATION_TIMEDOUT
constexpr int kResponseCode = 0x200002;         // CURLINFO_RESPONSE_CODE
constexpr int kSocketIsFine = 0;                // CURL_SOCKOPT_OK

/// Gives a stream's bytes in portions that libcurl chooses.
class Reader {
 public:
  explicit Reader(const Stream& stream) : stream_(stream) { rewind(); }

  void rewind() {
    next_ = stream_.begin();
    rest_ = {};
    read_bytes_ = 0;
  }

  /// 0 at the end. Throws Error(internal) if that comes too early or too late.
  std::size_t read(char* to, std::size_t room) {
    if (rest_.empty()) rest_ = next_();
    const std::size_t size = std::min(room, rest_.size());
    std::copy_n(reinterpret_cast<const char*>(rest_.data()), size, to);
    rest_ = rest_.subspan(size);
    read_bytes_ += size;
    if (size == 0 || read_bytes_ > stream_.size_bytes) check_streamed(stream_, read_bytes_, "a request");
    return size;
  }

 private:
  const Stream& stream_;
  std::function<ConstBytes()> next_;
  ConstBytes rest_;
  std::uint64_t read_bytes_ = 0;
};

/// What the callbacks of one request share. No exception may pass through libcurl.
struct Exchange {
  const HttpRequest& request;
  HttpAnswer& answer;
  const int& socket;
  std::optional<Reader> reader;
  std::exception_ptr failure;
  bool is_success = false;
};

/// A server that sends the body by itself, and without TCP_NODELAY, such as Ceph's gateway, sends it once the headers
/// are acknowledged. The system waits up to 40 ms for something to send with that.
void acknowledge(int socket) {
  const int on = 1;
  static_cast<void>(::setsockopt(socket, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on));
}

int on_socket(void* argument, int socket, int) {
  *static_cast<int*>(argument) = socket;
  return kSocketIsFine;
}

std::size_t on_read(char* to, std::size_t size, std::size_t count, void* argument) {
  Exchange& exchange = *static_cast<Exchange*>(argument);
  try {
    return exchange.reader->read(to, size * count);
  } catch (...) {
    exchange.failure = std::current_exception();
    return kAbortRead;
  }
}

int on_seek(void* argument, long long offset, int origin) {
  Exchange& exchange = *static_cast<Exchange*>(argument);
  if (offset != 0 || origin != 0) return kCannotSeek;
  try {
    exchange.reader->rewind();
    return 0;
  } catch (...) {
    exchange.failure = std::current_exception();
    return kCannotSeek;
  }
}

std::size_t on_header(char* text, std::size_t size, std::size_t count, void* argument) {
  Exchange& exchange = *static_cast<Exchange*>(argument);
  try {
    std::string_view line(text, size * count);
    while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) {
      acknowledge(exchange.socket);
    } else if (line.starts_with("HTTP/")) {
      exchange.answer.headers.clear();
      const std::size_t space = line.find(' ');
      exchange.is_success = space != std::string_view::npos && line.substr(space + 1).starts_with('2');
    } else if (const std::size_t colon = line.find(':'); colon != std::string_view::npos) {
      std::string name(line.substr(0, colon));
      std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
      line.remove_prefix(colon + 1);
      while (line.starts_with(' ')) line.remove_prefix(1);
      exchange.answer.headers[name] = line;
    }
    return size * count;
  } catch (...) {
    exchange.failure = std::current_exception();
    return 0;
  }
}

std::size_t on_body(char* data, std::size_t size, std::size_t count, void* argument) {
  Exchange& exchange = *static_cast<Exchange*>(argument);
  HttpAnswer& answer = exchange.answer;
  const ConstBytes part(reinterpret_cast<const std::byte*>(data), size * count);
  try {
    if (exchange.is_success && !exchange.request.into.empty()) {
      const Bytes room = exchange.request.into.subspan(answer.into_bytes);
      if (part.size() > room.size()) {
        answer.is_too_long = true;
        return 0;
      }
      std::ranges::copy(part, room.begin());
      answer.into_bytes += part.size();
    } else {
      answer.body.insert(answer.body.end(), part.begin(), part.end());
    }
    return part.size();
  } catch (...) {
    exchange.failure = std::current_exception();
    return 0;
  }
}

}  // namespace

HttpClient::HttpClient(Identity identity)
    : curl_(CurlCalls::load()),
      identity_(std::move(identity)),
      user_(identity_.key + ":" + identity_.secret),
      signature_("aws:amz:" + identity_.region + ":s3"),
      process_(::getpid()) {}

HttpClient::~HttpClient() {
  if (process_ != ::getpid()) return;  // the connections are the parent's
  for (const Connection& connection : idle_) curl_.easy_cleanup(connection.handle);
}

HttpClient::Connection HttpClient::take() {
  const std::lock_guard lock(mutex_);
  if (process_ != ::getpid()) {
    idle_.clear();
    process_ = ::getpid();
  }
  if (idle_.empty()) return {curl_.easy_init()};
  const Connection connection = idle_.back();
  idle_.pop_back();
  return connection;
}

void HttpClient::give_back(const Connection& connection) {
  curl_.easy_reset(connection.handle);  // keeps its connection
  const std::lock_guard lock(mutex_);
  idle_.push_back(connection);
}

HttpAnswer HttpClient::perform(const HttpRequest& request) {
  HttpAnswer answer;
  Connection connection = take();
  void* const handle = connection.handle;
  if (handle == nullptr) {
    answer.problem = "libcurl is out of memory";
    return answer;
  }
  Exchange exchange{request, answer, connection.socket, {}, nullptr};
  char problem[256] = "";
  void* headers = nullptr;
  const auto add_header = [&](const std::string& text) { headers = curl_.slist_append(headers, text.c_str()); };
  const auto set = [&](int option, auto value) { curl_.easy_setopt(handle, option, value); };

  set(CurlCalls::URL, request.url.c_str());
  set(CurlCalls::NOSIGNAL, 1L);
  set(CurlCalls::USERPWD, user_.c_str());
  set(CurlCalls::AWS_SIGV4, signature_.c_str());
  set(CurlCalls::CONNECTTIMEOUT, static_cast<long>(identity_.timeout_s));
  set(CurlCalls::LOW_SPEED_LIMIT, 1L);
  set(CurlCalls::LOW_SPEED_TIME, static_cast<long>(identity_.timeout_s));
  set(CurlCalls::ERRORBUFFER, static_cast<char*>(problem));
  set(CurlCalls::SOCKOPTFUNCTION, &on_socket);
  set(CurlCalls::SOCKOPTDATA, static_cast<void*>(&connection.socket));
  set(CurlCalls::HEADERFUNCTION, &on_header);
  set(CurlCalls::HEADERDATA, static_cast<void*>(&exchange));
  set(CurlCalls::WRITEFUNCTION, &on_body);
  set(CurlCalls::WRITEDATA, static_cast<void*>(&exchange));
  for (const std::string& header : request.headers) add_header(header);
  // S3 wants this header, and libcurl before 8 does not make it. Bodies are not signed, since the signature comes
  // first, and they may be streams. The store has checksums of its own.
  add_header("x-amz-content-sha256: UNSIGNED-PAYLOAD");
  if (!identity_.session_token.empty()) add_header("x-amz-security-token: " + identity_.session_token);

  std::vector<char> small;
  try {
    if (request.body != nullptr) exchange.reader.emplace(*request.body);
    if (request.body != nullptr && request.body->size_bytes <= kInMemoryBytes) {
      small.resize(request.body->size_bytes + 1);  // room for a byte too much, which the reader refuses
      for (std::size_t at = 0, more = 1; more > 0; at += more) {
        more = exchange.reader->read(small.data() + at, small.size() - at);
      }
      set(CurlCalls::POSTFIELDSIZE_LARGE, static_cast<long long>(request.body->size_bytes));
      set(CurlCalls::POSTFIELDS, small.data());
      add_header("Content-Type: application/octet-stream");
    } else if (request.body != nullptr) {
      set(CurlCalls::UPLOAD, 1L);
      set(CurlCalls::INFILESIZE_LARGE, static_cast<long long>(request.body->size_bytes));
      set(CurlCalls::READFUNCTION, &on_read);
      set(CurlCalls::READDATA, static_cast<void*>(&exchange));
      set(CurlCalls::SEEKFUNCTION, &on_seek);
      set(CurlCalls::SEEKDATA, static_cast<void*>(&exchange));
    }
    set(CurlCalls::CUSTOMREQUEST, request.method.c_str());
    if (request.method == "HEAD") set(CurlCalls::NOBODY, 1L);
    set(CurlCalls::HTTPHEADER, headers);
    const int code = curl_.easy_perform(handle);
    curl_.easy_getinfo(handle, kResponseCode, &answer.status);
    if (code != 0) {
      answer.problem = problem[0] != '\0' ? problem : curl_.easy_strerror(code);
      answer.has_stalled = code == kTimedOut;
      answer.status = 0;
    }
  } catch (...) {
    exchange.failure = std::current_exception();
  }
  curl_.slist_free_all(headers);
  give_back(connection);
  if (exchange.failure) std::rethrow_exception(exchange.failure);
  return answer;
}

}  // namespace penstock::store
