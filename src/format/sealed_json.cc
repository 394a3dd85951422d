#include "format/sealed_json.h"

#include <fmt/format.h>

#include <span>

#include "base/hex.h"
#include "base/try.h"
#include "codec/crc32c.h"

namespace deepfreeze {
namespace {

constexpr std::string_view kPrefix = R"({"crc32c":")";
constexpr std::string_view kZeroDigits = "00000000";

std::uint32_t extend(std::uint32_t crc, std::string_view text) {
  return crc32c_extend(crc, std::as_bytes(std::span(text)));
}

// The checksum of a whole text, with its own digits taken as '0'.
std::uint32_t sealed_crc(std::string_view text) {
  const std::uint32_t head = extend(extend(0, kPrefix), kZeroDigits);
  return extend(head, text.substr(kPrefix.size() + kZeroDigits.size()));
}

}  // namespace

std::string seal_text(std::string_view object) {
  std::string text = fmt::format("{}{}\",{}\n", kPrefix, kZeroDigits, object.substr(1));
  text.replace(kPrefix.size(), kZeroDigits.size(), hex32(sealed_crc(text)));
  return text;
}

Result<JsonValue> parse_sealed(std::string_view text) {
  if (text.size() > kSealedJsonBytesMax) {
    return fail(ErrorCode::kCorrupt, fmt::format("{} bytes are too many", text.size()));
  }
  if (!text.starts_with(kPrefix)) {
    return fail(ErrorCode::kCorrupt, "it does not begin with a checksum");
  }
  const auto stored = parse_hex32(text.substr(kPrefix.size(), kZeroDigits.size()));
  if (!stored || *stored != sealed_crc(text)) {
    return fail(ErrorCode::kCorrupt, "its checksum does not match its bytes");
  }
  return parse_strict(text);
}

}  // namespace deepfreeze
