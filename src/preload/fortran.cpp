// Fortran's interface of some MPIs calls the C functions by their PMPI_ names: Open MPI's does for all, MPICH's module
// mpi_f08 for some. A library that is preloaded cannot replace these. So the calls of MPI's own Fortran libraries are
// led to the functions of this library that have the MPI_ names. Handles and sentinels are converted before, by MPI.
#include "preload/fortran.hpp"

#include PENSTOCK_MPI_HEADER

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace penstock::preload {
namespace {

/// MPICH and Intel MPI, MPICH under Debian's name, Open MPI: mpif.h and the module mpi, mpi_f08.
constexpr std::array<std::string_view, 4> kFortranLibraries{"libmpifort", "libmpichfort", "libmpi_mpifh",
                                                            "libmpi_usempi"};

bool is_fortran_interface(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  for (const std::string_view each : kFortranLibraries)
    if (name.starts_with(each)) return true;
  return false;
}

/// The functions that this library has in place of MPI's.
class Replacements {
 public:
  Replacements() {
    if (dladdr(reinterpret_cast<const void*>(&lead_fortran_here), &own_) == 0) return;
    handle_ = dlopen(own_.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  }
  ~Replacements() {
    if (handle_ != nullptr) dlclose(handle_);
  }
  Replacements(const Replacements&) = delete;
  Replacements& operator=(const Replacements&) = delete;

  /// For a name that begins with PMPI_; or nullptr.
  void* find(const char* profiling_name) const {
    void* const found = handle_ == nullptr ? nullptr : dlsym(handle_, profiling_name + 1);
    Dl_info where{};
    return found != nullptr && dladdr(found, &where) != 0 && where.dli_fbase == own_.dli_fbase ? found : nullptr;
  }

 private:
  Dl_info own_{};
  void* handle_ = nullptr;
};

/// A shared library in memory.
class Loaded {
 public:
  explicit Loaded(const dl_phdr_info& info) : info_(info) {
    for (int i = 0; i < info.dlpi_phnum; ++i) {
      const ElfW(Phdr)& segment = info.dlpi_phdr[i];
      if (segment.p_type == PT_GNU_RELRO) read_only_ = &segment;
      if (segment.p_type != PT_DYNAMIC) continue;
      for (auto* entry = reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + segment.p_vaddr); entry->d_tag != DT_NULL;
           ++entry)
        note(*entry);
    }
  }

  void lead_to(const Replacements& replacements) const {
    if (symbols_ == nullptr || names_ == nullptr) return;
    for (const Table& table : {calls_, data_})
      for (std::size_t i = 0; i < table.bytes / sizeof(ElfW(Rela)); ++i) {
        const ElfW(Rela)& entry = table.first[i];
        const char* const name = names_ + symbols_[symbol_of(entry)].st_name;
        if (entry.r_addend != 0 || std::strncmp(name, "PMPI_", 5) != 0) continue;
        if (void* const function = replacements.find(name)) write(info_.dlpi_addr + entry.r_offset, function);
      }
  }

 private:
  struct Table {
    const ElfW(Rela) * first = nullptr;
    std::size_t bytes = 0;
  };

  static std::size_t symbol_of(const ElfW(Rela) & entry) {
#if __SIZEOF_POINTER__ == 8
    return ELF64_R_SYM(entry.r_info);
#else
    return ELF32_R_SYM(entry.r_info);
#endif
  }

  /// glibc has added the base to most addresses; not on all processors.
  template <typename T>
  const T* at(ElfW(Addr) address) const {
    return reinterpret_cast<const T*>(address < info_.dlpi_addr ? info_.dlpi_addr + address : address);
  }

  void note(const ElfW(Dyn) & entry) {
    switch (entry.d_tag) {
      case DT_SYMTAB: symbols_ = at<ElfW(Sym)>(entry.d_un.d_ptr); break;
      case DT_STRTAB: names_ = at<char>(entry.d_un.d_ptr); break;
      case DT_RELA: data_.first = at<ElfW(Rela)>(entry.d_un.d_ptr); break;
      case DT_RELASZ: data_.bytes = entry.d_un.d_val; break;
      case DT_JMPREL: calls_.first = at<ElfW(Rela)>(entry.d_un.d_ptr); break;
      case DT_PLTRELSZ: calls_.bytes = entry.d_un.d_val; break;
      default: break;
    }
  }

  void write(ElfW(Addr) place, void* function) const {
    auto* const slot = reinterpret_cast<void**>(place);
    const auto page_bytes = static_cast<ElfW(Addr)>(sysconf(_SC_PAGESIZE));
    void* const page = reinterpret_cast<void*>(place / page_bytes * page_bytes);
    const bool is_read_only = read_only_ != nullptr && place - info_.dlpi_addr >= read_only_->p_vaddr &&
                              place - info_.dlpi_addr < read_only_->p_vaddr + read_only_->p_memsz;
    if (is_read_only && mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) return;
    std::atomic_ref(*slot).store(function, std::memory_order_release);
    if (is_read_only) mprotect(page, page_bytes, PROT_READ);
  }

  const dl_phdr_info& info_;
  const ElfW(Phdr) * read_only_ = nullptr;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* names_ = nullptr;
  Table data_;
  Table calls_;
};

std::vector<dl_phdr_info> fortran_libraries() {
  std::vector<dl_phdr_info> found;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        if (info->dlpi_name != nullptr && is_fortran_interface(info->dlpi_name))
          static_cast<std::vector<dl_phdr_info>*>(to)->push_back(*info);
        return 0;
      },
      &found);
  return found;
}

/// Before the program's first call. Libraries that are loaded later are found when MPI is initialized.
__attribute__((constructor)) void at_load() { lead_fortran_here(); }

}  // namespace

void lead_fortran_here() {
  // dlsym() in the callback could wait for a thread that loads a library and waits for the callback.
  const std::vector<dl_phdr_info> found = fortran_libraries();
  const Replacements replacements;
  for (const dl_phdr_info& library : found) Loaded(library).lead_to(replacements);
}

bool fortran_writes_into_requests() {
#ifdef OPEN_MPI
  // The first version with this function. The program may have another one than this library was built with.
  return dlsym(RTLD_NEXT, "PMPI_Barrier_init") != nullptr && !fortran_libraries().empty();
#else
  return false;
#endif
}

}  // namespace penstock::preload
