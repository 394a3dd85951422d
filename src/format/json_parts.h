// The objects that headers and records share, to JSON and back. Pure functions.
#pragma once

#include <nlohmann/json.hpp>

#include "format/records.h"
#include "format/shard_header.h"

namespace deepfreeze {

// The text of one object, written member by member. A whole JSON document is never built: its
// destructor allocates, and a failed allocation there would abort the training process.
class ObjectText {
 public:
  void add(std::string_view name, const nlohmann::ordered_json& leaf);  // no array, no object
  void add_text(std::string_view name, std::string_view json);
  [[nodiscard]] std::string text() const { return text_ + '}'; }

 private:
  std::string text_ = "{";
};

[[nodiscard]] std::string annotations_text(const Annotations& annotations);
[[nodiscard]] Result<Annotations> annotations_of(const nlohmann::json& object);

[[nodiscard]] std::string parent_text(const ParentPoint& parent);
// Reads the member "parent" of `object`; empty if it is missing.
[[nodiscard]] Result<std::optional<ParentPoint>> parent_of(const nlohmann::json& object);

[[nodiscard]] std::string keep_text(const Keep& keep);
// Reads the member "keep" of `object`; without a rule if it is missing.
[[nodiscard]] Result<Keep> keep_of(const nlohmann::json& object);

void add_point(ObjectText& object, const Point& point);
[[nodiscard]] Result<Point> point_of(const nlohmann::json& object);

[[nodiscard]] std::string identity_text(const Identity& identity);
[[nodiscard]] Result<Identity> identity_of(const nlohmann::json& object);

// The members with which every sealed record begins. kUnsupported: written by a newer version;
// kCorrupt: the record does not verify or is of another kind.
[[nodiscard]] ObjectText record_text(std::string_view kind, const std::string& run_id);
[[nodiscard]] Result<nlohmann::json> parse_record(std::string_view text, std::string_view kind);

// The member "run_id": 16 lower-case hexadecimal digits.
[[nodiscard]] Result<std::string> run_id_of(const nlohmann::json& object);

}  // namespace deepfreeze
