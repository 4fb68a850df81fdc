#include "store/repair_steps.hpp"

#include <algorithm>

#include "penstock/error.hpp"
#include "store/collect.hpp"
#include "store/encoding.hpp"

namespace penstock::store {

namespace {

constexpr std::uint32_t kStepsMagic = 0x53525350;  // "PSRS"

/// Nothing if it is missing or cannot be read.
std::vector<std::byte> bytes_of(const Backend& backend, const std::string& object) {
  try {
    return read_all(backend, object);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::not_found && error.code() != ErrorCode::corrupt) throw;
    return {};
  }
}

/// Copies an object to lost/ that is about to be replaced or removed. False if it is not as it was seen.
bool keep_evidence(const BlobState& blob, const RepairStep& step) {
  const std::vector<std::byte> content = bytes_of(blob.backend(), step.object);
  const ConstBytes piece(content);
  if (checksum(piece) != step.seen) return false;
  if (content.empty()) return true;
  std::string name = step.object.substr(blob.folder().size() + 1);
  std::replace(name.begin(), name.end(), '/', '-');
  blob.backend().put_if_absent(blob.key("lost/") + name + '-' + std::to_string(now_ns()), std::span(&piece, 1));
  return true;
}

}  // namespace

Checksum sum_of(const Backend& backend, const std::string& object) {
  return checksum(ConstBytes(bytes_of(backend, object)));
}

Record lost_record(const BlobState& blob) {
  Record record;
  record.kind = RecordKind::fence;
  record.blob_id = blob.empty_map().blob_id();
  record.time_ns = now_ns();
  record.writer = "penstock-repair";
  record.identity = 1;
  return record;
}

void take(BlobState& blob, const RepairStep& step) {
  using enum RepairStep::Kind;
  Backend& backend = blob.backend();
  switch (step.kind) {
    case put_index: {
      const ConstBytes piece(step.content);
      backend.put_if_absent(step.object, std::span(&piece, 1));
      return;
    }
    case mark_base:
      // A later repair may have removed the index.
      if (backend.exists(blob.index_key(step.number))) put_mark(blob, "base-", step.number);
      return;
    case remove_delta:
    case remove:
      if (keep_evidence(blob, step)) backend.remove(step.object);
      return;
    case remove_compacted:
      if (!keep_evidence(blob, step)) return;
      backend.remove(blob.confirmed_key(step.number));
      backend.remove(step.object);
      return;
    case unmark_base: backend.remove(step.object); return;
    case begin_log_at: put_mark(blob, "keep-", step.number); return;
    case lose_record: {
      if (!keep_evidence(blob, step)) return;
      // A collector may have freed the number meanwhile.
      if (step.number <= blob.marks().keep_from) return;
      const std::vector<std::byte> sealed = encode(lost_record(blob));
      const ConstBytes piece(sealed);
      backend.replace(step.object, std::span(&piece, 1));
      return;
    }
  }
}

std::vector<std::byte> encode(std::span<const RepairStep> steps) {
  Encoder encoder;
  encode_head(encoder, kStepsMagic);
  encoder.number(std::uint64_t{steps.size()});
  for (const RepairStep& step : steps) {
    encoder.number(static_cast<std::uint16_t>(step.kind));
    encoder.text(step.object);
    encoder.number(step.number);
    encoder.sum(step.seen);
    encoder.number(std::uint64_t{step.content.size()});
    encoder.raw(step.content);
  }
  return encoder.seal();
}

std::vector<RepairStep> decode_repair_steps(ConstBytes sealed, const std::string& source) {
  Decoder decoder(unseal(sealed, source), source);
  decode_head(decoder, kStepsMagic, source);
  std::vector<RepairStep> steps(decoder.count(38));
  for (RepairStep& step : steps) {
    const auto kind = decoder.number<std::uint16_t>();
    if (kind < 1 || kind > static_cast<std::uint16_t>(RepairStep::Kind::lose_record))
      decoder.fail("has a step of unknown kind " + std::to_string(kind));
    step.kind = static_cast<RepairStep::Kind>(kind);
    step.object = decoder.text();
    step.number = decoder.number<std::uint64_t>();
    step.seen = decoder.sum();
    const ConstBytes content = decoder.raw(decoder.count(1));
    step.content.assign(content.begin(), content.end());
  }
  decoder.end();
  return steps;
}

}  // namespace penstock::store
