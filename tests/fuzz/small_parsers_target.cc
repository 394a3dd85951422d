// The parsers of names, base64, digits and UTF-8: each accepted value has one spelling.
#include "base/hex.h"
#include "base/utf8.h"
#include "deepfreeze/tensor.h"
#include "format/base64.h"
#include "format/names.h"
#include "format/tag_record.h"
#include "fuzz/fuzz_target.h"
#include "storage/vfs_name.h"

namespace deepfreeze {
namespace {

template <class Parsed, class Spell>
Status check_spelling(std::string_view text, const Parsed& parsed, Spell spell) {
  return promise(!parsed || spell(*parsed) == text, "a name with two spellings");
}

Status check_names(std::string_view text) {
  DF_TRY_VOID(check_spelling(text, parse_attempt_dir_name(text), attempt_dir_name));
  DF_TRY_VOID(check_spelling(text, parse_sealed_file_name(text), sealed_file_name));
  DF_TRY_VOID(check_spelling(text, parse_generation_file_name(text), generation_file_name));
  DF_TRY_VOID(check_spelling(text, parse_tag_file_name(text), tag_file_name));
  DF_TRY_VOID(check_spelling(text, parse_hex32(text), hex32));
  DF_TRY_VOID(check_spelling(text, parse_hex64(text), hex64));
  return check_spelling(text, dtype_from_name(text), dtype_name);
}

// Whatever the parsers take is a name that a Vfs opens, and that stays in its directory.
Status check_safety(std::string_view text) {
  const bool is_name = parse_attempt_dir_name(text) || parse_sealed_file_name(text) ||
                       parse_generation_file_name(text);
  DF_TRY_VOID(promise(!is_name || is_safe_name(text), "an unsafe name"));
  const bool has_slash = text.contains('/');
  const bool opens = check_vfs_name("open", text).has_value();
  DF_TRY_VOID(promise(has_slash || opens == is_safe_name(text), "two rules for names"));
  return promise(!opens || !("/" + std::string(text) + "/").contains("/../"), "a way out");
}

std::string encode_base64(std::string_view bytes) {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t j = i; j < i + 3; ++j) {
      bits = bits << 8 | (j < bytes.size() ? static_cast<unsigned char>(bytes[j]) : 0U);
    }
    for (int shift = 18; shift >= 0; shift -= 6) text += kAlphabet[bits >> shift & 63];
  }
  const std::size_t padding = (3 - bytes.size() % 3) % 3;
  return text.replace(text.size() - padding, padding, padding, '=');
}

// The bits that no byte needs may be any: RFC 4648 leaves that to the decoder.
Status check_base64(std::string_view text) {
  const auto bytes = decode_base64(text);
  if (!bytes) return {};
  const std::string spelt = encode_base64(*bytes);
  DF_TRY_VOID(promise(spelt.size() == text.size(), "bytes of another length"));
  return promise(decode_base64(spelt) == bytes, "bytes that are others when read again");
}

Status check_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t bytes = utf8_sequence_bytes(text.substr(at));
    if (bytes == 0) break;
    at += bytes;
  }
  return promise(at <= text.size() && is_utf8(text) == (at == text.size()), "two rules for UTF-8");
}

}  // namespace

Status fuzz_small_parsers(std::string_view input) {
  DF_TRY_VOID(check_names(input));
  DF_TRY_VOID(check_safety(input));
  DF_TRY_VOID(check_base64(input));
  return check_utf8(input);
}

}  // namespace deepfreeze
