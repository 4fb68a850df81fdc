#include "preload/report.hpp"

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "preload/clock.hpp"

namespace penstock::preload {
namespace {

struct Key {
  std::string name;
  int ranks = 0;
  std::size_t kind = 0;
  std::size_t form = 0;
  friend auto operator<=>(const Key&, const Key&) = default;
};

struct Row {
  std::uint64_t communicators = 0;
  Tally sums{};
  std::uint64_t served_ns = 0;
  std::uint64_t native_ns = 0;
  double gain_ns = 0;  ///< estimated: what MPI would have taken longer
  std::string reason{};

  void add(const Row& other) {
    communicators += other.communicators;
    sums.served += other.sums.served;
    sums.native += other.sums.native;
    sums.served_bytes += other.sums.served_bytes;
    sums.native_bytes += other.sums.native_bytes;
    served_ns += other.served_ns;
    native_ns += other.native_ns;
    gain_ns += other.gain_ns;
    sums.verified += other.sums.verified;
    sums.differed += other.sums.differed;
    if (!other.reason.empty()) reason = other.reason;
  }
};

using Rows = std::map<Key, Row>;

using FileKey = std::tuple<std::string, int, std::string>;
using FileRows = std::map<FileKey, FileRow>;

constexpr std::size_t kMostFiles = 1000;  // further paths share a row

struct Kept {
  std::mutex mutex;
  Rows rows;
  FileRows files;
};

Kept& kept() {
  static auto* const made = new Kept;
  return *made;
}

/// Tabs and line ends would break the rows, quotes the JSON.
std::string plain(std::string text) {
  for (char& letter : text)
    if (static_cast<unsigned char>(letter) < ' ' || letter == '"' || letter == '\\') letter = ' ';
  return text;
}

void add_row(FileRows& rows, FileRow row) {
  FileKey key{row.path, row.ranks, row.why_native};
  if (rows.size() >= kMostFiles && !rows.contains(key)) key = {row.path = "(other files)", row.ranks, row.why_native};
  FileRow& sums = rows[key];
  row.opens += sums.opens;
  row.read_bytes += sums.read_bytes;
  row.written_bytes += sums.written_bytes;
  row.versions += sums.versions;
  sums = std::move(row);
}

/// The name that the program gave; "" without one.
std::string name_of(MPI_Comm comm) {
  char text[MPI_MAX_OBJECT_NAME] = "";
  int length = 0;
  if (PMPI_Comm_get_name(comm, text, &length) != MPI_SUCCESS) return {};
  std::string name(text, static_cast<std::size_t>(length));
  if (name.starts_with("MPI COMMUNICATOR")) return {};  // Open MPI numbers those that have no name
  return plain(std::move(name));
}

std::uint64_t ns_of(std::uint64_t ticks) {
  return static_cast<std::uint64_t>(static_cast<double>(ticks) * ns_per_tick());
}

double gain_ns(const Communicator& on, std::size_t kind, std::size_t form) {
  if (on.measured == nullptr || static_cast<Form>(form) != Form::blocking) return 0;
  return on.measured->blocking.gain_ticks(static_cast<CollectiveKind>(kind), on.ranks) * ns_per_tick();
}

std::string operation_of(const Key& key) {
  const std::string small(name(static_cast<CollectiveKind>(key.kind)));
  switch (static_cast<Form>(key.form)) {
    case Form::blocking: return small;
    case Form::nonblocking: return "i" + small;
    case Form::persistent: break;
  }
  return small + "_init";
}

std::string to_text(const Rows& rows) {
  std::ostringstream out;
  for (const auto& [key, row] : rows) {
    const Tally& sums = row.sums;
    out << key.name << '\t' << key.ranks << '\t' << key.kind << '\t' << key.form << '\t' << row.communicators << '\t'
        << sums.served << '\t' << sums.native << '\t' << sums.served_bytes << '\t' << sums.native_bytes << '\t'
        << row.served_ns << '\t' << row.native_ns << '\t' << row.gain_ns << '\t' << sums.verified << '\t'
        << sums.differed << '\t' << row.reason << '\n';
  }
  return out.str();
}

void add_text(Rows& rows, const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    Key key;
    Row row;
    key.name = line.substr(0, line.find('\t'));
    std::istringstream fields(line.substr(key.name.size() + 1));
    Tally& sums = row.sums;
    fields >> key.ranks >> key.kind >> key.form >> row.communicators >> sums.served >> sums.native >>
        sums.served_bytes >> sums.native_bytes >> row.served_ns >> row.native_ns >> row.gain_ns >> sums.verified >>
        sums.differed;
    fields.get();
    std::getline(fields, row.reason);
    rows[key].add(row);
  }
}

/// The texts of all ranks, on rank 0.
std::string gathered(const std::string& mine, int ranks) {
  const int length = static_cast<int>(mine.size());
  std::vector<int> lengths(static_cast<std::size_t>(ranks));
  PMPI_Gather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, 0, MPI_COMM_WORLD);
  std::vector<int> places(lengths.size());
  int total = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    places[i] = total;
    total += lengths[i];
  }
  std::string text(static_cast<std::size_t>(total), '\0');
  PMPI_Gatherv(mine.data(), length, MPI_CHAR, text.data(), lengths.data(), places.data(), MPI_CHAR, 0, MPI_COMM_WORLD);
  return text;
}

std::string to_text(const FileRows& rows) {
  std::ostringstream out;
  for (const auto& [key, row] : rows)
    out << row.path << '\t' << row.ranks << '\t' << row.is_stored << '\t' << row.opens << '\t' << row.read_bytes << '\t'
        << row.written_bytes << '\t' << row.versions << '\t' << row.why_native << '\n';
  return out.str();
}

FileRows files_of(const std::string& text) {
  FileRows rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    FileRow row{.path = line.substr(0, line.find('\t'))};
    std::istringstream fields(line.substr(row.path.size() + 1));
    fields >> row.ranks >> row.is_stored >> row.opens >> row.read_bytes >> row.written_bytes >> row.versions;
    fields.get();
    std::getline(fields, row.why_native);
    add_row(rows, std::move(row));
  }
  return rows;
}

void print_files(const FileRows& rows) {
  for (const auto& [key, row] : rows) {
    if (row.is_stored)
      std::fprintf(stderr,
                   "penstock: file %s, %d ranks: in the store, opened %" PRIu64 " times, %" PRIu64
                   " bytes written, %" PRIu64 " read, %" PRIu64 " versions\n",
                   row.path.c_str(), row.ranks, row.opens, row.written_bytes, row.read_bytes, row.versions);
    else
      std::fprintf(stderr, "penstock: file %s, %d ranks: MPI's, opened %" PRIu64 " times: %s\n", row.path.c_str(),
                   row.ranks, row.opens, row.why_native.c_str());
  }
}

const char* level_name() {
  int level = MPI_THREAD_SINGLE;
  PMPI_Query_thread(&level);
  if (level == MPI_THREAD_MULTIPLE) return "MPI_THREAD_MULTIPLE";
  if (level == MPI_THREAD_SERIALIZED) return "MPI_THREAD_SERIALIZED";
  return level == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED" : "MPI_THREAD_SINGLE";
}

void print_table(const Rows& rows) {
  std::uint64_t served = 0;
  std::uint64_t native = 0;
  std::uint64_t verified = 0;
  std::uint64_t differed = 0;
  for (const auto& [key, row] : rows) {
    served += row.sums.served;
    native += row.sums.native;
    verified += row.sums.verified;
    differed += row.sums.differed;
  }
  std::fprintf(stderr,
               "penstock: %" PRIu64 " collective calls served by Penstock, %" PRIu64 " by MPI (" PENSTOCK_MPI_ABI
               " ABI, %s as the program asked)\n",
               served, native, level_name());
  if (verified > 0)
    std::fprintf(stderr,
                 "penstock: %" PRIu64 " calls were compared with MPI's, %" PRIu64 " results of their ranks differed\n",
                 verified, differed);
  if (rows.empty()) return;
  std::fprintf(stderr, "%-20s %5s %-22s %10s %10s %10s %10s %10s  %s\n", "communicator", "ranks", "operation",
               "Penstock", "s", "gain s", "MPI", "s", "why MPI");
  for (const auto& [key, row] : rows) {
    std::string name = key.name.empty() ? "(no name)" : key.name;
    if (row.communicators > 1) name += " x" + std::to_string(row.communicators);
    std::fprintf(stderr, "%-20s %5d %-22s %10" PRIu64 " %10.3f %10.3f %10" PRIu64 " %10.3f  %s\n", name.c_str(),
                 key.ranks, operation_of(key).c_str(), row.sums.served, static_cast<double>(row.served_ns) * 1e-9,
                 row.gain_ns * 1e-9, row.sums.native, static_cast<double>(row.native_ns) * 1e-9, row.reason.c_str());
  }
}

void write_json(const Rows& rows, const FileRows& files, const std::string& path) {
  std::ofstream file(path);
  file << "{\"mpi_abi\": \"" PENSTOCK_MPI_ABI "\", \"thread_level\": \"" << level_name() << "\", \"operations\": [";
  const char* separator = "";
  for (const auto& [key, row] : rows) {
    const Tally& sums = row.sums;
    file << separator << "\n  {\"communicator\": \"" << key.name << "\", \"ranks\": " << key.ranks
         << ", \"communicators\": " << row.communicators << ", \"operation\": \"" << operation_of(key)
         << "\", \"served\": " << sums.served << ", \"served_bytes\": " << sums.served_bytes
         << ", \"served_s\": " << static_cast<double>(row.served_ns) * 1e-9
         << ", \"estimated_gain_s\": " << row.gain_ns * 1e-9 << ", \"native\": " << sums.native
         << ", \"native_bytes\": " << sums.native_bytes
         << ", \"native_s\": " << static_cast<double>(row.native_ns) * 1e-9 << ", \"why_native\": \"" << row.reason
         << "\", \"verified\": " << sums.verified << ", \"differed\": " << sums.differed << "}";
    separator = ",";
  }
  file << "\n], \"files\": [";
  separator = "";
  for (const auto& [key, row] : files) {
    file << separator << "\n  {\"path\": \"" << row.path << "\", \"ranks\": " << row.ranks
         << ", \"stored\": " << (row.is_stored ? "true" : "false") << ", \"opens\": " << row.opens
         << ", \"read_bytes\": " << row.read_bytes << ", \"written_bytes\": " << row.written_bytes
         << ", \"versions\": " << row.versions << ", \"why_native\": \"" << row.why_native << "\"}";
    separator = ",";
  }
  file << "\n]}\n" << std::flush;
  if (!file) std::fprintf(stderr, "penstock: cannot write the report %s\n", path.c_str());
}

}  // namespace

void add_to_report(const Communicator& ended) {
  Rows rows;
  const std::string name = name_of(ended.handle);
  for (std::size_t kind = 0; kind < kCollectiveKinds; ++kind) {
    for (std::size_t form = 0; form < kForms; ++form) {
      const Tally& sums = ended.tallies[kind][form];
      const Key key{name, ended.ranks, kind, form};
      if (ended.rank == 0 && sums.served + sums.native > 0)
        rows[key] = {1,
                     sums,
                     ns_of(sums.served_ticks),
                     ns_of(sums.native_ticks),
                     gain_ns(ended, kind, form),
                     sums.reason != nullptr ? sums.reason : ""};
      else if (sums.differed > 0)  // what this rank received; the calls are rank 0's
        rows[key].sums.differed = sums.differed;
    }
  }
  Kept& all = kept();
  const std::lock_guard lock(all.mutex);
  for (const auto& [key, row] : rows) all.rows[key].add(row);
}

void add_file_to_report(FileRow row) {
  row.path = plain(std::move(row.path));
  row.why_native = plain(std::move(row.why_native));
  Kept& all = kept();
  const std::lock_guard lock(all.mutex);
  add_row(all.files, std::move(row));
}

void write_report(const std::string& target) {
  int wanted = target.empty() ? 0 : 1;
  PMPI_Allreduce(MPI_IN_PLACE, &wanted, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (wanted == 0) return;
  int rank = 0;
  int ranks = 1;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const std::string operations = gathered(to_text(kept().rows), ranks);
  const std::string files = gathered(to_text(kept().files), ranks);
  if (rank != 0) return;
  Rows rows;
  add_text(rows, operations);
  const FileRows opened = files_of(files);
  print_table(rows);
  print_files(opened);
  if (!target.empty() && target != "-") write_json(rows, opened, target);
}

}  // namespace penstock::preload
