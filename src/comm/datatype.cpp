#include "penstock/datatype.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "penstock/error.hpp"

namespace penstock {

struct Datatype::Data {
  std::vector<Piece> pieces;
  std::int64_t extent_bytes = 1;
  std::uint64_t size_bytes = 0;
  std::int64_t begin_bytes = 0;
  std::int64_t end_bytes = 0;
  std::int64_t piece_bytes = 0;  ///< the size of every piece; 0 if sizes differ
};

namespace {

std::vector<Datatype::Piece> joined(const std::vector<Datatype::Piece>& given) {
  std::vector<Datatype::Piece> pieces;
  pieces.reserve(given.size());
  for (const Datatype::Piece& piece : given) {
    if (piece.size_bytes < 0)
      throw Error(ErrorCode::invalid_argument,
                  "a piece of a datatype has " + std::to_string(piece.size_bytes) + " bytes; expected 0 or more");
    if (piece.size_bytes == 0) continue;
    if (!pieces.empty() && pieces.back().offset_bytes + pieces.back().size_bytes == piece.offset_bytes)
      pieces.back().size_bytes += piece.size_bytes;
    else
      pieces.push_back(piece);
  }
  return pieces;
}

/// Calls copy(address of a piece, offset in the packed memory, size) for all pieces of `count` items. Addresses are
/// numbers, since `items` is null if the datatype has absolute addresses.
template <class Address, class Copy>
void for_pieces(const Datatype& type, Address items, std::uint64_t count, const Copy& copy) {
  std::size_t packed = 0;
  auto item = reinterpret_cast<std::uintptr_t>(items);
  for (std::uint64_t i = 0; i < count; ++i, item += static_cast<std::uintptr_t>(type.extent_bytes()))
    for (const Datatype::Piece& piece : type.pieces()) {
      copy(reinterpret_cast<Address>(item + static_cast<std::uintptr_t>(piece.offset_bytes)), packed,
           static_cast<std::size_t>(piece.size_bytes));
      packed += static_cast<std::size_t>(piece.size_bytes);
    }
}

/// As for_pieces, with a compile-time size of the pieces, so that a copy is an instruction instead of a call.
template <class Address, class Copy>
void copy_pieces(const Datatype& type, std::int64_t piece_bytes, Address items, std::uint64_t count, const Copy& copy) {
  const auto fixed = [&]<std::size_t size>() {
    for_pieces(type, items, count, [&](Address at, std::size_t packed, std::size_t) { copy(at, packed, size); });
  };
  switch (piece_bytes) {
    case 1: return fixed.template operator()<1>();
    case 2: return fixed.template operator()<2>();
    case 4: return fixed.template operator()<4>();
    case 8: return fixed.template operator()<8>();
    case 16: return fixed.template operator()<16>();
    default: return for_pieces(type, items, count, copy);
  }
}

void check_packed(const Datatype& type, std::uint64_t count, std::size_t packed_bytes) {
  if (count * type.size_bytes() != packed_bytes)
    throw Error(ErrorCode::invalid_argument, std::to_string(count) + " items of " + std::to_string(type.size_bytes()) +
                                                 " bytes given for " + std::to_string(packed_bytes) +
                                                 " bytes of packed memory; expected equal sizes");
}

}  // namespace

Datatype::Datatype() : Datatype({{0, 1}}, 1) {}

Datatype::Datatype(std::vector<Piece> pieces, std::int64_t extent_bytes) {
  auto data = std::make_shared<Data>();
  data->pieces = joined(pieces);
  data->extent_bytes = extent_bytes;
  for (const Piece& piece : data->pieces) {
    const bool is_first = data->size_bytes == 0;
    data->size_bytes += static_cast<std::uint64_t>(piece.size_bytes);
    data->begin_bytes = is_first ? piece.offset_bytes : std::min(data->begin_bytes, piece.offset_bytes);
    const std::int64_t end_bytes = piece.offset_bytes + piece.size_bytes;
    data->end_bytes = is_first ? end_bytes : std::max(data->end_bytes, end_bytes);
    data->piece_bytes = is_first || data->piece_bytes == piece.size_bytes ? piece.size_bytes : 0;
  }
  data_ = std::move(data);
}

std::span<const Datatype::Piece> Datatype::pieces() const { return data_->pieces; }
std::int64_t Datatype::extent_bytes() const { return data_->extent_bytes; }
std::uint64_t Datatype::size_bytes() const { return data_->size_bytes; }
std::int64_t Datatype::begin_bytes() const { return data_->begin_bytes; }
std::int64_t Datatype::end_bytes() const { return data_->end_bytes; }

bool Datatype::is_contiguous() const {
  return data_->pieces.empty() || (data_->pieces.size() == 1 && data_->pieces.front().offset_bytes == 0 &&
                                   data_->pieces.front().size_bytes == data_->extent_bytes);
}

bool Datatype::is_absolute() const {
  static const long page_bytes = sysconf(_SC_PAGESIZE);
  return data_->begin_bytes >= page_bytes;
}

void Datatype::pack(const void* items, std::uint64_t count, Bytes packed) const {
  check_packed(*this, count, packed.size());
  if (is_contiguous()) {
    if (!packed.empty()) std::memcpy(packed.data(), items, packed.size());
    return;
  }
  copy_pieces(*this, data_->piece_bytes, static_cast<const std::byte*>(items), count,
              [to = packed.data()](const std::byte* from, std::size_t at, std::size_t size) {
                std::memcpy(to + at, from, size);
              });
}

void Datatype::unpack(ConstBytes packed, void* items, std::uint64_t count) const {
  check_packed(*this, count, packed.size());
  if (is_contiguous()) {
    if (!packed.empty()) std::memcpy(items, packed.data(), packed.size());
    return;
  }
  copy_pieces(
      *this, data_->piece_bytes, static_cast<std::byte*>(items), count,
      [from = packed.data()](std::byte* to, std::size_t at, std::size_t size) { std::memcpy(to, from + at, size); });
}

}  // namespace penstock
