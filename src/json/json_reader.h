// Reads one JSON text from front to back and refuses everything that is not strict JSON: bad UTF-8,
// lone surrogates, a key twice in one object, nesting beyond a bound, bytes after the end.
//
// The first error stays: after it every read returns an empty value and every next_... false, so
// that callers need to look only once, at finish(). Strings are views into the text, or into the
// reader if they had escapes. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deepfreeze/result.h"

namespace deepfreeze {

class JsonReader {
 public:
  enum class Kind : std::uint8_t { kNone, kObject, kArray, kString, kNumber, kTrue, kFalse, kNull };

  JsonReader(std::string_view text, std::size_t depth_max) : text_(text), depth_max_(depth_max) {}
  JsonReader(const JsonReader&) = delete;
  JsonReader& operator=(const JsonReader&) = delete;
  ~JsonReader() = default;

  // The kind of the value that begins here; kNone if there is no value, or after an error.
  [[nodiscard]] Kind peek();

  // enter_object(); while (next_member(key)) { read one value }. Arrays likewise.
  void enter_object();
  [[nodiscard]] bool next_member(std::string_view& key);
  void enter_array();
  [[nodiscard]] bool next_element();

  [[nodiscard]] std::string_view read_string();
  [[nodiscard]] std::string_view read_number();  // as written
  void read_word();                              // true, false or null
  void skip_value();                             // checked like any other

  // The place of the next byte, and how many objects and arrays are open. For a caller that knows
  // the value which begins there: skip() goes behind it.
  [[nodiscard]] std::size_t at() const { return at_; }
  [[nodiscard]] std::size_t depth() const { return frames_.size(); }
  void skip(std::size_t bytes) { at_ += bytes; }

  // Lets the caller refuse the value that it just read.
  void refuse(std::string_view cause);
  [[nodiscard]] bool ok() const { return !error_; }
  // Call after the value: kCorrupt for the first error, or for bytes after the end.
  [[nodiscard]] Status finish();

 private:
  struct Frame {
    std::size_t keys_begin;  // of this object in keys_
    bool first = true;
  };

  void skip_space();
  [[nodiscard]] bool take(char c);
  bool expect(char c);
  void enter(char c);
  [[nodiscard]] bool next(char close);
  void close_object();
  void skip_digits();
  [[nodiscard]] bool skip_plain();
  void read_escape(std::string& out);
  std::optional<std::uint32_t> read_code_unit();
  std::optional<std::uint32_t> read_code_point();

  std::string_view text_;
  std::size_t depth_max_;
  std::size_t at_ = 0;
  std::vector<Frame> frames_;
  std::vector<std::string_view> keys_;  // of the open objects, outermost first
  std::deque<std::string> unescaped_;
  std::optional<Error> error_;
};

// The whole token as a number of that type; empty if it is not a number or is out of range.
[[nodiscard]] std::optional<std::uint64_t> to_u64(std::string_view token);
[[nodiscard]] std::optional<std::int64_t> to_i64(std::string_view token);
[[nodiscard]] std::optional<double> to_double(std::string_view token);
[[nodiscard]] bool is_float_token(std::string_view token);
// Whether the token fits one of the types above: the result of the first three for its kind.
[[nodiscard]] bool is_in_range(std::string_view token);

}  // namespace deepfreeze
