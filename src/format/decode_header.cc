#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/hex.h"
#include "base/try.h"
#include "deepfreeze/version.h"
#include "format/header_audit.h"
#include "format/header_links.h"
#include "format/header_ranges.h"
#include "format/header_text.h"
#include "format/json_parts.h"
#include "format/state_tree.h"
#include "json/json_reader.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kHeaderDepthMax = 3;  // the whole, an entry, a shape

std::unexpected<Error> corrupt(std::string cause) {
  return fail(ErrorCode::kCorrupt, "header: " + std::move(cause));
}

// The texts of __metadata__ that we know, as they stand in the header.
struct Metadata {
  std::string_view version;
  std::string_view identity;
  std::string_view annotations;
  std::string_view tree;
  std::string_view tensors;
  std::string_view blocks;
  std::optional<std::string_view> ranges;
  std::string_view audit;
  std::string_view audit_crcs;
  std::string_view links;
};

std::string_view* text_of(Metadata& metadata, std::string_view key) {
  if (key == kVersionKey) return &metadata.version;
  if (key == kIdentityKey) return &metadata.identity;
  if (key == kAnnotationsKey) return &metadata.annotations;
  if (key == kTreeKey) return &metadata.tree;
  if (key == kTensorsKey) return &metadata.tensors;
  if (key == kBlocksKey) return &metadata.blocks;
  if (key == kRangesKey) return &metadata.ranges.emplace();
  if (key == kAuditKey) return &metadata.audit;
  if (key == kAuditCrcsKey) return &metadata.audit_crcs;
  if (key == kLinksKey) return &metadata.links;
  return nullptr;
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Metadata read_metadata(JsonReader& reader) {
  Metadata metadata;
  std::string_view key;
  reader.enter_object();
  while (reader.next_member(key)) {
    const std::string_view value = reader.read_string();
    if (std::string_view* text = text_of(metadata, key)) *text = value;
  }
  return metadata;
}

// Relies only on what is the same in every version: the checksum's place and this member.
Status check_version(std::string_view text) {
  const auto version = to_u64(text);
  if (!version || *version == 0) return corrupt("it has no format version");
  if (*version <= kFormatVersion) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("header: written by a newer version: its format is {}, this reader's is "
                          "{}",
                          *version, kFormatVersion));
}

Shape read_shape(JsonReader& reader) {
  Shape shape;
  reader.enter_array();
  while (reader.next_element()) {
    const auto size = to_u64(reader.read_number());
    if (!size) reader.refuse("expected a size");
    if (shape.size() == kRankMax) reader.refuse("too many dimensions");
    if (reader.ok()) shape.push_back(*size);
  }
  return shape;
}

DType read_dtype(JsonReader& reader) {
  const auto dtype = dtype_from_name(reader.read_string());
  if (!dtype) reader.refuse("an unknown dtype");
  return dtype.value_or(DType::kU8);
}

Extent read_extent(JsonReader& reader) {
  const Shape offsets = read_shape(reader);
  if (offsets.size() != 2) reader.refuse("expected two offsets");
  return reader.ok() ? Extent{.begin = offsets[0], .end = offsets[1]} : Extent{};
}

ShardEntry read_entry(JsonReader& reader, std::string_view key) {
  ShardEntry entry{.spec = {.key = std::string(key)}};
  std::size_t members = 0;
  std::string_view member;
  reader.enter_object();
  for (; reader.next_member(member); ++members) {
    if (member == "dtype") {
      entry.spec.dtype = read_dtype(reader);
    } else if (member == "shape") {
      entry.spec.shape = read_shape(reader);
    } else if (member == "data_offsets") {
      entry.extent = read_extent(reader);
    } else {
      reader.refuse("an unknown member of a tensor");
    }
  }
  // The reader refuses a member that comes twice.
  if (members != 3) reader.refuse("a tensor without dtype, shape or data_offsets");
  return entry;
}

// Not hashed: names can be chosen so that their hashes are all equal.
using SpecsByKey = std::map<std::string_view, TensorSpec*>;

void read_extra(JsonReader& reader, TensorSpec& spec) {
  std::string_view member;
  reader.enter_object();
  while (reader.next_member(member)) {
    if (member == "logical_dtype") {
      spec.logical_dtype = reader.read_string();
    } else if (member == "offset") {
      spec.box = Box{.offset = read_shape(reader), .extent = spec.shape};
    } else if (member == "global_shape") {
      spec.global_shape = read_shape(reader);
    } else {
      reader.skip_value();
    }
  }
}

// "deepfreeze.tensors": the properties of a tensor for which safetensors has no place.
Status read_extras(std::string_view text, std::vector<ShardEntry>& entries) {
  SpecsByKey specs;
  for (ShardEntry& entry : entries) specs.emplace(entry.spec.key, &entry.spec);
  JsonReader reader(text, kJsonDepthMax);
  std::string_view key;
  reader.enter_object();
  while (reader.next_member(key)) {
    const auto found = specs.find(key);
    if (found != specs.end()) {
      read_extra(reader, *found->second);
    } else {
      reader.refuse("a tensor that the file does not hold");
    }
  }
  return reader.finish();
}

// Everything but the entries themselves, which are read already.
Status read_rest(const Metadata& metadata, ShardHeader& header) {
  DF_TRY(const JsonValue identity, parse_strict(metadata.identity));
  DF_TRY(header.identity, identity_of(identity));
  DF_TRY(const JsonValue annotations, parse_strict(metadata.annotations));
  DF_TRY(header.annotations, annotations_of(annotations));
  header.tree = metadata.tree;
  if (!metadata.tensors.empty()) DF_TRY_VOID(read_extras(metadata.tensors, header.entries));
  DF_TRY(header.block_crcs, read_crcs(metadata.blocks, block_count(header.data_bytes), "blocks"));
  const Status sound = check_entries(header.entries, header.data_bytes);
  if (!sound) return corrupt(sound.error().message());
  if (!metadata.audit.empty()) {
    DF_TRY(header.audit, read_audit(metadata.audit, metadata.audit_crcs));
  }
  DF_TRY(header.links, read_links(metadata.links));
  if (!metadata.ranges) return {};
  DF_TRY(header.ranges, read_ranges(*metadata.ranges, header.entries));
  return {};
}

Result<ShardHeader> parse(std::string_view text, std::uint64_t data_bytes) {
  JsonReader reader(text, kHeaderDepthMax);
  std::string_view key;
  reader.enter_object();
  (void)reader.next_member(key);  // __metadata__: the prefix was compared
  const Metadata metadata = read_metadata(reader);
  DF_TRY_VOID(check_version(metadata.version));
  ShardHeader header{.data_bytes = data_bytes};
  while (reader.next_member(key)) header.entries.push_back(read_entry(reader, key));
  DF_TRY_VOID(reader.finish());
  DF_TRY_VOID(read_rest(metadata, header));
  return header;
}

}  // namespace

Result<std::uint64_t> header_size(std::span<const std::byte> first8, std::uint64_t file_bytes) {
  if (first8.size() < kLengthBytes) {
    return corrupt(fmt::format("the file has only {} bytes", file_bytes));
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= std::to_integer<std::uint64_t>(first8[i]) << (8 * i);
  }
  if (length == 0) return corrupt("its length is zero, so it was never written");
  if (length > kHeaderBytesMax - kLengthBytes || kLengthBytes + length > file_bytes) {
    return corrupt(fmt::format("{} bytes in a file of {}", length, file_bytes));
  }
  if ((kLengthBytes + length) % kPageBytes == 0) return kLengthBytes + length;
  return corrupt(
      fmt::format("{} bytes do not fill pages: not a DeepFreeze file, or damaged", length));
}

Result<std::uint32_t> checked_header_crc(std::span<const std::byte> bytes) {
  const std::string_view text = text_of(bytes);
  if (!text.substr(kLengthBytes).starts_with(kHeaderPrefix)) {
    return corrupt("it lacks our checksum: not a DeepFreeze file, or damaged");
  }
  const auto stored = parse_hex32(text.substr(kCrcOffset, kCrcDigits));
  if (stored != header_crc(bytes)) return corrupt("its checksum does not match");
  return *stored;
}

Result<ShardHeader> decode_header(std::span<const std::byte> bytes, std::uint64_t file_bytes,
                                  std::uint32_t& crc) {
  const auto first8 = bytes.first(std::min(bytes.size(), kLengthBytes));
  DF_TRY(const std::uint64_t header_bytes, header_size(first8, file_bytes));
  if (header_bytes != bytes.size()) {
    return corrupt(fmt::format("{} bytes given of {}", bytes.size(), header_bytes));
  }
  DF_TRY(crc, checked_header_crc(bytes));
  return parse(text_of(bytes.subspan(kLengthBytes)), file_bytes - header_bytes);
}

}  // namespace deepfreeze
