#include "format/annotations_json.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/try.h"
#include "format/strict_json.h"

namespace deepfreeze {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

ordered_json number_to_json(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

Result<double> number_from_json(const json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  return fail(ErrorCode::kCorrupt, "a metric is not a number");
}

Result<const json*> get_object(const json& object, const char* member) {
  const auto found = object.find(member);
  if (found == object.end() || !found->is_object()) {
    return fail(ErrorCode::kCorrupt, fmt::format("member \"{}\" is missing or no object", member));
  }
  return &*found;
}

ordered_json texts_to_json(const std::map<std::string, std::string>& texts) {
  ordered_json object = ordered_json::object();
  for (const auto& [name, text] : texts) object[name] = text;
  return object;
}

Result<std::map<std::string, std::string>> texts_from_json(const json& object, const char* member) {
  DF_TRY(const json* texts, get_object(object, member));
  std::map<std::string, std::string> all;
  for (const auto& [name, text] : texts->items()) {
    if (!text.is_string())
      return fail(ErrorCode::kCorrupt, fmt::format("{} holds no text", member));
    all.emplace(name, text.get<std::string>());
  }
  return all;
}

}  // namespace

ordered_json annotations_to_json(const Annotations& annotations) {
  ordered_json metrics = ordered_json::object();
  for (const auto& [name, value] : annotations.metrics) metrics[name] = number_to_json(value);
  return {{"wall_micros", annotations.wall_micros},
          {"metrics", metrics},
          {"tags", texts_to_json(annotations.tags)},
          {"environment", texts_to_json(annotations.environment)},
          {"parent", parent_to_json(annotations.parent)}};
}

Result<Annotations> annotations_from_json(const json& object) {
  Annotations annotations;
  DF_TRY(annotations.wall_micros, get_i64(object, "wall_micros"));
  DF_TRY(const json* metrics, get_object(object, "metrics"));
  for (const auto& [name, value] : metrics->items()) {
    DF_TRY(annotations.metrics[name], number_from_json(value));
  }
  DF_TRY(annotations.tags, texts_from_json(object, "tags"));
  DF_TRY(annotations.environment, texts_from_json(object, "environment"));
  DF_TRY(annotations.parent, parent_from_json(object));
  return annotations;
}

ordered_json parent_to_json(const std::optional<ParentPoint>& parent) {
  if (!parent) return nullptr;
  return {{"run", parent->run}, {"step", parent->step}};
}

Result<std::optional<ParentPoint>> parent_from_json(const json& object) {
  const auto found = object.find("parent");
  if (found == object.end() || found->is_null()) return std::nullopt;
  ParentPoint parent;
  DF_TRY(parent.run, get_string(*found, "run"));
  DF_TRY(parent.step, get_u64(*found, "step"));
  return parent;
}

}  // namespace deepfreeze
