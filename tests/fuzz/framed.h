// Puts the checksums of the format around any text, so that a fuzzer gets behind them. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/shard_header.h"

namespace deepfreeze {

// A sealed record: `text` is a whole one, whose digits are put right, or only its members.
[[nodiscard]] std::string framed_record(std::string_view text);

// A header of this JSON, or of its members after the checksum: padding, length, checksum.
[[nodiscard]] std::vector<std::byte> framed_header(std::string_view json);

// The end of the last tensor in a header's JSON: the last number in it, 0 if there is none.
[[nodiscard]] std::uint64_t data_bytes_of(std::string_view json);

// framed_header(json) decoded, in a file that is as long as it needs.
[[nodiscard]] Result<ShardHeader> decode_framed(std::string_view json);

}  // namespace deepfreeze
