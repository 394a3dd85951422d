#include "format/records.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unordered_set>

#include "base/hex.h"
#include "base/try.h"
#include "format/json_parts.h"
#include "format/names.h"
#include "format/strict_json.h"

namespace deepfreeze {
namespace {

using nlohmann::json;

// g++ 12's std::expected has no transform_error.
template <class T>
Result<T> within(std::string_view record, Result<T> decoded) {
  if (decoded) return decoded;
  return std::unexpected(decoded.error().within(record));
}

std::string files_text(const std::vector<ManifestFile>& files) {
  std::string text = "[";
  for (const ManifestFile& file : files) {
    ObjectText object;
    object.add("name", file.name);
    object.add("bytes", whole_json(file.bytes));
    object.add("header_crc", hex32(file.header_crc));
    if (text.size() > 1) text += ',';
    text += object.text();
  }
  return text + ']';
}

Result<ManifestFile> file_of(const json& object) {
  ManifestFile file;
  DF_TRY(file.name, get_string(object, "name"));
  DF_TRY(file.bytes, get_u64(object, "bytes"));
  DF_TRY(file.header_crc, get_hex32(object, "header_crc"));
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

Result<std::vector<ManifestFile>> files_of(const json& record) {
  const json* list = find_member(record, "files");
  if (list == nullptr || !list->is_array()) {
    return fail(ErrorCode::kCorrupt, "member \"files\" is not an array");
  }
  if (list->size() > kManifestFilesMax) {
    return fail(ErrorCode::kCorrupt, fmt::format("{} files are too many", list->size()));
  }
  std::vector<ManifestFile> files;
  files.reserve(list->size());
  for (const json& object : *list) {
    DF_TRY(files.emplace_back(), file_of(object));
  }
  DF_TRY_VOID(check_unique(files));
  return files;
}

Result<Outcome> outcome_of(const json& record) {
  DF_TRY(const std::string name, get_string(record, "outcome"));
  if (name == "committed") return Outcome::kCommitted;
  if (name == "aborted") return Outcome::kAborted;
  return fail(ErrorCode::kCorrupt, fmt::format("there is no outcome \"{}\"", name));
}

Result<RunRecord> run_of(std::string_view text) {
  DF_TRY(const json object, parse_record(text, "run"));
  RunRecord record;
  DF_TRY(record.run_id, run_id_of(object));
  DF_TRY(record.wall_micros, get_i64(object, "wall_micros"));
  DF_TRY(record.parent, parent_of(object));
  return record;
}

Result<GenerationRecord> generation_of(std::string_view text) {
  DF_TRY(const json object, parse_record(text, "generation"));
  GenerationRecord record;
  DF_TRY(record.run_id, run_id_of(object));
  DF_TRY(record.generation, get_u64(object, "generation"));
  DF_TRY(record.claimant, get_hex64(object, "claimant"));
  DF_TRY(record.wall_micros, get_i64(object, "wall_micros"));
  if (const json* point = find_member(object, "resumed_from")) {
    DF_TRY(record.resumed_from, point_of(*point));
  }
  // A hint for readers: rules of a later version must not cost the claim, which fences.
  if (auto keep = keep_of(object)) record.keep = *std::move(keep);
  return record;
}

Result<Annotations> manifest_annotations_of(const json& record) {
  const json* object = find_member(record, "annotations");
  return annotations_of(object == nullptr ? json::object() : *object);
}

std::string diverged_text(const std::vector<Divergence>& diverged) {
  std::string text = "[";
  for (const Divergence& one : diverged) {
    ObjectText object;
    object.add("tensor", one.key);
    object.add_text("ranks", fmt::format("[{}]", fmt::join(one.ranks, ",")));
    if (text.size() > 1) text += ',';
    text += object.text();
  }
  return text + ']';
}

Result<Divergence> divergence_of(const json& object) {
  Divergence one;
  DF_TRY(one.key, get_string(object, "tensor"));
  const json* ranks = find_member(object, "ranks");
  if (ranks == nullptr || !ranks->is_array()) {
    return fail(ErrorCode::kCorrupt, "member \"ranks\" is not an array");
  }
  for (const json& rank : *ranks) {
    if (!rank.is_number_unsigned() || rank.get<std::uint64_t>() > UINT32_MAX) {
      return fail(ErrorCode::kCorrupt, "member \"ranks\" holds a value that is not a rank");
    }
    one.ranks.push_back(rank.get<std::uint32_t>());
  }
  return one;
}

Result<std::vector<Divergence>> diverged_of(const json& record) {
  const json* list = find_member(record, "diverged");
  if (list == nullptr) return {};
  if (!list->is_array() || list->size() > kDivergencesMax) {
    return fail(ErrorCode::kCorrupt, "member \"diverged\" is not an array, or too long");
  }
  std::vector<Divergence> diverged;
  for (const json& object : *list) {
    DF_TRY(diverged.emplace_back(), divergence_of(object));
  }
  return diverged;
}

Result<Manifest> manifest_of(std::string_view text) {
  DF_TRY(const json object, parse_record(text, "manifest"));
  Manifest manifest;
  DF_TRY(manifest.outcome, outcome_of(object));
  DF_TRY(manifest.run_id, run_id_of(object));
  DF_TRY(manifest.point, point_of(object));
  DF_TRY(manifest.world_size, get_u32(object, "world_size"));
  if (manifest.world_size == 0) return fail(ErrorCode::kCorrupt, "it is of no ranks");
  DF_TRY(manifest.integrity, get_string(object, "integrity"));
  DF_TRY(manifest.annotations, manifest_annotations_of(object));
  DF_TRY(manifest.files, files_of(object));
  if (find_member(object, "non_finite") != nullptr) {
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
  ObjectText object = record_text("run", record.run_id);
  object.add("wall_micros", whole_json(record.wall_micros));
  if (record.parent) object.add_text("parent", parent_text(*record.parent));
  return seal_text(object.text());
}

Result<RunRecord> decode_run(std::string_view text) { return within("run record", run_of(text)); }

std::string encode_generation(const GenerationRecord& record) {
  ObjectText object = record_text("generation", record.run_id);
  object.add("generation", whole_json(record.generation));
  object.add("claimant", hex64(record.claimant));
  object.add("wall_micros", whole_json(record.wall_micros));
  if (record.resumed_from) {
    ObjectText point;
    add_point(point, *record.resumed_from);
    object.add_text("resumed_from", point.text());
  }
  if (record.keep != Keep{}) object.add_text("keep", keep_text(record.keep));
  return seal_text(object.text());
}

Result<GenerationRecord> decode_generation(std::string_view text) {
  return within("generation record", generation_of(text));
}

std::string encode_manifest(const Manifest& manifest) {
  ObjectText object = record_text("manifest", manifest.run_id);
  object.add("outcome", manifest.outcome == Outcome::kCommitted ? "committed" : "aborted");
  add_point(object, manifest.point);
  object.add("world_size", manifest.world_size);
  object.add("integrity", manifest.integrity);
  object.add_text("annotations", annotations_text(manifest.annotations));
  object.add_text("files", files_text(manifest.files));
  if (manifest.non_finite) object.add("non_finite", whole_json(*manifest.non_finite));
  if (!manifest.diverged.empty()) object.add_text("diverged", diverged_text(manifest.diverged));
  return seal_text(object.text());
}

Result<Manifest> decode_manifest(std::string_view text) {
  return within("manifest", manifest_of(text));
}

}  // namespace deepfreeze
