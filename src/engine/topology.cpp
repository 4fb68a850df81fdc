#include "engine/topology.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>

#ifdef PENSTOCK_HWLOC
#include <hwloc.h>
#endif

namespace penstock::engine {
namespace {

std::optional<std::string> line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

/// The lowest CPU of the set in that file, which names the set; or `otherwise`.
int first_cpu(const std::string& path, int otherwise) {
  const std::optional<std::string> line = line_of(path);
  const std::vector<int> cpus = line ? CpuSet::parse(*line).cpus() : std::vector<int>{};
  return cpus.empty() ? otherwise : cpus.front();
}

int last_level_cache(const std::string& cpu_folder) {
  int level = 0;
  int cache = 0;
  for (int index = 0;; ++index) {
    const std::string folder = cpu_folder + "/cache/index" + std::to_string(index);
    const std::optional<std::string> line = line_of(folder + "/level");
    if (!line) return cache;
    const int found = std::atoi(line->c_str());
    if (found < level) continue;
    level = found;
    cache = first_cpu(folder + "/shared_cpu_list", 0);
  }
}

#ifdef PENSTOCK_HWLOC

std::optional<Topology> read_topology_by_hwloc() {
  struct Destroy {
    void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
  };
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return std::nullopt;
  const std::unique_ptr<hwloc_topology, Destroy> machine(raw);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_MISC, HWLOC_TYPE_FILTER_KEEP_NONE);
#if HWLOC_API_VERSION >= 0x00020100
  // It moves the calling thread from CPU to CPU, to learn what Linux says as well.
  hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
#endif
  if (hwloc_topology_load(raw) != 0) return std::nullopt;

  Topology topology;
  topology.source = "hwloc, API " + std::to_string(hwloc_get_api_version() >> 16) + "." +
                    std::to_string(hwloc_get_api_version() >> 8 & 0xff);
  for (hwloc_obj_t pu = nullptr; (pu = hwloc_get_next_obj_by_type(raw, HWLOC_OBJ_PU, pu)) != nullptr;) {
    Cpu cpu{.number = static_cast<int>(pu->os_index), .core = static_cast<int>(pu->logical_index)};
    for (hwloc_obj_t above = pu->parent; above != nullptr; above = above->parent) {
      if (above->type == HWLOC_OBJ_CORE) cpu.core = static_cast<int>(above->logical_index);
      // The outermost one is met last. Ids of caches of different levels must differ.
      if (hwloc_obj_type_is_dcache(above->type))
        cpu.cache = static_cast<int>(above->logical_index) * 16 + static_cast<int>(above->attr->cache.depth);
    }
    const int node = pu->nodeset == nullptr ? -1 : hwloc_bitmap_first(pu->nodeset);
    const hwloc_obj_t memory =
        node < 0 ? nullptr : hwloc_get_numanode_obj_by_os_index(raw, static_cast<unsigned>(node));
    cpu.node = memory == nullptr ? 0 : static_cast<int>(memory->logical_index);
    if (cpu.number < CpuSet::kMaxCpus) topology.cpus.push_back(cpu);
  }
  if (topology.cpus.empty()) return std::nullopt;
  std::sort(topology.cpus.begin(), topology.cpus.end(), [](const Cpu& a, const Cpu& b) { return a.number < b.number; });

  unsigned count = 1;
  hwloc_distances_s* distances = nullptr;
  if (hwloc_distances_get_by_type(raw, HWLOC_OBJ_NUMANODE, &count, &distances, HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0) ==
          0 &&
      count > 0 && distances != nullptr) {
    const unsigned nodes = distances->nbobjs;
    topology.node_distances.assign(nodes, std::vector<int>(nodes));
    for (unsigned i = 0; i < nodes * nodes; ++i)
      topology.node_distances[i / nodes][i % nodes] = static_cast<int>(distances->values[i]);
    hwloc_distances_release(raw, distances);
  }
  return topology;
}

#endif

}  // namespace

CpuSet Topology::all() const {
  CpuSet all;
  for (const Cpu& cpu : cpus) all.add(cpu.number);
  return all;
}

int Topology::distance(const Cpu& a, const Cpu& b) const {
  constexpr int kOtherNode = 20;  // what firmware tells of a neighbour
  if (a.core == b.core) return 0;
  if (a.node == b.node) return a.cache == b.cache ? 1 : 2;
  const auto from = static_cast<std::size_t>(a.node);
  const auto to = static_cast<std::size_t>(b.node);
  if (from >= node_distances.size() || to >= node_distances.size()) return kOtherNode;
  return std::max(3, node_distances[from][to]);
}

Topology read_topology_from_sys(const std::string& root, const CpuSet& allowed) {
  Topology topology;
  topology.source = "/sys";
  CpuSet cpus = allowed;
  if (const std::optional<std::string> online = line_of(root + "/cpu/online")) cpus &= CpuSet::parse(*online);
  if (cpus.empty()) cpus.add(0);

  std::map<int, int> node_of_cpu;
  const CpuSet nodes = CpuSet::parse(line_of(root + "/node/online").value_or("0"));
  for (const int node : nodes.cpus()) {
    const std::string folder = root + "/node/node" + std::to_string(node);
    const int index = static_cast<int>(topology.node_distances.size());
    for (const int cpu : CpuSet::parse(line_of(folder + "/cpulist").value_or("")).cpus()) node_of_cpu[cpu] = index;
    std::istringstream distances(line_of(folder + "/distance").value_or(""));
    topology.node_distances.emplace_back();
    for (int distance = 0; distances >> distance;) topology.node_distances.back().push_back(distance);
  }
  const bool square = std::all_of(topology.node_distances.begin(), topology.node_distances.end(),
                                  [&](const auto& row) { return row.size() == topology.node_distances.size(); });
  if (!square) topology.node_distances.clear();

  for (const int number : cpus.cpus()) {
    const std::string folder = root + "/cpu/cpu" + std::to_string(number);
    topology.cpus.push_back({.number = number,
                             .core = first_cpu(folder + "/topology/thread_siblings_list", number),
                             .cache = last_level_cache(folder),
                             .node = node_of_cpu.contains(number) ? node_of_cpu.at(number) : 0});
  }
  return topology;
}

Topology read_topology() {
#ifdef PENSTOCK_HWLOC
  if (std::optional<Topology> found = read_topology_by_hwloc()) return *std::move(found);
#endif
  return read_topology_from_sys("/sys/devices/system", allowed_cpus());
}

const Topology& topology() {
  static const Topology read = read_topology();
  return read;
}

}  // namespace penstock::engine
