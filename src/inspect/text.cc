#include "inspect/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ctime>

namespace deepfreeze {

std::string utc_time(std::int64_t micros) {
  const std::time_t seconds = static_cast<std::time_t>(micros / 1'000'000);
  std::tm parts{};
  if (gmtime_r(&seconds, &parts) == nullptr) return "?";
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

std::string shape_text(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string dtype_text(const TensorSpec& spec) {
  if (spec.logical_dtype.empty()) return std::string(dtype_name(spec.dtype));
  return fmt::format("{} ({})", dtype_name(spec.dtype), spec.logical_dtype);
}

}  // namespace deepfreeze
