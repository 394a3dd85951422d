// The parts of a header that stay as they are from one save to the next, checked and written once.
// encode_header() puts them together with what each save has of its own. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "format/shard_header.h"

namespace deepfreeze {

// The tensors of a file and where they lie.
struct TableText {
  std::vector<ShardEntry> entries;  // in file order
  std::uint64_t data_bytes = 0;
  std::string members;  // of the header's JSON, one per tensor
  std::string extras;   // a member of its metadata; empty for most
};

// kInvalidArgument where the entries are not sorted, gap-free and of different keys.
[[nodiscard]] Result<TableText> write_table(std::vector<ShardEntry> entries,
                                            std::uint64_t data_bytes);

// The state tree.
struct TreeText {
  std::string tree;    // as ShardHeader::tree
  std::string member;  // of the metadata; empty where there is no tree
};

// kInvalidArgument where it is too large or not UTF-8; that it is a tree is not checked.
[[nodiscard]] Result<TreeText> write_tree(std::string tree);

struct HeaderParts {
  const Identity& identity;
  const Annotations& annotations;
  const TreeText& tree;
  const TableText& table;
};

// The size of the encoding, whatever the checksums will be; errors as those of encode_header().
[[nodiscard]] Result<std::uint64_t> encoded_header_bytes(const HeaderParts& parts);

// `block_crcs`: block_count() of the table's data.
[[nodiscard]] Result<EncodedHeader> encode_header(const HeaderParts& parts,
                                                  std::span<const std::uint32_t> block_crcs);

}  // namespace deepfreeze
