#include "format/json_parts.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/hex.h"
#include "base/try.h"
#include "deepfreeze/version.h"
#include "format/strict_json.h"

namespace deepfreeze {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// JSON has no numbers for these.
std::string texts_text(const std::map<std::string, std::string>& texts) {
  ObjectText object;
  for (const auto& [name, text] : texts) object.add(name, text);
  return object.text();
}

ordered_json metric_json(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

Result<double> metric_of(const std::string& name, const json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  return fail(ErrorCode::kCorrupt, fmt::format("metric \"{}\" is not a number", name));
}

Result<const json*> get_object(const json& object, std::string_view member) {
  const json* value = find_member(object, member);
  if (value != nullptr && value->is_object()) return value;
  return fail(ErrorCode::kCorrupt, fmt::format("member \"{}\" is not an object", member));
}

Result<std::map<std::string, double>> metrics_of(const json& object) {
  DF_TRY(const json* members, get_object(object, "metrics"));
  std::map<std::string, double> metrics;
  for (const auto& [name, value] : members->items()) {
    DF_TRY(metrics[name], metric_of(name, value));
  }
  return metrics;
}

Result<std::map<std::string, std::string>> texts_of(const json& object, std::string_view member) {
  DF_TRY(const json* members, get_object(object, member));
  std::map<std::string, std::string> texts;
  for (const auto& [name, value] : members->items()) {
    DF_TRY(texts[name], get_string(*members, name));
  }
  return texts;
}

// 0 checkpoints or steps is no rule.
Result<std::uint64_t> get_count(const json& object, std::string_view member) {
  DF_TRY(const std::uint64_t count, get_u64(object, member));
  if (count != 0) return count;
  return fail(ErrorCode::kCorrupt, fmt::format("member \"{}\" is 0", member));
}

Result<Keep::Best> best_of(const json& rules) {
  DF_TRY(const json* object, get_object(rules, "best"));
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

// Text that is not UTF-8 has been refused before; dump() replaces it here rather than throw.
void ObjectText::add(std::string_view name, const ordered_json& leaf) {
  add_text(name, leaf.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
}

void ObjectText::add_text(std::string_view name, std::string_view json) {
  if (text_.size() > 1) text_ += ',';
  text_ += ordered_json(name).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  text_ += ':';
  text_ += json;
}

std::string annotations_text(const Annotations& annotations) {
  ObjectText metrics;
  for (const auto& [name, value] : annotations.metrics) metrics.add(name, metric_json(value));
  ObjectText object;
  object.add("wall_micros", whole_json(annotations.wall_micros));
  object.add_text("metrics", metrics.text());
  object.add_text("tags", texts_text(annotations.tags));
  object.add_text("environment", texts_text(annotations.environment));
  if (annotations.parent) object.add_text("parent", parent_text(*annotations.parent));
  return object.text();
}

Result<Annotations> annotations_of(const json& object) {
  Annotations annotations;
  DF_TRY(annotations.wall_micros, get_i64(object, "wall_micros"));
  DF_TRY(annotations.metrics, metrics_of(object));
  DF_TRY(annotations.tags, texts_of(object, "tags"));
  DF_TRY(annotations.environment, texts_of(object, "environment"));
  DF_TRY(annotations.parent, parent_of(object));
  return annotations;
}

std::string parent_text(const ParentPoint& parent) {
  ObjectText object;
  object.add("run", parent.run);
  object.add("step", whole_json(parent.step));
  return object.text();
}

Result<std::optional<ParentPoint>> parent_of(const json& object) {
  const json* value = find_member(object, "parent");
  if (value == nullptr) return std::nullopt;
  ParentPoint parent;
  DF_TRY(parent.run, get_string(*value, "run"));
  DF_TRY(parent.step, get_u64(*value, "step"));
  return parent;
}

std::string keep_text(const Keep& keep) {
  ObjectText object;
  if (keep.last) object.add("last", whole_json(*keep.last));
  if (keep.every) object.add("every", whole_json(*keep.every));
  if (keep.best) {
    ObjectText best;
    best.add("metric", keep.best->metric);
    best.add("better", keep.best->better == Keep::Better::kMin ? "min" : "max");
    best.add("count", whole_json(keep.best->count));
    object.add_text("best", best.text());
  }
  return object.text();
}

Result<Keep> keep_of(const json& object) {
  Keep keep;
  if (find_member(object, "keep") == nullptr) return keep;
  DF_TRY(const json* rules, get_object(object, "keep"));
  if (find_member(*rules, "last") != nullptr) {
    DF_TRY(keep.last, get_count(*rules, "last"));
  }
  if (find_member(*rules, "every") != nullptr) {
    DF_TRY(keep.every, get_count(*rules, "every"));
  }
  if (find_member(*rules, "best") != nullptr) {
    DF_TRY(keep.best, best_of(*rules));
  }
  return keep;
}

void add_point(ObjectText& object, const Point& point) {
  object.add("generation", whole_json(point.generation));
  object.add("step", whole_json(point.step));
  object.add("save_index", whole_json(point.save_index));
  object.add("attempt_id", hex64(point.attempt_id));
}

Result<Point> point_of(const json& object) {
  Point point;
  DF_TRY(point.generation, get_u64(object, "generation"));
  DF_TRY(point.step, get_u64(object, "step"));
  DF_TRY(point.save_index, get_u64(object, "save_index"));
  DF_TRY(point.attempt_id, get_hex64(object, "attempt_id"));
  return point;
}

std::string identity_text(const Identity& identity) {
  ObjectText object;
  object.add("run_id", identity.run_id);
  object.add("attempt_id", hex64(identity.attempt_id));
  object.add("generation", whole_json(identity.generation));
  object.add("step", whole_json(identity.step));
  object.add("save_index", whole_json(identity.save_index));
  object.add("rank", identity.part.rank);
  object.add("world_size", identity.part.world_size);
  object.add("file", identity.part.file);
  object.add("file_count", identity.part.file_count);
  return object.text();
}

Result<Identity> identity_of(const json& object) {
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

Result<std::string> run_id_of(const json& object) {
  DF_TRY(const std::uint64_t id, get_hex64(object, "run_id"));
  return hex64(id);
}

ObjectText record_text(std::string_view kind, const std::string& run_id) {
  ObjectText object;
  object.add("kind", kind);
  object.add("format_version", kFormatVersion);
  object.add("run_id", run_id);
  return object;
}

// Checks the version first: a newer version may mean something else by any other member.
Result<json> parse_record(std::string_view text, std::string_view kind) {
  DF_TRY(json record, parse_sealed(text));
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
