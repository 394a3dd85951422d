#include "format/strict_json.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <utility>

#include "base/try.h"
#include "format/json_reader.h"

namespace deepfreeze {
namespace {

using nlohmann::json;

json number_of(JsonReader& reader) {
  const std::string_view token = reader.read_number();
  if (is_float_token(token)) {
    if (const auto value = to_double(token)) return *value;
  } else if (const auto natural = to_u64(token)) {
    return *natural;
  } else if (const auto whole = to_i64(token)) {
    return *whole;
  }
  reader.refuse("a number out of range");
  return {};
}

// Recursion is bounded: the reader refuses deep nesting.
json value_of(JsonReader& reader);

json object_of(JsonReader& reader) {
  json::object_t members;
  std::string_view key;
  reader.enter_object();
  while (reader.next_member(key)) members.emplace(key, value_of(reader));
  return members;
}

json array_of(JsonReader& reader) {
  json::array_t elements;
  reader.enter_array();
  while (reader.next_element()) elements.push_back(value_of(reader));
  return elements;
}

json value_of(JsonReader& reader) {
  using enum JsonReader::Kind;
  const JsonReader::Kind kind = reader.peek();
  switch (kind) {
    case kObject:
      return object_of(reader);
    case kArray:
      return array_of(reader);
    case kString:
      return std::string(reader.read_string());
    case kNumber:
      return number_of(reader);
    default:
      reader.read_word();
  }
  if (kind == kTrue || kind == kFalse) return kind == kTrue;
  return {};
}

std::unexpected<Error> bad_member(std::string_view member, std::string_view cause) {
  return fail(ErrorCode::kCorrupt, fmt::format("member \"{}\" {}", member, cause));
}

// A string of decimal digits is accepted only for a number too large for a JSON number.
template <class T>
std::optional<T> big_number(std::string_view digits, std::optional<T> value) {
  if (!value || fmt::to_string(*value) != digits) return std::nullopt;
  if (std::cmp_less_equal(*value, kJsonIntegerMax) &&
      std::cmp_greater_equal(*value, -kJsonIntegerMax)) {
    return std::nullopt;
  }
  return value;
}

bool is_plain_whole(const json& value) {
  if (value.is_number_unsigned())
    return std::cmp_less_equal(value.get<std::uint64_t>(), kJsonIntegerMax);
  return value.is_number_integer() && value.get<std::int64_t>() >= -kJsonIntegerMax;
}

}  // namespace

Result<json> parse_strict(std::string_view text, std::size_t depth_max) {
  JsonReader reader(text, depth_max);
  json value = value_of(reader);
  DF_TRY_VOID(reader.finish());
  return value;
}

nlohmann::ordered_json whole_json(std::uint64_t value) {
  if (std::cmp_greater(value, kJsonIntegerMax)) return fmt::to_string(value);
  return value;
}

nlohmann::ordered_json whole_json(std::int64_t value) {
  if (value > kJsonIntegerMax || value < -kJsonIntegerMax) return fmt::to_string(value);
  return value;
}

const json* find_member(const json& object, std::string_view member) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(member);
  return found == object.end() ? nullptr : &*found;
}

Result<std::uint64_t> get_u64(const json& object, std::string_view member) {
  const json* value = find_member(object, member);
  if (value == nullptr) return bad_member(member, "is missing");
  if (value->is_number_unsigned() && is_plain_whole(*value)) return value->get<std::uint64_t>();
  if (const auto* digits = value->get_ptr<const std::string*>()) {
    if (const auto big = big_number(*digits, to_u64(*digits))) return *big;
  }
  return bad_member(member, "is not a whole number");
}

Result<std::uint32_t> get_u32(const json& object, std::string_view member) {
  DF_TRY(const std::uint64_t value, get_u64(object, member));
  if (value > std::numeric_limits<std::uint32_t>::max()) return bad_member(member, "is too large");
  return static_cast<std::uint32_t>(value);
}

Result<std::int64_t> get_i64(const json& object, std::string_view member) {
  const json* value = find_member(object, member);
  if (value == nullptr) return bad_member(member, "is missing");
  if (is_plain_whole(*value)) return value->get<std::int64_t>();
  if (const auto* digits = value->get_ptr<const std::string*>()) {
    if (const auto big = big_number(*digits, to_i64(*digits))) return *big;
  }
  return bad_member(member, "is not a whole number");
}

Result<std::string> get_string(const json& object, std::string_view member) {
  const json* value = find_member(object, member);
  if (value == nullptr) return bad_member(member, "is missing");
  if (!value->is_string()) return bad_member(member, "is not a string");
  return value->get<std::string>();
}

}  // namespace deepfreeze
