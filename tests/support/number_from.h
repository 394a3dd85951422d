// A number of the environment, by which a long test is told its size or its seed.
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace deepfreeze {

// Nothing: it is not set. Throws if it is no number, so that no test passes with 0 by mistake.
[[nodiscard]] inline std::optional<std::uint64_t> number_from(const char* variable) {
  const char* set = std::getenv(variable);
  if (set == nullptr) return std::nullopt;
  const std::string_view text(set);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return number;
  throw std::invalid_argument(std::string(variable) + "=" + set + " is no number");
}

[[nodiscard]] inline std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  return number_from(variable).value_or(otherwise);
}

}  // namespace deepfreeze
