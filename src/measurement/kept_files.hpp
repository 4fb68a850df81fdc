// The files that keep what was measured for later jobs.
#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "penstock/options.hpp"

namespace penstock::measurement {

/// The file of this kind ("machine") for this key; empty if nothing is kept.
std::filesystem::path kept_path(std::string_view kind, const std::string& key);
/// Empty if there is no such file.
std::string kept_text(const std::filesystem::path& path);
/// Complete or not at all: other jobs may read it now. An empty path keeps nothing, and that a file cannot be written
/// is no error.
void keep_text(const std::filesystem::path& path, const std::string& text);

/// What this process has measured or read, for communicators made later. What it has seen with one option
/// machine_folder does not hold with another. Any thread.
template <typename Key, typename Value>
class Remembered {
 public:
  void add(const Key& key, Value value) {
    const std::lock_guard lock(mutex_);
    values_[{options().machine_folder, key}] = std::move(value);
  }
  std::optional<Value> find(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto known = values_.find({options().machine_folder, key});
    return known == values_.end() ? std::nullopt : std::optional(known->second);
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<std::string, Key>, Value> values_;
};

/// What hosts have in common on which the same was measured: kind of name, processor, networks. It does not change
/// while the process runs.
const std::string& host_facts();

}  // namespace penstock::measurement
