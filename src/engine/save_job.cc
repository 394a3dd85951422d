#include "engine/save_job.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked_math.h"
#include "base/log.h"
#include "base/try.h"
#include "manifest/commit.h"
#include "manifest/run_directory.h"

namespace deepfreeze {
namespace {

std::size_t slab_count(std::size_t bytes) {
  return std::max<std::size_t>(1, ceil_div(bytes, kSlabBytes));
}

}  // namespace

SaveJob::SaveJob(Vfs& vfs, SavePlan plan, std::span<std::byte> image, SaveJobSettings settings,
                 std::shared_ptr<SaveHandle::State> handle)
    : vfs_(vfs),
      plan_(std::move(plan)),
      image_(image),
      settings_(settings),
      handle_(std::move(handle)),
      slabs_(slab_count(image.size())) {}

void SaveJob::slab_ready(std::size_t slab_index) { slabs_.push(slab_index); }

void SaveJob::captured(std::span<const std::uint32_t> block_crcs) {
  plan_.header.block_crcs.assign(block_crcs.begin(), block_crcs.end());
  slabs_.close();
}

bool SaveJob::run(const std::function<void()>& on_sealed) {
  const Status sealed = write_and_seal();
  while (slabs_.pop()) {
  }  // after an early failure the copiers may still be filling the arena
  on_sealed();
  if (!sealed) {
    give_up(sealed.error());
    return false;
  }
  const auto manifest = commit_attempt(vfs_, {.identity = plan_.header.identity,
                                              .world_size = plan_.header.identity.part.world_size,
                                              .deadline = settings_.commit_wait_max});
  if (manifest) {
    handle_->reach(Level::kDurable);
    return true;
  }
  handle_->fail(manifest.error());
  remove_if_aborted();
  return false;
}

Status SaveJob::write_and_seal() {
  DF_TRY_VOID(begin_attempt(vfs_, attempt()));
  DF_TRY_VOID(write_part());
  return seal_part(vfs_, attempt(), plan_.header.identity.part);
}

Status SaveJob::write_part() {
  const PartName& part = plan_.header.identity.part;
  DF_TRY(const auto writer,
         settings_.write_engine.start(
             vfs_, {.name = attempt_dir_name(attempt()) + "/" + part_file_name(part),
                    .image = Image(image_, image_.size(), kSlabBytes),
                    .header_bytes = plan_.header_bytes}));
  while (const auto slab = slabs_.pop()) writer->push(*slab);
  const Status finished = writer->finish([this] { return final_header(); });
  handle_->update(writer->bytes_written());
  return finished;
}

Result<std::vector<std::byte>> SaveJob::final_header() const {
  DF_TRY(EncodedHeader encoded, encode_header(plan_.header));
  if (encoded.bytes.size() != plan_.header_bytes) {
    return fail(ErrorCode::kInternal, fmt::format("header of {} bytes, planned {}",
                                                  encoded.bytes.size(), plan_.header_bytes));
  }
  return std::move(encoded.bytes);
}

AttemptName SaveJob::attempt() const {
  return {plan_.header.identity.step, plan_.header.identity.attempt_id};
}

// Nothing was published, so nobody can have taken the attempt for a checkpoint: it may go, and
// on a full disk it must, because it holds the space that the next save needs.
void SaveJob::give_up(const Error& error) {
  handle_->fail(error.within(fmt::format("save step {}", plan_.header.identity.step)));
  const Status removed = remove_attempt(vfs_, attempt());
  if (!removed) log_warning("a failed save left debris: " + removed.error().message());
}

// An outcome that is not known to be "aborted" stays for the next claimant to see.
void SaveJob::remove_if_aborted() {
  const auto manifest = read_manifest(vfs_, attempt(), plan_.header.identity.run_id);
  if (!manifest || manifest->outcome != Outcome::kAborted) return;
  const Status removed = remove_attempt(vfs_, attempt());
  if (!removed) log_warning("an aborted save left debris: " + removed.error().message());
}

}  // namespace deepfreeze
