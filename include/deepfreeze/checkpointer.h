// Saves and restores the state of one training run.
//
//   auto run = deepfreeze::Checkpointer::open("runs/heat", {});
//   auto handle = run->save({.step = 1, .tensors = table});
//   handle->wait(deepfreeze::Level::kDurable);
//
// A Checkpointer belongs to one thread at a time; handles and open checkpoints to any. A forked
// child must not use its parent's: every call there returns kUnsupported.
//
// With Options::ranks a save is of all ranks, and each writes its share: what several have alike
// (the same key, dtype, shape and box) is divided among them, the rest stays with whoever has it.
// Boxes of one key make up its whole. Before a save all agree in their callers' threads, after it
// nobody waits for anybody but through the files: rank 0 commits when all are sealed.
// That equals are equal is checked, by CRC-32C, at the first save of such tensors: kMismatch.
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

namespace deepfreeze {

// How far a save has come; each includes those before.
enum class Level : std::uint8_t {
  kCaptured,  // the state is copied: the caller may change it
  kLocal,     // the manifest is committed on the first tier
  kDurable,   // and on the last tier
};

struct SaveStatus {
  std::uint64_t step = 0;
  std::uint64_t bytes = 0;  // of the data section
  std::uint64_t bytes_copied = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t guarded_bytes = 0;  // captured after save() returned; all that is on devices
  double stall_seconds = 0;         // inside save()
  double fence_seconds = 0;         // blocked in fences since
  // What the engine's threads spent; several at once count each.
  double copy_seconds = 0;
  double checksum_seconds = 0;
  double write_seconds = 0;  // at least one write was in flight
  double commit_seconds = 0;
  double durable_seconds = 0;  // from save() to committed; 0 until then
  bool early = false;          // its capture began before save(): begin_capture()
  bool captured = false;
  bool local = false;
  bool durable = false;
  std::optional<std::uint64_t> non_finite;  // values, once written; absent without statistics
  std::vector<std::string> torn;            // keys that changed while they were captured
  std::vector<Divergence> diverged;         // once durable: see Options::audit_saves
  std::optional<Error> error;
};

class SaveHandle {
 public:
  // The save's own error, which is never kTimeout, or kTimeout. Any thread.
  [[nodiscard]] Status wait(Level level,
                            std::optional<std::chrono::milliseconds> timeout = {}) const;
  [[nodiscard]] SaveStatus status() const;

  // For a SaveRequest with `confirm`. Returns when all is copied, and nothing of the request's
  // memory is read any more; then the caller compares, and confirms. An error says the latter
  // only: the save has failed, confirm() does nothing. Any thread.
  [[nodiscard]] Status wait_copied(std::optional<std::chrono::milliseconds> timeout = {}) const;
  // `torn`: keys that the caller found changed, which fails the save. Any thread; the first call
  // counts. A save that nobody has a handle of any more, and that was not confirmed, fails; its
  // memory is read no more once the last handle is gone.
  void confirm(std::vector<std::string> torn) const;

  struct State;
  explicit SaveHandle(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  friend class Checkpointer;
  std::shared_ptr<State> state_;  // also held by the engine while the save is in flight
  std::shared_ptr<void> keeper_;  // of the caller's copies: the last one's end is noticed
};

struct SaveRequest {
  std::uint64_t step = 0;
  TensorTable tensors;
  std::string objects;  // the state tree as tagged JSON (docs/format.md); may be empty
  std::map<std::string, double> metrics;
  std::map<std::string, std::string> tags;
  std::map<std::string, std::string> environment;
  // The save counts as captured, and can be committed, only after SaveHandle::confirm(): the
  // caller has a witness of its own for the tensors that are captured later. Where none is
  // (guarded_bytes is 0), nothing waits for it.
  bool confirm = false;
  // Of devices that tensors lie on: what is copied is as the work given to these streams so far
  // leaves it, and their work from save() on waits for what has no guard; no thread waits for
  // either. A device that none is named of: behind its default stream, and save() waits.
  std::vector<DeviceStream> streams;
};

// One committed checkpoint, for lists. Where the commit record itself no longer verifies, `fault`
// says why, the numbers come from the data file's header or the directory's name, and opening it
// gives that error: so a restore that passes it over can say so.
struct CheckpointInfo {
  std::uint64_t generation = 0;
  std::uint64_t step = 0;
  std::uint64_t save_index = 0;
  std::uint64_t attempt_id = 0;
  std::int64_t wall_micros = 0;
  std::uint64_t bytes = 0;  // of all its files
  std::uint32_t world_size = 1;
  bool abandoned = false;  // the current line did not pass through it
  std::string path;        // of the attempt's directory, absolute
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

// Is told how many bytes have been read so far: by the reading threads, never by two at once, and
// never fewer than before. It must not throw.
using OnProgress = std::function<void(std::uint64_t bytes_read)>;

// A checkpoint opened for reading, its index verified.
class OpenCheckpoint {
 public:
  [[nodiscard]] const CheckpointInfo& info() const;
  // Whole tensors, sorted by key, in however many boxes they are stored.
  [[nodiscard]] const std::vector<TensorSpec>& tensors() const;
  // As that rank of info().world_size gave them; empty where there was no such rank.
  [[nodiscard]] const std::string& objects(std::uint32_t rank = 0) const;
  // kNotFound, kMismatch: nothing written. Else targets may have been: kCorrupt names file, blocks
  // and tensors; kGone where it was deleted meanwhile. Reads are verified unless `verify` is false.
  [[nodiscard]] Status read(std::span<const RestoreTarget> targets, bool verify = true,
                            const OnProgress& on_progress = {}) const;

  struct State;
  explicit OpenCheckpoint(std::shared_ptr<const State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<const State> state_;
};

// Of any run, by any process; nothing is claimed, decided or written.
// Newest first. kNotFound where `run` is not a run directory.
[[nodiscard]] Result<std::vector<CheckpointInfo>> list_checkpoints(
    const std::filesystem::path& run);
[[nodiscard]] Result<OpenCheckpoint> open_checkpoint(const CheckpointInfo& info);

// "best", "best:METRIC" or "best:METRIC:min|max", as behind a run's '@'. kInvalidArgument for
// anything else.
[[nodiscard]] Result<BestBy> parse_best(std::string_view text);

// The rules of whoever claimed the run last, as recorded by that claim. Empty where no claim can be
// read; without a rule where that process keeps everything.
[[nodiscard]] Result<std::optional<Keep>> recorded_keep(const std::filesystem::path& run);

// Of a list as list_checkpoints() gives it, newest first: the best of the current line. One that
// is known to hold NaN or infinities never is, nor one without the metric, or with NaN for it; of
// equal ones the newer is. `rule` completes `by`. kInvalidArgument where the metric, or whether
// less or more of it is better, is not known; kNotFound where no checkpoint has it.
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

// Whatever rules keep it, the newest too; durable once it returns, and well where it is gone
// already. Not of a run whose writer may be going back to it.
[[nodiscard]] Status delete_checkpoint(const CheckpointInfo& info);

class Checkpointer {
 public:
  // Makes the run where there is none; an error if this process may not write there, unless
  // Options::read_only. A relative path is made absolute here, so that it means the same directory
  // after the program has changed its own. Starts threads; takes no memory yet. Collective.
  [[nodiscard]] static Result<Checkpointer> open(const std::filesystem::path& path,
                                                 Options options);
  Checkpointer(Checkpointer&&) noexcept;
  Checkpointer& operator=(Checkpointer&&) noexcept;
  ~Checkpointer();  // close(), errors only logged

  // Returns once the tensors without a guard are copied; the rest happens on the engine's threads
  // and in fences. Empty where the save was skipped (OnBusy::kSkip). An error means that the
  // request itself is wrong (kInvalidArgument, kEncode, kUnsupported, kBusy; of any rank,
  // kMismatch where ranks contradict each other); what the machine refuses is in the handle.
  // Collective: metrics, tags and environment are rank 0's, objects each rank's own.
  [[nodiscard]] Result<std::optional<SaveHandle>> save(const SaveRequest& request);

  // In place of save() by a rank that has nothing to save, where the others may be saving: they are
  // told why, and get the error too. Collective with their save() or prewarm(); alone it does
  // nothing.
  void decline(const Error& why);

  // Sets up what the first save of such a request would: claims the run, takes and registers the
  // arena, starts threads. No tensor is read, and nothing written but the claim, so call it after a
  // restore. Waits until a save in flight is committed. Errors: save()'s, kNoSpace, kFenced, kIo.
  // Collective; among ranks it reads all tensors once, to compare what they have alike.
  [[nodiscard]] Status prewarm(const SaveRequest& request);

  // To be called before tensors of that guard, or of any, are changed: returns when nothing of
  // them is still to be copied, and helps. At once where no save is being captured. Any thread.
  // What lies on devices: the work that these streams are given from here on may change it; of
  // others, or with none named, this thread waits.
  void fence(std::uint32_t guard, std::span<const DeviceStream> streams = {});
  void fence(std::span<const DeviceStream> streams = {});

  // Capture of tensors one guard at a time, as they become final, before the save() that they
  // belong to. Takes the specs of all and the bytes of those with a guard. False where none has
  // one, or a save is still using the memory: nothing has begun.
  [[nodiscard]] Result<bool> begin_capture(const TensorTable& tensors);
  // The guard's tensors are final, those on devices with the work given to `streams` so far: from
  // here on they are captured, and must not change before fence(guard). The next save() goes on
  // from it where it is given the same tensors, all released and unchanged since; else it captures
  // anew.
  void release(std::uint32_t guard, std::span<const DeviceStream> streams = {});
  // Gives up what begin_capture() began; nothing where save() has taken it.
  void discard_capture();

  // Committed checkpoints, newest first: the order in which a restore tries them. Nothing is
  // claimed or written, so that a run may be read while another process writes it. Collective: the
  // same list on all ranks.
  [[nodiscard]] Result<std::vector<CheckpointInfo>> candidates();
  // The best of the candidates; empty where there are none. What `by` leaves open is as
  // Options::keep says, else as recorded_keep(). Errors: best_of()'s. Collective.
  [[nodiscard]] Result<std::optional<CheckpointInfo>> best(const BestBy& by = {});
  // Tells the engine from where the run goes on. Without it, and if no other Checkpointer of this
  // process restored from the run, the first save starts a new line beside the checkpoints that
  // are there, which Options::keep then leaves alone.
  // What this process saved before is abandoned where it lies beyond that point.
  [[nodiscard]] Status continue_from(const CheckpointInfo& info);

  // Collective: what rank 0 gives. For choices that clocks make, which tell each rank another time.
  [[nodiscard]] Result<bool> as_rank0(bool own);

  // Collective: nothing where all ranks give nothing; else, on all of them, the error of the first
  // that gives one, with its rank in front; kMismatch where their subjects differ. For restores:
  // all fall back together, or none.
  [[nodiscard]] Status agree(std::string_view subject, const Status& own);

  // Waits for the save in flight; its error is in its handle.
  void wait();
  // The same, and gives threads and memory back. An error if saves have failed, none was ever
  // committed, and nobody has waited for the first that failed.
  [[nodiscard]] Status close();

 private:
  struct Impl;
  explicit Checkpointer(std::unique_ptr<Impl> impl);
  [[nodiscard]] Status check_usable(std::string_view operation) const;
  std::unique_ptr<Impl> impl_;
};

// For a caller without live objects: fills `targets` from the newest checkpoint that verifies,
// falling back where one does not; kNotFound where nothing was ever committed. Collective: each
// rank gives its own targets, and reads no more than they need.
struct RestoreReport {
  CheckpointInfo restored;
  std::vector<std::pair<CheckpointInfo, Error>> fell_back_from;
};
[[nodiscard]] Result<RestoreReport> restore_newest(Checkpointer& run,
                                                   std::span<const RestoreTarget> targets);

}  // namespace deepfreeze
