// Measures what communication costs between and inside the nodes of a communicator (Machine), by plans of a few
// messages that its engine runs. So the costs are those that plans see, the engine's own included.
#include "comm/machine.hpp"

#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/hash.hpp"
#include "base/json.hpp"
#include "collectives/parts/arguments.hpp"
#include "comm/check.hpp"
#include "engine/cpu_placement.hpp"
#include "kernels/arithmetic.hpp"
#include "penstock/collective.hpp"
#include "penstock/options.hpp"
#include "plan/machine_parameters.hpp"

namespace penstock::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kShort = 8;
constexpr std::uint64_t kSegment = 16 << 10;  // of a burst whose messages are not sent together
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr int kRepeats = 3;
// Other processes interrupt a rank for milliseconds. Of many short trials some are not interrupted.
constexpr int kShortRepeats = 8;
constexpr std::uint64_t kShortTrialBytes = 256 << 10;
constexpr double kSharedCoreSeconds = 0.016;  // of processor time of each rank
constexpr double kSharesCore = 1.5;           // times as long: two threads of one core may need less

using plan::kMachineCounts;
using plan::kMachineTimes;

/// What is broadcast.
struct Told {
  std::uint64_t known = 0;  ///< 1: it was found, nothing is to be measured
  std::array<double, kMachineTimes.size()> seconds{};
  std::array<std::uint64_t, kMachineCounts.size() + 1> counts{};  ///< the last one: cores
};

Told told(Machine machine) {
  Told all;
  for (std::size_t i = 0; i < kMachineTimes.size(); ++i) all.seconds[i] = *kMachineTimes[i].of(machine);
  for (std::size_t i = 0; i < kMachineCounts.size(); ++i) all.counts[i] = *kMachineCounts[i].of(machine);
  all.counts.back() = static_cast<std::uint64_t>(machine.node.cores);
  return all;
}

Machine machine_of(const Told& all) {
  Machine machine;
  for (std::size_t i = 0; i < kMachineTimes.size(); ++i) *kMachineTimes[i].of(machine) = all.seconds[i];
  for (std::size_t i = 0; i < kMachineCounts.size(); ++i) *kMachineCounts[i].of(machine) = all.counts[i];
  machine.node.cores = static_cast<int>(all.counts.back());
  return machine;
}

/// Who takes part: the same on all ranks.
struct Parties {
  std::vector<std::pair<int, int>> between;  ///< ranks of two nodes; the first one is of rank 0's node
  int beside = -1;                           ///< a rank on rank 0's node
};

Parties parties_of(const Team& team) {
  Parties parties;
  std::vector<int> here;
  std::vector<int> there;
  for (int rank = 0; rank < team.size(); ++rank) {
    const std::int32_t node = team.node_of_rank[static_cast<std::size_t>(rank)];
    if (node == team.node_of_rank[0]) here.push_back(rank);
    // Nodes are numbered by first appearance.
    if (node == team.node_of_rank[0] + 1) there.push_back(rank);
  }
  for (std::size_t i = 0; i < std::min(here.size(), there.size()); ++i) parties.between.emplace_back(here[i], there[i]);
  if (here.size() > 1) parties.beside = here[1];
  return parties;
}

/// One thing that rank 0 times.
struct Trial {
  enum class What : std::uint8_t {
    bounce,    ///< a message goes there and back: `count` hops
    burst,     ///< `count` messages one way, then one back
    hand_over  ///< `count` messages one way: until rank 0 has handed them over
  };
  What what;
  std::vector<std::pair<int, int>> pairs;  ///< at the same time
  std::uint64_t bytes;
  int count;

  int repeats() const { return bytes <= kShortTrialBytes ? kShortRepeats : kRepeats; }
};

Plan plan_of(const Trial& trial, int self, int size) {
  PlanBuilder plan("measure/machine", self, size);
  for (const auto& [first, second] : trial.pairs) {
    if (self != first && self != second) continue;
    const bool is_first = self == first;
    const int peer = is_first ? second : first;
    const Region from{0, trial.bytes, Buffer::input};
    const Region to{0, trial.bytes, Buffer::output};
    StepId last = PlanBuilder::kNone;
    const auto move = [&](bool outwards, std::uint32_t tag) {
      last = outwards == is_first ? plan.send(from, peer, tag, {last}) : plan.recv(to, peer, tag, {last});
    };
    for (int i = 0; i < trial.count; ++i)
      move(trial.what != Trial::What::bounce || i % 2 == 0, static_cast<std::uint32_t>(i));
    if (trial.what == Trial::What::burst) move(false, static_cast<std::uint32_t>(trial.count));
  }
  return std::move(plan).finish(trial.bytes, trial.bytes);
}

std::vector<Trial> trials_of(const Parties& parties) {
  std::vector<Trial> trials;
  // Twice, with more and fewer messages: the difference has no start and no end of an operation.
  const auto add = [&](Trial::What what, const std::vector<std::pair<int, int>>& pairs, std::uint64_t bytes,
                       int fewer) {
    trials.push_back({what, pairs, bytes, fewer});
    trials.push_back({what, pairs, bytes, 3 * fewer});
  };
  if (!parties.between.empty()) {
    const std::vector<std::pair<int, int>> one = {parties.between[0]};
    add(Trial::What::bounce, one, kShort, 4);
    add(Trial::What::hand_over, one, kShort, 8);
    add(Trial::What::burst, one, kShort, 8);
    add(Trial::What::burst, one, kSegment, 8);
    for (std::uint64_t bytes = 1 << 10; bytes <= kMiB / 4; bytes *= 2) add(Trial::What::bounce, one, bytes, 4);
    add(Trial::What::bounce, one, kMiB, 2);
    add(Trial::What::bounce, one, 2 * kMiB, 2);
    if (parties.between.size() > 1) {
      add(Trial::What::bounce, parties.between, kMiB, 2);
      add(Trial::What::bounce, parties.between, 2 * kMiB, 2);
    }
  }
  if (parties.beside >= 0) {
    const std::vector<std::pair<int, int>> beside = {{0, parties.beside}};
    add(Trial::What::bounce, beside, kShort, 8);
    for (const std::uint64_t bytes : {kMiB / 256, kMiB / 128, kMiB / 16, kMiB, 2 * kMiB})
      add(Trial::What::bounce, beside, bytes, 10);
  }
  return trials;
}

/// The operations of a measurement. A rank that cannot go on fails those that are left, for which the others wait.
class Operations {
 public:
  Operations(engine::Engine& engine, int left) : engine_(engine), left_(left) {}
  ~Operations() {
    for (; left_ > 0; --left_) engine_.fail_next("this rank could not measure the machine");
  }
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;

  /// No others follow.
  void done() { left_ = 0; }
  double run(Plan plan, ConstBytes input, Bytes output, std::uint64_t signature) {
    const auto shared = std::make_shared<const Plan>(std::move(plan));
    const Clock::time_point begin = Clock::now();
    const auto run = engine_.start(shared, {.input = input, .output = output}, {}, signature);
    --left_;
    run->wait();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }
  void meet(const Team& team) {
    const Collective collective{.kind = CollectiveKind::barrier};
    run(plan_collective(team, collective), {}, {}, signature(collective));
  }
  /// From rank 0.
  void tell(const Team& team, Told& all) {
    const Bytes data = std::as_writable_bytes(std::span(&all, 1));
    const Collective collective{.kind = CollectiveKind::bcast, .count = data.size()};
    run(plan_collective(team, collective), {}, data, signature(collective));
  }

 private:
  engine::Engine& engine_;
  int left_;
};

/// Seconds of one message, by what, pairs and length.
class Found {
 public:
  Found(const std::vector<Trial>& trials, const std::vector<double>& seconds) {
    for (std::size_t i = 0; i + 1 < trials.size(); i += 2) {
      const double difference = (seconds[i + 1] - seconds[i]) / (trials[i + 1].count - trials[i].count);
      // On a busy machine the shorter run can take as long as the longer one.
      const double most = seconds[i + 1] / trials[i + 1].count;
      each_[{trials[i].what, trials[i].pairs, trials[i].bytes}] = std::clamp(difference, most / 2, most);
    }
  }
  double of(Trial::What what, const std::vector<std::pair<int, int>>& pairs, std::uint64_t bytes) const {
    return each_.at({what, pairs, bytes});
  }

 private:
  std::map<std::tuple<Trial::What, std::vector<std::pair<int, int>>, std::uint64_t>, double> each_;
};

/// The longest message without a handshake: where messages become longer by two latencies.
std::uint64_t eager_limit(const Found& found, const std::vector<std::pair<int, int>>& one, double latency, double base,
                          double per_byte) {
  std::uint64_t best = kMiB / 4;
  double least = -1;
  for (std::uint64_t limit = 1 << 9; limit <= kMiB / 4; limit *= 2) {
    double error = 0;
    for (std::uint64_t bytes = 1 << 10; bytes <= kMiB / 4; bytes *= 2) {
      const double expected = base + static_cast<double>(bytes) * per_byte + (bytes > limit ? 2 * latency : 0);
      const double ratio = std::log(found.of(Trial::What::bounce, one, bytes) / expected);
      error += ratio * ratio;
    }
    if (least < 0 || error < least) {
      least = error;
      best = limit;
    }
  }
  return best;
}

void between_nodes(const Found& found, const Parties& parties, Machine::Network& network) {
  const std::vector<std::pair<int, int>> one = {parties.between[0]};
  const double hop = found.of(Trial::What::bounce, one, kShort);
  const auto per_byte = [&](const std::vector<std::pair<int, int>>& pairs) {
    return seconds_per_byte(found.of(Trial::What::bounce, pairs, kMiB), found.of(Trial::What::bounce, pairs, 2 * kMiB),
                            kMiB);
  };
  network.process_seconds_per_byte = per_byte(one);
  network.seconds_per_byte = network.process_seconds_per_byte;
  if (parties.between.size() > 1)
    network.seconds_per_byte = std::min(per_byte(parties.between) / static_cast<double>(parties.between.size()),
                                        network.process_seconds_per_byte);
  // Short messages of a burst are often sent together. Longer ones show what each costs besides its bytes.
  const double segment =
      found.of(Trial::What::burst, one, kSegment) - static_cast<double>(kSegment) * network.process_seconds_per_byte;
  network.gap_seconds = std::min(std::max(found.of(Trial::What::burst, one, kShort), segment), hop / 2);
  network.overhead_seconds = std::min(found.of(Trial::What::hand_over, one, kShort), (hop - network.gap_seconds) / 3);
  network.latency_seconds = hop - 2 * network.overhead_seconds - network.gap_seconds;
  network.latency_seconds = std::max(network.latency_seconds, hop / 10);
  network.eager_bytes = eager_limit(found, one, network.latency_seconds, hop, network.process_seconds_per_byte);
}

void beside(const Found& found, const Parties& parties, bool single_copy, std::uint64_t message_bytes,
            Machine::Node& node) {
  const std::vector<std::pair<int, int>> pair = {{0, parties.beside}};
  const auto hop = [&](std::uint64_t bytes) { return found.of(Trial::What::bounce, pair, bytes); };
  node.flag_seconds = hop(kShort);
  // Copied in and out; no faster than a core copies alone, whatever the noise.
  const double alone = node.copy_seconds_per_byte;
  node.copy_seconds_per_byte =
      std::max((hop(kMiB / 128) - hop(kMiB / 256)) / static_cast<double>(2 * (kMiB / 128 - kMiB / 256)), alone);
  node.message_bytes = message_bytes;
  if (!single_copy) return;
  const double call = node.remote_read_seconds;  // on a core alone
  node.remote_read_seconds_per_byte = std::max((hop(2 * kMiB) - hop(kMiB)) / static_cast<double>(kMiB), alone);
  node.remote_read_seconds = std::max(
      hop(kMiB / 16) - static_cast<double>(kMiB / 16) * node.remote_read_seconds_per_byte - node.flag_seconds, call);
}

double seconds_once(const std::function<void()>& work) {
  const Clock::time_point begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double seconds_of(const std::function<void()>& work, int count) {
  double least = std::numeric_limits<double>::max();
  const auto all = [&] {
    for (int i = 0; i < count; ++i) work();
  };
  for (int repeat = 0; repeat < kRepeats; ++repeat) least = std::min(least, seconds_once(all) / count);
  return least;
}

/// What one core does alone.
void on_a_core(Machine::Node& node) {
  if (const long bytes = ::sysconf(_SC_LEVEL2_CACHE_SIZE); bytes > 0)
    node.cache_bytes = static_cast<std::uint64_t>(bytes);
  std::set<int> cores;
  for (const engine::Cpu& cpu : engine::topology().cpus) cores.insert(cpu.core);
  node.cores = std::max(1, static_cast<int>(cores.size()));
  const auto far = static_cast<std::size_t>(std::max<std::uint64_t>(node.cache_bytes * 8, 16 * kMiB));
  std::vector<std::byte> from(far, std::byte{1});
  std::vector<std::byte> to(far, std::byte{2});
  const std::size_t near = kMiB / 16;
  const Arithmetic arithmetic{.dtype = DType::float32};
  const double combine =
      seconds_of([&] { kernels::reduce(arithmetic, ConstBytes(from).first(near), Bytes(to).first(near)); }, 100);
  const double near_copy = seconds_of([&] { std::memcpy(to.data(), from.data(), near); }, 100);
  const double far_copy = seconds_of([&] { std::memcpy(to.data(), from.data(), far); }, 1);
  node.combine_seconds_per_byte = combine / static_cast<double>(near);
  const double per_byte = near_copy / static_cast<double>(near);
  node.copy_seconds_per_byte = per_byte;
  iovec one_byte{from.data(), 1};
  iovec into{to.data(), 1};
  node.remote_read_seconds =
      seconds_of([&] { static_cast<void>(::process_vm_readv(::getpid(), &into, 1, &one_byte, 1, 0)); }, 100);
  node.uncached_factor = std::clamp(far_copy / static_cast<double>(far) / per_byte, 1.0, 10.0);
}

/// What a shared task costs besides its reads: the difference to messages of a broadcast to this node's ranks.
double task_seconds(Operations& operations, const Team& team, const Machine::Node& node) {
  const std::array<std::string, 2> rows = {"hierarchical", "node_shared"};
  std::array<double, 2> least{};
  least.fill(std::numeric_limits<double>::max());
  std::array<std::byte, kShort> data{};
  for (int repeat = 0; repeat < kShortRepeats; ++repeat)
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Collective collective{.kind = CollectiveKind::bcast, .count = kShort, .algorithm = rows[i]};
      operations.meet(team);
      least[i] = std::min(least[i], seconds_once([&] {
                            operations.run(plan_collective(team, collective), {}, data, signature(collective));
                            operations.meet(team);
                          }));
    }
  return std::max(least[1] - least[0] + node.flag_seconds - node.remote_read_seconds, node.task_seconds);
}

double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// How many ranks take turns on a core, on one node or, if nodes are emulated on one machine, on several: the time
/// until all have worked for the same processor time, by that time. All ranks call it; rank 0's result counts.
double ranks_per_core(Operations& operations, const Team& team) {
  const std::vector<std::byte> from(kMiB / 16, std::byte{1});
  std::vector<std::byte> to(kMiB / 16, std::byte{2});
  const Arithmetic arithmetic{.dtype = DType::float32};
  double own = std::numeric_limits<double>::max();
  double all = own;
  operations.meet(team);
  for (int repeat = 0; repeat < kRepeats; ++repeat)
    all = std::min(all, seconds_once([&] {
                     const double begin = processor_seconds();
                     double used = 0;
                     for (; used < kSharedCoreSeconds; used = processor_seconds() - begin)
                       kernels::reduce(arithmetic, ConstBytes(from), Bytes(to));
                     own = std::min(own, used);
                     operations.meet(team);
                   }));
  return all / own;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

/// The speeds of the host's network interfaces, so that hosts of one name on other networks have their own file.
std::string network_speeds() {
  std::set<std::string> speeds;
  const auto add = [&](const std::filesystem::path& path) {
    const std::string text = text_of(path.string());
    const std::string speed = text.substr(0, text.find('\n'));
    if (!speed.empty() && speed != "-1") speeds.insert(speed);
  };
  std::error_code ignored;
  for (const auto& each : std::filesystem::directory_iterator("/sys/class/net", ignored)) add(each.path() / "speed");
  for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband", ignored))
    for (const auto& port : std::filesystem::directory_iterator(device.path() / "ports", ignored))
      add(port.path() / "rate");
  std::string all;
  for (const std::string& speed : speeds) all += (all.empty() ? "" : " and ") + speed;
  return all;
}

/// What machines have in common that have the same costs: processor, network, MPI, the kind of host and of team.
std::string key_of(const Facts& facts, const Parties& parties) {
  std::string processor;
  std::istringstream lines(text_of("/proc/cpuinfo"));
  for (std::string line; processor.empty() && std::getline(lines, line);)
    if (line.starts_with("model name") || line.starts_with("CPU part")) processor = line.substr(line.find(':') + 1);
  std::array<char, 256> name{};
  static_cast<void>(::gethostname(name.data(), name.size() - 1));
  std::string host(name.data());
  host.resize(host.find_last_not_of("0123456789") + 1);
  return host + "," + processor + "," + std::to_string(engine::topology().cpus.size()) + " CPUs," + facts.mpi +
         ",network " + network_speeds() + "," + std::to_string(parties.between.size()) + " pairs between nodes," +
         (parties.beside < 0 ? "one rank" : "ranks") + " per node,single copy " +
         (facts.team.single_copy ? "on" : "off");
}

constexpr std::uint64_t kFileVersion = 2;  // 1: other meaning of the gap
constexpr double kUnit = 1e-18;            // of times in files, which have integers

std::string to_text(const std::string& key, Machine machine) {
  json::Object object;
  object.string("format", "penstock-machine").number("version", kFileVersion).string("key", key);
  for (const auto& each : kMachineTimes)
    object.number(each.name, static_cast<std::uint64_t>(std::llround(*each.of(machine) / kUnit)));
  for (const auto& each : kMachineCounts) object.number(each.name, *each.of(machine));
  object.number("cores", machine.node.cores);
  return object.finish() + "\n";
}

std::optional<Machine> from_text(const std::string& key, const std::string& text) {
  try {
    const json::Value value = json::Value::parse(text);
    if (value.at("format").text() != "penstock-machine" || value.at("version").number() != kFileVersion ||
        value.at("key").text() != key)
      return std::nullopt;
    Machine machine;
    for (const auto& each : kMachineTimes)
      *each.of(machine) = static_cast<double>(value.at(each.name).number()) * kUnit;
    for (const auto& each : kMachineCounts) *each.of(machine) = value.at(each.name).number();
    machine.node.cores = static_cast<int>(std::clamp<std::uint64_t>(value.at("cores").number(), 1, 1 << 16));
    return machine;
  } catch (const Error&) {
    return std::nullopt;  // measured again
  }
}

std::filesystem::path file_of(const std::string& key) {
  std::filesystem::path folder = options().machine_folder;
  if (folder == "none") return {};
  if (folder.empty()) {
    const char* cache = std::getenv("XDG_CACHE_HOME");
    const char* home = std::getenv("HOME");
    if (cache != nullptr && *cache != 0)
      folder = std::filesystem::path(cache) / "penstock";
    else if (home != nullptr && *home != 0)
      folder = std::filesystem::path(home) / ".cache" / "penstock";
    else
      return {};
  }
  std::array<char, 17> name{};
  std::snprintf(name.data(), name.size(), "%016llx", static_cast<unsigned long long>(base::mix(base::kSeed, key)));
  return folder / ("machine-" + std::string(name.data()) + ".json");
}

/// Complete or not at all: other jobs may read it now.
void keep(const std::filesystem::path& path, const std::string& text) {
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  const std::filesystem::path draft = path.string() + "." + std::to_string(::getpid());
  std::ofstream file(draft);
  const bool is_written = static_cast<bool>(file << text << std::flush);
  file.close();
  if (is_written) std::filesystem::rename(draft, path, ignored);
  if (!is_written || ignored) std::filesystem::remove(draft, ignored);
}

/// What this process has measured, for communicators made later: where no file can be kept.
class Remembered {
 public:
  void add(const std::string& key, const Machine& machine) {
    const std::lock_guard lock(mutex_);
    machines_[key] = machine;
  }
  std::optional<Machine> find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto known = machines_.find(key);
    return known == machines_.end() ? std::nullopt : std::optional(known->second);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, Machine> machines_;
};

Remembered& remembered() {
  static Remembered all;
  return all;
}

}  // namespace

double seconds_per_byte(double once, double twice, std::uint64_t bytes) {
  return std::max((twice - once) / static_cast<double>(bytes), twice / 2 / static_cast<double>(2 * bytes));
}

MeasuredMachine measured_machine(engine::Engine& engine, const Facts& facts, bool again) {
  const Team& team = facts.team;
  const Parties parties = parties_of(team);
  const std::vector<Trial> trials = trials_of(parties);
  int runs = 0;
  for (const Trial& trial : trials) runs += trial.repeats();
  const bool has_tasks = parties.beside >= 0 && collectives::shared_nodes(team, {.kind = CollectiveKind::bcast});
  if (has_tasks) runs += kShortRepeats * 2 * 3;  // of two rows: meet, broadcast, meet
  Operations operations(engine, 2 + runs + 1 + kRepeats);
  const bool decides = team.rank == 0;
  MeasuredMachine result;
  Told all;
  std::string key;
  std::filesystem::path path;
  if (decides) {
    key = key_of(facts, parties);
    path = file_of(key);
    std::optional<Machine> known;
    if (!again && !path.empty()) known = from_text(key, text_of(path.string()));
    if (known) result.source = "read from " + path.string();
    if (!again && !known) {
      known = remembered().find(key);
      if (known) result.source = "measured before by this process";
    }
    if (known) {
      all = told(*known);
      all.known = 1;
    }
  }
  operations.tell(team, all);
  result.has_network = !parties.between.empty();
  result.has_node = parties.beside >= 0;
  if (all.known != 0) {
    operations.done();
    result.machine = machine_of(all);
    return result;
  }
  const Clock::time_point begin = Clock::now();
  std::vector<std::byte> input(2 * kMiB, std::byte{1});
  std::vector<std::byte> output(2 * kMiB);
  std::vector<double> seconds(trials.size(), std::numeric_limits<double>::max());
  for (int repeat = 0; repeat < kShortRepeats; ++repeat)
    for (std::size_t i = 0; i < trials.size(); ++i) {
      if (repeat >= trials[i].repeats()) continue;
      const auto bytes = static_cast<std::size_t>(trials[i].bytes);
      const double each = operations.run(plan_of(trials[i], team.rank, team.size()), ConstBytes(input).first(bytes),
                                         Bytes(output).first(bytes), i);
      seconds[i] = std::min(seconds[i], each);
    }
  const double per_core = ranks_per_core(operations, team);
  Machine machine;
  if (decides) {
    const Found found(trials, seconds);
    if (!parties.between.empty()) between_nodes(found, parties, machine.network);
    on_a_core(machine.node);
    const auto here = std::ranges::count(team.node_of_rank, team.node_of_rank[0]);
    if (per_core > kSharesCore)
      machine.node.cores =
          std::clamp(static_cast<int>(std::lround(static_cast<double>(here) / per_core)), 1, machine.node.cores);
    if (parties.beside >= 0) beside(found, parties, team.single_copy, options().eager_bytes, machine.node);
    // Between the cores of a domain and those of others there is nothing but the default's ratio.
    machine.node.far_copy_seconds_per_byte = 2 * machine.node.copy_seconds_per_byte;
  }
  // For the others only the operations count.
  if (has_tasks) machine.node.task_seconds = task_seconds(operations, team, machine.node);
  if (decides) {
    // As later jobs read it.
    all = told(from_text(key, to_text(key, machine)).value_or(machine));
  }
  operations.tell(team, all);
  result.machine = machine_of(all);
  result.source = "measured now";
  result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (decides) {
    remembered().add(key, result.machine);
    if (!path.empty()) keep(path, to_text(key, result.machine));
  }
  return result;
}

}  // namespace penstock::comm
