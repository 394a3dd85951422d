// For tests: our values beside those of another library, nlohmann-json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "json/json_value.h"
#include "json/json_writer.h"

namespace deepfreeze {

inline nlohmann::json theirs(const JsonValue& value) {
  if (const auto* flag = value.as_bool()) return *flag;
  if (const auto* text = value.as_string()) return *text;
  if (const auto* natural = value.as_u64()) return *natural;
  if (const auto* whole = value.as_i64()) return *whole;
  if (const auto real = value.as_number()) return *real;
  nlohmann::json result;
  if (const auto* elements = value.as_array()) {
    result = nlohmann::json::array();
    for (const JsonValue& element : *elements) result.push_back(theirs(element));
  } else if (const auto* members = value.as_object()) {
    result = nlohmann::json::object();
    for (const auto& [name, member] : *members) result[name] = theirs(member);
  }
  return result;
}

// Writes a value of theirs with our writer.
inline void write_theirs(JsonWriter& json, const auto& value) {
  if (value.is_object()) {
    json.begin_object();
    for (const auto& [name, member] : value.items()) {
      json.key(name);
      write_theirs(json, member);
    }
    return json.end_object();
  }
  if (value.is_array())
    return json.value(
        json_array(value, [](JsonWriter& list, const auto& each) { write_theirs(list, each); }));
  if (value.is_null()) return json.value(nullptr);
  if (value.is_boolean()) return json.value(value.template get<bool>());
  if (value.is_number_float()) return json.value(value.template get<double>());
  if (value.is_number_unsigned()) return json.value(value.template get<std::uint64_t>());
  if (value.is_number_integer()) return json.value(value.template get<std::int64_t>());
  json.value(value.template get<std::string>());
}

}  // namespace deepfreeze
