// Messages between the processes of a job, as bytes: numbers and texts one after the other. For one
// thread.
#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "deepfreeze/result.h"

namespace deepfreeze {

class MessageWriter {
 public:
  template <std::unsigned_integral Number>
  MessageWriter& number(Number value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  MessageWriter& flag(bool value) { return number(static_cast<std::uint8_t>(value)); }
  MessageWriter& text(std::string_view value) {
    number(static_cast<std::uint64_t>(value.size()));
    bytes_.append(value);
    return *this;
  }
  MessageWriter& status(const Status& value);

  [[nodiscard]] std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// The bytes come from a process of the same job, which runs the same program or, on a link, has
// proved its key; the link checks its version. A message of another form means that a rank is out
// of step. From there on everything reads as 0 or empty, and end() is the error.
class MessageReader {
 public:
  explicit MessageReader(std::string_view bytes) : left_(bytes) {}

  template <std::unsigned_integral Number>
  [[nodiscard]] Number number() {
    Number value = 0;
    const std::string_view bytes = take(sizeof(value));
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }
  [[nodiscard]] bool flag() { return number<std::uint8_t>() != 0; }
  [[nodiscard]] std::string text() { return std::string(take(number<std::uint64_t>())); }
  [[nodiscard]] Status status();

  // How many elements follow, each of which takes at least `element_bytes`.
  [[nodiscard]] std::size_t count(std::size_t element_bytes);

  // kInternal unless all was read, and all that was read was there.
  [[nodiscard]] Status end() const;

 private:
  std::string_view take(std::uint64_t bytes);

  std::string_view left_;
  bool fits_ = true;
};

}  // namespace deepfreeze
