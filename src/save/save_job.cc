#include "save/save_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/log.h"
#include "base/trace.h"
#include "base/try.h"
#include "manifest/commit.h"
#include "manifest/run_directory.h"
#include "manifest/several_ranks.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kTornNamesShown = 8;

// Rank 0 may seal last, and may then wait just as long for the others' parts.
constexpr int kOutcomeWaits = 2;

std::vector<std::string> sorted_once(std::vector<std::string> keys) {
  std::ranges::sort(keys);
  const auto repeated = std::ranges::unique(keys);
  keys.erase(repeated.begin(), repeated.end());
  return keys;
}

Error torn_error(const std::vector<std::string>& keys) {
  const std::size_t shown = std::min(keys.size(), kTornNamesShown);
  const auto more = keys.size() - shown;
  const auto end = keys.begin() + static_cast<std::ptrdiff_t>(shown);
  return {ErrorCode::kTornCapture,
          fmt::format("changed while they were captured: {}{}. Call fence() before such a change",
                      fmt::join(keys.begin(), end, ", "),
                      more > 0 ? fmt::format(" and {} more", more) : "")};
}

}  // namespace

SaveJob::SaveJob(Vfs& vfs, SavePlan plan, const Image& image, SaveJobSettings settings,
                 std::shared_ptr<LiveCapture> capture, std::shared_ptr<SaveHandle::State> handle)
    : vfs_(vfs),
      plan_(std::move(plan)),
      image_(image),
      settings_(std::move(settings)),
      capture_(std::move(capture)),
      handle_(std::move(handle)),
      audit_(plan_, image_),
      header_crcs_(plan_.file_count()),
      non_finite_(plan_.file_count()) {
  if (plan_.has_ranges()) scan_.emplace(*plan_.table, image_);
  // A ring has no room for slabs that wait.
  if (settings_.reuse != nullptr && plan_.table->cold_files > 0 && !image_.is_ring()) {
    cold_.emplace(vfs_, plan_, image_, settings_.reuse->files);
  }
}

void SaveJob::copied() {
  if (!settings_.confirm) return captured({});
  handle_->copied();
}

void SaveJob::captured(std::vector<std::string> torn) {
  for (const std::size_t item : capture_->session().torn_items()) {
    torn.push_back(plan_.key_of(item));
  }
  if (!torn.empty()) {
    torn = sorted_once(std::move(torn));
    handle_->tore(torn);
    return capture_failed(torn_error(torn));
  }
  bool is_whole = false;
  bool is_last = false;
  {
    const std::lock_guard lock(mutex_);
    if (is_decided_) return;
    is_decided_ = true;
    is_whole = is_checksummed_;
    is_last = is_finishable();
  }
  if (settings_.handover == nullptr) {
    handle_->reach(Level::kCaptured);
  } else {
    handle_->copied();  // it is captured once another process can finish it
  }
  if (is_last) hand_on_captured();
  if (is_whole) capture_->end_slabs();
}

// The caller may still be comparing then: captured() may come later.
void SaveJob::checksummed() {
  bool is_decided = false;
  bool is_last = false;
  {
    const std::lock_guard lock(mutex_);
    const auto crcs = capture_->session().block_crcs();
    block_crcs_.assign(crcs.begin(), crcs.end());
    is_checksummed_ = true;
    is_decided = is_decided_;
    is_last = is_finishable();
  }
  if (is_last) hand_on_captured();
  if (is_decided) capture_->end_slabs();
}

// Whether the data that another process needs is complete. Several calls complete it, each under
// the lock: the last of them sees it.
bool SaveJob::is_finishable() const {
  return settings_.handover != nullptr && is_decided_ && !capture_error_ && is_checksummed_ &&
         is_handed_over_;
}

// With an agent a save is captured only when it outlives this process.
void SaveJob::hand_on_captured() {
  {
    const std::lock_guard lock(handover_mutex_);
    const Status told = ends_handover_ ? Status{} : settings_.handover->captured(block_crcs_);
    if (!told) log_warning(told.error().message());
  }
  handle_->reach(Level::kCaptured);
}

// By the worker: to describe a save takes as long as to encode its header, and training shall not
// wait for that.
void SaveJob::hand_over() {
  if (settings_.handover == nullptr) return;
  const Status planned = settings_.handover->plan(plan_, settings_.commit_wait_max);
  if (!planned) log_warning(planned.error().message());
  bool is_last = false;
  {
    const std::lock_guard lock(mutex_);
    is_handed_over_ = true;
    is_last = is_finishable();
  }
  if (is_last) hand_on_captured();
}

// From here on nobody else may finish the save, even if a copier's thread announces it later.
void SaveJob::end_handover() {
  if (settings_.handover == nullptr) return;
  const std::lock_guard lock(handover_mutex_);
  ends_handover_ = true;
  settings_.handover->over();
}

void SaveJob::capture_failed(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    if (is_decided_) return;
    capture_error_ = error;  // first: it may find no memory, and then another may come
    is_decided_ = true;
  }
  capture_->end_slabs();
}

void SaveJob::abandoned() {
  handle_->was_told();  // the caller that dropped the handle knows
  // Before the slabs end: the worker must know why.
  capture_failed(Error(ErrorCode::kCancelled, "nobody is left to confirm the save"));
  capture_->cancel();
}

Status SaveJob::write() {
  hand_over();
  const Status sealed = write_and_seal();
  if (!sealed) end_capture();
  handle_->end_capture();
  return sealed;
}

KeptImage SaveJob::kept_image() {
  const std::lock_guard lock(mutex_);
  if (settings_.reuse == nullptr || image_.is_ring() || !is_checksummed_ || capture_error_) {
    return {};
  }
  const std::uint64_t blocks = ceil_div(plan_.sections.back().end, kBlockBytes);
  try {
    return {.table = plan_.table,
            .block_crcs = std::make_shared<const std::vector<std::uint32_t>>(
                block_crcs_.begin(), block_crcs_.begin() + static_cast<std::ptrdiff_t>(blocks))};
  } catch (const std::bad_alloc&) {  // the save itself is sealed
    return {};
  }
}

bool SaveJob::settle(const Status& written) {
  if (!written) {
    if (cold_) cold_->settle(false);
    end_handover();  // first: nobody shall finish a save that has failed
    give_up(written.error());
    return false;
  }
  const auto started = Monotonic::now();
  is_committing_ = true;
  const Status committed = commit();
  if (cold_) cold_->settle(committed.has_value());
  handle_->committed_in(seconds_since(started));
  end_handover();
  if (committed) {
    handle_->reach(Level::kLocal);
    return true;
  }
  handle_->fail(committed.error());
  remove_if_aborted();
  return false;
}

// After a failure copiers may still be filling the arena: a ring has no room for all slabs, and a
// failure that ended the slabs early may not have stopped the copiers yet.
void SaveJob::end_capture() {
  while (!image_.is_ring() && capture_->next_slab()) {
  }
  capture_->cancel();
}

void SaveJob::settle_failed(Error error) {
  capture_->cancel();
  end_handover();
  handle_->end_capture();
  if (cold_) cold_->settle(false);
  bool is_over = is_alone() && !is_committing_;
  try {
    is_over = end_attempt(error);
    report_to_nodes(error);
  } catch (const std::exception&) {
    // Memory is still refused: the attempt stays undecided until the next claim.
  }
  handle_->fail(is_over ? std::move(error) : error.within("outcome unknown"));
}

// Ends the attempt after an exception, wherever it came from. From the commit on the outcome may be
// published already, so nothing is deleted before "aborted" is. True if the attempt is surely over.
bool SaveJob::end_attempt(const Error& error) {
  if (is_committing_ && plan_.identity.part.rank == 0) {
    give_attempt_up(vfs_, plan_.identity);
    remove_if_aborted();
    return false;
  }
  if (!is_alone()) return withdraw_part(error);
  std::ignore = remove_attempt(vfs_, attempt());
  return true;
}

Status SaveJob::write_and_seal() {
  DF_TRY_VOID(is_alone() ? begin_attempt(vfs_, attempt()) : join_attempt(vfs_, attempt()));
  has_joined_ = true;
  DF_TRY_VOID(write_part());
  const trace::Span span("seal");
  return seal_parts(vfs_, attempt(), plan_.part_names());
}

Status SaveJob::write_part() {
  const trace::Span span("write part", plan_.data_bytes());
  DF_TRY(const auto writer, settings_.write_engine.start(vfs_, part_spec()));
  Status finished = push_slabs(*writer);
  if (finished) note_changes();
  if (finished && cold_) finished = bring_cold_files();
  if (finished) finished = writer->finish([this](std::size_t file) { return final_header(file); });
  handle_->wrote(writer->bytes_written() + (cold_ ? cold_->bytes_written() : 0),
                 writer->write_seconds() + (cold_ ? cold_->write_seconds() : 0));
  if (finished && scan_) count_non_finite();
  return finished;
}

void SaveJob::count_non_finite() {
  for (std::size_t file = 0; file < plan_.file_count(); ++file) {
    non_finite_[file] = non_finite_values(scan_->ranges_of(file));
  }
  handle_->counted_non_finite(std::reduce(non_finite_.begin(), non_finite_.end()));
}

void SaveJob::note_changes() {
  const CaptureSession& session = capture_->session();
  if (settings_.reuse == nullptr || !session.has_earlier_copy()) return;
  const std::vector<EntrySource>& sources = plan_.table->sources;
  std::vector<TensorChange> changes(plan_.table->tensor_count, {.bytes = 0, .has_changed = false});
  for (std::size_t item = 0; item < sources.size(); ++item) {
    TensorChange& change = changes[sources[item].tensor];
    change.bytes += plan_.items[item].source.size();
    change.has_changed = change.has_changed || session.has_changed(item);
  }
  settings_.reuse->tensors.note(changes);
}

bool SaveJob::is_cold_part_same() const {
  std::size_t item = 0;
  for (std::size_t file = 0; file < plan_.hot_file_count(); ++file) {
    item += plan_.table->files[file].entries.size();
  }
  for (; item < plan_.table->sources.size(); ++item) {
    if (capture_->session().has_changed(item)) return false;
  }
  return true;
}

Status SaveJob::bring_cold_files() {
  DF_TRY_VOID(cold_->bring(is_cold_part_same(), settings_.write_engine,
                           [this](std::size_t file) { return final_header(file); }));
  std::uint64_t shared = 0;
  for (std::size_t file = plan_.hot_file_count(); file < plan_.file_count(); ++file) {
    header_crcs_[file] = cold_->header_crc(file);
    if (cold_->has_linked()) shared += plan_.sections[file].size();
  }
  handle_->shared(shared);
  return {};
}

// Cold files wait until it is known whether they have changed.
PartSpec SaveJob::part_spec() {
  const std::size_t files = cold_ ? plan_.hot_file_count() : plan_.file_count();
  std::vector<FileSpec> specs = plan_.file_specs();
  specs.resize(files);
  return {.files = std::move(specs),
          .image = image_.first(files),
          .on_slab_free = [this](std::size_t slab) { capture_->session().free_slab(slab); }};
}

bool SaveJob::is_cold(std::size_t slab) const {
  return cold_ && image_.section_of(slab) >= plan_.hot_file_count();
}

Status SaveJob::push_slabs(PartWriter& writer) {
  while (const auto slab = capture_->next_slab()) {
    if (audit_.has(*slab)) {
      audit_.take(*slab);
      capture_->session().free_slab(*slab);
      continue;
    }
    if (scan_) scan_->take(*slab);
    if (is_cold(*slab)) continue;
    writer.push(*slab);
  }
  const std::lock_guard lock(mutex_);
  if (capture_error_) return std::unexpected(*capture_error_);
  return {};
}

Status SaveJob::commit() {
  const trace::Span span("commit");
  const auto manifest = await_commit();
  if (!manifest) return std::unexpected(manifest.error());
  if (!manifest->diverged.empty()) handle_->found_diverged(manifest->diverged);
  return {};
}

Result<Manifest> SaveJob::await_commit() {
  const Identity& identity = plan_.identity;
  if (settings_.commit_node) return settings_.commit_node(identity, {});
  if (identity.part.rank != 0) {
    return await_outcome(vfs_, identity, kOutcomeWaits * settings_.commit_wait_max);
  }
  return commit_attempt(vfs_, {.identity = identity,
                               .world_size = identity.part.world_size,
                               .deadline = settings_.commit_wait_max,
                               .own = own_parts()});
}

// The other ranks of this node, and the other nodes, wait for an outcome.
void SaveJob::report_to_nodes(const Error& error) {
  if (settings_.commit_node) {
    std::ignore = settings_.commit_node(plan_.identity, error);
  }
}

std::vector<OwnPart> SaveJob::own_parts() const {
  std::vector<OwnPart> parts;
  for (std::size_t file = 0; file < plan_.file_count(); ++file) {
    const bool is_apart = cold_ && file >= plan_.hot_file_count();
    const std::uint64_t header_bytes =
        is_apart ? cold_->header_bytes(file) : plan_.header_bytes[file];
    parts.push_back({.file_bytes = header_bytes + plan_.sections[file].size(),
                     .header_bytes = header_bytes,
                     .header_crc = header_crcs_[file],
                     .annotations = plan_.annotations_of(file),
                     .non_finite = scan_ ? std::optional(non_finite_[file]) : std::nullopt,
                     .origin = is_apart ? cold_->origin(file) : std::nullopt});
  }
  return parts;
}

Result<std::vector<std::byte>> SaveJob::final_header(std::size_t file) {
  const Identity identity = plan_.identity_of(file);
  const auto ranges = scan_ ? scan_->ranges_of(file) : std::vector<ValueRange>();
  HeaderSums sums{.block_crcs = plan_.block_crcs_of(file, block_crcs_), .ranges = ranges};
  std::vector<LinkedFile> links;
  if (file == 0) {
    sums.audit_crcs = audit_.crcs();
    links = cold_ ? cold_->links() : plan_.no_links();
    sums.links = links;
  }
  DF_TRY(EncodedHeader encoded, encode_header(plan_.header(file, identity), sums));
  header_crcs_[file] = encoded.crc;
  return std::move(encoded.bytes);
}

AttemptName SaveJob::attempt() const { return {plan_.identity.step, plan_.identity.attempt_id}; }

// Nothing was published, so nobody can have taken the attempt for a checkpoint: it may go, and
// on a full disk it must, because it holds the space that the next save needs.
void SaveJob::give_up(const Error& error) {
  bool is_over = true;
  if (is_alone()) {
    const Status removed = remove_attempt(vfs_, attempt());
    if (!removed) log_warning("a failed save left debris: " + removed.error().message());
  } else {
    is_over = withdraw_part(error);
    report_to_nodes(error);
  }
  const Error told = is_over ? error : error.within("outcome unknown");
  handle_->fail(told.within(fmt::format("save step {}", plan_.identity.step)));
}

bool SaveJob::withdraw_part(const Error& error) {
  if (has_joined_) return withdraw(vfs_, plan_.identity, error);
  withdraw_unjoined(vfs_, plan_.identity, error);
  return true;
}

// An outcome that is not known to be "aborted" stays for the next claimant to see.
void SaveJob::remove_if_aborted() {
  const auto manifest = read_manifest(vfs_, attempt(), plan_.identity.run_id);
  if (!manifest || manifest->outcome != Outcome::kAborted) return;
  // The others still have to see the outcome: rank 0's next save removes the rest.
  if (!is_alone()) return remove_own_files(vfs_, plan_.identity);
  const Status removed = remove_attempt(vfs_, attempt());
  if (!removed) log_warning("an aborted save left debris: " + removed.error().message());
}

}  // namespace deepfreeze
