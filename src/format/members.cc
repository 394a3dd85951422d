#include "format/members.h"

#include <limits>
#include <optional>

#include "base/hex.h"
#include "base/try.h"
#include "json/json_reader.h"

namespace deepfreeze {
namespace {

std::unexpected<Error> bad_member(std::string_view member, std::string_view cause) {
  return fail(ErrorCode::kCorrupt, fmt::format("member \"{}\" {}", member, cause));
}

// A string of decimal digits is accepted only for a number too large for a JSON number.
template <class T>
std::optional<T> big_number(std::string_view digits, std::optional<T> value) {
  if (!value || fmt::to_string(*value) != digits || is_plain_whole(*value)) return std::nullopt;
  return value;
}

}  // namespace

Result<std::uint64_t> get_u64(const JsonValue& object, std::string_view member) {
  const JsonValue* value = object.find(member);
  if (value == nullptr) return bad_member(member, "is missing");
  const std::uint64_t* natural = value->as_u64();
  if (natural != nullptr && is_plain_whole(*natural)) return *natural;
  if (const std::string* digits = value->as_string()) {
    if (const auto big = big_number(*digits, to_u64(*digits))) return *big;
  }
  return bad_member(member, "is not a whole number");
}

Result<std::uint32_t> get_u32(const JsonValue& object, std::string_view member) {
  DF_TRY(const std::uint64_t value, get_u64(object, member));
  if (value > std::numeric_limits<std::uint32_t>::max()) return bad_member(member, "is too large");
  return static_cast<std::uint32_t>(value);
}

Result<std::int64_t> get_i64(const JsonValue& object, std::string_view member) {
  const JsonValue* value = object.find(member);
  if (value == nullptr) return bad_member(member, "is missing");
  const std::uint64_t* natural = value->as_u64();
  if (natural != nullptr && is_plain_whole(*natural)) return static_cast<std::int64_t>(*natural);
  const std::int64_t* negative = value->as_i64();
  if (negative != nullptr && is_plain_whole(*negative)) return *negative;
  if (const std::string* digits = value->as_string()) {
    if (const auto big = big_number(*digits, to_i64(*digits))) return *big;
  }
  return bad_member(member, "is not a whole number");
}

Result<std::string> get_string(const JsonValue& object, std::string_view member) {
  const JsonValue* value = object.find(member);
  if (value == nullptr) return bad_member(member, "is missing");
  if (const std::string* text = value->as_string()) return *text;
  return bad_member(member, "is not a string");
}

Result<const JsonArray*> get_array(const JsonValue& object, std::string_view member) {
  const JsonValue* value = object.find(member);
  const JsonArray* elements = value == nullptr ? nullptr : value->as_array();
  if (elements == nullptr) return bad_member(member, "is not an array");
  return elements;
}

Result<std::uint32_t> get_hex32(const JsonValue& object, std::string_view member) {
  DF_TRY(const std::string digits, get_string(object, member));
  if (const auto value = parse_hex32(digits)) return *value;
  return bad_member(member, "is not hexadecimal digits of its length");
}

Result<std::uint64_t> get_hex64(const JsonValue& object, std::string_view member) {
  DF_TRY(const std::string digits, get_string(object, member));
  if (const auto value = parse_hex64(digits)) return *value;
  return bad_member(member, "is not hexadecimal digits of its length");
}

}  // namespace deepfreeze
