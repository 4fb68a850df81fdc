// penstock-simgrid: simulates collectives on a SimGrid platform. `penstock simulate` runs it, in a process of its own
// since SimGrid ends the process if it cannot read a platform.
//
// Standard input is one JSON object: platform (a path), nodes and ranks_per_node (0: all), operation, bytes (a list),
// algorithms (a list; "": what Penstock chooses by cost), root, charges ("machine", "equal"). Standard output is one
// JSON object per line: first the team with its machine, then each result as it is known. An error is an object with
// error and code, and status 1.
#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <simgrid/s4u.hpp>

#include "base/json.hpp"
#include "penstock/choice_by_cost.hpp"
#include "penstock/collective.hpp"
#include "penstock/cost_model.hpp"
#include "penstock/error.hpp"
#include "simgrid/executor.hpp"
#include "simgrid/platform.hpp"

namespace {

using namespace penstock;

constexpr std::uint64_t kMostRanks = 1 << 20;

void print(const std::string& line) {
  std::cout << line << std::endl;  // flushed: whoever started this program shows its progress
}

std::string digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

/// `bytes` are those of MPI's count: of the message, or of one block.
Collective collective_of(const std::string& operation, std::uint64_t bytes, int root) {
  Collective collective{.kind = collective_kind_from_name(operation), .root = root};
  if (has_counts(collective.kind) || is_neighborhood(collective.kind))
    throw Error(ErrorCode::invalid_argument,
                "operation is " + operation + "; expected one without a list of counts and without neighbours");
  if (computes(collective.kind)) collective.dtype = DType::float32;
  if (bytes % collective.item_bytes() != 0)
    throw Error(ErrorCode::invalid_argument, "bytes is " + std::to_string(bytes) + "; expected a multiple of " +
                                                 std::to_string(collective.item_bytes()) + ", the size of a float32");
  collective.count = bytes / collective.item_bytes();
  return collective;
}

void load(const simgrid::s4u::Engine& engine, const std::string& platform) {
  try {
    engine.load_platform(platform);
  } catch (const std::exception& error) {
    throw Error(ErrorCode::invalid_argument, "SimGrid cannot read the platform", -1, error.what());
  }
}

void simulate(const simgrid::s4u::Engine& engine, const json::Value& request) {
  const std::vector<simgrid::s4u::Host*> hosts =
      simulated::hosts_of(engine, static_cast<int>(request.at("nodes").number()));
  const Machine machine = simulated::machine_of(engine, hosts);
  const std::uint64_t asked = request.at("ranks_per_node").number();
  const std::uint64_t ranks_per_node = asked == 0 ? static_cast<std::uint64_t>(machine.node.cores) : asked;
  if (ranks_per_node > kMostRanks / hosts.size())
    throw Error(ErrorCode::invalid_argument, "ranks_per_node is " + std::to_string(ranks_per_node) +
                                                 "; expected at most " + std::to_string(kMostRanks) + " ranks in all");
  Team team = simulated::team_of(hosts, static_cast<int>(ranks_per_node));
  std::string names;
  for (const simgrid::s4u::Host* host : hosts) names += (names.empty() ? "" : ", ") + json::quoted(host->get_name());
  print(json::Object()
            .number("nodes", hosts.size())
            .number("ranks_per_node", ranks_per_node)
            .raw("hosts", "[" + names + "]")
            .raw("machine", to_json(machine))
            .finish());
  Team chooser = team;
  const bool as_peers = request.at("charges").text() == "equal";
  const simulated::Charges charges = as_peers ? simulated::Charges::as_peers : simulated::Charges::machine;
  chooser.by_cost = std::make_shared<const ChoiceByCost>(team, as_charged(machine, *hosts[0], charges));
  for (const json::Value& bytes : request.at("bytes").items())
    for (const json::Value& algorithm : request.at("algorithms").items()) {
      Collective collective =
          collective_of(request.at("operation").text(), bytes.number(), static_cast<int>(request.at("root").number()));
      collective.algorithm = algorithm.text();
      const Choice choice = choose(chooser, collective);
      collective.algorithm = choice.algorithm->name;
      collective.segment_bytes = choice.segment_bytes;
      collective.radix = choice.radix;
      std::vector<Plan> plans;
      std::uint64_t steps = 0;
      for (team.rank = 0; team.rank < team.size(); ++team.rank) {
        plans.push_back(plan_collective(team, collective));
        steps += plans.back().steps.size();
      }
      print(json::Object()
                .number("bytes", bytes.number())
                .string("algorithm", choice.algorithm->name)
                .string("reason", choice.reason)
                .number("steps", steps)
                .raw("seconds", digits(simulated::run(engine, hosts, plans, team, machine, {}, charges)))
                .finish());
    }
}

int fail(const char* code, const char* why) {
  print(json::Object().string("error", why).string("code", code).finish());
  return 1;
}

}  // namespace

int main(int, char** argv) {
  try {
    const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
    const json::Value request = json::Value::parse(text);
    std::string quiet = "--log=root.thresh:warning";
    std::array arguments{argv[0], quiet.data(), static_cast<char*>(nullptr)};
    int count = 2;
    simgrid::s4u::Engine engine(&count, arguments.data());
    simulated::set_network_model();
    load(engine, request.at("platform").text());
    simulate(engine, request);
    return 0;
  } catch (const Error& error) {
    return fail(std::string(name(error.code())).c_str(), error.what());
  } catch (const std::exception& error) {
    return fail("internal", error.what());
  }
}
