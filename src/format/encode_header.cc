#include <fmt/format.h>

#include <cstring>
#include <string_view>
#include <unordered_set>

#include "base/checked_math.h"
#include "base/hex.h"
#include "base/try.h"
#include "deepfreeze/version.h"
#include "format/header_parts.h"
#include "format/header_ranges.h"
#include "format/header_text.h"
#include "format/json_parts.h"
#include "format/json_writer.h"
#include "format/state_tree.h"
#include "tensor/utf8.h"

namespace deepfreeze {
namespace {

Status check_identity(const Identity& identity) {
  if (!parse_hex64(identity.run_id)) {
    return refuse_header(fmt::format("\"{}\" is not a run id", identity.run_id));
  }
  const PartName& part = identity.part;
  if (part.rank < part.world_size && part.file < part.file_count) return {};
  return refuse_header("its rank or file number is not below the count");
}

Status check_texts(const std::map<std::string, std::string>& texts) {
  for (const auto& [name, text] : texts) {
    if (!is_utf8(name) || !is_utf8(text))
      return refuse_header("a tag or environment entry is not UTF-8");
  }
  return {};
}

Status check_annotations(const Annotations& annotations) {
  for (const auto& [name, value] : annotations.metrics) {
    if (!is_utf8(name)) return refuse_header("the name of a metric is not UTF-8");
  }
  DF_TRY_VOID(check_texts(annotations.tags));
  DF_TRY_VOID(check_texts(annotations.environment));
  if (annotations.parent && !is_utf8(annotations.parent->run)) {
    return refuse_header("the path of the parent run is not UTF-8");
  }
  return {};
}

Status check_unique(const std::vector<ShardEntry>& entries) {
  std::unordered_set<std::string_view> keys;
  keys.reserve(entries.size());
  for (const ShardEntry& entry : entries) {
    if (!keys.insert(entry.spec.key).second) {
      return refuse_header(fmt::format("tensor \"{}\": its key is used twice", entry.spec.key));
    }
  }
  return {};
}

Status check_parts(const HeaderParts& parts) {
  DF_TRY_VOID(check_identity(parts.identity));
  return check_annotations(parts.annotations);
}

// What the checksum is to be, then all that is short.
void append_beginning(fmt::memory_buffer& out, const HeaderParts& parts) {
  append_text(out, kHeaderPrefix);
  append_text(out, kCrcZeros);
  append_text(out, "\"");
  append_metadata_member(out, "format", "pt");
  append_metadata_member(out, kVersionKey, fmt::to_string(kFormatVersion));
  append_metadata_member(out, kIdentityKey, identity_text(parts.identity));
  append_metadata_member(out, kAnnotationsKey, annotations_text(parts.annotations));
}

// By hand: there are sixteen thousand of them in a gigabyte.
void append_hex32(fmt::memory_buffer& out, std::uint32_t value) {
  for (int shift = 28; shift >= 0; shift -= 4)
    out.push_back("0123456789abcdef"[value >> shift & 15]);
}

constexpr std::string_view kMemberBegin = ",\"";
constexpr std::string_view kMemberMiddle = "\":\"";
constexpr std::string_view kTextEnd = "\"";
constexpr std::string_view kMetadataEnd = "}";

void append_blocks(fmt::memory_buffer& out, std::span<const std::uint32_t> crcs) {
  append_text(out, kMemberBegin);
  append_text(out, kBlocksKey);
  append_text(out, kMemberMiddle);
  for (const std::uint32_t crc : crcs) append_hex32(out, crc);
  append_text(out, kTextEnd);
}

std::uint64_t blocks_bytes(std::uint64_t count) {
  return kMemberBegin.size() + kBlocksKey.size() + kMemberMiddle.size() + kCrcDigits * count +
         kTextEnd.size();
}

void append_ranges_member(fmt::memory_buffer& out, std::span<const ValueRange> ranges) {
  append_text(out, kMemberBegin);
  append_text(out, kRangesKey);
  append_text(out, kMemberMiddle);
  append_ranges(out, ranges);
  append_text(out, kTextEnd);
}

std::uint64_t ranges_bytes(std::optional<std::size_t> count) {
  if (!count) return 0;
  return kMemberBegin.size() + kRangesKey.size() + kMemberMiddle.size() + kRangeDigits * *count +
         kTextEnd.size();
}

// With the spaces up to a page, so that the data section begins at one.
Result<std::uint64_t> padded_bytes(std::uint64_t text_bytes, const TableText& table) {
  const std::uint64_t bytes = round_up(kLengthBytes + text_bytes, kPageBytes);
  if (bytes <= kHeaderBytesMax) return bytes;
  return refuse_header(fmt::format("{} bytes for {} tensors, more than {}", text_bytes,
                                   table.entries.size(), kHeaderBytesMax));
}

EncodedHeader finish(const fmt::memory_buffer& text, std::uint64_t bytes) {
  EncodedHeader encoded{.bytes = std::vector<std::byte>(bytes, std::byte{' '})};
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    encoded.bytes[i] = static_cast<std::byte>((bytes - kLengthBytes) >> (8 * i));
  }
  std::memcpy(encoded.bytes.data() + kLengthBytes, text.data(), text.size());
  encoded.crc = header_crc(encoded.bytes);
  std::memcpy(encoded.bytes.data() + kCrcOffset, hex32(encoded.crc).data(), kCrcDigits);
  return encoded;
}

}  // namespace

Result<std::uint64_t> encoded_header_bytes(const HeaderParts& parts) {
  DF_TRY_VOID(check_parts(parts));
  fmt::memory_buffer beginning;
  append_beginning(beginning, parts);
  constexpr std::uint64_t kClosingBrace = 1;
  return padded_bytes(beginning.size() + parts.tree_member.size() + parts.table.extras.size() +
                          blocks_bytes(block_count(parts.table.data_bytes)) +
                          ranges_bytes(parts.table.range_count) + kMetadataEnd.size() +
                          parts.table.members.size() + kClosingBrace,
                      parts.table);
}

Result<EncodedHeader> encode_header(const HeaderParts& parts,
                                    std::span<const std::uint32_t> block_crcs,
                                    std::span<const ValueRange> ranges) {
  DF_TRY_VOID(check_parts(parts));
  if (block_crcs.size() != block_count(parts.table.data_bytes)) {
    return refuse_header(fmt::format("{} block checksums for {} blocks", block_crcs.size(),
                                     block_count(parts.table.data_bytes)));
  }
  if (ranges.size() != parts.table.range_count.value_or(0)) {
    return refuse_header(fmt::format("{} ranges for {} tensors", ranges.size(),
                                     parts.table.range_count.value_or(0)));
  }
  fmt::memory_buffer text;
  append_beginning(text, parts);
  append_text(text, parts.tree_member);
  append_text(text, parts.table.extras);
  append_blocks(text, block_crcs);
  if (parts.table.range_count) append_ranges_member(text, ranges);
  append_text(text, kMetadataEnd);
  append_text(text, parts.table.members);
  text.push_back('}');
  DF_TRY(const std::uint64_t bytes, padded_bytes(text.size(), parts.table));
  return finish(text, bytes);
}

Result<EncodedHeader> encode_header(const ShardHeader& header) {
  DF_TRY_VOID(check_unique(header.entries));
  DF_TRY(const TreeText tree, write_tree(header.tree, {.tree_bytes = kTreeBytesMax}));
  const bool with_ranges = header.ranges.has_value();
  DF_TRY(const TableText table, write_table(header.entries, header.data_bytes, with_ranges));
  return encode_header(
      {.identity = header.identity,
       .annotations = header.annotations,
       .tree_member = tree.members.empty() ? "" : tree.members.front(),
       .table = table},
      header.block_crcs,
      with_ranges ? std::span<const ValueRange>(*header.ranges) : std::span<const ValueRange>());
}

}  // namespace deepfreeze
