#include "nodes/crash/claim_model.h"

#include <algorithm>
#include <map>

#include "manifest/commit.h"
#include "manifest/record_file.h"
#include "manifest/run_directory.h"
#include "manifest/sealed_parts.h"

namespace deepfreeze::nodes_test {
namespace {

constexpr RecordFailPoints kPoints = {"model.written", "model.renamed", "model.synced"};

Result<std::uint64_t> highest_claim(Vfs& vfs) {
  DF_TRY(const std::vector<DirEntry> entries, vfs.list(""));
  std::uint64_t highest = 0;
  for (const DirEntry& entry : entries) {
    highest = std::max(highest, parse_generation_file_name(entry.name).value_or(0));
  }
  return highest;
}

Status place_claim(Vfs& vfs, const GenerationRecord& record) {
  const std::string name = generation_file_name(record.generation);
  DF_TRY_VOID(place_record(vfs, {.directory = "", .name = name, .text = encode_generation(record)},
                           kPoints));
  return settle_record(vfs, "", kPoints);
}

Manifest aborted(const std::string& run_id, const AttemptName& name,
                 const std::optional<Identity>& identity) {
  Manifest manifest;
  manifest.outcome = Outcome::kAborted;
  manifest.run_id = run_id;
  manifest.point.step = name.step;
  manifest.point.attempt_id = name.attempt_id;
  if (!identity) return manifest;
  manifest.point.generation = identity->generation;
  manifest.point.save_index = identity->save_index;
  manifest.world_size = identity->part.world_size;
  return manifest;
}

// The node whose directory decides an attempt with this header, by the claim in this directory.
std::optional<std::uint64_t> deciding_node(Vfs& vfs, const Identity& identity) {
  const auto text = read_file(vfs, generation_file_name(identity.generation), kRecordBytesMax);
  const auto record = text ? decode_generation(*text) : std::unexpected(text.error());
  return record ? record->node : std::nullopt;
}

Result<bool> has_sealed_file(Vfs& vfs, const AttemptName& name) {
  DF_TRY(const std::vector<DirEntry> entries, vfs.list(attempt_dir_name(name)));
  return std::ranges::any_of(entries, [](const DirEntry& entry) {
    return parse_sealed_file_name(entry.name).has_value();
  });
}

struct Doubt {
  ClaimingNode node;
  AttemptName name;
  Identity identity;
  std::uint64_t decided_by = 0;
};

// C2, second half: undecided attempts that this node decides are aborted. Returns the others.
Result<std::vector<Doubt>> abort_own(const ClaimingNode& node, const GenerationRecord& claim) {
  std::vector<Doubt> doubts;
  DF_TRY(const std::vector<AttemptName> undecided, undecided_in(*node.vfs));
  for (const AttemptName& name : undecided) {
    const auto identity = find_identity(*node.vfs, name);
    if (identity && identity->generation >= claim.generation) continue;
    const auto decided_by = identity ? deciding_node(*node.vfs, *identity) : std::nullopt;
    if (decided_by.value_or(node.digits) != node.digits) {
      DF_TRY(const bool is_sealed, has_sealed_file(*node.vfs, name));
      if (is_sealed) {
        doubts.push_back({node, name, *identity, *decided_by});
        continue;
      }
    }
    DF_TRY(const Manifest outcome, abort_attempt(*node.vfs, aborted(claim.run_id, name, identity)));
    std::ignore = outcome;
  }
  return doubts;
}

// C3 at the deciding directory. Nothing: it can't tell.
Result<std::optional<Manifest>> outcome_at(Vfs& vfs, const Doubt& doubt) {
  const auto entries = vfs.list(attempt_dir_name(doubt.name));
  if (!entries && entries.error().code() != ErrorCode::kNotFound) {
    return std::unexpected(entries.error());
  }
  if (!entries) return aborted(doubt.identity.run_id, doubt.name, doubt.identity);
  if (!has_name(*entries, kManifestFile)) return std::nullopt;
  DF_TRY(const Manifest outcome, read_manifest(vfs, doubt.name, doubt.identity.run_id));
  DF_TRY_VOID(vfs.sync_dir(attempt_dir_name(doubt.name)));
  return outcome;
}

Status place(const Doubt& doubt, const Manifest& outcome) {
  DecidedOutcome decided{.manifest = outcome, .text = encode_manifest(outcome), .here = {}};
  DF_TRY(const std::vector<DirEntry> entries, doubt.node.vfs->list(attempt_dir_name(doubt.name)));
  if (has_name(entries, kManifestFile)) return {};  // its own process was faster
  for (const ManifestFile& file : outcome.files) {
    if (has_name(entries, file.name)) decided.here.push_back(file);
  }
  return place_decided(*doubt.node.vfs, decided);
}

Status settle(const std::vector<ClaimingNode>& nodes, const Doubt& doubt, Mutant mutant) {
  if (mutant == Mutant::kAbortInDoubt) {
    return place(doubt, aborted(doubt.identity.run_id, doubt.name, doubt.identity));
  }
  for (const ClaimingNode& node : nodes) {
    if (node.digits != doubt.decided_by) continue;
    DF_TRY(const auto outcome, outcome_at(*node.vfs, doubt));
    if (outcome) return place(doubt, *outcome);
  }
  return {};
}

Status settle_all(const std::vector<ClaimingNode>& nodes, const std::vector<Doubt>& doubts,
                  Mutant mutant) {
  for (const Doubt& doubt : doubts) DF_TRY_VOID(settle(nodes, doubt, mutant));
  return {};
}

}  // namespace

Result<std::vector<AttemptName>> undecided_in(Vfs& vfs) {
  DF_TRY(const std::vector<DirEntry> entries, vfs.list(""));
  std::vector<AttemptName> undecided;
  for (const DirEntry& entry : entries) {
    const auto name = parse_attempt_dir_name(entry.name);
    if (!name) continue;
    DF_TRY(const std::vector<DirEntry> files, vfs.list(entry.name));
    if (!has_name(files, kManifestFile) && !has_name(files, kDeletedManifestFile)) {
      undecided.push_back(*name);
    }
  }
  return undecided;
}

Result<GenerationRecord> claim_for_all(const std::vector<ClaimingNode>& nodes,
                                       const std::string& run_id, Mutant mutant, Fate& fate) {
  GenerationRecord claim{.run_id = run_id, .node = nodes.front().digits};
  for (const ClaimingNode& node : nodes) {  // C1
    DF_TRY(const std::uint64_t highest, highest_claim(*node.vfs));
    claim.generation = std::max(claim.generation, highest + 1);
  }
  claim.claimant = claim.generation;
  DF_TRY_VOID(place_claim(*nodes.front().vfs, claim));
  std::vector<Doubt> doubts;
  for (const ClaimingNode& node : nodes) {  // C2
    fate.wait();
    if (&node != &nodes.front()) DF_TRY_VOID(place_claim(*node.vfs, claim));
    DF_TRY(const std::vector<Doubt> own, abort_own(node, claim));
    if (mutant == Mutant::kOneRound) DF_TRY_VOID(settle_all(nodes, own, mutant));
    doubts.insert(doubts.end(), own.begin(), own.end());
  }
  fate.wait();
  DF_TRY_VOID(settle_all(nodes, doubts, mutant));  // C3
  return claim;
}

}  // namespace deepfreeze::nodes_test
