#include "format/tag_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/printable.h"
#include "base/try.h"
#include "base/utf8.h"
#include "format/json_parts.h"
#include "format/members.h"

namespace deepfreeze {
namespace {

constexpr std::string_view kStem = "tags-";
constexpr std::string_view kEnding = ".json";

// A name with one could not be written in a condition of `ls --where`, nor given as NAME=VALUE.
bool is_refused_in_name(char c) {
  return static_cast<unsigned char>(c) <= ' ' || c == 0x7f ||
         std::string_view("=<>!\"'").find(c) != std::string_view::npos;
}

Status check_name(std::string_view name) {
  const bool is_good = !name.empty() && name.size() <= kTagNameBytesMax && is_utf8(name) &&
                       std::ranges::none_of(name, is_refused_in_name);
  if (is_good) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' can't be a tag's name: 1 to {} bytes without white space, quotes, "
                          "'=', '<', '>' and '!'",
                          printable(name.substr(0, kTagNameBytesMax)), kTagNameBytesMax));
}

Result<AttemptName> attempt_of(const JsonValue& object) {
  DF_TRY(const std::string directory, get_string(object, "directory"));
  if (const auto attempt = parse_attempt_dir_name(directory)) return *attempt;
  return fail(ErrorCode::kCorrupt, fmt::format("\"{}\" is no attempt's name", directory));
}

Result<Tags> tags_of(const JsonValue& object) {
  const JsonValue* member = object.find("tags");
  const JsonObject* list = member == nullptr ? nullptr : member->as_object();
  if (list == nullptr) return fail(ErrorCode::kCorrupt, "member \"tags\" is not an object");
  Tags tags;
  for (const auto& [name, value] : *list) {
    const std::string* text = value.as_string();
    if (text == nullptr) return fail(ErrorCode::kCorrupt, "a tag's value is not a text");
    tags.emplace(name, *text);
  }
  const Status good = check_tags(tags);
  if (!good) return fail(ErrorCode::kCorrupt, good.error().message());
  return tags;
}

}  // namespace

std::string tag_file_name(std::uint64_t number) {
  return fmt::format("{}{:08}{}", kStem, number, kEnding);
}

std::optional<std::uint64_t> parse_tag_file_name(std::string_view text) {
  if (!text.starts_with(kStem) || !text.ends_with(kEnding)) return std::nullopt;
  std::uint64_t number = 0;
  std::from_chars(text.data() + kStem.size(), text.data() + text.size(), number);
  if (tag_file_name(number) != text) return std::nullopt;
  return number;
}

Status check_tags(const Tags& tags) {
  if (tags.size() > kTagsMax) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} tags are too many; {} are allowed", tags.size(), kTagsMax));
  }
  for (const auto& [name, value] : tags) {
    DF_TRY_VOID(check_name(name));
    if (value.size() <= kTagValueBytesMax && is_utf8(value)) continue;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the value of tag '{}' is not UTF-8, or has more than {} bytes", name,
                            kTagValueBytesMax));
  }
  return {};
}

std::string encode_tags(const TagRecord& record) {
  JsonWriter json = begin_record("tags", record.run_id);
  json.members("directory", attempt_dir_name(record.attempt), "number", whole(record.number),
               "wall_micros", whole(record.wall_micros), "tags", record.tags);
  return sealed(std::move(json));
}

Result<TagRecord> decode_tags(std::string_view text) {
  DF_TRY(const JsonValue object, parse_record(text, "tags"));
  TagRecord record;
  DF_TRY(record.run_id, run_id_of(object));
  DF_TRY(record.attempt, attempt_of(object));
  DF_TRY(record.number, get_u64(object, "number"));
  DF_TRY(record.wall_micros, get_i64(object, "wall_micros"));
  DF_TRY(record.tags, tags_of(object));
  return record;
}

}  // namespace deepfreeze
