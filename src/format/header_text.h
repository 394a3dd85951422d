// Constants and checks that a header's encoder and decoder share. docs/format.md describes the
// header.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "format/shard_header.h"
#include "json/json_writer.h"

namespace deepfreeze {

inline constexpr std::size_t kLengthBytes = 8;  // the u64 in front of the JSON text
inline constexpr std::size_t kCrcDigits = 8;
inline constexpr std::string_view kCrcZeros = "00000000";

// The JSON text begins so, then come the digits: they stand at one place in every file.
inline constexpr std::string_view kHeaderPrefix = R"({"__metadata__":{"deepfreeze.crc32c":")";
inline constexpr std::size_t kCrcOffset = kLengthBytes + kHeaderPrefix.size();

inline constexpr std::string_view kVersionKey = "deepfreeze.version";
inline constexpr std::string_view kIdentityKey = "deepfreeze.identity";
inline constexpr std::string_view kAnnotationsKey = "deepfreeze.annotations";
inline constexpr std::string_view kTreeKey = "deepfreeze.tree";
inline constexpr std::string_view kTensorsKey = "deepfreeze.tensors";
inline constexpr std::string_view kShardingKey = "DCP_SHARDING_INFO";  // torch's name
inline constexpr std::string_view kBlocksKey = "deepfreeze.blocks";
inline constexpr std::string_view kRangesKey = "deepfreeze.ranges";
inline constexpr std::string_view kAuditKey = "deepfreeze.audit";
inline constexpr std::string_view kAuditCrcsKey = "deepfreeze.audit_crc32c";
inline constexpr std::string_view kLinksKey = "deepfreeze.links";

// The checksum of a whole header, with its own digits taken as '0'. `header` is longer than the
// prefix.
[[nodiscard]] std::uint32_t header_crc(std::span<const std::byte> header);

// Checks that each entry is valid, and that together they fill the data section in order and
// without holes. kInvalidArgument names the key. The callers ensure that keys are unique.
[[nodiscard]] Status check_entries(std::span<const ShardEntry> entries, std::uint64_t data_bytes);

[[nodiscard]] std::unexpected<Error> refuse_header(std::string cause);

// A JSON string. Headers spell every control character \u00xx.
inline void append_header_string(fmt::memory_buffer& out, std::string_view text) {
  append_json_string(out, text, ControlEscapes::kHex);
}

// `,"key":"value"`: all members of the metadata are strings.
void append_metadata_member(fmt::memory_buffer& out, std::string_view key, std::string_view value);

}  // namespace deepfreeze
