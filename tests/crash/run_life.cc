#include "crash/run_life.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/checked_math.h"
#include "base/fail_point.h"
#include "base/mapped_memory.h"
#include "base/try.h"
#include "crash/attempt_maker.h"
#include "manifest/claims.h"
#include "manifest/commit.h"
#include "manifest/history.h"
#include "manifest/in_doubt.h"
#include "manifest/record_file.h"
#include "manifest/retention.h"
#include "pipeline/write_engine.h"

namespace deepfreeze {
namespace {

Keep keep_last_steps(std::size_t count) { return {.last = count, .every = {}, .best = {}}; }

// The attempts that a collector has taken something out of.
std::vector<AttemptName> begun_by(std::span<const SimOperation> collection) {
  std::vector<AttemptName> names;
  for (const SimOperation& operation : collection) {
    const bool takes = operation.kind == SimOperationKind::kRename ||
                       operation.kind == SimOperationKind::kRemoveFile ||
                       operation.kind == SimOperationKind::kRemoveDir;
    const auto name = parse_attempt_dir_name(operation.name.substr(0, operation.name.find('/')));
    if (takes && name) names.push_back(*name);
  }
  return names;
}

// The process dies at a fail point: its own error is as expected, any other ends the scenario.
template <class Call>
Status die_at(std::string_view fail_point, Call&& call) {
  DF_TRY_VOID(fail_points::arm(fmt::format("{}=error@1", fail_point)));
  const Status status = std::forward<Call>(call)();
  fail_points::disarm();
  if (status) {
    return fail(ErrorCode::kInternal,
                fmt::format("{}{} was not passed", kScenarioIsOver, fail_point));
  }
  if (status.error().message().find("fail point") == std::string::npos) return status;
  return {};
}

// Steps 2 and 3 by the engine's own writer; with one thread, one order of operations.
Status write_part_by_engine(Vfs& vfs, const std::string& path, const ShardHeader& header,
                            std::span<const std::byte> data) {
  DF_TRY(EncodedHeader encoded, encode_header(header));
  DF_TRY(const MappedMemory arena, MappedMemory::allocate(round_up(data.size(), kPageBytes)));
  std::ranges::copy(data, arena.bytes().begin());
  DF_TRY(const auto engine, WriteEngine::open({.mode = IoMode::kDirect, .writes_in_flight = 1}));
  DF_TRY(const auto writer,
         engine->start(vfs, {.files = {{path, encoded.bytes.size()}},
                             .image = Image(arena.bytes(), data.size(), kSlabBytes)}));
  writer->push(0);
  return writer->finish(
      [&](std::size_t) -> Result<std::vector<std::byte>> { return encoded.bytes; });
}

// One file of a rank that has several, before it is written.
struct OwnFile {
  Identity identity;
  std::vector<std::byte> data;
  EncodedHeader header;
};

Result<std::vector<OwnFile>> make_files(Identity identity) {
  std::vector<OwnFile> files;
  for (; identity.part.file < identity.part.file_count; ++identity.part.file) {
    std::vector<std::byte> data = make_data(identity, kTestDataBytes);
    DF_TRY(EncodedHeader header, encode_header(make_header(identity, data)));
    files.push_back({identity, std::move(data), std::move(header)});
  }
  return files;
}

// Writes likewise for a rank of several files.
Status write_files_by_engine(Vfs& vfs, std::span<const OwnFile> files) {
  const std::vector<std::uint64_t> sizes(files.size(), kTestDataBytes);
  const std::vector<Section> sections = lay_sections(sizes, kSlabBytes);
  DF_TRY(const MappedMemory arena,
         MappedMemory::allocate(round_up(sections.back().end, kPageBytes)));
  PartSpec plan{.files = {}, .image = Image(arena.bytes(), sections, kSlabBytes)};
  for (std::size_t i = 0; i < files.size(); ++i) {
    const Identity& identity = files[i].identity;
    std::ranges::copy(files[i].data, plan.image.slab(i).begin());
    plan.files.push_back(
        {join_name(attempt_dir_name(name_of(identity)), part_file_name(identity.part)),
         files[i].header.bytes.size()});
  }
  DF_TRY(const auto engine, WriteEngine::open({.mode = IoMode::kDirect, .writes_in_flight = 1}));
  DF_TRY(const auto writer, engine->start(vfs, std::move(plan)));
  for (std::size_t i = 0; i < files.size(); ++i) writer->push(i);
  return writer->finish(
      [&](std::size_t file) -> Result<std::vector<std::byte>> { return files[file].header.bytes; });
}

constexpr std::uint64_t kOtherNode = 0xa1;

// The manifest of the directory that decides, which has the same file here.
Result<Manifest> decided_elsewhere(const Identity& identity, Outcome outcome) {
  if (outcome == Outcome::kAborted) return aborted_outcome(identity);
  SimDisk other;
  return save_attempt(other, identity);
}

Status ordinary(RunLife& life) {
  DF_TRY_VOID(life.open());
  DF_TRY_VOID(life.claim());
  DF_TRY_VOID(life.save(1));
  DF_TRY_VOID(life.save(2));
  DF_TRY_VOID(life.collect(1));
  DF_TRY_VOID(life.save_of_two_ranks(3));
  DF_TRY_VOID(life.seal_only(4));
  DF_TRY_VOID(life.open());  // by the next process
  DF_TRY_VOID(life.claim());
  DF_TRY_VOID(life.abort_undecided_attempts());
  DF_TRY_VOID(life.save(4));
  return life.collect(1);
}

Status several_files(RunLife& life) {
  DF_TRY_VOID(life.open());
  DF_TRY_VOID(life.claim());
  DF_TRY_VOID(life.save(1));
  DF_TRY_VOID(life.save_of_several_files(2));
  return life.collect(1);
}

Status killed_before_the_last_sync(RunLife& life) {
  DF_TRY_VOID(life.open());
  DF_TRY_VOID(life.claim());
  DF_TRY_VOID(life.save(1));
  DF_TRY_VOID(life.save_killed_at(2, "commit.manifest_renamed"));
  return life.collect(1);
}

// Another process collects the attempt that the dead one has aborted, as far as it can see.
Status killed_while_aborting(RunLife& life) {
  DF_TRY_VOID(life.open());
  DF_TRY_VOID(life.claim());
  DF_TRY_VOID(life.save(1));
  DF_TRY_VOID(life.seal_only(2));
  DF_TRY_VOID(life.claim());
  DF_TRY_VOID(life.abort_killed_at("abort.renamed"));
  return life.collect(1);
}

Status killed_while_collecting(RunLife& life) {
  DF_TRY_VOID(life.open());
  DF_TRY_VOID(life.claim());
  DF_TRY_VOID(life.save(1));
  DF_TRY_VOID(life.save(2));
  DF_TRY_VOID(life.collect_killed_at(1, "remove.manifest_removed"));
  return life.collect(1);
}

// The best, which its process did not sync, is not the newest any more.
Status killed_before_the_best_was_synced(RunLife& life) {
  DF_TRY_VOID(life.open());
  DF_TRY_VOID(life.claim());
  DF_TRY_VOID(life.save(5));
  DF_TRY_VOID(life.save_killed_at(8, "commit.manifest_renamed"));
  DF_TRY_VOID(life.claim());
  DF_TRY_VOID(life.save(2));  // with a greater loss than both
  return life.collect_but_best();
}

Status rolled_back(RunLife& life) {
  DF_TRY_VOID(life.open());
  DF_TRY_VOID(life.claim());
  DF_TRY_VOID(life.save(1));
  DF_TRY_VOID(life.save(2));
  DF_TRY_VOID(life.save(3));
  DF_TRY_VOID(life.claim_from(1));
  DF_TRY_VOID(life.collect(2));  // nothing yet
  DF_TRY_VOID(life.save(2));
  DF_TRY_VOID(life.save(3));
  return life.collect(2);
}

// After a job on this node alone, one on two nodes leaves two attempts in doubt. Its next job finds
// out that one was committed, and leaves a third one, which stays.
Status decided_by_another_node(RunLife& life) {
  life.become_a_node();
  DF_TRY_VOID(life.open());
  DF_TRY_VOID(life.claim());
  DF_TRY_VOID(life.save(1));
  DF_TRY_VOID(life.claim_for_another_node());
  DF_TRY_VOID(life.seal_in_doubt(2));
  DF_TRY_VOID(life.seal_in_doubt(3));
  DF_TRY_VOID(life.claim_for_another_node());
  DF_TRY_VOID(life.abort_undecided_attempts());
  DF_TRY_VOID(life.take_answers(std::array{Outcome::kCommitted, Outcome::kAborted}));
  DF_TRY_VOID(life.seal_in_doubt(4));
  DF_TRY_VOID(life.claim_for_another_node());
  DF_TRY_VOID(life.abort_undecided_attempts());
  return life.collect(1);
}

Status bad_run_file(RunLife& life) {
  DF_TRY_VOID(life.open());
  DF_TRY_VOID(life.claim());
  DF_TRY_VOID(life.save(1));
  life.ruin_run_file();
  DF_TRY_VOID(life.open());
  return life.save(2);
}

}  // namespace

Status RunLife::open() {
  begin_phase("open");
  const auto before = read_run(disk_);
  const bool was_whole = before && !before->run_rebuilt;
  DF_TRY(const RunRecord run, create_or_open_run(disk_, {}));
  run_id_ = run.run_id;
  if (!was_whole) promise_run();
  return {};
}

// A file that was there may be one that its process died over before the sync: the claim has it.
void RunLife::promise_run() {
  promises_.run_id = run_id_;
  promises_.run_file = true;
}

Status RunLife::claim() {
  DF_TRY(const RunListing listing, read_run(disk_));
  const auto committed = newest_first(listing);
  return claim_from(committed.empty() ? std::nullopt : std::optional(committed.front().point));
}

Status RunLife::claim_from(std::uint64_t step) {
  DF_TRY(const RunListing listing, read_run(disk_));
  for (const Manifest& manifest : newest_first(listing)) {
    if (manifest.point.step == step) return claim_from(manifest.point);
  }
  return fail(ErrorCode::kNotFound, fmt::format("{}no step {}", kScenarioIsOver, step));
}

Status RunLife::claim_from(std::optional<Point> point) {
  begin_phase("claim");
  generation_ = 0;  // a process that can't claim may not save: a claim that failed can still stand
  DF_TRY(const GenerationRecord record, claim_generation(disk_, run_id_, point));
  generation_ = record.generation;
  promise_run();
  promises_.claims.push_back(record);
  return {};
}

Status RunLife::abort_undecided_attempts() {
  begin_phase("abort");
  DF_TRY(const RunListing listing, read_run(disk_));
  DF_TRY_VOID(abort_undecided(disk_, listing, generation_));
  for (const AttemptState& attempt : listing.attempts) {
    const bool is_in_doubt =
        std::ranges::find(promises_.in_doubt, attempt.name) != promises_.in_doubt.end();
    if (attempt.undecided() && !is_in_doubt) promises_.aborted.push_back(attempt.name);
  }
  return {};
}

Status RunLife::abort_killed_at(std::string_view fail_point) {
  return die_at(fail_point, [&] { return abort_undecided_attempts(); });
}

Status RunLife::save(std::uint64_t step) {
  begin_phase("save");
  const Identity identity = next_identity(step);
  DF_TRY_VOID(begin_attempt(disk_, name_of(identity)));
  DF_TRY_VOID(write(identity));
  DF_TRY(const Manifest manifest, commit_attempt(disk_, make_request(identity)));
  promises_.committed.push_back(manifest.point);
  return {};
}

Status RunLife::save_of_two_ranks(std::uint64_t step) {
  begin_phase("save of two ranks");
  Identity identity = next_identity(step, {1, 2, 0, 1});
  DF_TRY_VOID(begin_attempt(disk_, name_of(identity)));
  DF_TRY_VOID(write(identity));
  identity.part.rank = 0;
  DF_TRY_VOID(write(identity));
  DF_TRY(const Manifest manifest, commit_attempt(disk_, make_request(identity)));
  promises_.committed.push_back(manifest.point);
  return {};
}

Status RunLife::save_of_several_files(std::uint64_t step) {
  begin_phase("save of several files");
  const Identity identity = next_identity(step, {0, 1, 0, 2});
  DF_TRY_VOID(begin_attempt(disk_, name_of(identity)));
  DF_TRY(const std::vector<OwnFile> files, make_files(identity));
  DF_TRY_VOID(write_files_by_engine(disk_, files));
  CommitRequest request = make_request(identity);
  std::vector<PartName> parts;
  for (const OwnFile& file : files) {
    parts.push_back(file.identity.part);
    request.own.push_back({.file_bytes = file.header.bytes.size() + file.data.size(),
                           .header_bytes = file.header.bytes.size(),
                           .header_crc = file.header.crc,
                           .annotations = make_header(file.identity, file.data).annotations});
  }
  DF_TRY_VOID(seal_parts(disk_, name_of(identity), parts));
  for (const OwnFile& file : files) promises_.sealed.push_back(file.identity);
  DF_TRY(const Manifest manifest, commit_attempt(disk_, request));
  promises_.committed.push_back(manifest.point);
  return {};
}

Status RunLife::save_killed_at(std::uint64_t step, std::string_view fail_point) {
  return die_at(fail_point, [&] { return save(step); });
}

Status RunLife::seal_only(std::uint64_t step) {
  begin_phase("seal only");
  const Identity identity = next_identity(step);
  DF_TRY_VOID(begin_attempt(disk_, name_of(identity)));
  return write(identity);
}

void RunLife::become_a_node() {
  disk_.plant(kNodeFile, encode_node({.node = 0xb2, .host = "host1"}));
}

// C1 and C2 of decision 0026, as the leader of this node does them.
Status RunLife::claim_for_another_node() {
  begin_phase("claim");
  generation_ = 0;
  DF_TRY(const RunListing listing, read_run(disk_));
  GenerationRecord record{.run_id = run_id_, .generation = highest_generation(listing) + 1};
  const auto committed = newest_first(listing);
  if (!committed.empty()) record.resumed_from = committed.front().point;
  record.node = kOtherNode;
  constexpr RecordFailPoints kPoints = {"claim.written", "claim.renamed", "claim.synced"};
  DF_TRY_VOID(place_record(disk_,
                           {.directory = "",
                            .name = generation_file_name(record.generation),
                            .text = encode_generation(record)},
                           kPoints));
  DF_TRY_VOID(settle_record(disk_, "", kPoints));
  generation_ = record.generation;
  promise_run();
  promises_.claims.push_back(record);
  return {};
}

Status RunLife::seal_in_doubt(std::uint64_t step) {
  begin_phase("seal in doubt");
  const Identity identity = next_identity(step);
  DF_TRY_VOID(begin_attempt(disk_, name_of(identity)));
  promises_.in_doubt.push_back(name_of(identity));
  return write(identity);
}

Status RunLife::take_answers(std::span<const Outcome> answers) {
  begin_phase("take answers");
  DF_TRY(const RunListing listing, read_run(disk_));
  const std::vector<Question> asked = questions(listing);
  if (asked.size() != answers.size()) {
    return fail(ErrorCode::kInternal, std::string(kScenarioIsOver) + "an attempt was not read");
  }
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const Identity& identity = asked[i].identity;
    DF_TRY(const Manifest manifest, decided_elsewhere(identity, answers[i]));
    promises_.answered.push_back(name_of(identity));
    DF_TRY_VOID(place_answer(disk_, asked[i], encode_manifest(manifest)));
    if (answers[i] == Outcome::kCommitted) {
      promises_.committed.push_back(manifest.point);
      continue;
    }
    promises_.aborted.push_back(name_of(identity));
    begin_phase("collect");
    promises_.removing.push_back(name_of(identity));
    DF_TRY_VOID(remove_attempt(disk_, name_of(identity)));
    promises_.removed.push_back(name_of(identity));
  }
  return {};
}

Status RunLife::write(const Identity& identity) {
  DF_TRY_VOID(write_and_seal(disk_, identity, write_part_by_engine));
  promises_.sealed.push_back(identity);
  return {};
}

Status RunLife::collect(std::size_t keep_last) { return collect_by(keep_last_steps(keep_last)); }

Status RunLife::collect_but_best() {
  promises_.keeps_best = true;
  return collect_by({.last = 1, .every = {}, .best = Keep::Best{.metric = "loss"}});
}

Status RunLife::collect_by(const Keep& keep) {
  begin_phase("collect");
  const std::size_t begin = disk_.operation_count();
  const auto report = collect_garbage(disk_, keep);
  const auto operations = disk_.operations();
  std::ranges::copy(begun_by(std::span(operations).subspan(begin)),
                    std::back_inserter(promises_.removing));
  if (!report) return std::unexpected(report.error());
  std::ranges::copy(report->removed, std::back_inserter(promises_.removed));
  return {};
}

Status RunLife::collect_killed_at(std::size_t keep_last, std::string_view fail_point) {
  return die_at(fail_point, [&] { return collect(keep_last); });
}

void RunLife::ruin_run_file() {
  promises_.run_file = false;
  disk_.plant(kRunFile, "{\"crc32c\":\"00000000\"");
}

std::string RunLife::phase_at(std::size_t operation) const {
  std::string text;
  for (const Phase& phase : phases_) {
    if (phase.begin <= operation) text = phase.text;
  }
  return text;
}

void RunLife::begin_phase(std::string text) {
  phases_.push_back({disk_.operation_count(), std::move(text)});
}

Identity RunLife::next_identity(std::uint64_t step, PartName part) {
  const std::uint64_t number = ++promises_.attempts_begun;
  return make_identity(run_id_, {generation_, step, number, 0xa000 + number}, part);
}

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> kScenarios = {
      {"ordinary", ordinary},
      {"several files", several_files},
      {std::string(kDiedBeforeItsSync), killed_before_the_last_sync},
      {"killed while aborting", killed_while_aborting},
      {"killed while collecting", killed_while_collecting},
      {"killed before the best was synced", killed_before_the_best_was_synced},
      {"rolled back", rolled_back},
      {"bad run file", bad_run_file},
      {"decided by another node", decided_by_another_node},
  };
  return kScenarios;
}

std::string scenario_name(const testing::TestParamInfo<std::size_t>& info) {
  std::string name = scenarios().at(info.param).name;
  std::ranges::replace(name, ' ', '_');
  return name;
}

}  // namespace deepfreeze
