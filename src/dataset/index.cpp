// Saved lists of samples. The file, in little-endian words of 8 bytes: a header; the bytes of all paths; the end of
// each path in these; a record for each sample.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "dataset/digest.hpp"
#include "dataset/read_file.hpp"
#include "dataset/source.hpp"
#include "penstock/error.hpp"
#include "penstock/sample_index.hpp"

namespace penstock {

namespace dataset::index_file {

static_assert(std::endian::native == std::endian::little);

constexpr char kMagic[8] = {'P', 'E', 'N', 'S', 'T', 'O', 'I', 'X'};
constexpr std::uint64_t kVersion = 1;

struct Record {
  std::uint64_t path = 0;
  std::uint64_t begin = 0;
  std::uint64_t size_bytes = 0;
  std::int64_t label = 0;
};

struct Header {
  char magic[8] = {};
  std::uint64_t version = kVersion;
  std::uint64_t samples = 0;
  std::uint64_t paths = 0;
  std::uint64_t path_bytes = 0;  ///< without what aligns the next section
  char kind[16] = {};
  char digest[32] = {};
  store::Checksum checksum;  ///< of the header without this member

  store::Checksum sum() const {
    return store::checksum(ConstBytes(reinterpret_cast<const std::byte*>(this), offsetof(Header, checksum)));
  }
};

[[noreturn]] void fail(const std::string& file, const std::string& what, int error) {
  throw Error(error == ENOENT ? ErrorCode::not_found : ErrorCode::io, "the index " + file + " " + what, -1,
              std::generic_category().message(error), error);
}

[[noreturn]] void corrupt(const std::string& file, const std::string& what) {
  throw Error(ErrorCode::corrupt, "the index " + file + " " + what + "; make it again");
}

constexpr std::uint64_t kLargest = std::uint64_t{1} << 48;  // counts below this cannot overflow the sums below

std::uint64_t aligned(std::uint64_t size) { return (size + 7) / 8 * 8; }

std::string folder_of(const std::string& file) {
  const std::size_t slash = file.rfind('/');
  return slash == std::string::npos ? std::string() : file.substr(0, slash + 1);
}

bool is_relative(std::string_view path) { return !path.starts_with('/') && path.find("://") == std::string_view::npos; }

class MappedIndex final : public SampleIndex {
 public:
  explicit MappedIndex(const std::string& file) : file_(file), folder_(folder_of(file)) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) fail(file, "cannot be opened", errno);
    struct stat info {};
    const bool known = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    size_bytes_ = known ? static_cast<std::uint64_t>(info.st_size) : 0;
    if (size_bytes_ < sizeof(Header)) {
      close(fd);
      corrupt(file, "is no index of samples");
    }
    void* memory = mmap(nullptr, size_bytes_, PROT_READ, MAP_SHARED, fd, 0);
    const int error = errno;
    close(fd);
    if (memory == MAP_FAILED) fail(file, "cannot be mapped", error);
    memory_ = static_cast<const std::byte*>(memory);
    std::memcpy(&header_, memory_, sizeof header_);
    try {
      check();
    } catch (...) {
      munmap(memory, size_bytes_);
      throw;
    }
  }
  ~MappedIndex() override { munmap(const_cast<std::byte*>(memory_), size_bytes_); }

  std::uint64_t size() const override { return header_.samples; }

  IndexedSample at(std::uint64_t index) const override {
    const Record record = this->record(index);
    if (record.path >= header_.paths) corrupt(file_, "is damaged at sample " + std::to_string(index));
    const std::uint64_t begin = record.path == 0 ? 0 : path_end(record.path - 1), end = path_end(record.path);
    if (begin > end || end > header_.path_bytes) corrupt(file_, "is damaged at sample " + std::to_string(index));
    std::string path(reinterpret_cast<const char*>(memory_ + sizeof(Header) + begin), end - begin);
    if (is_relative(path)) path.insert(0, folder_);
    return {std::move(path), record.begin, record.size_bytes, record.label};
  }

  std::int64_t label(std::uint64_t index) const override { return record(index).label; }
  std::string kind() const override { return {header_.kind, strnlen(header_.kind, sizeof header_.kind)}; }
  std::string digest() const override { return {header_.digest, sizeof header_.digest}; }

 private:
  void check() const {
    if (std::memcmp(header_.magic, kMagic, sizeof kMagic) != 0) corrupt(file_, "is no index of samples");
    if (header_.version != kVersion)
      throw Error(ErrorCode::unsupported, "the index " + file_ + " has version " + std::to_string(header_.version) +
                                              "; this Penstock reads version " + std::to_string(kVersion));
    if (header_.checksum != header_.sum()) corrupt(file_, "has a damaged header");
    if (std::max({header_.samples, header_.paths, header_.path_bytes}) > kLargest ||
        ends_place() + header_.paths * 8 + header_.samples * sizeof(Record) != size_bytes_)
      corrupt(file_, "is cut off");
  }
  std::uint64_t ends_place() const { return sizeof(Header) + aligned(header_.path_bytes); }
  std::uint64_t path_end(std::uint64_t path) const {
    std::uint64_t end = 0;
    std::memcpy(&end, memory_ + ends_place() + path * 8, sizeof end);
    return end;
  }
  Record record(std::uint64_t index) const {
    if (index >= header_.samples)
      throw Error(ErrorCode::invalid_argument,
                  "there is no sample " + std::to_string(index) + " in an index of " + std::to_string(header_.samples));
    Record record;
    std::memcpy(&record, memory_ + ends_place() + header_.paths * 8 + index * sizeof record, sizeof record);
    return record;
  }

  const std::string file_;
  const std::string folder_;
  std::uint64_t size_bytes_ = 0;
  const std::byte* memory_ = nullptr;
  Header header_;
};

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using OpenFile = std::unique_ptr<std::FILE, CloseFile>;

}  // namespace dataset::index_file

using namespace dataset::index_file;

std::shared_ptr<const SampleIndex> SampleIndex::open(const std::string& file) {
  return std::make_shared<MappedIndex>(file);
}

struct SampleIndexWriter::State {
  std::string file;
  std::string temporary;
  OpenFile paths;  ///< the file itself; the other sections come behind its paths
  OpenFile ends;
  OpenFile records;
  Header header;
  dataset::Digest digest;
  std::string last_path;

  void put(std::FILE* to, const void* data, std::size_t size) const {
    if (size > 0 && std::fwrite(data, size, 1, to) != 1) fail(file, "cannot be written", errno);
  }
  void append(std::FILE* from) const {
    std::vector<char> buffer(1 << 20);
    std::rewind(from);
    while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), from))
      put(paths.get(), buffer.data(), got);
    if (std::ferror(from) != 0) fail(file, "cannot be written", errno);
  }
};

SampleIndexWriter::SampleIndexWriter(const std::string& file, const std::string& kind)
    : state_(std::make_unique<State>()) {
  State& state = *state_;
  if (kind.size() > sizeof state.header.kind)
    throw Error(ErrorCode::invalid_argument, "an index cannot have the kind '" + kind + "'; expected at most 16 bytes");
  state.file = file;
  state.temporary = file + ".tmp-" + std::to_string(getpid());
  std::memcpy(state.header.magic, kMagic, sizeof kMagic);
  std::memcpy(state.header.kind, kind.data(), kind.size());
  state.digest.add(kind);
  state.paths.reset(std::fopen(state.temporary.c_str(), "wbex"));
  if (!state.paths) fail(file, "cannot be created", errno);
  state.ends.reset(std::tmpfile());
  state.records.reset(std::tmpfile());
  if (!state.ends || !state.records) {
    const int error = errno;
    std::remove(state.temporary.c_str());
    fail(file, "cannot be created, because there is no temporary file", error);
  }
  state.put(state.paths.get(), &state.header, sizeof state.header);
}

SampleIndexWriter::~SampleIndexWriter() {
  if (!state_->temporary.empty()) std::remove(state_->temporary.c_str());
}

void SampleIndexWriter::add(const IndexedSample& sample) {
  State& state = *state_;
  Header& header = state.header;
  if (!state.paths) throw Error(ErrorCode::invalid_argument, "the index " + state.file + " is complete already");
  if (header.paths == 0 || sample.path != state.last_path) {
    state.put(state.paths.get(), sample.path.data(), sample.path.size());
    header.path_bytes += sample.path.size();
    state.put(state.ends.get(), &header.path_bytes, sizeof header.path_bytes);
    ++header.paths;
    state.last_path = sample.path;
    state.digest.add(sample.path);
  }
  const Record record{header.paths - 1, sample.begin, sample.size_bytes, sample.label};
  state.put(state.records.get(), &record, sizeof record);
  state.digest.add(std::as_bytes(std::span(&record, 1)));
  ++header.samples;
}

void SampleIndexWriter::commit() {
  State& state = *state_;
  Header& header = state.header;
  if (!state.paths) throw Error(ErrorCode::invalid_argument, "the index " + state.file + " is complete already");
  const std::uint64_t nothing = 0;
  state.put(state.paths.get(), &nothing, aligned(header.path_bytes) - header.path_bytes);
  state.append(state.ends.get());
  state.append(state.records.get());
  const std::string digest = state.digest.text();
  std::memcpy(header.digest, digest.data(), std::min(digest.size(), sizeof header.digest));
  header.checksum = header.sum();
  std::FILE* file = state.paths.get();
  if (std::fseek(file, 0, SEEK_SET) != 0) fail(state.file, "cannot be written", errno);
  state.put(file, &header, sizeof header);
  if (std::fflush(file) != 0 || fdatasync(fileno(file)) != 0) fail(state.file, "cannot be written", errno);
  if (std::rename(state.temporary.c_str(), state.file.c_str()) != 0) fail(state.file, "cannot be created", errno);
  state.temporary.clear();
  state.paths.reset();
}

namespace dataset {

namespace {

class IndexSource : public Source {
 public:
  explicit IndexSource(std::shared_ptr<const SampleIndex> index) : index_(std::move(index)) {}
  std::uint64_t size() const override { return index_->size(); }
  std::int64_t label(std::uint64_t index) const override { return index_->label(index); }
  std::string name(std::uint64_t index) const override { return index_->at(index).path; }
  ConstBytes read(std::uint64_t index, const ReadLimits& limits, std::vector<std::byte>& buffer) const override {
    const IndexedSample sample = index_->at(index);
    return read_file(sample.path, limits, buffer, FilePart{sample.begin, sample.size_bytes});
  }
  std::string digest() const override { return index_->digest(); }

 private:
  const std::shared_ptr<const SampleIndex> index_;
};

}  // namespace

SourcePtr index_source(std::shared_ptr<const SampleIndex> index) {
  return std::make_shared<IndexSource>(std::move(index));
}

}  // namespace dataset

}  // namespace penstock
