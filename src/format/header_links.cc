#include "format/header_links.h"

#include <array>
#include <cstdint>

#include "base/hex.h"
#include "base/try.h"
#include "json/json_writer.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kShort = 8;
constexpr std::size_t kLong = 16;
constexpr std::size_t kOriginNumbers = 5;

// The digits at the front of `text`, which are taken off.
Result<std::uint64_t> take(std::string_view& text, std::size_t digits) {
  const std::string_view front = text.substr(0, digits);
  text.remove_prefix(digits);
  const auto number =
      digits == kShort ? std::optional<std::uint64_t>(parse_hex32(front)) : parse_hex64(front);
  if (number) return *number;
  return fail(ErrorCode::kCorrupt, "header: a link is not hexadecimal digits");
}

Result<LinkedFile> take_link(std::string_view& text) {
  DF_TRY(const std::uint64_t file, take(text, kShort));
  DF_TRY(const std::uint64_t crc, take(text, kShort));
  std::array<std::uint64_t, kOriginNumbers> of{};
  for (std::uint64_t& number : of) {
    DF_TRY(number, take(text, kLong));
  }
  LinkedFile link{.file = static_cast<std::uint32_t>(file),
                  .header_crc = static_cast<std::uint32_t>(crc),
                  .origin = {}};
  if (of == std::array<std::uint64_t, kOriginNumbers>{} && crc == 0) return link;
  link.origin = Origin{
      .run_id = hex64(of[0]),
      .point = {.generation = of[1], .step = of[2], .save_index = of[3], .attempt_id = of[4]}};
  return link;
}

}  // namespace

void append_links(fmt::memory_buffer& out, std::span<const LinkedFile> links) {
  for (const LinkedFile& link : links) {
    append_text(out, hex32(link.file));
    append_text(out, hex32(link.header_crc));
    const Origin origin = link.origin.value_or(Origin{.run_id = hex64(0), .point = {}});
    append_text(out, origin.run_id);
    for (const std::uint64_t number : {origin.point.generation, origin.point.step,
                                       origin.point.save_index, origin.point.attempt_id}) {
      append_text(out, hex64(number));
    }
  }
}

Result<std::vector<LinkedFile>> read_links(std::string_view text) {
  if (text.size() % kLinkDigits != 0) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("header: {} digits of links are no whole number", text.size()));
  }
  std::vector<LinkedFile> links;
  while (!text.empty()) {
    DF_TRY(links.emplace_back(), take_link(text));
  }
  return links;
}

}  // namespace deepfreeze
