// Values of S3's header fields and answers, as text. Pure, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "object/iso_time.h"

namespace deepfreeze {

// x-amz-checksum-crc32c: base64 of four bytes, the highest first. A checksum of checksums ("…-3")
// is not read.
[[nodiscard]] std::string checksum_text(std::uint32_t crc32c);
[[nodiscard]] std::optional<std::uint32_t> parse_checksum(std::string_view text);

// "Fri, 27 Nov 2026 22:51:33 GMT".
[[nodiscard]] std::optional<SystemTime> parse_http_date(std::string_view text);

// "bytes 0-99/1234".
struct ContentRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;  // behind the last byte
  std::uint64_t total = 0;
};
[[nodiscard]] std::optional<ContentRange> parse_content_range(std::string_view text);

[[nodiscard]] std::optional<std::uint64_t> parse_number(std::string_view digits);

// %XX and "+" of encoding-type=url. Nothing if a % is cut or followed by other letters.
[[nodiscard]] std::optional<std::string> url_decoded(std::string_view text);

}  // namespace deepfreeze
