// As engine/save_job.cc, but for the memory: that is live, so a fence stands for the writes too.
#include "live_save.h"

#include <utility>

#include "base/log.h"
#include "base/try.h"

namespace deepfreeze {

LiveSave::LiveSave(SavePlan plan, const Image& image, Monotonic::time_point began)
    : plan_(std::move(plan)),
      image_(image),
      began_(began),
      slabs_(std::make_shared<SlabQueue>(image.slab_count())),
      // Has room for all, so it never waits. Not `this`: a helper may wake when we are gone.
      checksums_(std::make_shared<SlabChecksums>(
          image, [slabs = slabs_](std::size_t slab) { slabs->push(slab); })),
      slabs_unwritten_(image.slab_count()) {}

void LiveSave::wait_for_memory() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return slabs_unwritten_ == 0; });
}

bool LiveSave::is_memory_free() {
  const std::lock_guard lock(mutex_);
  return slabs_unwritten_ == 0;
}

SaveOutcome LiveSave::outcome() {
  const std::lock_guard lock(mutex_);
  return outcome_;
}

void LiveSave::slab_released() {
  const std::lock_guard lock(mutex_);
  if (--slabs_unwritten_ == 0) changed_.notify_all();
}

// No writer is there any more, so nothing is in flight, and nothing will be.
void LiveSave::free_memory() {
  const std::lock_guard lock(mutex_);
  slabs_unwritten_ = 0;
  changed_.notify_all();
}

void LiveSave::run(Vfs& vfs, WriteEngine& write_engine) {
  const Status sealed = write_and_seal(vfs, write_engine);
  free_memory();
  if (sealed) return settle(commit(vfs));
  const Status removed = remove_attempt(vfs, attempt());
  if (!removed) log_warning("a failed save left debris: " + removed.error().message());
  settle(sealed);
}

void LiveSave::settle(const Status& committed) {
  const std::lock_guard lock(mutex_);
  outcome_.is_committed = committed.has_value();
  if (committed) outcome_.durable_seconds = seconds_since(began_);
  if (!committed) outcome_.error = committed.error().message();
}

Status LiveSave::write_and_seal(Vfs& vfs, WriteEngine& write_engine) {
  DF_TRY_VOID(begin_attempt(vfs, attempt()));
  DF_TRY_VOID(write_part(vfs, write_engine));
  return seal_part(vfs, attempt(), plan_.identity.part);
}

Status LiveSave::write_part(Vfs& vfs, WriteEngine& write_engine) {
  const std::string name = attempt_dir_name(attempt()) + "/" + part_file_name(plan_.identity.part);
  DF_TRY(const auto writer,
         write_engine.start(vfs, {.name = name,
                                  .image = image_,
                                  .header_bytes = plan_.header_bytes,
                                  .on_released = [this](std::size_t) { slab_released(); }}));
  for (std::size_t count = 0; count < image_.slab_count(); ++count) {
    if (const auto slab = slabs_->pop()) writer->push(*slab);
  }
  return writer->finish([this] { return final_header(); });
}

// Every slab came through the queue, and with it the sums of its blocks.
Result<std::vector<std::byte>> LiveSave::final_header() {
  DF_TRY(EncodedHeader encoded, encode_header(plan_.header(), checksums_->block_crcs()));
  header_crc_ = encoded.crc;
  return std::move(encoded.bytes);
}

Status LiveSave::commit(Vfs& vfs) {
  const OwnPart own = {.file_bytes = plan_.header_bytes + plan_.data_bytes(),
                       .header_bytes = plan_.header_bytes,
                       .header_crc = header_crc_,
                       .annotations = plan_.annotations};
  const auto manifest = commit_attempt(vfs, {.identity = plan_.identity, .own = own});
  if (!manifest) return std::unexpected(manifest.error());
  return {};
}

AttemptName LiveSave::attempt() const { return {plan_.identity.step, plan_.identity.attempt_id}; }

}  // namespace deepfreeze
