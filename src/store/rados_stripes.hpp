// The data of large objects in Ceph: RADOS objects of one size each, spread over the targets by their names.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "store/rados_entry.hpp"
#include "store/rados_io.hpp"

namespace penstock::store {

/// How an object of this size is divided where stripes have at most `most_bytes`.
std::uint64_t stripe_bytes_of(std::uint64_t size_bytes, std::uint64_t most_bytes);

/// Starts to write all stripes; the pieces are copied.
void start_stripes(RadosBatch& batch, std::string_view key, const RadosEntry& entry,
                   std::span<const ConstBytes> pieces);
/// These return when all stripes are done, with the first status that is not 0, or 0.
int read_stripes(const RadosIo& io, std::string_view key, const RadosEntry& entry, std::uint64_t offset_bytes,
                 Bytes to);
int remove_stripes(const RadosIo& io, std::string_view key, const RadosEntry& entry);

}  // namespace penstock::store
