#include "format/records.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <unordered_set>
#include <utility>

#include "base/hex.h"
#include "base/try.h"
#include "format/json_parts.h"
#include "format/members.h"
#include "format/names.h"

namespace deepfreeze {

bool Annotations::operator==(const Annotations& other) const {
  const auto is_same = [](const auto& a, const auto& b) {
    return a.first == b.first &&
           std::bit_cast<std::uint64_t>(a.second) == std::bit_cast<std::uint64_t>(b.second);
  };
  return wall_micros == other.wall_micros && tags == other.tags &&
         environment == other.environment && parent == other.parent &&
         std::ranges::equal(metrics, other.metrics, is_same);
}
namespace {

// g++ 12's std::expected has no transform_error.
template <class T>
Result<T> within(std::string_view record, Result<T> decoded) {
  if (decoded) return decoded;
  return std::unexpected(decoded.error().within(record));
}

void write_manifest_file(JsonWriter& json, const ManifestFile& file) {
  json.begin_object();
  json.members("name", file.name, "bytes", whole(file.bytes), "header_crc", hex32(file.header_crc));
  if (file.origin) {
    json.key("origin");
    json.begin_object();
    json.members("run_id", file.origin->run_id);
    add_point(json, file.origin->point);
    json.end_object();
  }
  json.end_object();
}

Result<std::optional<Origin>> origin_of(const JsonValue& file) {
  const JsonValue* object = file.find("origin");
  if (object == nullptr) return std::nullopt;
  Origin origin;
  DF_TRY(origin.run_id, run_id_of(*object));
  DF_TRY(origin.point, point_of(*object));
  return origin;
}

// A reader of version 1 would take a file of another attempt for damage.
bool has_origins(const Manifest& manifest) {
  return std::ranges::any_of(manifest.files,
                             [](const ManifestFile& file) { return file.origin.has_value(); });
}

Result<ManifestFile> file_of(const JsonValue& object) {
  ManifestFile file;
  DF_TRY(file.name, get_string(object, "name"));
  DF_TRY(file.bytes, get_u64(object, "bytes"));
  DF_TRY(file.header_crc, get_hex32(object, "header_crc"));
  DF_TRY(file.origin, origin_of(object));
  if (parse_sealed_file_name(file.name)) return file;
  return fail(ErrorCode::kCorrupt, fmt::format("\"{}\" is not the name of a data file", file.name));
}

Status check_unique(const std::vector<ManifestFile>& files) {
  std::unordered_set<std::string_view> names;
  for (const ManifestFile& file : files) {
    if (!names.insert(file.name).second) {
      return fail(ErrorCode::kCorrupt, fmt::format("it lists {} twice", file.name));
    }
  }
  return {};
}

Result<std::vector<ManifestFile>> files_of(const JsonValue& record) {
  DF_TRY(const JsonArray* list, get_array(record, "files"));
  if (list->size() > kManifestFilesMax) {
    return fail(ErrorCode::kCorrupt, fmt::format("{} files are too many", list->size()));
  }
  std::vector<ManifestFile> files;
  files.reserve(list->size());
  for (const JsonValue& object : *list) {
    DF_TRY(files.emplace_back(), file_of(object));
  }
  DF_TRY_VOID(check_unique(files));
  return files;
}

Result<Outcome> outcome_of(const JsonValue& record) {
  DF_TRY(const std::string name, get_string(record, "outcome"));
  if (name == "committed") return Outcome::kCommitted;
  if (name == "aborted") return Outcome::kAborted;
  return fail(ErrorCode::kCorrupt, fmt::format("there is no outcome \"{}\"", name));
}

Result<RunRecord> run_of(std::string_view text) {
  DF_TRY(const JsonValue object, parse_record(text, "run"));
  RunRecord record;
  DF_TRY(record.run_id, run_id_of(object));
  DF_TRY(record.wall_micros, get_i64(object, "wall_micros"));
  DF_TRY(record.parent, parent_of(object));
  return record;
}

Result<GenerationRecord> generation_of(std::string_view text) {
  DF_TRY(const JsonValue object, parse_record(text, "generation"));
  GenerationRecord record;
  DF_TRY(record.run_id, run_id_of(object));
  DF_TRY(record.generation, get_u64(object, "generation"));
  DF_TRY(record.claimant, get_hex64(object, "claimant"));
  DF_TRY(record.wall_micros, get_i64(object, "wall_micros"));
  if (const JsonValue* point = object.find("resumed_from")) {
    DF_TRY(record.resumed_from, point_of(*point));
  }
  if (object.find("node") != nullptr) {
    DF_TRY(record.node, get_hex64(object, "node"));
  }
  // A hint for readers: rules of a later version must not cost the claim, which fences.
  if (auto keep = keep_of(object)) record.keep = *std::move(keep);
  return record;
}

Result<Annotations> manifest_annotations_of(const JsonValue& record) {
  const JsonValue none;
  const JsonValue* object = record.find("annotations");
  return annotations_of(object == nullptr ? none : *object);
}

void write_divergence(JsonWriter& json, const Divergence& one) {
  json.object("tensor", one.key, "ranks", one.ranks);
}

Result<Divergence> divergence_of(const JsonValue& object) {
  Divergence one;
  DF_TRY(one.key, get_string(object, "tensor"));
  DF_TRY(const JsonArray* ranks, get_array(object, "ranks"));
  for (const JsonValue& element : *ranks) {
    const std::uint64_t* rank = element.as_u64();
    if (rank == nullptr || *rank > UINT32_MAX) {
      return fail(ErrorCode::kCorrupt, "member \"ranks\" holds a value that is not a rank");
    }
    one.ranks.push_back(static_cast<std::uint32_t>(*rank));
  }
  return one;
}

Result<std::vector<Divergence>> diverged_of(const JsonValue& record) {
  const JsonValue* member = record.find("diverged");
  if (member == nullptr) return {};
  const JsonArray* list = member->as_array();
  if (list == nullptr || list->size() > kDivergencesMax) {
    return fail(ErrorCode::kCorrupt, "member \"diverged\" is not an array, or too long");
  }
  std::vector<Divergence> diverged;
  for (const JsonValue& object : *list) {
    DF_TRY(diverged.emplace_back(), divergence_of(object));
  }
  return diverged;
}

Result<Manifest> manifest_of(std::string_view text) {
  DF_TRY(const JsonValue object, parse_record(text, "manifest"));
  Manifest manifest;
  DF_TRY(manifest.outcome, outcome_of(object));
  DF_TRY(manifest.run_id, run_id_of(object));
  DF_TRY(manifest.point, point_of(object));
  DF_TRY(manifest.world_size, get_u32(object, "world_size"));
  if (manifest.world_size == 0) return fail(ErrorCode::kCorrupt, "it is of no ranks");
  DF_TRY(manifest.integrity, get_string(object, "integrity"));
  DF_TRY(manifest.annotations, manifest_annotations_of(object));
  DF_TRY(manifest.files, files_of(object));
  if (object.find("non_finite") != nullptr) {
    DF_TRY(manifest.non_finite, get_u64(object, "non_finite"));
  }
  DF_TRY(manifest.diverged, diverged_of(object));
  if (manifest.outcome == Outcome::kAborted && !manifest.files.empty()) {
    return fail(ErrorCode::kCorrupt, "it is aborted and yet lists files");
  }
  return manifest;
}

}  // namespace

std::string encode_run(const RunRecord& record) {
  JsonWriter json = begin_record("run", record.run_id);
  json.members("wall_micros", whole(record.wall_micros));
  add_parent(json, record.parent);
  return sealed(std::move(json));
}

Result<RunRecord> decode_run(std::string_view text) { return within("run record", run_of(text)); }

std::string encode_generation(const GenerationRecord& record) {
  JsonWriter json = begin_record("generation", record.run_id);
  json.members("generation", whole(record.generation), "claimant", hex64(record.claimant),
               "wall_micros", whole(record.wall_micros));
  if (record.resumed_from) {
    json.key("resumed_from");
    json.begin_object();
    add_point(json, *record.resumed_from);
    json.end_object();
  }
  if (record.keep != Keep{}) {
    json.key("keep");
    write_keep(json, record.keep);
  }
  if (record.node) json.members("node", hex64(*record.node));
  return sealed(std::move(json));
}

Result<GenerationRecord> decode_generation(std::string_view text) {
  return within("generation record", generation_of(text));
}

Origin origin_of(const Manifest& manifest, const ManifestFile& file) {
  return file.origin.value_or(Origin{.run_id = manifest.run_id, .point = manifest.point});
}

std::uint64_t stored_bytes(const Manifest& manifest) {
  std::uint64_t sum = 0;
  for (const ManifestFile& file : manifest.files) sum += file.bytes;
  return sum;
}

std::uint64_t shared_bytes(const Manifest& manifest) {
  std::uint64_t sum = 0;
  for (const ManifestFile& file : manifest.files) sum += file.origin ? file.bytes : 0;
  return sum;
}

std::string encode_manifest(const Manifest& manifest) {
  JsonWriter json = begin_record("manifest", manifest.run_id,
                                 has_origins(manifest) ? kFormatVersion : kPlainFormatVersion);
  json.members("outcome", manifest.outcome == Outcome::kCommitted ? "committed" : "aborted");
  add_point(json, manifest.point);
  json.members("world_size", manifest.world_size, "integrity", manifest.integrity);
  json.key("annotations");
  write_annotations(json, manifest.annotations);
  json.members("files", json_array(manifest.files, write_manifest_file));
  if (manifest.non_finite) json.members("non_finite", whole(*manifest.non_finite));
  if (!manifest.diverged.empty()) {
    json.members("diverged", json_array(manifest.diverged, write_divergence));
  }
  return sealed(std::move(json));
}

Result<Manifest> decode_manifest(std::string_view text) {
  return within("manifest", manifest_of(text));
}

}  // namespace deepfreeze
