// Copies the tensors of one save into its image, while training runs, and checksums every block as
// it fills.
//
// Items are grouped by the fence that guards them. A group is copied from its release() on, by any
// threads in any order; fence() returns when no thread reads its sources any more. An item whose
// copy differs from its source at release() is torn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "arena/capture_item.h"
#include "arena/image.h"
#include "deepfreeze/result.h"
#include "device/device_capture.h"

namespace deepfreeze {

inline constexpr std::size_t kCopyThreadsMax = 64;
inline constexpr std::uint32_t kUnguarded = 0;

struct CaptureSpec {
  Image image;
  std::uint64_t block_bytes = 0;  // its slabs are a multiple of it
  // They tile the data sections without holes or overlap (lay_out guarantees it), in file order. If
  // they leave a hole the session is never done; an item behind the image is not copied.
  std::vector<CaptureItem> items;
  // Called once per slab, in no order, by the thread that completed it. Must neither throw nor
  // block long.
  std::function<void(std::size_t slab)> on_slab;
  // Called once, by the thread that brought the last bytes, when all of them are in the image, all
  // sources were read, and torn items are known; not after cancel() has returned. Blocks from
  // devices may have no checksum yet. Must neither cancel the session nor wait for it.
  std::function<void()> on_copied = [] {};
  // Called once, by the thread that completed the last slab, after all slabs; not after cancel()
  // has returned. Must neither cancel the session nor wait for it.
  std::function<void()> on_done = [] {};
  // Called once, by any thread, if a device fails; then the session is cancelled. Must neither
  // cancel the session nor wait for it.
  std::function<void(const Error& error)> on_error = [](const Error&) {};
  CaptureDevices devices;  // all that items lie on
  // If the image still holds an earlier copy of the same items at the same places: the checksums
  // of its blocks, from the first on. Bytes of the host that equal it are not copied again. Not for
  // a ring.
  std::shared_ptr<const std::vector<std::uint32_t>> old_block_crcs = {};
  std::uint64_t witness_seed = 0;
  bool paranoid = false;  // the witness reads every byte
};

// The work of a session's threads. The time of threads that run at once adds up.
struct CaptureTimes {
  std::uint64_t copied_bytes = 0;
  std::uint64_t copy_nanos = 0;
  std::uint64_t checksum_nanos = 0;
  std::uint64_t pieces_taken_over = 0;  // by fences, from the background thread
};

// A copy is another handle of the same session. Any thread, unless a member says otherwise.
class CaptureSession {
 public:
  explicit CaptureSession(CaptureSpec spec);

  // Gives the place of an item that was planned before its memory existed, with as many bytes.
  // Before the release() of its group, by one thread.
  void bind(std::size_t item, const std::byte* source);

  // Declares a group's sources final: from here on they must not change before fence(group), nor be
  // freed before the session is finished. Reads the witness. Once per group; in ring mode all at
  // once by release_all(), which may follow single releases. Sources on devices are copied after
  // the work given to `streams` so far.
  void release(std::uint32_t group, std::span<const DeviceStream> streams = {});
  void release_all(std::span<const DeviceStream> streams = {});

  // Copies the released pieces that no thread has claimed yet; other threads may still be copying
  // theirs.
  void help();
  void help(std::uint32_t group);
  // help() for a background thread, in small steps that a fence can take over. If a thread is at it
  // already, that one also copies the groups released since.
  void help_in_background();

  // Helps, then waits until no thread reads the group's sources any more. Returns at once if the
  // group was not released. A piece that the background thread holds while it is off its core is
  // taken over. For sources on a device its `streams` wait, if one is named: their work from here
  // on may change the sources.
  void fence(std::uint32_t group, std::span<const DeviceStream> streams = {});
  void fence_all(std::span<const DeviceStream> streams = {});

  // For the threads that serve devices; see DeviceCapture. Nothing of a session without any.
  [[nodiscard]] bool has_devices() const;
  void enqueue_unguarded();
  void enqueue();
  [[nodiscard]] bool arrive(bool wait);

  // Ring mode: the slab's place in memory may be used again.
  void free_slab(std::size_t slab);

  // Copies nothing more; waits for reads that have begun. The session is then finished, not done.
  void cancel();

  // All bytes copied, all blocks checksummed, all slabs announced.
  [[nodiscard]] bool done() const;
  // Done and said so by on_copied and on_done, or cancelled and neither sources nor image are
  // touched any more.
  [[nodiscard]] bool finished() const;
  void wait() const;

  [[nodiscard]] std::uint32_t group_count() const;
  // About how much of a group is still to be copied, in pieces of at most a block.
  [[nodiscard]] std::uint64_t pieces_unread(std::uint32_t group) const;
  // Whether the sources of all released groups still equal the witness's record. It has none for
  // devices: sources there may have changed once a fence has let their streams pass.
  [[nodiscard]] bool unchanged() const;

  [[nodiscard]] std::span<const std::uint32_t> block_crcs() const;  // valid once done
  [[nodiscard]] std::vector<std::size_t> torn_items() const;        // valid from on_copied on
  [[nodiscard]] bool has_earlier_copy() const;                      // that it compares with
  // Whether an item differs from the earlier copy; true if there is none, and for an item on a
  // device. Valid from on_copied on.
  [[nodiscard]] bool has_changed(std::size_t item) const;
  [[nodiscard]] CaptureTimes times() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // also held by threads that help
};

}  // namespace deepfreeze
