#include "manifest/parts_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hex.h"
#include "base/try.h"
#include "tensor/region.h"

namespace deepfreeze {
namespace {

Status check_identity(const Identity& found, const Identity& wanted, const PartName& part) {
  Identity expected = wanted;
  expected.part = part;
  if (found == expected) return {};
  return fail(ErrorCode::kMismatch,
              fmt::format("it is {} of run {}, {}, generation {}, save {}",
                          sealed_file_name(found.part), found.run_id,
                          attempt_dir_name(attempt_of(found)), found.generation, found.save_index));
}

// The rank's first file vouches for a file that was written for another attempt.
const LinkedFile* link_to(const std::vector<LinkedFile>& links, const PartName& part) {
  const auto link = std::ranges::find(links, part.file, &LinkedFile::file);
  return part.file != 0 && link != links.end() && link->origin ? &*link : nullptr;
}

Identity identity_at(const Origin& origin, const PartName& part) {
  return {.run_id = origin.run_id,
          .attempt_id = origin.point.attempt_id,
          .generation = origin.point.generation,
          .step = origin.point.step,
          .save_index = origin.point.save_index,
          .part = part};
}

}  // namespace

AttemptName attempt_of(const Identity& identity) { return {identity.step, identity.attempt_id}; }

Result<PartHeader> decode_part_header(std::span<const std::byte> bytes, std::uint64_t file_bytes) {
  PartHeader part{.header = {}, .file_bytes = file_bytes};
  DF_TRY(part.header, decode_header(bytes, file_bytes, part.crc));
  return part;
}

void add_count(std::optional<std::uint64_t>& sum, std::optional<std::uint64_t> more) {
  sum = sum && more ? std::optional(*sum + *more) : std::nullopt;
}

Result<std::optional<Origin>> PartsCheck::origin_of(const PartName& name,
                                                    const PartHeader& part) const {
  const LinkedFile* link = link_to(links_, name);
  if (link == nullptr) {
    DF_TRY_VOID(check_identity(part.header.identity, identity_, name));
    return std::nullopt;
  }
  DF_TRY_VOID(check_identity(part.header.identity, identity_at(*link->origin, name), name));
  if (part.crc == link->header_crc) return link->origin;
  return fail(ErrorCode::kMismatch,
              fmt::format("its header has the checksum {}, the rank's first file says {}",
                          hex32(part.crc), hex32(link->header_crc)));
}

Status PartsCheck::add(const PartName& name, const PartHeader& part) {
  if (name.file == 0) links_ = part.header.links;
  DF_TRY(auto origin, origin_of(name, part));
  checked_.files.push_back({sealed_file_name(name), part.file_bytes, part.crc, std::move(origin)});
  add_count(checked_.non_finite, non_finite_values(part.header));
  if (name.rank == 0 && name.file == 0) checked_.annotations = part.header.annotations;
  for (const ShardEntry& entry : part.header.entries) {
    stored_[entry.spec.key].push_back(entry.spec);
  }
  audit_.add(name.rank, part.header.audit);
  return {};
}

Result<CheckedParts> PartsCheck::finish() {
  for (const auto& [key, specs] : stored_) {
    std::vector<const TensorSpec*> boxes;
    for (const TensorSpec& spec : specs) boxes.push_back(&spec);
    const auto fault = fault_of_boxes(boxes);
    if (fault) return fail(ErrorCode::kMismatch, fmt::format("tensor {}: {}", key, *fault));
  }
  checked_.diverged = audit_.divergences();
  return std::move(checked_);
}

}  // namespace deepfreeze
