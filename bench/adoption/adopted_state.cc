#include "adopted_state.h"

#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/named_threads.h"
#include "base/try.h"
#include "format/layout.h"
#include "manifest/retention.h"
#include "storage/posix_vfs.h"

namespace deepfreeze {
namespace {

std::unique_ptr<ChecksumThread> background_for(ChecksumTime time) {
  if (time == ChecksumTime::kBehindIdle) {
    return std::make_unique<ChecksumThread>(ThreadPriority::kIdle);
  }
  if (time == ChecksumTime::kBehindNormal) {
    return std::make_unique<ChecksumThread>(ThreadPriority::kNormal);
  }
  return nullptr;
}

// The places are those of the file's data section.
Status lay_out_places(std::vector<TensorSpec> specs, AdoptedState::Parts& parts) {
  DF_TRY(const Layout layout, lay_out(specs));
  DF_TRY_VOID(parts.arena.reserve(layout.data_bytes));
  parts.data_bytes = layout.data_bytes;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const Extent& extent = layout.extents[i];
    const auto place = parts.arena.bytes().subspan(extent.begin, extent.size());
    parts.tensors.push_back({.spec = std::move(specs[i]), .data = place});
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<AdoptedState>> AdoptedState::open(AdoptionOptions options) {
  DF_TRY(const IoMode io_mode, io_mode_from_environment());
  DF_TRY(auto write_engine, WriteEngine::open({.mode = io_mode}));
  const auto root = std::filesystem::absolute(options.directory).lexically_normal();
  DF_TRY_VOID(make_durable_directories(root));
  DF_TRY(auto vfs, open_posix_vfs(root));
  DF_TRY(RunWriter writer, RunWriter::open(*vfs, std::nullopt));
  Parts parts = {
      .vfs = std::move(vfs), .writer = std::move(writer), .write_engine = std::move(write_engine)};
  DF_TRY_VOID(lay_out_places(std::move(options.specs), parts));
  parts.write_engine->use_memory(parts.arena.bytes());
  return std::make_unique<AdoptedState>(std::move(parts), options);
}

AdoptedState::AdoptedState(Parts parts, const AdoptionOptions& options)
    : vfs_(std::move(parts.vfs)),
      writer_(std::move(parts.writer)),
      checksum_time_(options.checksum_time),
      fences_(options.fences),
      arena_(std::move(parts.arena)),
      image_(arena_.bytes().first(parts.data_bytes), parts.data_bytes, kSlabBytes),
      request_{.tensors = std::move(parts.tensors)},
      write_engine_(std::move(parts.write_engine)),
      helper_(std::make_unique<ChecksumThread>(ThreadPriority::kNormal)),
      background_(background_for(options.checksum_time)),
      worker_(start_threads(1, "df-save", [this] { work(); })) {}

AdoptedState::~AdoptedState() { close(); }

Status AdoptedState::save(const AdoptedSave& save) {
  const auto began = Monotonic::now();
  if (worker_.empty()) return fail(ErrorCode::kUnsupported, "save: closed, or without a thread");
  if (save.sources.size() != request_.tensors.size()) {
    return fail(ErrorCode::kInvalidArgument, "save: not one source for each tensor");
  }
  wait_for_memory();
  copy_sources(save);
  request_.step = save.step;
  request_.objects = save.objects;
  DF_TRY(SavePlan plan, make_plan());
  begin(std::make_shared<LiveSave>(std::move(plan), image_, began));
  return {};
}

// The places of what lives elsewhere are like an arena: only a save in flight reads them.
void AdoptedState::copy_sources(const AdoptedSave& save) {
  for (std::size_t i = 0; i < save.sources.size(); ++i) {
    if (save.sources[i] == nullptr) continue;
    const std::span<const std::byte> place = request_.tensors[i].data;
    const auto offset = static_cast<std::size_t>(place.data() - arena_.bytes().data());
    std::memcpy(arena_.bytes().subspan(offset).data(), save.sources[i], place.size());
  }
}

Result<SavePlan> AdoptedState::make_plan() {
  if (writer_.must_claim(request_.step)) wait_for_saves();  // the claim would fence them
  DF_TRY(const Identity identity, writer_.next_identity(request_.step));
  DF_TRY_VOID(planner_.accept(request_));
  return planner_.plan_save(request_, identity, writer_.record().parent);
}

void AdoptedState::begin(std::shared_ptr<LiveSave> save) {
  last_ = std::move(save);
  {
    const std::lock_guard lock(mutex_);
    ++saves_unfinished_;
  }
  saves_.push(last_);
  if (checksum_time_ == ChecksumTime::kNever) last_->checksums()->skip();
  if (checksum_time_ == ChecksumTime::kBeforeReturn) checksum_now();
  if (background_) background_->offer(last_->checksums());
}

// By two threads.
void AdoptedState::checksum_now() {
  helper_->offer(last_->checksums());
  last_->checksums()->finish();
}

double AdoptedState::fence() {
  const auto began = Monotonic::now();
  if (fences_ == Fences::kOn) wait_for_memory();
  return seconds_since(began);
}

void AdoptedState::wait_for_memory() {
  if (!last_ || last_->is_memory_free()) return;
  checksum_now();
  last_->wait_for_memory();
}

void AdoptedState::wait_for_saves() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return saves_unfinished_ == 0; });
}

void AdoptedState::wait() {
  wait_for_memory();
  wait_for_saves();
}

std::optional<SaveOutcome> AdoptedState::outcome(std::uint64_t step) {
  const std::lock_guard lock(mutex_);
  const auto found = outcomes_.find(step);
  return found == outcomes_.end() ? std::nullopt : std::optional(found->second);
}

// What kNever left out is not made up for here: skip() has counted every slab.
void AdoptedState::close() {
  wait();
  saves_.close();
  worker_.clear();
  background_.reset();
  helper_.reset();
  write_engine_->use_memory({});  // before it is unmapped
}

void AdoptedState::work() {
  while (const auto save = saves_.pop()) {
    (*save)->run(*vfs_, *write_engine_);
    collect(**save);
    const std::lock_guard lock(mutex_);
    --saves_unfinished_;
    changed_.notify_all();
  }
}

// As the engine does: only after a commit of our own.
void AdoptedState::collect(LiveSave& save) {
  const SaveOutcome outcome = save.outcome();
  {
    const std::lock_guard lock(mutex_);
    outcomes_[save.step()] = outcome;
  }
  if (!outcome.is_committed) return;
  const auto collected = collect_garbage(*vfs_, Keep{.last = kCheckpointsKept}, false);
  if (!collected) log_warning("old checkpoints stay: " + collected.error().message());
}

}  // namespace deepfreeze
