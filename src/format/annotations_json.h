// Annotations as JSON: the same in a data file's header and in a manifest. Pure.
#pragma once

#include <nlohmann/json.hpp>

#include "format/shard_header.h"

namespace deepfreeze {

// Numbers that JSON lacks are the strings "nan", "inf" and "-inf".
[[nodiscard]] nlohmann::ordered_json annotations_to_json(const Annotations& annotations);
[[nodiscard]] Result<Annotations> annotations_from_json(const nlohmann::json& object);

[[nodiscard]] nlohmann::ordered_json parent_to_json(const std::optional<ParentPoint>& parent);
[[nodiscard]] Result<std::optional<ParentPoint>> parent_from_json(const nlohmann::json& object);

}  // namespace deepfreeze
