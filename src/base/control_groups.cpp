#include "base/control_groups.hpp"

#include <fstream>
#include <sstream>
#include <utility>

namespace penstock {

std::vector<ControlGroup> control_groups(const std::string& groups, const std::string& mount,
                                         std::string_view controller) {
  std::vector<ControlGroup> found;
  std::istringstream lines(groups);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && (',' + controllers + ',').find(',' + std::string(controller) + ',') == std::string::npos) continue;
    for (std::string group = line.substr(second + 1);;) {
      if (group == "/") group.clear();
      for (const std::string& place : unified
                                          ? std::vector<std::string>{"", "/unified"}
                                          : std::vector<std::string>{'/' + std::string(controller), '/' + controllers})
        found.push_back({mount + place + group, unified});
      if (group.empty()) break;
      group.erase(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
    }
  }
  return found;
}

// A process that ends between open and read must not throw, as iterators over the stream would.
std::string content_of_file(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return std::move(content).str();
}

}  // namespace penstock
