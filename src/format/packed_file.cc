#include "format/packed_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/try.h"
#include "codec/crc32c.h"
#include "format/little_endian.h"

namespace deepfreeze {
namespace {

constexpr std::string_view kMark = "DFpacked";
constexpr std::string_view kEndMark = "DFpckEnd";
constexpr std::size_t kCrcBytes = 4;
constexpr std::size_t kEntryBytes = 8;
constexpr std::size_t kTrailerCrcAt = 52;  // in the trailer

std::unexpected<Error> corrupt_packed(std::string_view why) {
  return fail(ErrorCode::kCorrupt, fmt::format("packed file: {}", why));
}

std::uint64_t table_bytes(const PackedLead& lead) {
  return block_count(lead.data_bytes) * kEntryBytes;
}

// The trailer, whose checksum has been compared.
Status check_trailer(const PackedLead& lead, std::span<const std::byte> trailer,
                     std::uint64_t stored_bytes) {
  if (get_number<std::uint64_t>(trailer, 8) != lead.header_bytes ||
      get_number<std::uint64_t>(trailer, 16) != lead.data_bytes) {
    return corrupt_packed("its end says other sizes than its beginning");
  }
  if (get_number<std::uint64_t>(trailer, 0) == stored_bytes) return {};
  return corrupt_packed(fmt::format("{} bytes of blocks are there, its end says {}", stored_bytes,
                                    get_number<std::uint64_t>(trailer, 0)));
}

Result<std::vector<PackedBlock>> decode_table(const PackedLead& lead,
                                              std::span<const std::byte> table,
                                              std::uint64_t stored_bytes) {
  std::vector<PackedBlock> blocks(block_count(lead.data_bytes));
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    blocks[i] = {.bytes = get_number<std::uint32_t>(table, i * kEntryBytes),
                 .crc = get_number<std::uint32_t>(table, i * kEntryBytes + kCrcBytes)};
    sum += blocks[i].bytes;
    if (blocks[i].bytes == 0 || blocks[i].bytes > plain_block_bytes(lead, i)) {
      return corrupt_packed(fmt::format("block {} has {} bytes", i, blocks[i].bytes));
    }
  }
  if (sum == stored_bytes) return blocks;
  return corrupt_packed(
      fmt::format("its blocks have {} bytes, its table says {}", stored_bytes, sum));
}

}  // namespace

std::uint64_t plain_block_bytes(const PackedLead& lead, std::uint64_t block) {
  return std::min(kBlockBytes, lead.data_bytes - block * kBlockBytes);
}

bool has_packed_mark(std::span<const std::byte> first_bytes) {
  return has_mark(first_bytes, 0, kMark);
}

std::vector<std::byte> encode_packed_lead(const PackedLead& lead) {
  std::vector<std::byte> page(kPackedLeadBytes);
  put_mark(page, 0, kMark);
  put_number(page, 8, kPackedVersion);
  put_number(page, 16, lead.header_bytes);
  put_number(page, 24, lead.data_bytes);
  put_number(page, page.size() - kCrcBytes, crc32c(std::span(page).first(page.size() - kCrcBytes)));
  return page;
}

Result<PackedLead> decode_packed_lead(std::span<const std::byte> page) {
  if (page.size() != kPackedLeadBytes || !has_packed_mark(page)) {
    return corrupt_packed("it does not begin as one");
  }
  const std::uint32_t crc = crc32c(page.first(page.size() - kCrcBytes));
  if (crc != get_number<std::uint32_t>(page, page.size() - kCrcBytes)) {
    return corrupt_packed("its first page does not verify");
  }
  const auto version = get_number<std::uint32_t>(page, 8);
  if (version != kPackedVersion) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("packed file: it has version {}, and this DeepFreeze reads {}: a newer "
                            "one reads it",
                            version, kPackedVersion));
  }
  const PackedLead lead{.header_bytes = get_number<std::uint64_t>(page, 16),
                        .data_bytes = get_number<std::uint64_t>(page, 24)};
  if (lead.header_bytes > kHeaderBytesMax || lead.header_bytes == 0 ||
      lead.header_bytes % kPageBytes != 0 || lead.data_bytes > INT64_MAX / 2) {
    return corrupt_packed(
        fmt::format("a header of {} bytes and data of {}", lead.header_bytes, lead.data_bytes));
  }
  return lead;
}

std::uint64_t packed_index_bytes_max(const PackedLead& lead) {
  return table_bytes(lead) + kPackedPaddingBytes + kPackedTrailerBytes;
}

std::uint64_t packed_bytes_max(const PackedLead& lead) {
  return kPackedLeadBytes + lead.plain_bytes() + packed_index_bytes_max(lead);
}

bool is_packed_size(const PackedLead& lead, std::uint64_t file_bytes) {
  const std::uint64_t least = kPackedLeadBytes + lead.header_bytes + table_bytes(lead) +
                              block_count(lead.data_bytes) + kPackedTrailerBytes;
  return file_bytes >= least && file_bytes <= packed_bytes_max(lead);
}

std::vector<std::byte> encode_packed_index(const PackedLead& lead, const PackedIndex& index) {
  std::uint64_t stored_bytes = 0;
  for (const PackedBlock& block : index.blocks) stored_bytes += block.bytes;
  const std::uint64_t unpadded =
      kPackedLeadBytes + lead.header_bytes + stored_bytes + table_bytes(lead) + kPackedTrailerBytes;
  const std::uint64_t padding = unpadded == lead.plain_bytes() ? kPackedPaddingBytes : 0;
  std::vector<std::byte> bytes(table_bytes(lead) + padding + kPackedTrailerBytes);
  for (std::size_t i = 0; i < index.blocks.size(); ++i) {
    put_number(bytes, i * kEntryBytes, index.blocks[i].bytes);
    put_number(bytes, i * kEntryBytes + kCrcBytes, index.blocks[i].crc);
  }
  const auto trailer = std::span(bytes).last(kPackedTrailerBytes);
  put_number(trailer, 0, stored_bytes);
  put_number(trailer, 8, lead.header_bytes);
  put_number(trailer, 16, lead.data_bytes);
  put_number(trailer, 24, index.plain_crc);
  put_number(trailer, 28, index.stored_crc);
  put_number(trailer, 32, static_cast<std::uint32_t>(padding));
  const auto sealed = std::span(bytes).first(bytes.size() - kPackedTrailerBytes + kTrailerCrcAt);
  put_number(trailer, kTrailerCrcAt, crc32c(sealed));
  put_mark(trailer, kTrailerCrcAt + kCrcBytes, kEndMark);
  return bytes;
}

Result<PackedIndex> decode_packed_index(const PackedLead& lead, std::uint64_t file_bytes,
                                        std::span<const std::byte> tail) {
  if (!is_packed_size(lead, file_bytes) || tail.size() < table_bytes(lead) + kPackedTrailerBytes) {
    return corrupt_packed(fmt::format("it has {} bytes, too few or too many", file_bytes));
  }
  const auto trailer = tail.last(kPackedTrailerBytes);
  const std::uint64_t padding = get_number<std::uint32_t>(trailer, 32);
  const std::uint64_t index_bytes = table_bytes(lead) + padding + kPackedTrailerBytes;
  if (!has_mark(trailer, kTrailerCrcAt + kCrcBytes, kEndMark) || index_bytes > tail.size() ||
      (padding != 0 && padding != kPackedPaddingBytes)) {
    return corrupt_packed("it does not end as one");
  }
  const auto sealed =
      tail.last(index_bytes).first(index_bytes - kPackedTrailerBytes + kTrailerCrcAt);
  if (crc32c(sealed) != get_number<std::uint32_t>(trailer, kTrailerCrcAt)) {
    return corrupt_packed("the table of its blocks does not verify");
  }
  const std::uint64_t stored_bytes =
      file_bytes - kPackedLeadBytes - lead.header_bytes - index_bytes;
  DF_TRY_VOID(check_trailer(lead, trailer, stored_bytes));
  PackedIndex index{.blocks = {},
                    .plain_crc = get_number<std::uint32_t>(trailer, 24),
                    .stored_crc = get_number<std::uint32_t>(trailer, 28)};
  DF_TRY(index.blocks, decode_table(lead, sealed.first(table_bytes(lead)), stored_bytes));
  return index;
}

}  // namespace deepfreeze
