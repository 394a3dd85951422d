// The text of `deepfreeze.audit` in a header, and of the checksums beside it, whose number alone it
// tells: so that a header's size is known before its data. docs/format.md describes both. Pure.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/shard_header.h"

namespace deepfreeze {

// More is left out, and never compared; plan/audit.h sees to that it does not come to it, unless a
// rank has so many groups of copies with such long keys that three pieces of each are too many.
// HeaderBudget leaves a megabyte for it and all else.
inline constexpr std::size_t kAuditListBytesMax = 400'000;
inline constexpr std::size_t kAuditRecordsMax = 10'000;

// The first so many of the records as a member of the metadata; without their checksums.
struct AuditText {
  std::string member;  // empty where there are none
  std::size_t count = 0;
};
[[nodiscard]] AuditText write_audit(std::span<const AuditRecord> records);

void append_crcs(fmt::memory_buffer& out, std::span<const std::uint32_t> crcs);

// kCorrupt where they are no such texts. `digits`: those of the checksums.
[[nodiscard]] Result<std::vector<AuditRecord>> read_audit(std::string_view text,
                                                          std::string_view digits);
// One for each of `count` things that `of_what` names in errors.
[[nodiscard]] Result<std::vector<std::uint32_t>> read_crcs(std::string_view digits,
                                                           std::uint64_t count,
                                                           std::string_view of_what);

}  // namespace deepfreeze
