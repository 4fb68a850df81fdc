// The files that keep what was measured for later jobs.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace penstock::measurement {

/// Of the option `machine_folder`; empty: nothing is kept.
std::filesystem::path kept_folder();
/// The file of this kind ("machine") for this key; empty if nothing is kept.
std::filesystem::path kept_path(std::string_view kind, const std::string& key);
/// Empty if there is no such file.
std::string kept_text(const std::filesystem::path& path);
/// Complete or not at all: other jobs may read it now. An empty path keeps nothing, and that a file cannot be written
/// is no error.
void keep_text(const std::filesystem::path& path, const std::string& text);

/// What hosts have in common on which the same was measured: kind of name, processor, networks. It does not change
/// while the process runs.
const std::string& host_facts();

}  // namespace penstock::measurement
