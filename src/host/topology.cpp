#include "host/topology.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>

#ifdef PENSTOCK_HWLOC
#include <dlfcn.h>
#include <hwloc.h>
#endif

namespace penstock::host {
namespace {

constexpr const char* kSystem = "/sys/devices/system";

std::optional<std::string> line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

CpuSet cpus_in(const std::string& path) { return CpuSet::parse(line_of(path).value_or("")); }

/// The lowest CPU, which identifies the set; or `otherwise`.
int first_of(const CpuSet& cpus, int otherwise) { return cpus.empty() ? otherwise : cpus.cpus().front(); }

/// The CPUs that share the last-level cache of one; empty if it is unknown.
CpuSet last_level_cache_cpus(const std::string& cpu_folder) {
  int level = 0;
  CpuSet cpus;
  for (int index = 0;; ++index) {
    const std::string folder = cpu_folder + "/cache/index" + std::to_string(index);
    const std::optional<std::string> line = line_of(folder + "/level");
    if (!line) return cpus;
    const int found = std::atoi(line->c_str());
    if (found < level) continue;
    level = found;
    cpus = cpus_in(folder + "/shared_cpu_list");
  }
}

#ifdef PENSTOCK_HWLOC

// Opened by dlopen when it is needed: MPI has then loaded the hwloc that it wants. If Penstock linked hwloc, an older
// version could be loaded first and replace MPI's.
class Hwloc {
 public:
  static const Hwloc* open() {
    static const Hwloc library;
    return library.is_complete_ && library.get_api_version() >> 16 == HWLOC_API_VERSION >> 16 ? &library : nullptr;
  }

 private:
  void* const handle_ = ::dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL);  // the interface of all of hwloc 2
  bool is_complete_ = handle_ != nullptr;

  template <typename Function>
  Function find(const char* name) {
    void* const found = handle_ == nullptr ? nullptr : ::dlsym(handle_, name);
    is_complete_ = is_complete_ && found != nullptr;
    return reinterpret_cast<Function>(found);
  }

 public:
#define PENSTOCK_HWLOC_FUNCTION(name) \
  decltype(&hwloc_##name) const name = find<decltype(&hwloc_##name)>("hwloc_" #name);
  PENSTOCK_HWLOC_FUNCTION(get_api_version)
  PENSTOCK_HWLOC_FUNCTION(topology_init)
  PENSTOCK_HWLOC_FUNCTION(topology_set_io_types_filter)
  PENSTOCK_HWLOC_FUNCTION(topology_set_components)
  PENSTOCK_HWLOC_FUNCTION(topology_load)
  PENSTOCK_HWLOC_FUNCTION(topology_destroy)
  PENSTOCK_HWLOC_FUNCTION(get_type_depth)
  PENSTOCK_HWLOC_FUNCTION(get_nbobjs_by_depth)
  PENSTOCK_HWLOC_FUNCTION(get_obj_by_depth)
  PENSTOCK_HWLOC_FUNCTION(obj_type_is_dcache)
  PENSTOCK_HWLOC_FUNCTION(bitmap_isset)
  PENSTOCK_HWLOC_FUNCTION(distances_get_by_type)
  PENSTOCK_HWLOC_FUNCTION(distances_release)
#undef PENSTOCK_HWLOC_FUNCTION

  std::vector<hwloc_obj_t> objects(hwloc_topology_t topology, hwloc_obj_type_t type) const {
    std::vector<hwloc_obj_t> objects;
    const int depth = get_type_depth(topology, type);
    for (unsigned i = 0; i < get_nbobjs_by_depth(topology, depth); ++i)
      objects.push_back(get_obj_by_depth(topology, depth, i));
    return objects;
  }
};

std::optional<Topology> read_topology_by_hwloc() {
  const Hwloc* const hwloc = Hwloc::open();
  hwloc_topology_t raw = nullptr;
  if (hwloc == nullptr || hwloc->topology_init(&raw) != 0) return std::nullopt;
  const auto destroy = [hwloc](hwloc_topology* topology) { hwloc->topology_destroy(topology); };
  const std::unique_ptr<hwloc_topology, decltype(destroy)> machine(raw, destroy);
  hwloc->topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  // The x86 component moves the calling thread over all CPUs, for information that Linux gives too.
  hwloc->topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  if (hwloc->topology_load(raw) != 0) return std::nullopt;

  Topology topology;
  const unsigned version = hwloc->get_api_version();
  topology.source = "hwloc, API " + std::to_string(version >> 16) + "." + std::to_string(version >> 8 & 0xff);
  const std::vector<hwloc_obj_t> nodes = hwloc->objects(raw, HWLOC_OBJ_NUMANODE);
  for (const hwloc_obj_t pu : hwloc->objects(raw, HWLOC_OBJ_PU)) {
    Cpu cpu{.number = static_cast<int>(pu->os_index), .core = static_cast<int>(pu->logical_index)};
    for (hwloc_obj_t above = pu->parent; above != nullptr; above = above->parent) {
      if (above->type == HWLOC_OBJ_CORE) cpu.core = static_cast<int>(above->logical_index);
      // The outermost cache comes last. Ids of caches of different levels must differ.
      if (hwloc->obj_type_is_dcache(above->type))
        cpu.cache = static_cast<int>(above->logical_index) * 16 + static_cast<int>(above->attr->cache.depth);
    }
    const auto memory = std::find_if(nodes.begin(), nodes.end(), [&](hwloc_obj_t node) {
      return node->cpuset != nullptr && hwloc->bitmap_isset(node->cpuset, pu->os_index) != 0;
    });
    cpu.node = memory == nodes.end() ? 0 : static_cast<int>((*memory)->logical_index);
    if (cpu.number < CpuSet::kMaxCpus) topology.cpus.push_back(cpu);
  }
  if (topology.cpus.empty()) return std::nullopt;
  std::sort(topology.cpus.begin(), topology.cpus.end(), [](const Cpu& a, const Cpu& b) { return a.number < b.number; });

  unsigned count = 1;
  hwloc_distances_s* distances = nullptr;
  if (hwloc->distances_get_by_type(raw, HWLOC_OBJ_NUMANODE, &count, &distances, HWLOC_DISTANCES_KIND_MEANS_LATENCY,
                                   0) == 0 &&
      count > 0 && distances != nullptr) {
    const unsigned size = distances->nbobjs;
    topology.node_distances.assign(size, std::vector<int>(size));
    for (unsigned i = 0; i < size * size; ++i)
      topology.node_distances[i / size][i % size] = static_cast<int>(distances->values[i]);
    hwloc->distances_release(raw, distances);
  }
  return topology;
}

#endif

}  // namespace

int domain_of(const std::string& root, const CpuSet& bound) {
  if (bound.empty()) return -1;
  const int first = bound.cpus().front();
  CpuSet domain = last_level_cache_cpus(root + "/cpu/cpu" + std::to_string(first));
  for (const int node : cpus_in(root + "/node/online").cpus()) {
    const CpuSet cpus = cpus_in(root + "/node/node" + std::to_string(node) + "/cpulist");
    if (!cpus.has(first)) continue;
    domain = domain.empty() ? cpus : domain & cpus;
    break;
  }
  if (domain.empty()) return 0;
  return (bound & domain) == bound ? first_of(domain, 0) : -1;
}

CacheSizes cache_sizes(const std::string& root, const CpuSet& cpus) {
  CacheSizes sizes;
  if (cpus.empty()) return sizes;
  const std::string first = root + "/cpu/cpu" + std::to_string(cpus.cpus().front()) + "/cache/index";
  int last = 0;
  for (int index = 0;; ++index) {
    const std::string folder = first + std::to_string(index);
    const std::optional<std::string> level = line_of(folder + "/level");
    if (!level) return sizes;
    const int found = std::atoi(level->c_str());
    const auto bytes = static_cast<std::uint64_t>(std::atoll(line_of(folder + "/size").value_or("0K").c_str())) << 10;
    if (bytes == 0) continue;
    if (found == 2) sizes.core = bytes;
    if (found < last) continue;
    last = found;
    sizes.last = bytes;
  }
}

const CacheSizes& cache_sizes() {
  static const CacheSizes read = cache_sizes(kSystem, cpus_of_this_process());
  return read;
}

CpuSet Topology::all() const {
  CpuSet all;
  for (const Cpu& cpu : cpus) all.add(cpu.number);
  return all;
}

int Topology::distance(const Cpu& a, const Cpu& b) const {
  constexpr int kOtherNode = 20;  // the usual SLIT distance of a neighbour
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
    for (const int cpu : cpus_in(folder + "/cpulist").cpus()) node_of_cpu[cpu] = index;
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
                             .core = first_of(cpus_in(folder + "/topology/thread_siblings_list"), number),
                             .cache = first_of(last_level_cache_cpus(folder), 0),
                             .node = node_of_cpu.contains(number) ? node_of_cpu.at(number) : 0});
  }
  return topology;
}

Topology read_topology() {
#ifdef PENSTOCK_HWLOC
  if (std::optional<Topology> found = read_topology_by_hwloc()) return *std::move(found);
#endif
  return read_topology_from_sys(kSystem, allowed_cpus());
}

const Topology& topology() {
  static const Topology read = [] {
    // hwloc takes several times as long as reading the same files. It also knows of topologies that are emulated.
    const bool is_emulated = std::getenv("HWLOC_XMLFILE") != nullptr || std::getenv("HWLOC_SYNTHETIC") != nullptr;
    const std::string root = kSystem;
    const bool has_files = line_of(root + "/cpu/online") && line_of(root + "/node/online") &&
                           line_of(root + "/cpu/cpu0/topology/thread_siblings_list");
    return has_files && !is_emulated ? read_topology_from_sys(root, allowed_cpus()) : read_topology();
  }();
  return read;
}

}  // namespace penstock::host
