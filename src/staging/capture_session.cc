// How a block gets from its sources to the writer, by any threads in any order:
//   1. Claim: a thread takes the next claim, a run of pieces of about kClaimBlocks blocks.
//   2. Copy:  each piece goes to its place in the image, block by block.
//   3. Block: what was copied is taken off the block's lack; who takes the last computes its CRC.
//   4. Slab:  a finished block is taken off its slab's lack; who takes the last announces it.
//   5. Done:  an announced slab is taken off the session's lack; who takes the last wakes all.
// No lock is taken before step 5, and nothing asks whether the copying began inside save() or
// runs beside training.
#include "staging/capture_session.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/checked_math.h"
#include "codec/crc32c.h"

namespace deepfreeze {
namespace {

// Large enough that a claim costs nothing, small enough that the threads end together.
constexpr std::uint64_t kClaimBlocks = 16;

// A part of one item, inside one claim's stretch of the image.
struct Piece {
  const std::byte* source = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

struct Claims {
  std::vector<Piece> pieces;
  std::vector<std::size_t> begins;  // claim i is pieces [begins[i], begins[i + 1])
};

bool lies_inside(const CaptureItem& item, std::uint64_t image_bytes) {
  return item.offset <= image_bytes && item.source.size() <= image_bytes - item.offset;
}

// Consecutive pieces in one stretch of the image share a claim: so in file order a block is
// copied by one thread, and a thousand small tensors are claimed at once.
Claims make_claims(const CaptureGeometry& geometry, const std::vector<CaptureItem>& items) {
  const std::uint64_t stretch_bytes = kClaimBlocks * geometry.block_bytes;
  Claims claims;
  claims.pieces.reserve(items.size() + ceil_div(geometry.image.size(), stretch_bytes));
  std::uint64_t stretch_before = 0;
  const auto add = [&](const Piece& piece) {
    const std::uint64_t stretch = piece.offset / stretch_bytes;
    const bool first = claims.pieces.empty() || stretch != stretch_before;
    if (first) claims.begins.push_back(claims.pieces.size());
    stretch_before = stretch;
    claims.pieces.push_back(piece);
  };
  for (const CaptureItem& item : items) {
    if (!lies_inside(item, geometry.image.size())) continue;
    for (std::uint64_t done = 0; done < item.source.size();) {
      const std::uint64_t offset = item.offset + done;
      const std::uint64_t room = stretch_bytes - offset % stretch_bytes;
      const std::uint64_t bytes = std::min(item.source.size() - done, room);
      add({item.source.data() + done, offset, bytes});
      done += bytes;
    }
  }
  claims.begins.push_back(claims.pieces.size());
  return claims;
}

// For each of the parts of `whole`, its size: all are `part`, the last may be less.
std::vector<std::atomic<std::uint64_t>> lacks(std::uint64_t whole, std::uint64_t part) {
  std::vector<std::atomic<std::uint64_t>> lack(ceil_div(whole, part));
  // relaxed: no other thread has the session yet.
  for (std::uint64_t i = 0; i < lack.size(); ++i) {
    lack[i].store(std::min(part, whole - i * part), std::memory_order_relaxed);
  }
  return lack;
}

// True for the one caller that takes the last. acq_rel: release hands over what this thread did
// for the part, acquire gives the last one what all others did for it.
bool takes_last(std::atomic<std::uint64_t>& lack, std::uint64_t amount) {
  return lack.fetch_sub(amount, std::memory_order_acq_rel) == amount;
}

}  // namespace

struct CaptureSession::State {
  State(CaptureGeometry where, const std::vector<CaptureItem>& items,
        std::function<void(std::size_t)> announce)
      : geometry(where),
        claims(make_claims(where, items)),
        on_slab(std::move(announce)),
        block_crcs(ceil_div(where.image.size(), where.block_bytes)),
        block_lack(lacks(where.image.size(), where.block_bytes)),
        slab_lack(lacks(block_crcs.size(), where.slab_bytes / where.block_bytes)),
        slabs_lack(slab_lack.size()) {}

  void copy_claim(std::size_t claim);
  void copy(Piece piece);
  void finish_block(std::uint64_t block);
  void finish_slab(std::uint64_t slab);
  // acquire: pairs with the release of every finished slab, so all CRCs are seen.
  [[nodiscard]] bool done() const { return slabs_lack.load(std::memory_order_acquire) == 0; }

  const CaptureGeometry geometry;
  const Claims claims;
  const std::function<void(std::size_t)> on_slab;

  std::vector<std::uint32_t> block_crcs;  // each written once, by who finished the block
  std::atomic<std::size_t> next_claim{0};
  std::vector<std::atomic<std::uint64_t>> block_lack;  // bytes, by block
  std::vector<std::atomic<std::uint64_t>> slab_lack;   // blocks, by slab
  std::atomic<std::uint64_t> slabs_lack;

  std::mutex mutex;  // guards nothing but the moment between a waiter's look and its sleep
  std::condition_variable became_done;
};

void CaptureSession::State::copy_claim(std::size_t claim) {
  for (std::size_t i = claims.begins[claim]; i < claims.begins[claim + 1]; ++i) {
    copy(claims.pieces[i]);
  }
}

// Step 2. Block by block, so that step 3 finds in the cache what step 2 left there.
void CaptureSession::State::copy(Piece piece) {
  while (piece.bytes > 0) {
    const std::uint64_t block = piece.offset / geometry.block_bytes;
    const std::uint64_t room = (block + 1) * geometry.block_bytes - piece.offset;
    const std::uint64_t bytes = std::min(piece.bytes, room);
    std::memcpy(geometry.image.data() + piece.offset, piece.source, bytes);
    if (takes_last(block_lack[block], bytes)) finish_block(block);  // step 3
    piece = {piece.source + bytes, piece.offset + bytes, piece.bytes - bytes};
  }
}

void CaptureSession::State::finish_block(std::uint64_t block) {
  const std::uint64_t begin = block * geometry.block_bytes;
  const std::uint64_t bytes = std::min(geometry.block_bytes, geometry.image.size() - begin);
  block_crcs[block] = crc32c(geometry.image.subspan(begin, bytes));
  const std::uint64_t slab = begin / geometry.slab_bytes;
  if (takes_last(slab_lack[slab], 1)) finish_slab(slab);  // step 4
}

void CaptureSession::State::finish_slab(std::uint64_t slab) {
  on_slab(slab);
  if (!takes_last(slabs_lack, 1)) return;
  // Step 5. A waiter that saw "not done" under the lock sleeps before we can have it.
  const std::lock_guard lock(mutex);
  became_done.notify_all();
}

CaptureSession::CaptureSession(CaptureGeometry geometry, std::vector<CaptureItem> items,
                               std::function<void(std::size_t slab_index)> on_slab)
    : state_(std::make_shared<State>(geometry, items, std::move(on_slab))) {}

void CaptureSession::help() {
  const std::shared_ptr<State> state = state_;  // the session may go while the last claim is copied
  const std::size_t claim_count = state->claims.begins.size() - 1;
  while (true) {
    // Step 1. relaxed: it only deals out numbers, what they stand for is constant.
    const std::size_t claim = state->next_claim.fetch_add(1, std::memory_order_relaxed);
    if (claim >= claim_count) return;
    state->copy_claim(claim);
  }
}

bool CaptureSession::done() const { return state_->done(); }

void CaptureSession::wait() const {
  std::unique_lock lock(state_->mutex);
  state_->became_done.wait(lock, [this] { return state_->done(); });
}

std::span<const std::uint32_t> CaptureSession::block_crcs() const { return state_->block_crcs; }

}  // namespace deepfreeze
