// The reader of JSON, beside another parser: ours accepts part of the texts that the other accepts,
// with the same values.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/memory_meter.h"
#include "json/json_oracle.h"
#include "json/json_reader.h"

namespace deepfreeze {
namespace {

using nlohmann::json;

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// Whether ours has a reason to refuse a text that the other accepts. A NUL ends the text for that
// one.
bool is_stricter(std::string_view text, const Error& error) {
  if (text.starts_with(kByteOrderMark) || text.contains('\0')) return true;
  constexpr std::array<std::string_view, 3> kCauses = {"twice in one object", "out of range",
                                                       "nested too deep"};
  return std::ranges::any_of(
      kCauses, [&](std::string_view cause) { return error.message().contains(cause); });
}

Status check_beside_another(std::string_view text, const Result<JsonValue>& ours) {
  const json other = json::parse(text, nullptr, false);
  if (ours) return promise(theirs(*ours) == other, "another value than another parser's");
  DF_TRY_VOID(check_refusal(ours.error()));
  return promise(other.is_discarded() || is_stricter(text, ours.error()),
                 "refused what is JSON: " + ours.error().message());
}

// Skipping checks like reading, but for the size of numbers.
Status check_skipping(std::string_view text, const Result<JsonValue>& read) {
  JsonReader reader(text, kJsonDepthMax);
  reader.skip_value();
  const Status skipped = reader.finish();
  const bool by_number = !read && read.error().message().contains("out of range");
  return promise(by_number || skipped.has_value() == read.has_value(),
                 "skipping and reading differ");
}

Status check_writing(std::string_view text) {
  if (!is_utf8(text)) return {};
  fmt::memory_buffer out;
  append_json_string(out, text);
  const auto read = parse_strict({out.data(), out.size()});
  return promise(read && theirs(*read) == text, "a string became another");
}

}  // namespace

Status fuzz_json(std::string_view input) {
  const auto read = [&]() -> Result<JsonValue> {
    const MemoryMeter meter;
    auto value = parse_strict(input);
    DF_TRY_VOID(meter.check(input.size()));
    return value;
  }();
  DF_TRY_VOID(check_beside_another(input, read));
  DF_TRY_VOID(check_skipping(input, read));
  DF_TRY_VOID(check_writing(input));
  if (!read) return {};
  JsonWriter writer;
  write_theirs(writer, theirs(*read));
  const auto again = parse_strict(writer.text());
  return promise(again && theirs(*again) == theirs(*read), "written and read as another");
}

}  // namespace deepfreeze
