#include "format/scrub_record.h"

#include <fmt/format.h>

#include "base/try.h"
#include "format/json_parts.h"
#include "format/strict_json.h"

namespace deepfreeze {
namespace {

using nlohmann::json;

Result<bool> good_of(const json& object) {
  const json* member = find_member(object, "good");
  if (member != nullptr && member->is_boolean()) return member->get<bool>();
  return fail(ErrorCode::kCorrupt, "member \"good\" is not true or false");
}

Result<ScrubEntry> entry_of(const json& object) {
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

}  // namespace

std::string encode_scrub(const ScrubRecord& record) {
  std::string list = "[";
  for (const ScrubEntry& entry : record.entries) {
    ObjectText object;
    object.add("directory", attempt_dir_name(entry.attempt));
    object.add("wall_micros", whole_json(entry.wall_micros));
    object.add("good", entry.good);
    if (list.size() > 1) list += ',';
    list += object.text();
  }
  ObjectText object = record_text("scrub", record.run_id);
  object.add_text("checkpoints", list + ']');
  return seal_text(object.text());
}

Result<ScrubRecord> decode_scrub(std::string_view text) {
  DF_TRY(const json object, parse_record(text, "scrub"));
  ScrubRecord record;
  DF_TRY(record.run_id, run_id_of(object));
  const json* list = find_member(object, "checkpoints");
  if (list == nullptr || !list->is_array()) {
    return fail(ErrorCode::kCorrupt, "member \"checkpoints\" is not an array");
  }
  for (const json& item : *list) {
    DF_TRY(record.entries.emplace_back(), entry_of(item));
  }
  return record;
}

}  // namespace deepfreeze
