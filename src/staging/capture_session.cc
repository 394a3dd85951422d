// How a piece gets from its source to the writer, by any threads in any order:
//   1. Claim:  a thread takes the next pieces of a lane. A lane is a group, or all groups in ring
//              mode, because slabs must fill in order there.
//   2. Copy:   the piece goes to its place in the image, in ring mode once that place is free.
//   3. Read:   it is taken off its group's count of unread pieces; the last one wakes the fences.
//   4. Witness: the copy is compared with the record that release() made.
//   5. Copied: the thread that brings the last bytes says so.
//   6. Ledger: the thread that completes a block, slab or session then does the work that is due
//              (BlockLedger).
// No lock is taken before a group or the session is complete, except for the ring's gate.
// Pieces on devices reach step 5 another way, batch by batch: DeviceCapture. Step 6 is then for
// threads that have no batch to wait for. A witness of theirs (paranoid), or a ring, has to have
// step 6 first: steps 4 and 6 of a part follow each other, and step 5 comes at the end.
#include "staging/capture_session.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "base/clock.h"
#include "base/fail_point.h"
#include "base/trace.h"
#include "base/try.h"
#include "device/cuda_reader.h"
#include "staging/block_ledger.h"
#include "staging/capture_groups.h"
#include "staging/copy_lane.h"
#include "staging/copy_slot.h"
#include "staging/slab_gate.h"
#include "staging/witness.h"

namespace deepfreeze {
namespace {

// Large enough that a claim costs nothing, small enough that the threads end together.
constexpr std::uint64_t kPiecesPerClaim = 16;

// A fence waits for no more than the one piece that the background copier holds.
constexpr std::uint64_t kBackgroundPieces = 1;

constexpr std::chrono::microseconds kTakeOverInterval{200};

}  // namespace

struct CaptureSession::State {
  explicit State(CaptureSpec chosen)
      : spec(std::move(chosen)),
        groups(make_groups(spec)),
        lanes(make_lanes(spec, groups)),
        ledger(spec.image, spec.block_bytes, spec.on_slab),
        witness(spec.items.size(), {.seed = spec.witness_seed,
                                    .block_bytes = spec.block_bytes,
                                    .every_byte = spec.paranoid}),
        torn(spec.items.size()),
        differs(spec.items.size()),
        gate(spec.image.is_ring() ? spec.image.slots() : 0),
        slot(spec.block_bytes) {
    count_unread();
    if (spec.devices.empty()) return;
    devices.emplace(spec.items, spec.image, static_cast<std::uint32_t>(groups.size()), spec.devices,
                    device_calls());
    pieces_left.fetch_add(devices->batch_count(), std::memory_order_relaxed);
    pieces_lacking.store(pieces_left.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }

  void count_unread();
  [[nodiscard]] DeviceCaptureCalls device_calls();
  void release(std::uint32_t group);
  [[nodiscard]] Status record_devices(std::uint32_t group);
  void follow(std::span<const DeviceStream> streams);
  void part_arrived(const CapturePiece& part);
  void piece_arrived(const CapturePiece& piece, BlockCrc crc);
  void compare(const CapturePiece& piece);
  void enter(const CapturePiece& piece, BlockCrc crc);
  void landed(std::uint64_t bytes);
  // Whether "copied" is said before all blocks have their checksums.
  [[nodiscard]] bool says_copied_early() const {
    return devices && !spec.image.is_ring() && !spec.paranoid;
  }
  bool copy_claim(std::size_t lane, std::uint64_t count, bool in_background);
  void copy_all(bool in_background);
  void copy_all_in_background();
  void copy_piece(const CapturePiece& piece, bool in_background, Monotonic::time_point& started);
  [[nodiscard]] bool wait_for_place(const CapturePiece& piece, Monotonic::time_point& started);
  [[nodiscard]] BlockCrc bring(const CapturePiece& piece, bool in_background);
  void count_as_read(std::uint32_t group);
  void count_as_over(std::uint64_t count = 1);
  void take_over();
  void fence(std::uint32_t group);
  void stop_copies();
  void wake();

  [[nodiscard]] std::size_t lane_of(std::uint32_t group) const {
    return lanes.size() == 1 ? 0 : group;
  }
  [[nodiscard]] bool lane_released(std::size_t lane) const;
  // acquire: pairs with every finished piece, so the image is touched no more, and with on_done.
  [[nodiscard]] bool finished() const { return pieces_left.load(std::memory_order_acquire) == 0; }
  void finish_empty();

  CaptureSpec spec;  // the sources of items: bind()
  std::vector<std::unique_ptr<CaptureGroup>> groups;
  std::vector<std::unique_ptr<CopyLane>> lanes;  // by group; one in ring mode
  BlockLedger ledger;
  Witness witness;
  std::vector<std::atomic<bool>> torn;     // by item
  std::vector<std::atomic<bool>> differs;  // from the earlier copy, by item
  SlabGate gate;
  CopySlot slot;  // of the background copier
  std::optional<DeviceCapture> devices;
  std::atomic<std::uint64_t> background_calls{0};  // not answered yet
  std::atomic<std::uint64_t> pieces_left{0};       // neither copied nor skipped yet
  std::atomic<std::uint64_t> pieces_lacking{0};    // not in the image yet; with devices
  std::atomic<bool> cancelled{false};
  std::atomic<bool> empty_is_done{false};
  std::atomic<std::uint64_t> copy_nanos{0};  // for display
  std::atomic<std::uint64_t> copied_bytes{0};
  std::atomic<std::uint64_t> pieces_taken_over{0};  // for display

  std::mutex mutex;  // guards nothing but the moment between a waiter's look and its sleep
  std::condition_variable changed;
};

void CaptureSession::State::count_unread() {
  for (const auto& group : groups) {
    const std::uint64_t count = piece_count(spec.items, group->items, spec.block_bytes);
    group->unread.store(count, std::memory_order_relaxed);
    pieces_left.fetch_add(count, std::memory_order_relaxed);
  }
}

void CaptureSession::State::release(std::uint32_t number) {
  CaptureGroup& group = *groups[number];
  if (group.released.load(std::memory_order_relaxed)) return;
  if (number != kUnguarded) witness.record(spec.items, group.items);
  group.released.store(true, std::memory_order_release);  // shows sources and witness
  if (!devices) return;
  const Status recorded = spec.paranoid ? record_devices(number) : Status();
  if (!recorded) devices->fail_with(recorded.error());
  devices->release(number);
}

// For a paranoid session; on devices, a smaller record than every byte would not be worth its copy.
Status CaptureSession::State::record_devices(std::uint32_t number) {
  for (const auto& [ordinal, device] : spec.devices) {
    DF_TRY(CudaReader reader, CudaReader::open(device));
    const auto read = [&reader](std::span<const std::byte> source, const Witness::Take& take) {
      return reader.read(source, take);
    };
    for (std::size_t i = 0; i < spec.items.size(); ++i) {
      const CaptureItem& item = spec.items[i];
      if (item.device != ordinal || item.guard != number) continue;
      DF_TRY_VOID(witness.record(i, item, read));
    }
  }
  return {};
}

void CaptureSession::State::follow(std::span<const DeviceStream> streams) {
  if (!devices) return;
  const Status followed = deepfreeze::follow(spec.devices, streams);
  if (!followed) devices->fail_with(followed.error());
}

DeviceCaptureCalls CaptureSession::State::device_calls() {
  return {.wait_for_place = [this](std::uint64_t slab) { return gate.wait(slab); },
          .landed = [this](std::uint64_t bytes) { landed(bytes); },
          .arrived = [this](const CapturePiece& part) { part_arrived(part); },
          .over = [this](std::uint64_t count) { count_as_over(count); },
          .failed =
              [this](const Error& error) {
                stop_copies();
                spec.on_error(error);
              }};
}

bool CaptureSession::State::lane_released(std::size_t lane) const {
  if (lanes.size() > 1) return groups[lane]->released.load(std::memory_order_acquire);
  return std::ranges::all_of(
      groups, [](const auto& group) { return group->released.load(std::memory_order_acquire); });
}

// Step 1.
bool CaptureSession::State::copy_claim(std::size_t lane, std::uint64_t count, bool in_background) {
  const auto claimed = lanes[lane]->claim(count);
  if (!claimed) return false;
  // The clock is read once per claim: copying a small tensor takes less time than reading the
  // clock.
  auto started = Monotonic::now();
  for (std::uint64_t number = claimed->begin; number < claimed->end; ++number) {
    copy_piece(lanes[lane]->piece(number), in_background, started);
  }
  copy_nanos.fetch_add(nanos_since(started), std::memory_order_relaxed);
  return true;
}

void CaptureSession::State::copy_all(bool in_background) {
  const std::uint64_t count = in_background ? kBackgroundPieces : kPiecesPerClaim;
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    if (!lane_released(lane)) continue;
    while (copy_claim(lane, count, in_background)) {
    }
  }
}

// One thread at a time, because the slot holds one piece. acq_rel: release publishes the caller's
// releases, acquire shows them to the thread that is copying.
void CaptureSession::State::copy_all_in_background() {
  if (background_calls.fetch_add(1, std::memory_order_acq_rel) > 0) return;
  std::uint64_t answered = 0;
  do {
    answered = background_calls.load(std::memory_order_acquire);
    copy_all(true);
  } while (background_calls.fetch_sub(answered, std::memory_order_acq_rel) > answered);
}

// In a ring the wait may take as long as the disk does. That time is no copying, so `started`
// moves.
bool CaptureSession::State::wait_for_place(const CapturePiece& piece,
                                           Monotonic::time_point& started) {
  if (!spec.image.is_ring()) return true;
  const auto began = Monotonic::now();
  const bool is_free = gate.wait(piece.offset / spec.image.slab_bytes());
  started += Monotonic::now() - began;
  return is_free;
}

void CaptureSession::State::copy_piece(const CapturePiece& piece, bool in_background,
                                       Monotonic::time_point& started) {
  const CaptureItem& item = spec.items[piece.item];
  // acquire pairs with cancel()'s release: cancel()'s promise to its caller covers this thread too.
  if (cancelled.load(std::memory_order_acquire) || !wait_for_place(piece, started)) {
    count_as_read(item.guard);
    return count_as_over();
  }
  DF_STALL_POINT("capture.piece");
  const trace::Span span("copy", piece.bytes);
  const BlockCrc crc = bring(piece, in_background);
  piece_arrived(piece, crc);
  count_as_over();
}

// Steps 4 to 6.
void CaptureSession::State::piece_arrived(const CapturePiece& piece, BlockCrc crc) {
  compare(piece);
  landed(piece.bytes);
  enter(piece, crc);
}

// Step 4.
void CaptureSession::State::compare(const CapturePiece& piece) {
  const auto copied = spec.image.at(piece.offset, piece.bytes);
  if (witness.matches(spec.items[piece.item], piece, copied)) return;
  torn[piece.item].store(true, std::memory_order_relaxed);  // landed() and the ledger order it
}

// Step 5. acq_rel: release hands over this thread's copies and its torn items; acquire gives
// the last caller those of all others.
void CaptureSession::State::landed(std::uint64_t bytes) {
  copied_bytes.fetch_add(bytes, std::memory_order_relaxed);
  if (!says_copied_early()) return;
  if (pieces_lacking.fetch_sub(1, std::memory_order_acq_rel) == 1) spec.on_copied();
}

// Step 6.
void CaptureSession::State::enter(const CapturePiece& piece, BlockCrc crc) {
  if (!ledger.arrived(piece.offset / spec.block_bytes, piece.bytes, crc)) return;
  if (!says_copied_early()) spec.on_copied();
  spec.on_done();
}

// Cuts the part that a device has copied at the block boundaries.
void CaptureSession::State::part_arrived(const CapturePiece& part) {
  const std::uint64_t end = part.offset + part.bytes;
  for (std::uint64_t at = part.offset; at < end;) {
    const std::uint64_t next = std::min(end, (at / spec.block_bytes + 1) * spec.block_bytes);
    const CapturePiece piece = {.item = part.item, .offset = at, .bytes = next - at};
    if (spec.paranoid) compare(piece);
    enter(piece, std::nullopt);
    at = next;
  }
}

// Steps 2 and 3. A fence that took the piece over has counted it as read already.
BlockCrc CaptureSession::State::bring(const CapturePiece& piece, bool in_background) {
  const CaptureItem& item = spec.items[piece.item];
  const auto source = item.source.subspan(piece.offset - item.offset, piece.bytes);
  const PiecePlace into = {
      .bytes = spec.image.at(piece.offset, piece.bytes),
      .is_block = piece.bytes == spec.block_bytes,
      .old_block_crc = crc_at(spec.old_block_crcs.get(), piece.offset / spec.block_bytes)};
  CopySlot::Copied copied;
  if (in_background) {
    copied = slot.copy(source, into, piece.item);
  } else {
    copied.piece = copy_piece_bytes(source, into);
  }
  // relaxed, as of torn items
  if (copied.piece.has_changed) differs[piece.item].store(true, std::memory_order_relaxed);
  if (!copied.was_taken_over) count_as_read(item.guard);
  return copied.piece.crc;
}

void CaptureSession::State::count_as_read(std::uint32_t group) {
  // release: our reads are over before a fence lets the writer pass.
  if (groups[group]->unread.fetch_sub(1, std::memory_order_acq_rel) == 1) wake();
}

void CaptureSession::State::count_as_over(std::uint64_t count) {
  // release: our writes to the image are over before anyone reuses it.
  if (pieces_left.fetch_sub(count, std::memory_order_acq_rel) == count) wake();
}

// A waiter that saw "not yet" under the lock sleeps before we can have it.
void CaptureSession::State::wake() {
  const std::lock_guard lock(mutex);
  changed.notify_all();
}

void CaptureSession::State::take_over() {
  const auto item = slot.take_over();
  if (!item) return;
  pieces_taken_over.fetch_add(1, std::memory_order_relaxed);
  count_as_read(spec.items[*item].guard);
}

// For a session without pieces, in which no piece triggers on_done.
void CaptureSession::State::finish_empty() {
  if (cancelled.load(std::memory_order_acquire)) return;
  if (empty_is_done.exchange(true, std::memory_order_acq_rel)) return;
  spec.on_copied();
  spec.on_done();
}

void CaptureSession::State::fence(std::uint32_t number) {
  if (number >= groups.size() || !lane_released(lane_of(number))) return;
  const std::atomic<std::uint64_t>& left = groups[number]->unread;
  const auto is_read = [&left] { return left.load(std::memory_order_acquire) == 0; };
  // In a ring, pieces after the group's last one may have to wait for the disk.
  const std::uint64_t count = spec.image.is_ring() ? 1 : kPiecesPerClaim;
  while (!is_read() && copy_claim(lane_of(number), count, false)) {
  }
  while (!is_read()) {
    take_over();
    std::unique_lock lock(mutex);
    // Waits repeatedly: the copier may lose its core after we have looked.
    changed.wait_for(lock, kTakeOverInterval, is_read);
  }
}

CaptureSession::CaptureSession(CaptureSpec spec)
    : state_(std::make_shared<State>(std::move(spec))) {}

void CaptureSession::bind(std::size_t item, const std::byte* source) {
  CaptureItem& bound = state_->spec.items[item];
  bound.source = {source, bound.source.size()};
}

void CaptureSession::release(std::uint32_t group, std::span<const DeviceStream> streams) {
  state_->follow(streams);
  if (group < state_->groups.size()) state_->release(group);
}

void CaptureSession::release_all(std::span<const DeviceStream> streams) {
  state_->follow(streams);
  for (std::uint32_t group = 0; group < group_count(); ++group) state_->release(group);
  if (state_->spec.image.slab_count() == 0) state_->finish_empty();
}

// A copy of state_: the session may go while the last piece is copied.
void CaptureSession::help() {
  const std::shared_ptr<State> state = state_;
  state->copy_all(false);
}

void CaptureSession::help(std::uint32_t group) {
  const std::shared_ptr<State> state = state_;
  if (group >= state->groups.size() || !state->lane_released(state->lane_of(group))) return;
  while (state->copy_claim(state->lane_of(group), kPiecesPerClaim, false)) {
  }
}

void CaptureSession::help_in_background() {
  const std::shared_ptr<State> state = state_;
  DF_STALL_POINT("capture.background");
  state->copy_all_in_background();
}

// Both, in this order: copying the host's part may take longer than giving the devices theirs.
void CaptureSession::fence(std::uint32_t group, std::span<const DeviceStream> streams) {
  const std::shared_ptr<State> state = state_;
  state->fence(group);
  if (state->devices && group < state->groups.size()) state->devices->fence(group, streams);
}

void CaptureSession::fence_all(std::span<const DeviceStream> streams) {
  for (std::uint32_t group = 0; group < group_count(); ++group) fence(group, streams);
}

bool CaptureSession::has_devices() const { return state_->devices.has_value(); }

void CaptureSession::enqueue_unguarded() {
  const std::shared_ptr<State> state = state_;
  if (state->devices) state->devices->enqueue(kUnguarded);
}

void CaptureSession::enqueue() {
  const std::shared_ptr<State> state = state_;
  if (state->devices) state->devices->enqueue();
}

bool CaptureSession::arrive(bool wait) {
  const std::shared_ptr<State> state = state_;
  return state->devices && state->devices->arrive(wait);
}

void CaptureSession::free_slab(std::size_t slab) { state_->gate.free(slab); }

// A thread that claims a piece from here on counts it as over; so does this loop with the rest.
void CaptureSession::State::stop_copies() {
  cancelled.store(true, std::memory_order_release);
  gate.open_for_good();
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    while (copy_claim(lane, kPiecesPerClaim, false)) {
    }
  }
}

void CaptureSession::cancel() {
  const std::shared_ptr<State> state = state_;
  state->stop_copies();
  if (state->devices) {
    state->devices->cancel();
    while (state->devices->arrive(false)) {
    }
  }
  wait();
}

bool CaptureSession::done() const { return state_->ledger.complete(); }
bool CaptureSession::finished() const { return state_->finished(); }

void CaptureSession::wait() const {
  const std::shared_ptr<State> state = state_;
  std::unique_lock lock(state->mutex);
  state->changed.wait(lock, [&state] { return state->finished(); });
}

std::uint64_t CaptureSession::pieces_unread(std::uint32_t group) const {
  if (group >= state_->groups.size()) return 0;
  return state_->groups[group]->unread.load(std::memory_order_relaxed);  // a guess is enough
}

std::uint32_t CaptureSession::group_count() const {
  return static_cast<std::uint32_t>(state_->groups.size());
}

bool CaptureSession::unchanged() const {
  const auto& items = state_->spec.items;
  if (state_->devices && state_->devices->was_fenced()) return false;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].device == kHostMemory && !state_->witness.unchanged(i, items[i])) return false;
  }
  return true;
}

std::span<const std::uint32_t> CaptureSession::block_crcs() const {
  return state_->ledger.block_crcs();
}

std::vector<std::size_t> CaptureSession::torn_items() const {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < state_->torn.size(); ++i) {
    if (state_->torn[i].load(std::memory_order_relaxed)) found.push_back(i);  // from on_copied on
  }
  return found;
}

bool CaptureSession::has_earlier_copy() const { return state_->spec.old_block_crcs != nullptr; }

bool CaptureSession::has_changed(std::size_t item) const {
  if (!has_earlier_copy() || state_->spec.items[item].device != kHostMemory) return true;
  return state_->differs[item].load(std::memory_order_relaxed);
}

CaptureTimes CaptureSession::times() const {
  return {.copied_bytes = state_->copied_bytes.load(std::memory_order_relaxed),
          .copy_nanos = state_->copy_nanos.load(std::memory_order_relaxed),
          .checksum_nanos = state_->ledger.checksum_nanos(),
          .pieces_taken_over = state_->pieces_taken_over.load(std::memory_order_relaxed)};
}

}  // namespace deepfreeze
