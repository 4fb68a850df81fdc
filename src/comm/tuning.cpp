// Reads the tuning table of a communicator: rank 0 reads and checks it, then broadcasts it.
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "comm/check.hpp"
#include "comm/facts.hpp"
#include "penstock/comm.hpp"
#include "penstock/error.hpp"
#include "penstock/options.hpp"

namespace penstock::comm {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(ErrorCode::not_found, "it cannot be opened (" + std::generic_category().message(errno) + ")");
  std::ostringstream text;
  // Reading an empty file also sets the fail bit; it is not a table either.
  if (!(text << file.rdbuf())) throw Error(ErrorCode::io, "it is empty, or cannot be read");
  return std::move(text).str();
}

std::string why_not_used(const std::string& path, const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  return "the table " + path + " is not used: " + (known != nullptr ? known->message() : error.what());
}

/// Programs make many communicators, so a warning is printed once, by a rank whose process has heard of it in none.
void warn_once(const std::string& text, bool is_speaker) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  if (said.insert(text).second && is_speaker)
    std::fprintf(stderr, "penstock: tuning: %s; the default algorithms are used\n", text.c_str());
}

}  // namespace

void read_tuning(engine::Engine& engine, Facts& facts, const std::string& path) {
  const bool reads = facts.team.rank == 0;
  std::string text;
  bool useful = false;
  if (reads) {
    try {
      text = read_file(path);
      static_cast<void>(Tuning::parse(text, facts.tuning_key()));
      useful = true;
    } catch (const std::exception& error) {
      text = why_not_used(path, error);
    }
  }
  // Not through the plan cache, which has the application's plans.
  int left = 3;
  const auto tell = [&](Bytes data) {
    const Collective collective{.kind = CollectiveKind::bcast, .count = data.size()};
    const auto run = engine.start(std::make_shared<const Plan>(plan_collective(facts.team, collective)),
                                  {.input = {}, .output = data}, {}, signature(collective));
    --left;
    run->wait();
  };
  // Thread level and MPI settings of this rank may differ; those of rank 0 count.
  std::string mpi = facts.mpi;
  std::uint64_t head[4] = {text.size(), useful ? 1u : 0u, facts.any_thread ? 1u : 0u, mpi.size()};
  try {
    tell(std::as_writable_bytes(std::span(head)));
    text.resize(head[0]);
    tell(std::as_writable_bytes(std::span(text)));
    mpi.resize(head[3]);
    tell(std::as_writable_bytes(std::span(mpi)));
  } catch (...) {
    // Out of memory, here or elsewhere: the others wait for this rank's part in all of them.
    for (; left > 0; --left) engine.fail_next("this rank has too little memory for the tuning table");
    throw;
  }
  if (head[1] == 0) {
    warn_once(text, reads);
    facts.tuning = text;
    return;
  }
  const TuningKey key = penstock::tuning_key(facts.team, mpi, head[2] != 0);
  facts.team.tuning = std::make_shared<const Tuning>(Tuning::parse(text, key));
  facts.tuning = "measured choices at " + std::to_string(facts.team.tuning->point_count()) + " points";
}

}  // namespace penstock::comm

std::string penstock::why_no_tuning() {
  const std::string& path = options().tuning;
  if (path.empty()) return {};
  try {
    const std::string text = comm::read_file(path);
    try {
      static_cast<void>(Tuning::parse(text, {}));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::not_found) throw;  // it has tables, for some communicators
    }
  } catch (const std::exception& error) {
    return comm::why_not_used(path, error);
  }
  return {};
}
