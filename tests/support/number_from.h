// A number of the environment, by which a long test is told its size or its seed.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <optional>

namespace deepfreeze {

// Nothing: it is not set. Text that is no number is 0.
[[nodiscard]] inline std::optional<std::uint64_t> number_from(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  return std::strtoull(text, nullptr, 10);
}

[[nodiscard]] inline std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  return number_from(variable).value_or(otherwise);
}

}  // namespace deepfreeze
