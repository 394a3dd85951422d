#include "json/json_value.h"

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "json/json_reader.h"

namespace deepfreeze {
namespace {

JsonValue number_of(JsonReader& reader) {
  const std::string_view token = reader.read_number();
  if (is_float_token(token)) {
    if (const auto value = to_double(token)) return JsonValue(*value);
  } else if (const auto natural = to_u64(token)) {
    return JsonValue(*natural);
  } else if (const auto whole = to_i64(token)) {
    return JsonValue(*whole);
  }
  reader.refuse("a number out of range");
  return {};
}

// Recursion is bounded: the reader refuses deep nesting.
JsonValue value_of(JsonReader& reader);

JsonValue object_of(JsonReader& reader) {
  JsonObject members;
  std::string_view key;
  reader.enter_object();
  while (reader.next_member(key)) {
    std::string name(key);
    members.emplace_back(std::move(name), value_of(reader));
  }
  return JsonValue(std::move(members));
}

JsonValue array_of(JsonReader& reader) {
  JsonArray elements;
  reader.enter_array();
  while (reader.next_element()) elements.push_back(value_of(reader));
  return JsonValue(std::move(elements));
}

JsonValue value_of(JsonReader& reader) {
  using enum JsonReader::Kind;
  const JsonReader::Kind kind = reader.peek();
  switch (kind) {
    case kObject:
      return object_of(reader);
    case kArray:
      return array_of(reader);
    case kString:
      return JsonValue(std::string(reader.read_string()));
    case kNumber:
      return number_of(reader);
    default:
      reader.read_word();
  }
  if (kind == kTrue || kind == kFalse) return JsonValue(kind == kTrue);
  return {};
}

}  // namespace

JsonValue::JsonValue(std::string value) : value_(std::make_unique<std::string>(std::move(value))) {}
JsonValue::JsonValue(JsonArray value) : value_(std::make_unique<JsonArray>(std::move(value))) {}
JsonValue::JsonValue(JsonObject value) : value_(std::make_unique<JsonObject>(std::move(value))) {}

std::optional<double> JsonValue::as_number() const {
  if (const auto* real = std::get_if<double>(&value_)) return *real;
  if (const auto* natural = as_u64()) return static_cast<double>(*natural);
  if (const auto* whole = as_i64()) return static_cast<double>(*whole);
  return std::nullopt;
}

const JsonValue* JsonValue::find(std::string_view name) const {
  const JsonObject* members = as_object();
  if (members == nullptr) return nullptr;
  const auto found = std::ranges::find(*members, name, &JsonMember::first);
  return found == members->end() ? nullptr : &found->second;
}

Result<JsonValue> parse_strict(std::string_view text, std::size_t depth_max) {
  JsonReader reader(text, depth_max);
  JsonValue value = value_of(reader);
  DF_TRY_VOID(reader.finish());
  return value;
}

}  // namespace deepfreeze
