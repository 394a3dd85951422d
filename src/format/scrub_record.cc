#include "format/scrub_record.h"

#include <fmt/format.h>

#include <utility>

#include "base/try.h"
#include "format/json_parts.h"
#include "format/members.h"

namespace deepfreeze {
namespace {

Result<bool> good_of(const JsonValue& object) {
  const JsonValue* member = object.find("good");
  const bool* good = member == nullptr ? nullptr : member->as_bool();
  if (good != nullptr) return *good;
  return fail(ErrorCode::kCorrupt, "member \"good\" is not true or false");
}

Result<ScrubEntry> entry_of(const JsonValue& object) {
  ScrubEntry entry;
  DF_TRY(const std::string directory, get_string(object, "directory"));
  const auto attempt = parse_attempt_dir_name(directory);
  if (!attempt) {
    return fail(ErrorCode::kCorrupt, fmt::format("\"{}\" is no attempt's name", directory));
  }
  entry.attempt = *attempt;
  DF_TRY(entry.wall_micros, get_i64(object, "wall_micros"));
  DF_TRY(entry.good, good_of(object));
  return entry;
}

void write_entry(JsonWriter& json, const ScrubEntry& entry) {
  json.object("directory", attempt_dir_name(entry.attempt), "wall_micros", whole(entry.wall_micros),
              "good", entry.good);
}

}  // namespace

std::string encode_scrub(const ScrubRecord& record) {
  JsonWriter json = begin_record("scrub", record.run_id);
  json.members("checkpoints", json_array(record.entries, write_entry));
  return sealed(std::move(json));
}

Result<ScrubRecord> decode_scrub(std::string_view text) {
  DF_TRY(const JsonValue object, parse_record(text, "scrub"));
  ScrubRecord record;
  DF_TRY(record.run_id, run_id_of(object));
  DF_TRY(const JsonArray* list, get_array(object, "checkpoints"));
  for (const JsonValue& item : *list) {
    DF_TRY(record.entries.emplace_back(), entry_of(item));
  }
  return record;
}

}  // namespace deepfreeze
