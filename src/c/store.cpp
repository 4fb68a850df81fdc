#include "penstock/store.hpp"

#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "c/handles.hpp"
#include "c/status.hpp"
#include "penstock/error.hpp"

using namespace penstock;
using c::guarded;
using c::require;
using c::unwrap;

namespace {

void check_regions(const penstock_region* regions, size_t count, const char* function) {
  if (count != 0) require(regions, function, "regions");
  for (size_t i = 0; i < count; ++i)
    if (regions[i].size_bytes != 0) require(regions[i].data, function, "data of a region");
}

std::vector<WriteRegion> writes_of(const penstock_region* regions, size_t count, const char* function) {
  check_regions(regions, count, function);
  std::vector<WriteRegion> writes(count);
  for (size_t i = 0; i < count; ++i)
    writes[i] = {regions[i].offset_bytes, {static_cast<const std::byte*>(regions[i].data), regions[i].size_bytes}};
  return writes;
}

}  // namespace

int penstock_store_open(const char* url, penstock_store** store) {
  return guarded([&] {
    require(url, "penstock_store_open", "url");
    require(store, "penstock_store_open", "store");
    *store = c::wrap<penstock_store>(Store(url));
  });
}

void penstock_store_free(penstock_store* store) { c::destroy<Store>(store); }

int penstock_blob_create(penstock_store* store, const char* name, uint64_t size_bytes, penstock_blob** blob) {
  return guarded([&] {
    require(store, "penstock_blob_create", "store");
    require(name, "penstock_blob_create", "name");
    require(blob, "penstock_blob_create", "blob");
    *blob = c::wrap<penstock_blob>(unwrap<Store>(store).create(name, {.size_bytes = size_bytes, .grows = false}));
  });
}

int penstock_blob_open(penstock_store* store, const char* name, penstock_blob** blob) {
  return guarded([&] {
    require(store, "penstock_blob_open", "store");
    require(name, "penstock_blob_open", "name");
    require(blob, "penstock_blob_open", "blob");
    *blob = c::wrap<penstock_blob>(unwrap<Store>(store).open(name));
  });
}

void penstock_blob_free(penstock_blob* blob) { c::destroy<Blob>(blob); }

int penstock_blob_write(penstock_blob* blob, const penstock_region* regions, size_t count, uint64_t* version) {
  return guarded([&] {
    require(blob, "penstock_blob_write", "blob");
    const std::uint64_t made = unwrap<Blob>(blob).write(writes_of(regions, count, "penstock_blob_write"));
    if (version != nullptr) *version = made;
  });
}

int penstock_blob_write_if(penstock_blob* blob, uint64_t parent, const penstock_region* regions, size_t count,
                           uint64_t* version) {
  return guarded([&] {
    require(blob, "penstock_blob_write_if", "blob");
    const std::uint64_t made = unwrap<Blob>(blob).write_if(parent, writes_of(regions, count, "penstock_blob_write_if"));
    if (version != nullptr) *version = made;
  });
}

int penstock_blob_read(penstock_blob* blob, const penstock_region* regions, size_t count, uint64_t version) {
  return guarded([&] {
    require(blob, "penstock_blob_read", "blob");
    check_regions(regions, count, "penstock_blob_read");
    std::vector<ReadRegion> reads(count);
    for (size_t i = 0; i < count; ++i)
      reads[i] = {regions[i].offset_bytes, {static_cast<std::byte*>(regions[i].data), regions[i].size_bytes}};
    unwrap<Blob>(blob).read(reads, version);
  });
}

int penstock_blob_latest(penstock_blob* blob, uint64_t* version) {
  return guarded([&] {
    require(blob, "penstock_blob_latest", "blob");
    require(version, "penstock_blob_latest", "version");
    *version = unwrap<Blob>(blob).latest();
  });
}

int penstock_blob_size(penstock_blob* blob, uint64_t* size_bytes) {
  return guarded([&] {
    require(blob, "penstock_blob_size", "blob");
    require(size_bytes, "penstock_blob_size", "size_bytes");
    *size_bytes = unwrap<Blob>(blob).size_bytes();
  });
}

int penstock_blob_wait(penstock_blob* blob, uint64_t version, double timeout_s, int* exists) {
  return guarded([&] {
    require(blob, "penstock_blob_wait", "blob");
    require(exists, "penstock_blob_wait", "exists");
    constexpr double kLongest_s = 1e9;  // about 30 years, within the range of nanoseconds
    if (!(timeout_s >= 0))
      throw Error(ErrorCode::invalid_argument,
                  "penstock_blob_wait: timeout_s is " + std::to_string(timeout_s) + "; expected 0 or more seconds");
    const std::chrono::duration<double> timeout(std::fmin(timeout_s, kLongest_s));
    *exists = unwrap<Blob>(blob).wait(version, std::chrono::duration_cast<std::chrono::nanoseconds>(timeout)) ? 1 : 0;
  });
}
