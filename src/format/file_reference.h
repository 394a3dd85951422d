// A page that stands for a data file in a tier without hard links: it names the file's place;
// docs/format.md, "References". Pure.
//
// Little-endian: "DFrefers", u32 version, u32 bytes of the name, the name, zeros, u32 CRC-32C of
// all before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "deepfreeze/result.h"
#include "format/layout.h"
#include "format/names.h"
#include "format/point.h"

namespace deepfreeze {

inline constexpr std::uint32_t kReferenceVersion = 1;
inline constexpr std::uint64_t kReferenceBytes = kPageBytes;

// The directory of the files that are referred to, below the run's root. A file there has the name
//   step-…-….rank-….<nonce>.safetensors
// of the attempt and the name for which it was written, and a number of its own. With the mark
// behind it, no attempt may refer to it any more.
inline constexpr std::string_view kSharedDirectory = "shared";
inline constexpr std::string_view kRetiredMark = ".retired";

// The beginning of all names that the files of one origin and name have in the directory.
[[nodiscard]] std::string shared_stem(const Origin& origin, std::string_view file_name);
[[nodiscard]] std::string shared_file_name(std::string_view stem, std::uint64_t nonce);
// The stem of such a name; nothing if it is none.
[[nodiscard]] std::optional<std::string_view> stem_of_shared(std::string_view name);

// Whether a file begins as a reference does. No safetensors file can.
[[nodiscard]] bool has_reference_mark(std::span<const std::byte> first_bytes);
// `name` is that of a file in the shared directory, without the directory.
[[nodiscard]] std::string encode_reference(std::string_view name);
// `page` has kReferenceBytes. kUnsupported: of a newer version. kCorrupt.
[[nodiscard]] Result<std::string> decode_reference(std::span<const std::byte> page);

}  // namespace deepfreeze
