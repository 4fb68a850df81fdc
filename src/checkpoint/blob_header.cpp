#include "checkpoint/blob_header.hpp"

#include <unistd.h>

#include "base/json.hpp"
#include "penstock/error.hpp"

namespace penstock::checkpoint {

namespace {

constexpr std::string_view kWhat = "checkpoints";
constexpr std::uint64_t kHeaderFormat = 1;

}  // namespace

std::uint64_t aligned_place(std::uint64_t bytes) {
  return (bytes + kPlaceAlignment - 1) / kPlaceAlignment * kPlaceAlignment;
}

BlobHeader BlobHeader::of_job(std::uint64_t generation) {
  char host_name[256] = "";
  gethostname(host_name, sizeof host_name - 1);
  BlobHeader header;
  header.job = generation;
  header.host = host_name;
  header.pid = static_cast<std::uint64_t>(getpid());
  return header;
}

std::string BlobHeader::serialize() const {
  std::string text = json::Object()
                         .string("penstock", kWhat)
                         .number("format", kHeaderFormat)
                         .number("job", job)
                         .string("host", host)
                         .number("pid", pid)
                         .number("complete", complete ? 1 : 0)
                         .number("step", version.step)
                         .number("generation", version.generation)
                         .number("sequence", version.sequence)
                         .number("manifest_place_bytes", manifest_place_bytes)
                         .number("manifest_bytes", manifest_bytes)
                         .finish();
  if (text.size() >= kHeaderBytes) {
    throw Error(ErrorCode::internal, "the header takes " + std::to_string(text.size()) + " bytes");
  }
  text.resize(kHeaderBytes - 1, ' ');
  return text + '\n';
}

BlobHeader BlobHeader::parse(std::string_view text) {
  const json::Value parsed = json::Value::parse(text);
  if (parsed.at("penstock").text() != kWhat) throw Error(ErrorCode::corrupt, "it holds no checkpoints");
  if (const std::uint64_t format = parsed.at("format").number(); format != kHeaderFormat) {
    throw Error(ErrorCode::unsupported, "format " + std::to_string(format) + ", this Penstock reads format " +
                                            std::to_string(kHeaderFormat) + "; use a newer Penstock");
  }
  BlobHeader header;
  header.job = parsed.at("job").number();
  header.host = parsed.at("host").text();
  header.pid = parsed.at("pid").number();
  header.complete = parsed.at("complete").number() != 0;
  header.version = {parsed.at("step").number(), parsed.at("generation").number(), parsed.at("sequence").number()};
  header.manifest_place_bytes = parsed.at("manifest_place_bytes").number();
  header.manifest_bytes = parsed.at("manifest_bytes").number();
  return header;
}

}  // namespace penstock::checkpoint
