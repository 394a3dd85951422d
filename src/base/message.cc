#include "base/message.h"

#include <utility>

#include "base/try.h"

namespace deepfreeze {
namespace {

ErrorCode code_of(std::uint8_t number) {
  return number <= std::to_underlying(ErrorCode::kInternal) ? ErrorCode{number}
                                                            : ErrorCode::kInternal;
}

}  // namespace

MessageWriter& MessageWriter::status(const Status& value) {
  flag(value.has_value());
  if (value) return *this;
  number(std::to_underlying(value.error().code())).text(value.error().message());
  return number(static_cast<std::uint32_t>(value.error().os_errno()));
}

Status MessageReader::status() {
  if (flag() || !fits_) return {};
  const ErrorCode code = code_of(number<std::uint8_t>());
  std::string message = text();
  return fail(code, std::move(message), static_cast<int>(number<std::uint32_t>()));
}

std::size_t MessageReader::count(std::size_t element_bytes) {
  const auto count = number<std::uint64_t>();
  if (count <= left_.size() / element_bytes) return count;
  fits_ = false;
  left_ = {};
  return 0;
}

Status MessageReader::end() const {
  if (fits_ && left_.empty()) return {};
  return fail(ErrorCode::kInternal, "another rank's message does not have the expected form");
}

std::string_view MessageReader::take(std::uint64_t bytes) {
  if (bytes > left_.size()) {
    fits_ = false;
    left_ = {};
    return {};
  }
  const std::string_view taken = left_.substr(0, bytes);
  left_.remove_prefix(bytes);
  return taken;
}

}  // namespace deepfreeze
