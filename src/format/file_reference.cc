#include "format/file_reference.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hex.h"
#include "base/try.h"
#include "codec/crc32c.h"
#include "format/little_endian.h"

namespace deepfreeze {
namespace {

constexpr std::string_view kReferenceMark = "DFrefers";
constexpr std::string_view kSuffix = ".safetensors";
constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kNameBytesAt = 12;
constexpr std::size_t kNameAt = 16;
constexpr std::size_t kCrcAt = kReferenceBytes - 4;
constexpr std::size_t kNonceDigits = 16;

std::unexpected<Error> corrupt_reference(std::string_view why) {
  return fail(ErrorCode::kCorrupt, fmt::format("reference: {}", why));
}

}  // namespace

std::string shared_stem(const Origin& origin, std::string_view file_name) {
  if (file_name.ends_with(kSuffix)) file_name.remove_suffix(kSuffix.size());
  return fmt::format("{}.{}", attempt_dir_name({origin.point.step, origin.point.attempt_id}),
                     file_name);
}

std::string shared_file_name(std::string_view stem, std::uint64_t nonce) {
  return fmt::format("{}.{}{}", stem, hex64(nonce), kSuffix);
}

std::optional<std::string_view> stem_of_shared(std::string_view name) {
  if (!is_safe_name(name) || !name.ends_with(kSuffix)) return std::nullopt;
  name.remove_suffix(kSuffix.size());
  if (name.size() <= kNonceDigits + 1) return std::nullopt;
  const std::string_view stem = name.substr(0, name.size() - kNonceDigits - 1);
  if (name[stem.size()] != '.' || !parse_hex64(name.substr(stem.size() + 1))) return std::nullopt;
  const std::size_t dot = stem.find('.');
  const bool is_one = dot != stem.npos && parse_attempt_dir_name(stem.substr(0, dot)) &&
                      parse_sealed_file_name(fmt::format("{}{}", stem.substr(dot + 1), kSuffix));
  return is_one ? std::optional(stem) : std::nullopt;
}

bool has_reference_mark(std::span<const std::byte> first_bytes) {
  return has_mark(first_bytes, 0, kReferenceMark);
}

std::string encode_reference(std::string_view name) {
  std::string page(kReferenceBytes, '\0');
  const auto bytes = std::as_writable_bytes(std::span(page));
  put_mark(bytes, 0, kReferenceMark);
  put_number(bytes, kVersionAt, kReferenceVersion);
  put_number(bytes, kNameBytesAt, static_cast<std::uint32_t>(name.size()));
  put_mark(bytes, kNameAt, name);
  put_number(bytes, kCrcAt, crc32c(bytes.first(kCrcAt)));
  return page;
}

Result<std::string> decode_reference(std::span<const std::byte> page) {
  if (page.size() != kReferenceBytes || !has_reference_mark(page)) {
    return corrupt_reference("it is no whole page that begins with the mark");
  }
  if (crc32c(page.first(kCrcAt)) != get_number<std::uint32_t>(page, kCrcAt)) {
    return corrupt_reference("its checksum is wrong");
  }
  if (const auto version = get_number<std::uint32_t>(page, kVersionAt);
      version != kReferenceVersion) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("reference: its version is {}, and this program reads {}: use a newer "
                            "DeepFreeze",
                            version, kReferenceVersion));
  }
  const auto bytes = get_number<std::uint32_t>(page, kNameBytesAt);
  if (bytes > kCrcAt - kNameAt) return corrupt_reference("its name is too long");
  std::string name(bytes, '\0');
  std::ranges::copy(page.subspan(kNameAt, bytes), std::as_writable_bytes(std::span(name)).begin());
  if (stem_of_shared(name)) return name;
  return corrupt_reference("it names no shared file");
}

}  // namespace deepfreeze
