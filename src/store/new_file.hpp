// The file of one put of the posix backend, and how failed system calls are reported.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "penstock/error.hpp"
#include "penstock/types.hpp"
#include "store/posix_calls.hpp"

namespace penstock::store {

/// Throws no_space where the device or the quota is full, else io, with the system's text of `error`.
[[noreturn]] void fail_call(const std::string& what, int error);

/// Whether fail_call threw this for the system's `error`.
bool is_caused_by(const Error& failure, int error);

/// Removed with this object, unless it was kept. Its content is complete when write() has returned.
class NewFile {
 public:
  /// Throws exists.
  NewFile(PosixCalls& calls, std::string path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  /// The pieces one after another; verifies the length that the file system reports.
  void write(std::span<const ConstBytes> pieces);
  void sync();
  /// Some network file systems report errors of writing only here.
  void close();
  FileStatus status() const;

  enum class Link { made, exists, vanished };
  /// Gives the file a second name. `vanished`: a reclaim took this file for one of a dead writer.
  Link link_to(const std::string& target);
  /// Takes the place of what `target` names, or becomes it.
  void rename_to(const std::string& target);
  /// The path stays.
  void keep() { kept_ = true; }

 private:
  PosixCalls& calls_;
  const std::string path_;
  int fd_ = -1;
  bool kept_ = false;
};

}  // namespace penstock::store
