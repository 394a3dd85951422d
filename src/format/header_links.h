// The text of `deepfreeze.links` in a header. Its size depends on the number of files alone, so a
// header's size is known before it is known whether they are linked. docs/format.md describes it.
// Pure.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "format/shard_header.h"

namespace deepfreeze {

// One file has its number and header checksum, 8 digits each; run, generation, step, save and
// attempt of its origin, 16 digits each, or zeros.
inline constexpr std::size_t kLinkDigits = 2 * 8 + 5 * 16;

void append_links(fmt::memory_buffer& out, std::span<const LinkedFile> links);

// kCorrupt if the text is malformed.
[[nodiscard]] Result<std::vector<LinkedFile>> read_links(std::string_view text);

}  // namespace deepfreeze
