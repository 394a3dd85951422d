// Directories: the language of planted_run.h.
#include "attacks/attack.h"
#include "attacks/victim.h"
#include "format/header_fixture.h"
#include "fuzz/seeds.h"

namespace deepfreeze {
namespace {

using Inputs = std::vector<std::string>;

std::string file(const std::string& path, const std::string& body) {
  return "@" + path + "\n" + body + "\n";
}

// The record's members, so that the checksum is put in front of whatever becomes of them.
std::string members_of(const std::string& record) {
  constexpr std::size_t kFrontBytes = std::string_view(R"({"crc32c":"00000000",)").size();
  return record.substr(kFrontBytes, record.size() - kFrontBytes - 1);
}

std::string header_for(const Identity& identity, std::string key) {
  ShardHeader header{.identity = identity};
  header.entries.push_back({.spec = {.key = std::move(key), .shape = {4}}, .extent = {0, 4}});
  header.data_bytes = 4;
  header.block_crcs = {0x48674bc7};  // of four zeros
  return json_of(encode_header(header)->bytes);
}

Identity new_identity(PartName part) {
  return {.run_id = std::string(kPlantedRunId),
          .attempt_id = kNewAttempt.attempt_id,
          .generation = 1,
          .step = kNewAttempt.step,
          .save_index = 2,
          .part = part};
}

std::string new_part(PartName part, const std::string& key) {
  return file("{new}/" + sealed_file_name(part), header_for(new_identity(part), key));
}

std::string record_of(const Manifest& manifest) { return members_of(encode_manifest(manifest)); }

Manifest new_manifest(std::vector<ManifestFile> files) {
  Manifest manifest = good_manifest();
  manifest.point = {1, kNewAttempt.step, 2, kNewAttempt.attempt_id};
  manifest.files = std::move(files);
  return manifest;
}

std::string committed_new() {
  const std::string json = header_for(new_identity({}), "w");
  const auto bytes = sealed_header(json);
  const ManifestFile listed{
      .name = sealed_file_name({}), .bytes = bytes.size() + 4, .header_crc = header_crc(bytes)};
  return new_part({}, "w") + file("{new}/manifest.json", record_of(new_manifest({listed})));
}

Inputs damages() {
  Inputs inputs;
  for (const std::string path :
       {"{good}/manifest.json", "{good}/rank-00000-of-00001-0-of-1.safetensors", "deepfreeze.json",
        "generation-00000001.json"}) {
    for (const std::string order : {"!cut 100", "!zero 300", "!flip 800", "!gone", "{torn"}) {
      inputs.push_back(file(path, order));
    }
    inputs.push_back(file(path, "!gone") + file(path, "!dir"));
  }
  return inputs;
}

std::string claim_of(std::uint64_t generation, std::uint64_t from) {
  const GenerationRecord record{
      .run_id = std::string(kPlantedRunId),
      .generation = generation,
      .claimant = 9,
      .resumed_from = Point{.generation = from, .step = 7, .save_index = 1, .attempt_id = 0xaa},
      .wall_micros = 3,
      .keep = {.last = 2, .every = {}, .best = Keep::Best{.metric = "loss"}}};
  return file(generation_file_name(generation), members_of(encode_generation(record)));
}

Inputs claims() {
  return {claim_of(2, 1),
          claim_of(2, 2),
          claim_of(3, 9),
          claim_of(2, 1) + claim_of(3, 2) + file("generation-00000004.json", "{torn"),
          file(generation_file_name(~0ULL), "torn"),
          file("generation-00000002.json", "!dir")};
}

Inputs attempts() {
  const std::string aborted =
      members_of(encode_manifest({.outcome = Outcome::kAborted,
                                  .run_id = std::string(kPlantedRunId),
                                  .point = {1, kNewAttempt.step, 2, kNewAttempt.attempt_id}}));
  return {committed_new(),
          file("{new}/manifest.json", record_of(new_manifest({}))),
          file("{new}/manifest.json", aborted) + file("{new}/rank.part", "half"),
          file("{new}/manifest.deleted.json", "!copy {good}/manifest.json"),
          file("{new}/manifest.json", "!copy {good}/manifest.json"),
          file("{new}/manifest.deleted.json", "!dir"),
          new_part({}, "w"),
          file("{new}", "!dir"),
          file("step-000000000009-00000000000000CC", "a file"),
          file("{new}/line?break\x01", "x"),
          committed_new() + file("deepfreeze.json", "!gone")};
}

}  // namespace

std::vector<std::string> run_seeds() {
  Inputs inputs = damages();
  for (Inputs& more : std::vector{claims(), attempts()}) {
    inputs.insert(inputs.end(), more.begin(), more.end());
  }
  for (const Attack& attack : manifest_attacks()) {
    inputs.push_back(file("{new}/manifest.json", members_of(attacked(victim_manifest(), attack))));
  }
  for (const Attack& attack : run_file_attacks()) {
    inputs.push_back(file("deepfreeze.json", members_of(attacked(victim_run_file(), attack))));
  }
  return inputs;
}

std::vector<std::string> attempt_seeds() {
  const PartName first{.rank = 0, .world_size = 2};
  const PartName second{.rank = 1, .world_size = 2};
  const PartName piece{.rank = 0, .world_size = 1, .file = 0, .file_count = 2};
  const PartName rest{.rank = 0, .world_size = 1, .file = 1, .file_count = 2};
  Inputs inputs = {new_part({}, "w"),
                   new_part(first, "a") + new_part(second, "b"),
                   new_part(first, "a") + new_part(second, "a"),
                   new_part(piece, "a") + new_part(rest, "b"),
                   new_part({}, "w") + new_part(piece, "a"),
                   new_part({}, "w") + new_part(rest, "b"),
                   new_part({}, "w") + file("{new}/rank-00000-of-00001-0-of-1.failed", "why"),
                   new_part({}, "w") + claim_of(2, 1),
                   new_part(first, "a"),
                   committed_new(),
                   file("{new}/manifest.json", "{torn")};
  for (const Attack& attack : header_attacks()) {
    inputs.push_back(file("{new}/" + sealed_file_name({}), attacked(victim_header(), attack)));
  }
  return inputs;
}

}  // namespace deepfreeze
