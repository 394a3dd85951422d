// The parts of a header that stay the same from one save to the next, checked and written once.
// encode_header() joins them with the parts that differ in each save. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/header_audit.h"
#include "format/shard_header.h"

namespace deepfreeze {

// The tensors of a file and their places in it.
struct TableText {
  std::vector<ShardEntry> entries;  // in file order
  std::uint64_t data_bytes = 0;
  std::string members;  // of the header's JSON, one per tensor
  std::string extras;   // members of its metadata; empty for most
  // How many entries have a ValueRange; absent if no ranges are stored.
  std::optional<std::size_t> range_count;
};

// kInvalidArgument if the entries are not sorted and gap-free. The callers ensure that keys differ.
[[nodiscard]] Result<TableText> write_table(std::vector<ShardEntry> entries,
                                            std::uint64_t data_bytes, bool with_ranges);

// How much of a table and of a tree one header holds; the rest continues in further files. Together
// they leave a megabyte of kHeaderBytesMax for the rest: the text of a tree without line breaks
// grows only by its quotes, to twice its size at most. A tensor whose checksums alone exceed the
// budget, beyond 120 GB, has a file to itself.
struct HeaderBudget {
  std::uint64_t table_bytes = 15'000'000;  // entries and checksums; one entry at least
  std::uint64_t tree_bytes = 4'000'000;    // of the text as it stands in ShardHeader::tree
  bool with_ranges = false;                // a ValueRange for each entry that can have one
};

// Splits the table into as many files as the budget requires, at least one; extents count from the
// beginning of each file's data.
[[nodiscard]] Result<std::vector<TableText>> write_tables(std::vector<ShardEntry> entries,
                                                          const HeaderBudget& budget);

struct HeaderParts {
  const Identity& identity;
  const Annotations& annotations;
  std::string_view tree_member;  // one of TreeText::members, or empty
  const TableText& table;
  const AuditText* audit = nullptr;  // null: none
  std::size_t link_count = 0;        // of the rank's files that may be another attempt's
};

// The size of the encoding, whatever the checksums will be; errors as those of encode_header().
[[nodiscard]] Result<std::uint64_t> encoded_header_bytes(const HeaderParts& parts);

// The values that are known only once the data has been written.
struct HeaderSums {
  std::span<const std::uint32_t> block_crcs;       // block_count() of the table's data
  std::span<const ValueRange> ranges = {};         // the table's range_count, or none
  std::span<const std::uint32_t> audit_crcs = {};  // as many as AuditText::count says
  std::span<const LinkedFile> links = {};          // as many as HeaderParts::link_count says
};
[[nodiscard]] Result<EncodedHeader> encode_header(const HeaderParts& parts, const HeaderSums& sums);

}  // namespace deepfreeze
