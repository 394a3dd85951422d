#include "save/capturer.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/cores.h"
#include "base/log.h"
#include "base/random_id.h"
#include "base/scope_exit.h"
#include "base/trace.h"
#include "base/try.h"
#include "format/layout.h"

namespace deepfreeze {
namespace {

// Fewer pieces than this are copied before another thread has woken.
constexpr std::uint64_t kPiecesWorthThreads = 32;

// The caller copies too, so one thread fewer than cores.
std::size_t helpers_wanted(std::size_t copy_threads) {
  return (copy_threads == 0 ? cores_of_this_process() : copy_threads) - 1;
}

// Memory for an image of `image_bytes`: all of it, or the ring that is allowed.
std::uint64_t memory_bytes(std::uint64_t image_bytes, std::optional<std::size_t> bytes_max) {
  if (!bytes_max || image_bytes <= *bytes_max) return image_bytes;
  constexpr std::uint64_t kSlabsMin = 2;  // one is written while the other fills
  const std::uint64_t slabs = std::max<std::uint64_t>(kSlabsMin, *bytes_max / kSlabBytes);
  return std::min(image_bytes, slabs * kSlabBytes);
}

std::uint64_t unguarded_bytes(const std::vector<CaptureItem>& items) {
  std::uint64_t bytes = 0;
  for (const CaptureItem& item : items) bytes += item.guard == kUnguarded ? item.source.size() : 0;
  return bytes;
}

bool has_guard_of_host(const std::vector<CaptureItem>& items) {
  return std::ranges::any_of(items, [](const CaptureItem& item) {
    return item.guard != kUnguarded && item.device == kHostMemory;
  });
}

std::uint32_t last_guard(const std::vector<CaptureItem>& items) {
  std::uint32_t last = kUnguarded;
  for (const CaptureItem& item : items) last = std::max(last, item.guard);
  return last;
}

// A copy from a device happens when its stream comes to it.
Status copy_aside(const CaptureDevices& devices, const CaptureItem& item,
                  std::span<std::byte> into) {
  if (item.device != kHostMemory) return devices.at(item.device)->copy_to_host(item.source, into);
  std::memcpy(into.data(), item.source.data(), item.source.size());
  return {};
}

// Whether both plans capture the same tensors from the same places; unguarded bytes may have moved.
bool same_capture(const SavePlan& early, const SavePlan& now) {
  const bool same_table =
      early.table == now.table ||
      std::ranges::equal(early.table->files, now.table->files, std::ranges::equal_to(),
                         &TableText::entries, &TableText::entries);
  return same_table &&
         std::ranges::equal(
             early.items, now.items, [](const CaptureItem& one, const CaptureItem& other) {
               return one.guard == other.guard && one.device == other.device &&
                      one.source.size() == other.source.size() &&
                      (one.guard == kUnguarded || one.source.data() == other.source.data());
             });
}

}  // namespace

bool paranoid_by_environment() {
  const char* value = std::getenv("DEEPFREEZE_PARANOID");
  return value != nullptr && std::string_view(value) != "" && std::string_view(value) != "0";
}

Capturer::Capturer(const Options& options, WriteEngine& write_engine, CudaDevices& devices)
    : devices_(devices),
      arena_bytes_max_(options.arena_bytes_max),
      paranoid_(options.paranoid || paranoid_by_environment()),
      reuse_bytes_min_(options.reuse_unchanged ? std::optional(options.reuse_bytes_min)
                                               : std::nullopt),
      memory_(options.agent ? Arena::Kind::kShared : Arena::Kind::kOwn, write_engine),
      profile_(options.profile, cores_of_this_process()),
      copiers_(std::make_unique<CopierPool>(helpers_wanted(options.copy_threads))) {}

bool Capturer::take_arena(std::chrono::milliseconds wait) {
  std::unique_lock lock(mutex_);
  freed_.wait(lock, [this] { return !is_expecting_; });  // soon, and no reason to skip a save
  if (!freed_.wait_for(lock, wait, [this] { return !arena_taken_; })) return false;
  return arena_taken_ = true;
}

void Capturer::free_arena() {
  Current dropped;  // its end must not come under the lock
  const std::lock_guard lock(mutex_);
  std::swap(dropped, current_);
  arena_taken_ = false;
  freed_.notify_all();
}

void Capturer::give_back() {
  end_expecting();
  copiers_.reset();
  background_.reset();
  device_copier_.reset();
  memory_.give_back();
  devices_.close();
}

void Capturer::abandon() {
  if (has_early()) return discard_early();
  free_arena();
}

void Capturer::choose_copy_time(SavePlan& plan) {
  if (has_early() || is_ring(plan) || profile_.next() == CopyTime::kBehind) return;
  for (CaptureItem& item : plan.items) {
    if (item.device == kHostMemory) item.guard = kUnguarded;  // a device's copies take no core
  }
}

bool Capturer::is_ring(const SavePlan& plan) const {
  return memory_bytes(plan.image_bytes(), arena_bytes_max_) != plan.image_bytes();
}

Result<std::shared_ptr<LiveCapture>> Capturer::prepare(const SavePlan& plan,
                                                       std::span<const DeviceStream> streams) {
  DF_TRY_VOID(reserve(room_for(plan)));
  const KeptImage kept = std::exchange(kept_, {});
  DF_TRY(CaptureSpec capture, capture_spec(plan));
  if (kept.table == plan.table && !capture.image.is_ring()) {
    capture.old_block_crcs = kept.block_crcs;
  }
  if (capture.image.is_ring()) DF_TRY_VOID(park(capture, streams));
  memory_.pin(capture.devices);
  start_background(capture.items);
  return std::make_shared<LiveCapture>(std::move(capture));
}

// A file is somewhat longer than its tensors, and a cold one begins at a slab; see room_for().
void Capturer::expect(std::uint64_t bytes, std::span<const std::int32_t> ordinals) {
  constexpr std::uint64_t kMore = 2 * kSlabBytes;
  {
    const std::lock_guard lock(mutex_);
    if (arena_taken_ || is_expecting_ || expects_no_more_) return;
    is_expecting_ = true;
  }
  const ScopeExit let_go([this] {
    const std::lock_guard lock(mutex_);
    is_expecting_ = false;
    freed_.notify_all();
  });
  CaptureDevices devices;
  for (const std::int32_t ordinal : ordinals) {
    auto device = devices_.get(ordinal);
    if (device) devices[ordinal] = *std::move(device);  // else the save says why not
  }
  if (memory_.expect(memory_bytes(bytes + kMore, arena_bytes_max_), std::move(devices))) kept_ = {};
}

void Capturer::end_expecting() {
  {
    std::unique_lock lock(mutex_);
    expects_no_more_ = true;
    freed_.wait(lock, [this] { return !is_expecting_; });
  }
  memory_.settle();
}

Status Capturer::prewarm(const SavePlan& plan) {
  const std::uint64_t bytes = memory_bytes(plan.image_bytes(), arena_bytes_max_);
  DF_TRY_VOID(reserve(room_for(plan)));
  if (bytes < plan.image_bytes()) DF_TRY_VOID(memory_.reserve_parking(parking_bytes(plan.items)));
  DF_TRY(const CaptureDevices devices, devices_of(plan.items));
  memory_.pin(devices);
  start_background(plan.items);
  return {};
}

// A cold file begins at a slab: with one more, the arena need not grow when it comes.
std::uint64_t Capturer::room_for(const SavePlan& plan) const {
  const std::uint64_t bytes = memory_bytes(plan.image_bytes(), arena_bytes_max_);
  const bool may_grow = reuse_bytes_min_ && bytes >= *reuse_bytes_min_ &&
                        plan.table->cold_files == 0 &&
                        memory_bytes(bytes + kSlabBytes, arena_bytes_max_) == bytes + kSlabBytes;
  return may_grow ? bytes + kSlabBytes : bytes;
}

// Started here rather than at its first use, which may be in a hook that no error may leave.
void Capturer::start_background(const std::vector<CaptureItem>& items) {
  if (has_guard_of_host(items) && !background_) background_ = std::make_unique<BackgroundCopier>();
}

// Another arena does not hold the last save's image.
Status Capturer::reserve(std::uint64_t bytes) {
  memory_.settle();
  if (bytes > memory_.arena().size()) kept_ = {};
  return memory_.reserve(bytes);
}

Image Capturer::image(const SavePlan& plan) const {
  const std::uint64_t bytes = memory_bytes(plan.image_bytes(), arena_bytes_max_);
  return {memory_.arena().first(bytes), plan.image_sections(), kSlabBytes};
}

// Opens the devices at their first use, and starts the threads that serve them.
Result<CaptureDevices> Capturer::devices_of(const std::vector<CaptureItem>& items) {
  CaptureDevices devices;
  for (const CaptureItem& item : items) {
    if (item.device == kHostMemory || devices.contains(item.device)) continue;
    DF_TRY_VOID(start_device_copier());
    DF_TRY(devices[item.device], devices_.get(item.device));
  }
  return devices;
}

// The caller can't do the copier's work itself: in a ring it would wait for itself.
Status Capturer::start_device_copier() {
  if (!device_copier_) device_copier_ = std::make_unique<DeviceCopier>();
  if (device_copier_->works()) return {};
  device_copier_.reset();  // the next save tries again
  return fail(ErrorCode::kIo, "capture from devices: the threads for it can't be started");
}

Result<CaptureSpec> Capturer::capture_spec(const SavePlan& plan) {
  DF_TRY(CaptureDevices devices, devices_of(plan.items));
  return CaptureSpec{.image = image(plan),
                     .block_bytes = kBlockBytes,
                     .items = plan.items,
                     .on_slab = {},
                     .on_copied = {},
                     .on_done = {},
                     .on_error = {},
                     .devices = std::move(devices),
                     .witness_seed = random_id(),
                     .paranoid = paranoid_};
}

// The bytes that must be copied before save() returns; 0 if they are most of the state.
std::uint64_t Capturer::parking_bytes(const std::vector<CaptureItem>& items) const {
  const std::uint64_t bytes = unguarded_bytes(items);
  return last_guard(items) == kUnguarded || bytes > memory_.arena().size() ? 0 : bytes;
}

// A ring is filled in file order, at the speed of the disk: tensors that must not wait are copied
// aside.
Status Capturer::park(CaptureSpec& spec, std::span<const DeviceStream> streams) {
  const std::uint64_t bytes = parking_bytes(spec.items);
  if (bytes == 0) return {};
  DF_TRY_VOID(memory_.reserve_parking(bytes));
  memory_.pin(spec.devices);
  DF_TRY_VOID(follow(spec.devices, streams));
  const std::uint32_t no_ones = last_guard(spec.items) + 1;  // a guard that no fence asks for
  std::span<std::byte> room = memory_.parking();
  Status copied;
  for (CaptureItem& item : spec.items) {
    if (item.guard != kUnguarded || item.source.empty()) continue;
    if (copied) copied = copy_aside(spec.devices, item, room.first(item.source.size()));
    item = {.source = room.first(item.source.size()), .offset = item.offset, .guard = no_ones};
    room = room.subspan(item.source.size());
  }
  // Also after an error: copies that are under way end in this memory.
  for (const auto& [ordinal, device] : spec.devices) {
    const Status arrived = device->wait();
    if (copied) copied = arrived;
  }
  return copied;
}

void Capturer::begin(const std::shared_ptr<LiveCapture>& capture,
                     const std::shared_ptr<SaveHandle::State>& handle,
                     std::span<const DeviceStream> streams) {
  CaptureSession& session = capture->session();
  set_current({capture, handle});
  {
    const trace::Span span("witness");
    session.release_all(streams);
  }
  serve_devices(session);
  const trace::Span span("copy unguarded");
  copiers_->run(session, kUnguarded, streams);
  if (session.group_count() > 1) copy_later(session);
}

// This thread gives the unguarded tensors to the devices first, because save() waits for them.
void Capturer::serve_devices(CaptureSession& session) {
  if (!session.has_devices()) return;
  session.enqueue_unguarded();
  device_copier_->serve(session);
}

// If no thread could be started, this one copies now.
void Capturer::copy_later(CaptureSession& session) {
  if (background_ && background_->works()) return background_->serve(session);
  session.help();
}

void Capturer::set_current(const Current& current) {
  const std::lock_guard lock(mutex_);
  current_ = current;
}

Capturer::Current Capturer::current() {
  const std::lock_guard lock(mutex_);
  return current_;
}

void Capturer::fence(std::uint32_t guard, std::span<const DeviceStream> streams) {
  const auto [capture, handle] = current();
  if (!capture) return;
  const trace::Span span("fence");
  const auto started = Monotonic::now();
  CaptureSession& session = capture->session();
  if (session.pieces_unread(guard) > kPiecesWorthThreads) {
    copiers_->run(session, guard, streams);
  } else {
    session.fence(guard, streams);
  }
  if (handle) handle->blocked_in_fence(seconds_since(started));
}

void Capturer::fence_all(std::span<const DeviceStream> streams) {
  const auto [capture, handle] = current();
  if (!capture) return;
  for (std::uint32_t guard = 0; guard < capture->session().group_count(); ++guard) {
    fence(guard, streams);
  }
}

Result<bool> Capturer::begin_early(SavePlan plan) {
  discard_early();
  const bool fits = !arena_bytes_max_ || plan.image_bytes() <= *arena_bytes_max_;
  if (!fits || last_guard(plan.items) == kUnguarded || !take_arena(std::chrono::milliseconds{0}))
    return false;
  bool has_begun = false;
  const ScopeExit free_unused_arena([&] {
    if (!has_begun) free_arena();
  });
  Early early;
  for (const CaptureItem& item : plan.items) early.guards.insert(item.guard);
  early.guards.erase(kUnguarded);
  early.held = early.guards;
  DF_TRY(early.capture, prepare(plan, {}));
  early.capture->mark_early();
  early.plan = std::move(plan);
  set_current({early.capture, nullptr});
  early_ = std::move(early);
  has_begun = true;
  return true;
}

void Capturer::release_early(std::uint32_t guard, std::span<const DeviceStream> streams) {
  if (!early_ || !early_->guards.contains(guard)) return;
  // The tensors changed again after their release: the copy is out of date.
  if (early_->held.erase(guard) == 0) return discard_early();
  CaptureSession& session = early_->capture->session();
  session.release(guard, streams);
  if (session.has_devices()) device_copier_->serve(session);
  copy_later(session);
}

std::shared_ptr<LiveCapture> Capturer::take_early(const SavePlan& plan) {
  Early early = std::move(*early_);
  early_.reset();
  CaptureSession& session = early.capture->session();
  bool is_taken = false;
  const ScopeExit cancel_unless_taken([&] {
    if (!is_taken) early.capture->cancel();
  });
  if (!early.held.empty() || early.capture->has_failed() || !same_capture(early.plan, plan) ||
      !session.unchanged()) {
    return nullptr;
  }
  for (std::size_t i = 0; i < plan.items.size(); ++i) {
    if (plan.items[i].guard == kUnguarded) session.bind(i, plan.items[i].source.data());
  }
  is_taken = true;
  return early.capture;
}

void Capturer::discard_early() {
  if (!early_) return;
  early_->capture->cancel();
  early_.reset();
  free_arena();
}

}  // namespace deepfreeze
