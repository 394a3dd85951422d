// A *sealed* text begins {"crc32c":"xxxxxxxx", and that CRC covers the whole text with its own
// eight digits as '0'. It is checked before anything is parsed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "json/json_value.h"

namespace deepfreeze {

inline constexpr std::size_t kSealedJsonBytesMax = 64 * 1024 * 1024;

// `object`: the text of an object with members, none of them "crc32c", on one line. With its end.
[[nodiscard]] std::string seal_text(std::string_view object);
// kCorrupt: the checksum does not match, or as parse_strict().
[[nodiscard]] Result<JsonValue> parse_sealed(std::string_view text);

}  // namespace deepfreeze
