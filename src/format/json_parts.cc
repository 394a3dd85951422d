#include "format/json_parts.h"

#include <fmt/format.h>

#include <limits>
#include <map>

#include "base/hex.h"
#include "base/try.h"
#include "deepfreeze/version.h"
#include "format/members.h"
#include "format/sealed_json.h"

namespace deepfreeze {
namespace {

Result<std::string> string_of(const std::string& name, const JsonValue& value) {
  if (const std::string* text = value.as_string()) return *text;
  return fail(ErrorCode::kCorrupt, fmt::format("member \"{}\" is not a string", name));
}

Result<const JsonValue*> get_object(const JsonValue& object, std::string_view member) {
  const JsonValue* value = object.find(member);
  if (value != nullptr && value->as_object() != nullptr) return value;
  return fail(ErrorCode::kCorrupt, fmt::format("member \"{}\" is not an object", member));
}

template <class T>
Result<std::map<std::string, T>> map_of(const JsonValue& object, std::string_view member,
                                        Result<T> (*mapped_of)(const std::string&,
                                                               const JsonValue&)) {
  DF_TRY(const JsonValue* members, get_object(object, member));
  std::map<std::string, T> map;
  for (const auto& [name, value] : *members->as_object()) {
    DF_TRY(map[name], mapped_of(name, value));
  }
  return map;
}

// 0 checkpoints or steps is no rule.
Result<std::uint64_t> get_count(const JsonValue& object, std::string_view member) {
  DF_TRY(const std::uint64_t count, get_u64(object, member));
  if (count != 0) return count;
  return fail(ErrorCode::kCorrupt, fmt::format("member \"{}\" is 0", member));
}

Result<Keep::Best> best_of(const JsonValue& rules) {
  DF_TRY(const JsonValue* object, get_object(rules, "best"));
  Keep::Best best;
  DF_TRY(best.metric, get_string(*object, "metric"));
  DF_TRY(const std::string better, get_string(*object, "better"));
  if (better != "min" && better != "max") {
    return fail(ErrorCode::kCorrupt, fmt::format("\"{}\" is neither min nor max", better));
  }
  best.better = better == "min" ? Keep::Better::kMin : Keep::Better::kMax;
  DF_TRY(best.count, get_count(*object, "count"));
  return best;
}

}  // namespace

// JsonWriter has words for the numbers that JSON lacks.
Result<double> metric_of(const std::string& name, const JsonValue& value) {
  if (const auto number = value.as_number()) return *number;
  const std::string* word = value.as_string();
  if (word != nullptr && *word == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (word != nullptr && *word == "inf") return std::numeric_limits<double>::infinity();
  if (word != nullptr && *word == "-inf") return -std::numeric_limits<double>::infinity();
  return fail(ErrorCode::kCorrupt, fmt::format("metric \"{}\" is not a number", name));
}

std::string annotations_text(const Annotations& annotations) {
  JsonWriter json;
  write_annotations(json, annotations);
  return json.text();
}

void write_annotations(JsonWriter& json, const Annotations& annotations) {
  json.begin_object();
  json.members("wall_micros", whole(annotations.wall_micros), "metrics", annotations.metrics,
               "tags", annotations.tags, "environment", annotations.environment);
  add_parent(json, annotations.parent);
  json.end_object();
}

Result<Annotations> annotations_of(const JsonValue& object) {
  Annotations annotations;
  DF_TRY(annotations.wall_micros, get_i64(object, "wall_micros"));
  DF_TRY(annotations.metrics, map_of(object, "metrics", metric_of));
  DF_TRY(annotations.tags, map_of(object, "tags", string_of));
  DF_TRY(annotations.environment, map_of(object, "environment", string_of));
  DF_TRY(annotations.parent, parent_of(object));
  return annotations;
}

void add_parent(JsonWriter& json, const std::optional<ParentPoint>& parent) {
  if (!parent) return;
  json.members("parent", json_object("run", parent->run, "step", whole(parent->step)));
}

Result<std::optional<ParentPoint>> parent_of(const JsonValue& object) {
  const JsonValue* value = object.find("parent");
  if (value == nullptr) return std::nullopt;
  ParentPoint parent;
  DF_TRY(parent.run, get_string(*value, "run"));
  DF_TRY(parent.step, get_u64(*value, "step"));
  return parent;
}

void write_keep(JsonWriter& json, const Keep& keep) {
  json.begin_object();
  if (keep.last) json.members("last", whole(*keep.last));
  if (keep.every) json.members("every", whole(*keep.every));
  if (keep.best) {
    const char* better = keep.best->better == Keep::Better::kMin ? "min" : "max";
    json.members("best", json_object("metric", keep.best->metric, "better", better, "count",
                                     whole(keep.best->count)));
  }
  json.end_object();
}

Result<Keep> keep_of(const JsonValue& object) {
  Keep keep;
  if (object.find("keep") == nullptr) return keep;
  DF_TRY(const JsonValue* rules, get_object(object, "keep"));
  if (rules->find("last") != nullptr) {
    DF_TRY(keep.last, get_count(*rules, "last"));
  }
  if (rules->find("every") != nullptr) {
    DF_TRY(keep.every, get_count(*rules, "every"));
  }
  if (rules->find("best") != nullptr) {
    DF_TRY(keep.best, best_of(*rules));
  }
  return keep;
}

void add_point(JsonWriter& json, const Point& point) {
  json.members("generation", whole(point.generation), "step", whole(point.step), "save_index",
               whole(point.save_index), "attempt_id", hex64(point.attempt_id));
}

Result<Point> point_of(const JsonValue& object) {
  Point point;
  DF_TRY(point.generation, get_u64(object, "generation"));
  DF_TRY(point.step, get_u64(object, "step"));
  DF_TRY(point.save_index, get_u64(object, "save_index"));
  DF_TRY(point.attempt_id, get_hex64(object, "attempt_id"));
  return point;
}

std::string identity_text(const Identity& identity) {
  const PartName& part = identity.part;
  JsonWriter json;
  json.object("run_id", identity.run_id, "attempt_id", hex64(identity.attempt_id), "generation",
              whole(identity.generation), "step", whole(identity.step), "save_index",
              whole(identity.save_index), "rank", part.rank, "world_size", part.world_size, "file",
              part.file, "file_count", part.file_count);
  return json.text();
}

Result<Identity> identity_of(const JsonValue& object) {
  Identity identity;
  DF_TRY(identity.run_id, run_id_of(object));
  DF_TRY(identity.attempt_id, get_hex64(object, "attempt_id"));
  DF_TRY(identity.generation, get_u64(object, "generation"));
  DF_TRY(identity.step, get_u64(object, "step"));
  DF_TRY(identity.save_index, get_u64(object, "save_index"));
  DF_TRY(identity.part.rank, get_u32(object, "rank"));
  DF_TRY(identity.part.world_size, get_u32(object, "world_size"));
  DF_TRY(identity.part.file, get_u32(object, "file"));
  DF_TRY(identity.part.file_count, get_u32(object, "file_count"));
  if (identity.part.rank < identity.part.world_size &&
      identity.part.file < identity.part.file_count) {
    return identity;
  }
  return fail(ErrorCode::kCorrupt, "its rank or file number is not below the count");
}

Result<std::string> run_id_of(const JsonValue& object) {
  DF_TRY(const std::uint64_t id, get_hex64(object, "run_id"));
  return hex64(id);
}

JsonWriter begin_record(std::string_view kind, const std::string& run_id, int version) {
  JsonWriter record;
  record.begin_object();
  record.members("kind", kind, "format_version", version, "run_id", run_id);
  return record;
}

std::string sealed(JsonWriter record) {
  record.end_object();
  return seal_text(record.text());
}

// Checks the version first: a newer version may mean something else by any other member.
Result<JsonValue> parse_record(std::string_view text, std::string_view kind) {
  DF_TRY(JsonValue record, parse_sealed(text));
  DF_TRY(const std::uint64_t version, get_u64(record, "format_version"));
  if (version > kFormatVersion) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("written by a newer version: its format is {}, this reader's is {}",
                            version, kFormatVersion));
  }
  if (version == 0) return fail(ErrorCode::kCorrupt, "there is no format version 0");
  DF_TRY(const std::string stored, get_string(record, "kind"));
  if (stored == kind) return record;
  return fail(ErrorCode::kCorrupt, fmt::format("its kind is \"{}\", not \"{}\"", stored, kind));
}

}  // namespace deepfreeze
