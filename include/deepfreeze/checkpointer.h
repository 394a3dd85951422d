// Saves and restores the state of one training run.
//
//   auto run = deepfreeze::Checkpointer::open("runs/heat", {});
//   auto handle = run->save({.step = 1, .tensors = table});
//   handle->wait(deepfreeze::Level::kDurable);
//
// A Checkpointer belongs to one thread at a time; handles and open checkpoints to any. A forked
// child must not use its parent's: every call there returns kUnsupported.
//
// With Options::ranks all ranks make a save together, and each writes its share: tensors that
// several ranks have alike (the same key, dtype, shape and box) are divided among them, and a
// tensor that only one rank has is written by that rank. The boxes of one key make up its whole.
// The ranks agree before a save, in their callers' threads; after that they wait for each other
// only through the files: rank 0 commits once all are sealed. The first save of such tensors
// compares their CRC-32Cs: kMismatch if copies differ.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deepfreeze/options.h"
#include "deepfreeze/result.h"
#include "deepfreeze/tensor.h"
#include "deepfreeze/value_range.h"

namespace deepfreeze {

// How far a save has come; each of the first three includes those before.
enum class Level : std::uint8_t {
  kCaptured,  // the state is copied: the caller may change it
  kLocal,     // committed in the run's own directory
  kDurable,   // and on the last tier of Options::tiers that this step is meant for
  // Not in that order: local, and all nodes have the parity of their groups (Options::protect), so
  // that it outlives the loss of some.
  kProtected,
};

// The state of one checkpoint on one tier.
struct TierProgress {
  enum class State : std::uint8_t { kNotMeant, kWaiting, kCommitted, kLeftOut };
  std::string path;  // of the tier
  State state = State::kWaiting;
  bool operator==(const TierProgress&) const = default;
};

// One tier of the run, while this process copies checkpoints to it.
struct TierStatus {
  std::string path;
  std::size_t waiting = 0;                 // checkpoints
  std::optional<std::uint64_t> step = {};  // that is being copied
  std::uint64_t bytes_sent = 0;            // of that step
  std::uint64_t bytes_total = 0;           // of all files that were copied
  std::uint64_t stored_total = 0;          // that were sent for them: fewer if they were packed
  std::uint64_t committed = 0;             // checkpoints
  std::uint64_t left_out = 0;              // they gave way to newer ones while the tier was behind
  std::uint64_t saves_refused = 0;         // or skipped, for want of room: Options::bytes_max
  std::uint64_t failures = 0;
  std::optional<Error> error = {};  // of the last try; absent if it was a success
};

struct SaveStatus {
  std::uint64_t step = 0;
  std::uint64_t bytes = 0;  // of the data section
  std::uint64_t bytes_copied = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t bytes_shared = 0;   // of files that an earlier checkpoint has, too: not written
  std::uint64_t guarded_bytes = 0;  // captured after save() returned; includes all on devices
  double stall_seconds = 0;         // inside save()
  double fence_seconds = 0;         // blocked in fences since
  // Time of the engine's threads; threads that work at once each count.
  double copy_seconds = 0;
  double checksum_seconds = 0;
  double write_seconds = 0;  // at least one write was in flight
  double commit_seconds = 0;
  double local_seconds = 0;      // from save() to committed; 0 until then
  double durable_seconds = 0;    // the same on the last tier
  double protected_seconds = 0;  // the same until all nodes had their parity of it
  bool early = false;            // its capture began before save(): begin_capture()
  bool captured = false;
  bool local = false;
  bool durable = false;
  bool is_protected = false;                // see Level::kProtected
  std::optional<std::uint64_t> non_finite;  // values, once written; absent without statistics
  std::vector<std::string> torn;            // keys that changed while they were captured
  std::vector<Divergence> diverged;         // once durable: see Options::audit_saves
  std::vector<TierProgress> tiers;          // as in Options::tiers; filled by the rank that commits
  std::optional<Error> error;
};

class SaveHandle {
 public:
  // The save's own error, which is never kTimeout, or kTimeout. Any thread.
  [[nodiscard]] Status wait(Level level,
                            std::optional<std::chrono::milliseconds> timeout = {}) const;
  [[nodiscard]] SaveStatus status() const;

  // For a SaveRequest with `confirm`. Returns when all is copied and the request's memory is not
  // read any more; the caller then compares, and calls confirm(). An error says only that the
  // memory is not read any more: the save has failed, and confirm() does nothing. Any thread.
  [[nodiscard]] Status wait_copied(std::optional<std::chrono::milliseconds> timeout = {}) const;
  // `torn`: keys that the caller found changed, which fails the save. Any thread; the first call
  // counts. If the last handle goes without a confirmation, the save fails, and its memory is not
  // read any more from then on.
  void confirm(std::vector<std::string> torn) const;

  struct State;
  explicit SaveHandle(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  friend class Checkpointer;
  std::shared_ptr<State> state_;  // also held by the engine while the save is in flight
  std::shared_ptr<void> keeper_;  // notices when the caller's last copy goes
};

struct SaveRequest {
  std::uint64_t step = 0;
  TensorTable tensors;
  std::string objects;  // the state tree as tagged JSON (docs/format.md); may be empty
  std::map<std::string, double> metrics;
  std::map<std::string, std::string> tags;
  std::map<std::string, std::string> environment;
  // The save counts as captured, and can be committed, only after SaveHandle::confirm(), because
  // the caller has its own witness for the tensors that are captured later. If there are none
  // (guarded_bytes is 0), the save does not wait for it.
  bool confirm = false;
  // Streams of the devices that tensors lie on. The save copies each device's tensors as the work
  // given to its stream so far leaves them. Work that the stream gets from save() on waits until
  // the tensors without a guard are copied; no thread waits for either. On a device with no stream
  // here, the copy follows the default stream's work, and save() waits for it.
  std::vector<DeviceStream> streams;
};

// One committed checkpoint, for lists. If the commit record itself no longer verifies, `fault` says
// why, the numbers come from the data file's header or the directory's name, and opening it returns
// that error, so that a restore that skips it can say so.
struct CheckpointInfo {
  std::uint64_t generation = 0;
  std::uint64_t step = 0;
  std::uint64_t save_index = 0;
  std::uint64_t attempt_id = 0;
  std::int64_t wall_micros = 0;
  std::uint64_t bytes = 0;  // of all its files
  std::uint32_t world_size = 1;
  bool abandoned = false;  // the current line did not pass through it
  std::string path;        // of the attempt's directory, absolute; on the nearest tier that has it
  std::vector<std::string> copies;  // the same on farther tiers, nearest first
  std::map<std::string, double> metrics;
  std::map<std::string, std::string> tags;
  std::map<std::string, std::string> environment;
  std::optional<std::uint64_t> non_finite;  // NaN and infinite values; absent: not counted
  std::vector<Divergence> diverged;         // of its replicas, as far as this save compared them
  std::string fault;                        // empty: the commit record verifies
};

struct RestoreTarget {
  std::string key;
  std::span<std::byte> into;    // row-major, exactly as large; an address of `device`
  std::optional<Box> box = {};  // of the whole tensor; absent: all of it
  // On a device it is written after the work given to `stream` so far, and before read() returns.
  std::int32_t device = kHostMemory;
  std::uintptr_t stream = 0;
};

// Is told how many bytes have been read so far. The reading threads call it, never two at once, and
// the number never falls. It must not throw.
using OnProgress = std::function<void(std::uint64_t bytes_read)>;

// A file of a checkpoint that did not verify on one tier and was read from the next.
struct MendedFile {
  std::string file;
  std::string path;  // of the attempt's directory with the bad copy
  std::string cause;
};

// A checkpoint opened for reading, its index verified.
class OpenCheckpoint {
 public:
  [[nodiscard]] const CheckpointInfo& info() const;
  // Whole tensors, sorted by key, in however many boxes they are stored.
  [[nodiscard]] const std::vector<TensorSpec>& tensors() const;
  // Of tensors(), by index; none without statistics, or if the tensor is stored in boxes.
  [[nodiscard]] std::vector<std::optional<ValueRange>> ranges() const;
  // The objects as that rank of info().world_size gave them; empty if there was no such rank.
  [[nodiscard]] const std::string& objects(std::uint32_t rank = 0) const;
  // kNotFound, kMismatch: nothing written. After other errors targets may have been written:
  // kCorrupt names file, blocks and tensors; kGone if the checkpoint was deleted meanwhile. Reads
  // are verified unless `verify` is false.
  [[nodiscard]] Status read(std::span<const RestoreTarget> targets, bool verify = true,
                            const OnProgress& on_progress = {}) const;
  // Bad copies that open_checkpoint() and read() have come upon; the bytes came from other tiers.
  [[nodiscard]] std::vector<MendedFile> mended() const;
  // The attempt's directory from which each file is read, by the file's name.
  [[nodiscard]] std::map<std::string, std::string> sources() const;

  struct State;
  explicit OpenCheckpoint(std::shared_ptr<const State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<const State> state_;
};

// Lists the checkpoints of any run, newest first, in any process; nothing is claimed, decided or
// written. kNotFound if `run` is not a run directory.
[[nodiscard]] Result<std::vector<CheckpointInfo>> list_checkpoints(
    const std::filesystem::path& run);
// The same for a run on several tiers, nearest first: of all that can be read now.
[[nodiscard]] Result<std::vector<CheckpointInfo>> list_checkpoints(
    const std::filesystem::path& run, std::span<const std::string> tiers);
[[nodiscard]] Result<OpenCheckpoint> open_checkpoint(const CheckpointInfo& info);

// "best", "best:METRIC" or "best:METRIC:min|max", as behind a run's '@'. kInvalidArgument for
// anything else.
[[nodiscard]] Result<BestBy> parse_best(std::string_view text);

// The rules that the run's latest claim records. Empty if no claim can be read; without a rule if
// the claiming process keeps everything.
[[nodiscard]] Result<std::optional<Keep>> recorded_keep(const std::filesystem::path& run);

// The best checkpoint of the current line, from a list as list_checkpoints() returns it, newest
// first. A checkpoint that is known to hold NaN or infinities is never the best, nor one without
// the metric, or with NaN for it; of equal ones the newer is. `rule` completes `by`.
// kInvalidArgument if the metric, or its direction, is not known; kNotFound if no checkpoint has
// the metric.
[[nodiscard]] Result<CheckpointInfo> best_of(std::span<const CheckpointInfo> infos,
                                             const BestBy& by,
                                             const std::optional<Keep::Best>& rule);

// One fault that a full check found.
struct FaultInfo {
  std::string file;
  std::string cause;
  std::vector<std::uint64_t> blocks;
  std::vector<std::string> tensors;
};

// Reads and checks every byte; empty means good.
[[nodiscard]] Result<std::vector<FaultInfo>> verify_checkpoint(const CheckpointInfo& info,
                                                               const OnProgress& on_progress = {});

// Deletes the checkpoint whatever rules keep it, even if it is the newest. The deletion is durable
// on return; one that is gone already is a success. Not for a run whose writer may be going back to
// this checkpoint.
[[nodiscard]] Status delete_checkpoint(const CheckpointInfo& info);

// Begins a new run in `run`, made if there is none, with this checkpoint, and returns the new
// run's. On one file system its files are linked: it takes no time and no room, and stays if the
// other run deletes its own. Elsewhere they are copied, every block checked. kExists: `run` is a
// run already.
[[nodiscard]] Result<CheckpointInfo> fork_checkpoint(const CheckpointInfo& info,
                                                     const std::filesystem::path& run);

// Sets and removes tags of an existing checkpoint; durable on return. They lie over those of the
// save, which can't be removed. A checkpoint that has any is kept, even against Options::keep.
// kNotFound: it was deleted, or was given no such tag; kInvalidArgument: a name with white
// space, quotes or one of "=<>!", or too long.
[[nodiscard]] Result<CheckpointInfo> tag_checkpoint(const CheckpointInfo& info,
                                                    const std::map<std::string, std::string>& set,
                                                    const std::vector<std::string>& remove = {});

// The directory, if it is a run, and all runs below it, by path; through no symbolic link.
// kNotFound: no such directory; kInvalidArgument: more than 10,000 runs.
[[nodiscard]] Result<std::vector<std::filesystem::path>> list_runs(
    const std::filesystem::path& tree);

class Checkpointer {
 public:
  // Makes the run if there is none; an error if this process may not write there, unless
  // Options::read_only. A relative path is made absolute here, so that it means the same directory
  // after the program has changed its own. Starts threads; takes no memory yet. Collective.
  [[nodiscard]] static Result<Checkpointer> open(const std::filesystem::path& path,
                                                 Options options);
  Checkpointer(Checkpointer&&) noexcept;
  Checkpointer& operator=(Checkpointer&&) noexcept;
  ~Checkpointer();  // close(), errors only logged

  // Returns once the tensors without a guard are copied; the rest happens on the engine's threads
  // and in fences. Empty if the save was skipped (OnBusy::kSkip). An error means that the request
  // itself is wrong (kInvalidArgument, kEncode, kUnsupported, kBusy; of any rank, kMismatch if
  // ranks contradict each other); failures of the machine are in the handle. Collective: metrics,
  // tags and environment are rank 0's, objects each rank's own.
  [[nodiscard]] Result<std::optional<SaveHandle>> save(const SaveRequest& request);

  // Replaces save() on a rank that has nothing to save while the others may be saving: they are
  // told why, and get the error too. Collective with their save() or prewarm(); without other ranks
  // it does nothing.
  void decline(const Error& why);

  // Sets up everything that the first save of such a request would set up: claims the run, takes
  // and registers the arena, starts threads. No tensor is read, and nothing written but the claim,
  // so call it after a restore. Waits until a save in flight is committed. Errors: save()'s,
  // kNoSpace, kFenced, kIo. Collective; among ranks it reads all tensors once, to compare the
  // copies.
  [[nodiscard]] Status prewarm(const SaveRequest& request);

  // About so many bytes will be saved by this rank, some of them from these devices: takes the
  // memory for that, and registers it, on a thread of its own. The next save uses what is taken by
  // then. Does nothing while a save is captured or written, nor for fewer bytes than before. Any
  // thread; not collective.
  void expect(std::uint64_t bytes, std::span<const std::int32_t> devices = {});

  // Call before the guard's tensors, or any tensors, are changed: returns once all of them are
  // copied, and helps to copy. Returns at once if no save is being captured. Any thread. Tensors on
  // devices may be changed by work given to these streams from here on; for devices without a
  // stream here, this thread waits.
  void fence(std::uint32_t guard, std::span<const DeviceStream> streams = {});
  void fence(std::span<const DeviceStream> streams = {});

  // Begins to capture tensors one guard at a time, as they become final, before the save() that
  // they belong to. Takes the specs of all tensors and the bytes of those with a guard. False if no
  // tensor has one, or if a save is still using the memory: nothing has begun.
  [[nodiscard]] Result<bool> begin_capture(const TensorTable& tensors);
  // Declares the guard's tensors final, those on devices once the work given to `streams` so far is
  // done: from here on they are captured, and must not change before fence(guard). The next save()
  // continues this capture if it is given the same tensors, all released and unchanged since;
  // otherwise it captures anew.
  void release(std::uint32_t guard, std::span<const DeviceStream> streams = {});
  // Gives up a capture begun by begin_capture(); does nothing if save() has taken it over.
  void discard_capture();

  // Committed checkpoints, newest first: the order in which a restore tries them. Nothing is
  // claimed or written, so that a run may be read while another process writes it. Collective: the
  // same list on all ranks.
  [[nodiscard]] Result<std::vector<CheckpointInfo>> candidates();
  // Opens one of them for reading, from all places that this job sees. Collective if nodes have
  // near directories of their own (Options::near); its result then reads until close().
  [[nodiscard]] Result<OpenCheckpoint> open_checkpoint(const CheckpointInfo& info);
  // The best of the candidates; empty if there are none. Members absent from `by` are taken from
  // Options::keep, or else from recorded_keep(). Errors: best_of()'s. Collective.
  [[nodiscard]] Result<std::optional<CheckpointInfo>> best(const BestBy& by = {});
  // Tells the engine from which checkpoint the run continues. Without it, and if no other
  // Checkpointer of this process restored from the run, the first save starts a new line beside the
  // checkpoints that exist, which Options::keep then leaves alone. Checkpoints that this process
  // saved before are abandoned if they lie beyond that point.
  [[nodiscard]] Status continue_from(const CheckpointInfo& info);

  // Replaces bad copies that a restore has come upon by good ones, behind training. Does nothing
  // without Options::tiers.
  void heal(const CheckpointInfo& info, std::span<const MendedFile> mended);

  // The tiers of this process, as in Options::tiers. Empty on ranks that do not commit.
  [[nodiscard]] std::vector<TierStatus> tiers() const;
  // Waits until the tiers have all they are meant to have. kTimeout names those that have not; the
  // next open(), or `deepfreeze flush`, goes on with them. kFenced, kMismatch: a tier belongs to
  // another process or run.
  [[nodiscard]] Status drain(std::chrono::milliseconds timeout);

  // Collective: returns rank 0's value. For choices that depend on clocks, which differ between
  // ranks.
  [[nodiscard]] Result<bool> as_rank0(bool own);

  // Collective: success if all ranks give success; otherwise every rank gets the error of the first
  // rank that gives one, with its number in front; kMismatch if their subjects differ. For
  // restores: all fall back together, or none.
  [[nodiscard]] Status agree(std::string_view subject, const Status& own);

  // Waits for the save in flight; its error is in its handle.
  void wait();
  // Waits likewise, then for the tiers, at most Options::drain_wait_max, and gives threads and
  // memory back. An error if saves have failed, none was ever committed, and nobody has waited for
  // the first that failed. A tier that stays behind is only logged.
  [[nodiscard]] Status close();

 private:
  struct Impl;
  explicit Checkpointer(std::unique_ptr<Impl> impl);
  [[nodiscard]] Status check_usable(std::string_view operation) const;
  std::unique_ptr<Impl> impl_;
};

// For a caller without live objects: fills `targets` from the newest checkpoint that verifies, and
// falls back to an older one if one does not; kNotFound if nothing was ever committed. Collective:
// each rank gives its own targets, and reads no more than they need.
struct RestoreReport {
  CheckpointInfo restored;
  std::vector<std::pair<CheckpointInfo, Error>> fell_back_from;
};
[[nodiscard]] Result<RestoreReport> restore_newest(Checkpointer& run,
                                                   std::span<const RestoreTarget> targets);

}  // namespace deepfreeze
