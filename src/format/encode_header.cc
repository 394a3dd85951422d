#include <fmt/format.h>

#include <cstring>
#include <string_view>
#include <unordered_set>

#include "base/checked_math.h"
#include "base/hex.h"
#include "base/try.h"
#include "base/utf8.h"
#include "deepfreeze/version.h"
#include "format/header_links.h"
#include "format/header_parts.h"
#include "format/header_ranges.h"
#include "format/header_text.h"
#include "format/json_parts.h"
#include "format/state_tree.h"
#include "format/tree_text.h"
#include "json/json_writer.h"

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

// Zeros in place of the checksum, then all short members.
void append_beginning(fmt::memory_buffer& out, const HeaderParts& parts) {
  append_text(out, kHeaderPrefix);
  append_text(out, kCrcZeros);
  append_text(out, "\"");
  append_metadata_member(out, "format", "pt");
  append_metadata_member(out, kVersionKey, fmt::to_string(kPlainFormatVersion));
  append_metadata_member(out, kIdentityKey, identity_text(parts.identity));
  append_metadata_member(out, kAnnotationsKey, annotations_text(parts.annotations));
}

constexpr std::string_view kMemberBegin = ",\"";
constexpr std::string_view kMemberMiddle = "\":\"";
constexpr std::string_view kTextEnd = "\"";
constexpr std::string_view kMetadataEnd = "}";

void append_crcs_member(fmt::memory_buffer& out, std::string_view key,
                        std::span<const std::uint32_t> crcs) {
  append_text(out, kMemberBegin);
  append_text(out, key);
  append_text(out, kMemberMiddle);
  append_crcs(out, crcs);
  append_text(out, kTextEnd);
}

std::uint64_t crcs_bytes(std::string_view key, std::uint64_t count) {
  return kMemberBegin.size() + key.size() + kMemberMiddle.size() + kCrcDigits * count +
         kTextEnd.size();
}

// The size of both audit members, checksums included; 0 if nothing is audited.
std::uint64_t audit_bytes(const AuditText* audit) {
  if (audit == nullptr || audit->count == 0) return 0;
  return audit->member.size() + crcs_bytes(kAuditCrcsKey, audit->count);
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

void append_links_member(fmt::memory_buffer& out, std::span<const LinkedFile> links) {
  append_text(out, kMemberBegin);
  append_text(out, kLinksKey);
  append_text(out, kMemberMiddle);
  append_links(out, links);
  append_text(out, kTextEnd);
}

std::uint64_t links_bytes(std::size_t count) {
  if (count == 0) return 0;
  return kMemberBegin.size() + kLinksKey.size() + kMemberMiddle.size() + kLinkDigits * count +
         kTextEnd.size();
}

Status check_sums(const HeaderParts& parts, const HeaderSums& sums) {
  const std::size_t blocks = block_count(parts.table.data_bytes);
  if (sums.block_crcs.size() != blocks) {
    return refuse_header(
        fmt::format("{} block checksums for {} blocks", sums.block_crcs.size(), blocks));
  }
  const std::size_t ranges = parts.table.range_count.value_or(0);
  if (sums.ranges.size() != ranges) {
    return refuse_header(fmt::format("{} ranges for {} tensors", sums.ranges.size(), ranges));
  }
  if (sums.links.size() != parts.link_count) {
    return refuse_header(fmt::format("{} links for {} files", sums.links.size(), parts.link_count));
  }
  const std::size_t audited = parts.audit == nullptr ? 0 : parts.audit->count;
  if (sums.audit_crcs.size() == audited) return {};
  return refuse_header(
      fmt::format("{} checksums for {} records of an audit", sums.audit_crcs.size(), audited));
}

// Adds the spaces up to a page boundary, at which the data section begins.
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
                          crcs_bytes(kBlocksKey, block_count(parts.table.data_bytes)) +
                          ranges_bytes(parts.table.range_count) + audit_bytes(parts.audit) +
                          links_bytes(parts.link_count) + kMetadataEnd.size() +
                          parts.table.members.size() + kClosingBrace,
                      parts.table);
}

Result<EncodedHeader> encode_header(const HeaderParts& parts, const HeaderSums& sums) {
  DF_TRY_VOID(check_parts(parts));
  DF_TRY_VOID(check_sums(parts, sums));
  fmt::memory_buffer text;
  append_beginning(text, parts);
  append_text(text, parts.tree_member);
  append_text(text, parts.table.extras);
  append_crcs_member(text, kBlocksKey, sums.block_crcs);
  if (parts.table.range_count) append_ranges_member(text, sums.ranges);
  if (!sums.audit_crcs.empty()) {
    append_text(text, parts.audit->member);
    append_crcs_member(text, kAuditCrcsKey, sums.audit_crcs);
  }
  if (!sums.links.empty()) append_links_member(text, sums.links);
  append_text(text, kMetadataEnd);
  append_text(text, parts.table.members);
  text.push_back('}');
  DF_TRY(const std::uint64_t bytes, padded_bytes(text.size(), parts.table));
  return finish(text, bytes);
}

Result<EncodedHeader> encode_header(const ShardHeader& header) {
  DF_TRY_VOID(check_unique(header.entries));
  DF_TRY(const TreeText tree, write_tree(header.tree, kTreeBytesMax));
  const bool with_ranges = header.ranges.has_value();
  DF_TRY(const TableText table, write_table(header.entries, header.data_bytes, with_ranges));
  const AuditText audit = write_audit(header.audit);
  std::vector<std::uint32_t> audit_crcs;
  for (const AuditRecord& record : header.audit) audit_crcs.push_back(record.crc);
  HeaderSums sums{.block_crcs = header.block_crcs,
                  .ranges = {},
                  .audit_crcs = audit_crcs,
                  .links = header.links};
  if (with_ranges) sums.ranges = *header.ranges;
  return encode_header({.identity = header.identity,
                        .annotations = header.annotations,
                        .tree_member = tree.members.empty() ? "" : tree.members.front(),
                        .table = table,
                        .audit = &audit,
                        .link_count = header.links.size()},
                       sums);
}

}  // namespace deepfreeze
