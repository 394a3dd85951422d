// The text of `deepfreeze.audit` in a header, which lists the records, and the digits of their
// checksums beside it. Only the number of checksums affects its size, so a header's size is known
// before its data. docs/format.md describes both. Pure.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/shard_header.h"

namespace deepfreeze {

// Records beyond these bounds are left out and never compared. plan/audit.h keeps within them
// unless a rank has very many groups of copies with very long keys, so that even three pieces of
// each are too many. HeaderBudget leaves a megabyte for this list and everything else.
inline constexpr std::size_t kAuditListBytesMax = 400'000;
inline constexpr std::size_t kAuditRecordsMax = 10'000;

// The first `count` records as a member of the metadata, without their checksums.
struct AuditText {
  std::string member;  // empty if there are no records
  std::size_t count = 0;
};
[[nodiscard]] AuditText write_audit(std::span<const AuditRecord> records);

void append_crcs(fmt::memory_buffer& out, std::span<const std::uint32_t> crcs);

// kCorrupt if either text is malformed. `digits`: the digits of the checksums.
[[nodiscard]] Result<std::vector<AuditRecord>> read_audit(std::string_view text,
                                                          std::string_view digits);
// Reads one checksum for each of `count` things; errors call these things `of_what`.
[[nodiscard]] Result<std::vector<std::uint32_t>> read_crcs(std::string_view digits,
                                                           std::uint64_t count,
                                                           std::string_view of_what);

}  // namespace deepfreeze
