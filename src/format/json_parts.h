// The objects that headers and records share, to JSON and back. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "deepfreeze/version.h"
#include "format/records.h"
#include "format/shard_header.h"
#include "json/json_value.h"
#include "json/json_writer.h"

namespace deepfreeze {

// For the metadata of a header, whose values are texts.
[[nodiscard]] std::string annotations_text(const Annotations& annotations);
[[nodiscard]] std::string identity_text(const Identity& identity);

// Each writes one value.
void write_annotations(JsonWriter& json, const Annotations& annotations);
void write_keep(JsonWriter& json, const Keep& keep);
// These write members of the open object.
void add_parent(JsonWriter& json, const std::optional<ParentPoint>& parent);  // none if it is empty
void add_point(JsonWriter& json, const Point& point);

// A number, or the word for one that is not finite; `name` is for the message.
[[nodiscard]] Result<double> metric_of(const std::string& name, const JsonValue& value);
[[nodiscard]] Result<Annotations> annotations_of(const JsonValue& object);
[[nodiscard]] Result<Identity> identity_of(const JsonValue& object);
[[nodiscard]] Result<Point> point_of(const JsonValue& object);
// Reads the member "parent" of `object`; empty if it is missing.
[[nodiscard]] Result<std::optional<ParentPoint>> parent_of(const JsonValue& object);
// Reads the member "keep" of `object`; without a rule if it is missing.
[[nodiscard]] Result<Keep> keep_of(const JsonValue& object);

// Begins the object of a sealed record; sealed() ends it.
// `version`: the oldest version of the format whose readers understand the record.
[[nodiscard]] JsonWriter begin_record(std::string_view kind, const std::string& run_id,
                                      int version = kPlainFormatVersion);
[[nodiscard]] std::string sealed(JsonWriter record);
// kUnsupported: written by a newer version; kCorrupt: the record does not verify or is of another
// kind.
[[nodiscard]] Result<JsonValue> parse_record(std::string_view text, std::string_view kind);

// The member "run_id": 16 lower-case hexadecimal digits.
[[nodiscard]] Result<std::string> run_id_of(const JsonValue& object);

}  // namespace deepfreeze
