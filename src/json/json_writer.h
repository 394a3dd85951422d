// Writes one JSON value to a text, front to back; no document is built. One thread.
//
// Numbers that are not finite become the words "nan", "inf" and "-inf", since JSON has no such
// numbers; bytes that are not UTF-8 become U+FFFD. Decision 0023 has the digits of numbers.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace deepfreeze {

// kShort: \n, \t and the like. Headers have \u000a, \u0009 for them.
enum class ControlEscapes : std::uint8_t { kShort, kHex };

// In quotes.
void append_json_string(fmt::memory_buffer& out, std::string_view text,
                        ControlEscapes form = ControlEscapes::kShort);
void append_json_number(fmt::memory_buffer& out, double value);
void append_json_array(fmt::memory_buffer& out, std::span<const std::uint64_t> values);

inline void append_text(fmt::memory_buffer& out, std::string_view text) {
  out.append(text.data(), text.data() + text.size());
}

class JsonWriter {
 public:
  enum class Layout : std::uint8_t { kOneLine, kIndented };

  explicit JsonWriter(Layout layout = Layout::kOneLine) : layout_(layout) {}

  void begin_object() { begin('{'); }
  void end_object() { end('}'); }
  void begin_array() { begin('['); }
  void end_array() { end(']'); }

  // Comes before each value of an object.
  void key(std::string_view name);

  // A bool, number, text, nullptr, optional (null if it is empty), map or range of these; or a
  // function that writes one value to the JsonWriter that it is given.
  template <class T>
  void value(const T& given);

  // Of the open object: name, value, name, value...
  template <class T, class... Rest>
  void members(std::string_view name, const T& given, const Rest&... rest) {
    key(name);
    value(given);
    if constexpr (sizeof...(rest) > 0) members(rest...);
  }
  // A whole object.
  template <class... Members>
  void object(const Members&... all) {
    begin_object();
    members(all...);
    end_object();
  }

  // Call after the value.
  [[nodiscard]] std::string text() const { return fmt::to_string(out_); }

 private:
  void begin(char open);
  void end(char close);
  void separate();
  void new_line();
  void word(std::string_view text);
  void string(std::string_view text);
  void number(double value);

  fmt::memory_buffer out_;
  Layout layout_;
  std::size_t depth_ = 0;
  bool is_empty_ = true;  // the innermost open object or array, so far
  bool has_key_ = false;  // the next value belongs to a key
};

// Values for JsonWriter that borrow their arguments, so they are made in the call that writes them.
template <class... Members>
auto json_object(const Members&... all) {
  return [&](JsonWriter& json) { json.object(all...); };
}
// `write(json, item)` writes one element.
template <class Items, class Write>
auto json_array(const Items& items, Write write) {
  return [&items, write](JsonWriter& json) {
    json.begin_array();
    for (const auto& item : items) write(json, item);
    json.end_array();
  };
}

template <class T>
void JsonWriter::value(const T& given) {
  if constexpr (std::invocable<const T&, JsonWriter&>) {
    given(*this);
  } else if constexpr (std::same_as<T, std::nullptr_t>) {
    word("null");
  } else if constexpr (std::same_as<T, bool>) {
    word(given ? "true" : "false");
  } else if constexpr (std::integral<T>) {
    word(fmt::format_int(given).c_str());
  } else if constexpr (std::same_as<T, double>) {
    number(given);
  } else if constexpr (std::convertible_to<const T&, std::string_view>) {
    string(given);
  } else if constexpr (requires { given.has_value(); }) {
    given ? value(*given) : value(nullptr);
  } else if constexpr (requires { typename T::mapped_type; }) {
    begin_object();
    for (const auto& [name, mapped] : given) members(name, mapped);
    end_object();
  } else {
    begin_array();
    for (const auto& element : given) value(element);
    end_array();
  }
}

}  // namespace deepfreeze
