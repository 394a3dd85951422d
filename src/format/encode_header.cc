#include <fmt/format.h>

#include <array>
#include <cstring>
#include <unordered_set>

#include "base/checked_math.h"
#include "base/hex.h"
#include "base/try.h"
#include "deepfreeze/version.h"
#include "format/header_text.h"
#include "format/json_parts.h"
#include "format/json_writer.h"
#include "format/state_tree.h"
#include "tensor/utf8.h"

namespace deepfreeze {
namespace {

std::unexpected<Error> refuse(std::string cause) {
  return fail(ErrorCode::kInvalidArgument, "header: " + std::move(cause));
}

Status check_identity(const Identity& identity) {
  if (!parse_hex64(identity.run_id)) {
    return refuse(fmt::format("\"{}\" is not a run id", identity.run_id));
  }
  const PartName& part = identity.part;
  if (part.rank < part.world_size && part.file < part.file_count) return {};
  return refuse("its rank or file number is not below the count");
}

Status check_texts(const std::map<std::string, std::string>& texts) {
  for (const auto& [name, text] : texts) {
    if (!is_utf8(name) || !is_utf8(text)) return refuse("a tag or environment entry is not UTF-8");
  }
  return {};
}

Status check_annotations(const Annotations& annotations) {
  for (const auto& [name, value] : annotations.metrics) {
    if (!is_utf8(name)) return refuse("the name of a metric is not UTF-8");
  }
  DF_TRY_VOID(check_texts(annotations.tags));
  DF_TRY_VOID(check_texts(annotations.environment));
  if (annotations.parent && !is_utf8(annotations.parent->run)) {
    return refuse("the path of the parent run is not UTF-8");
  }
  return {};
}

Status check_unique(const std::vector<ShardEntry>& entries) {
  std::unordered_set<std::string_view> keys;
  keys.reserve(entries.size());
  for (const ShardEntry& entry : entries) {
    if (!keys.insert(entry.spec.key).second) {
      return refuse(fmt::format("tensor \"{}\": its key is used twice", entry.spec.key));
    }
  }
  return {};
}

Status check_header(const ShardHeader& header) {
  DF_TRY_VOID(check_identity(header.identity));
  DF_TRY_VOID(check_annotations(header.annotations));
  if (header.tree.size() > kTreeBytesMax) return refuse("the state tree is too large");
  if (!is_utf8(header.tree)) return refuse("the state tree is not UTF-8");
  DF_TRY_VOID(check_entries(header.entries, header.data_bytes));
  DF_TRY_VOID(check_unique(header.entries));
  if (header.block_crcs.size() == block_count(header.data_bytes)) return {};
  return refuse(fmt::format("{} block checksums for {} blocks", header.block_crcs.size(),
                            block_count(header.data_bytes)));
}

void append_member(fmt::memory_buffer& out, std::string_view key, std::string_view value) {
  append_text(out, ",\"");
  append_text(out, key);
  append_text(out, "\":");
  append_json_string(out, value);
}

// By hand: there are sixteen thousand of them in a gigabyte.
void append_hex32(fmt::memory_buffer& out, std::uint32_t value) {
  for (int shift = 28; shift >= 0; shift -= 4)
    out.push_back("0123456789abcdef"[value >> shift & 15]);
}

void append_blocks(fmt::memory_buffer& out, const std::vector<std::uint32_t>& crcs) {
  fmt::format_to(fmt::appender(out), ",\"{}\":\"", kBlocksKey);
  for (const std::uint32_t crc : crcs) append_hex32(out, crc);
  out.push_back('"');
}

// What safetensors has no place for; nothing for most tensors.
void append_extra(fmt::memory_buffer& out, const TensorSpec& spec) {
  if (spec.logical_dtype.empty() && !spec.box) return;
  out.push_back(out.size() == 0 ? '{' : ',');
  append_json_string(out, spec.key);
  out.push_back(':');
  const std::size_t begin = out.size();
  if (!spec.logical_dtype.empty()) {
    append_text(out, ",\"logical_dtype\":");
    append_json_string(out, spec.logical_dtype);
  }
  if (spec.box) {
    append_text(out, ",\"offset\":");
    append_json_array(out, spec.box->offset);
    append_text(out, ",\"global_shape\":");
    append_json_array(out, spec.global_shape);
  }
  out.data()[begin] = '{';
  out.push_back('}');
}

void append_extras(fmt::memory_buffer& out, const std::vector<ShardEntry>& entries) {
  fmt::memory_buffer extras;
  for (const ShardEntry& entry : entries) append_extra(extras, entry.spec);
  if (extras.size() == 0) return;
  extras.push_back('}');
  append_member(out, kTensorsKey, {extras.data(), extras.size()});
}

void append_metadata(fmt::memory_buffer& out, const ShardHeader& header) {
  append_text(out, kHeaderPrefix);
  append_text(out, kCrcZeros);
  append_text(out, "\"");
  append_member(out, "format", "pt");
  append_member(out, kVersionKey, fmt::to_string(kFormatVersion));
  append_member(out, kIdentityKey, identity_json(header.identity).dump());
  append_member(out, kAnnotationsKey, annotations_json(header.annotations).dump());
  if (!header.tree.empty()) append_member(out, kTreeKey, header.tree);
  append_extras(out, header.entries);
  append_blocks(out, header.block_crcs);
  out.push_back('}');
}

void append_entry(fmt::memory_buffer& out, const ShardEntry& entry) {
  out.push_back(',');
  append_json_string(out, entry.spec.key);
  append_text(out, ":{\"dtype\":\"");
  append_text(out, dtype_name(entry.spec.dtype));
  append_text(out, "\",\"shape\":");
  append_json_array(out, entry.spec.shape);
  append_text(out, ",\"data_offsets\":");
  append_json_array(out, std::array{entry.extent.begin, entry.extent.end});
  out.push_back('}');
}

// Spaces up to a page, so that the data section begins at one.
void pad(fmt::memory_buffer& text) {
  const std::size_t end = text.size();
  text.resize(round_up(kLengthBytes + end, kPageBytes) - kLengthBytes);
  std::memset(text.data() + end, ' ', text.size() - end);
}

EncodedHeader finish(const fmt::memory_buffer& text) {
  EncodedHeader encoded{.bytes = std::vector<std::byte>(kLengthBytes + text.size())};
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    encoded.bytes[i] = static_cast<std::byte>(text.size() >> (8 * i));
  }
  std::memcpy(encoded.bytes.data() + kLengthBytes, text.data(), text.size());
  encoded.crc = header_crc(encoded.bytes);
  std::memcpy(encoded.bytes.data() + kCrcOffset, hex32(encoded.crc).data(), kCrcDigits);
  return encoded;
}

}  // namespace

Result<EncodedHeader> encode_header(const ShardHeader& header) {
  DF_TRY_VOID(check_header(header));
  fmt::memory_buffer text;
  append_metadata(text, header);
  for (const ShardEntry& entry : header.entries) append_entry(text, entry);
  text.push_back('}');
  pad(text);
  if (kLengthBytes + text.size() <= kHeaderBytesMax) return finish(text);
  return refuse(fmt::format("{} bytes for {} tensors, more than {}", text.size(),
                            header.entries.size(), kHeaderBytesMax));
}

}  // namespace deepfreeze
