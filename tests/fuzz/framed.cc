#include "fuzz/framed.h"

#include <charconv>
#include <span>

#include "base/hex.h"
#include "codec/crc32c.h"
#include "format/header_fixture.h"

namespace deepfreeze {
namespace {

constexpr std::string_view kRecordPrefix = R"({"crc32c":")";
constexpr std::uint64_t kDataBytesMax = std::uint64_t{1} << 50;

// `text` itself if its checksum has a place, else with one in front.
std::string with_digits(std::string_view prefix, std::string_view text) {
  if (text.starts_with(prefix) && text.size() >= prefix.size() + kCrcDigits) {
    return std::string(text);
  }
  return std::string(prefix).append(kCrcZeros).append("\",").append(text);
}

}  // namespace

std::string framed_record(std::string_view text) {
  std::string framed = with_digits(kRecordPrefix, text);
  framed.replace(kRecordPrefix.size(), kCrcDigits, kCrcZeros);
  const std::uint32_t crc = crc32c(std::as_bytes(std::span(framed)));
  return framed.replace(kRecordPrefix.size(), kCrcDigits, hex32(crc));
}

std::vector<std::byte> framed_header(std::string_view json) {
  return sealed_header(with_digits(kHeaderPrefix, json));
}

std::uint64_t data_bytes_of(std::string_view json) {
  const std::string_view until = json.substr(0, json.rfind(']'));
  const std::string_view digits = until.substr(until.find_last_not_of("0123456789") + 1);
  std::uint64_t bytes = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), bytes);
  return bytes > kDataBytesMax ? 0 : bytes;
}

Result<ShardHeader> decode_framed(std::string_view json) {
  const std::vector<std::byte> bytes = framed_header(json);
  std::uint32_t crc = 0;
  return decode_header(bytes, bytes.size() + data_bytes_of(json), crc);
}

}  // namespace deepfreeze
