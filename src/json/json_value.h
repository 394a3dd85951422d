// A JSON document in memory, read from a text that nobody vouches for. Values own their contents,
// and their destructors do not allocate: a failed allocation there would end the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "deepfreeze/result.h"

namespace deepfreeze {

class JsonValue;
using JsonArray = std::vector<JsonValue>;
using JsonMember = std::pair<std::string, JsonValue>;  // its name and value
using JsonObject = std::vector<JsonMember>;            // in the order of the text, no name twice

class JsonValue {
 public:
  JsonValue() = default;  // null
  explicit JsonValue(bool value) : value_(value) {}
  explicit JsonValue(std::uint64_t value) : value_(value) {}
  explicit JsonValue(std::int64_t value) : value_(value) {}
  explicit JsonValue(double value) : value_(value) {}
  explicit JsonValue(std::string value);
  explicit JsonValue(JsonArray value);
  explicit JsonValue(JsonObject value);

  // The value if it is of this kind, else null.
  [[nodiscard]] const bool* as_bool() const { return std::get_if<bool>(&value_); }
  [[nodiscard]] const std::string* as_string() const { return pointer<std::string>(); }
  [[nodiscard]] const JsonArray* as_array() const { return pointer<JsonArray>(); }
  [[nodiscard]] const JsonObject* as_object() const { return pointer<JsonObject>(); }
  // A whole number is unsigned unless it is written with a minus sign.
  [[nodiscard]] const std::uint64_t* as_u64() const { return std::get_if<std::uint64_t>(&value_); }
  [[nodiscard]] const std::int64_t* as_i64() const { return std::get_if<std::int64_t>(&value_); }
  [[nodiscard]] std::optional<double> as_number() const;  // of any kind of number

  // The member of an object; null if there is none, or if this is no object.
  [[nodiscard]] const JsonValue* find(std::string_view name) const;

 private:
  template <class T>
  [[nodiscard]] const T* pointer() const {
    const auto* held = std::get_if<std::unique_ptr<T>>(&value_);
    return held == nullptr ? nullptr : held->get();
  }

  // Long contents are held by pointer, so that a long array of numbers stays small.
  std::variant<std::monostate, bool, std::uint64_t, std::int64_t, double,
               std::unique_ptr<std::string>, std::unique_ptr<JsonArray>,
               std::unique_ptr<JsonObject>>
      value_;
};

inline constexpr std::size_t kJsonDepthMax = 64;

// kCorrupt: not JSON, deeper than `depth_max`, a key twice in one object, bytes after the end, a
// number that no 64-bit type holds.
[[nodiscard]] Result<JsonValue> parse_strict(std::string_view text,
                                             std::size_t depth_max = kJsonDepthMax);

}  // namespace deepfreeze
