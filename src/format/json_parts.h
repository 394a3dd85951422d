// The objects that headers and records share, to JSON and back. Pure functions.
#pragma once

#include <nlohmann/json.hpp>

#include "format/records.h"
#include "format/shard_header.h"

namespace deepfreeze {

[[nodiscard]] nlohmann::ordered_json annotations_json(const Annotations& annotations);
[[nodiscard]] Result<Annotations> annotations_of(const nlohmann::json& object);

[[nodiscard]] nlohmann::ordered_json parent_json(const ParentPoint& parent);
// From the member "parent" of `object`; empty where it is missing.
[[nodiscard]] Result<std::optional<ParentPoint>> parent_of(const nlohmann::json& object);

[[nodiscard]] nlohmann::ordered_json point_json(const Point& point);
[[nodiscard]] Result<Point> point_of(const nlohmann::json& object);

[[nodiscard]] nlohmann::ordered_json identity_json(const Identity& identity);
[[nodiscard]] Result<Identity> identity_of(const nlohmann::json& object);

// What every sealed record begins with. kUnsupported: of a newer version; kCorrupt: it does not
// verify, or is of another kind.
[[nodiscard]] nlohmann::ordered_json record_json(std::string_view kind, const std::string& run_id);
[[nodiscard]] Result<nlohmann::json> parse_record(std::string_view text, std::string_view kind);

// The member "run_id": 16 lower-case hexadecimal digits.
[[nodiscard]] Result<std::string> run_id_of(const nlohmann::json& object);

}  // namespace deepfreeze
