// An experiment: tensors that live in the arena, so that live memory is the file's image and a
// save copies next to nothing. bench/README.md says what it is for.
//
// Owns the memory that the tensors lie in: it must outlive them all. open() to close() by one
// thread, the trainer's; place() by any. What nothing guards has a place too, but does not live
// there: it is copied in before save() returns.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"
#include "checksum_thread.h"
#include "engine/run_writer.h"
#include "engine/save_plan.h"
#include "live_save.h"
#include "pipeline/write_engine.h"
#include "staging/arena.h"
#include "storage/vfs.h"

namespace deepfreeze {

inline constexpr std::size_t kCheckpointsKept = 2;
inline constexpr std::size_t kLiveSavesQueuedMax = 2;  // one is written, the next waits

enum class ChecksumTime : std::uint8_t {
  kBeforeReturn,  // by two threads, then save() returns
  kBehindIdle,    // by a thread of idle priority beside training; the fence does the rest
  kBehindNormal,  // the same at normal priority
  kAtFence,       // all of it by the fence, so that a test knows when
  kNever,         // a bound: no reader accepts such a file
};

// Fences that are off show that a test notices.
enum class Fences : std::uint8_t { kOn, kOff };

struct AdoptionOptions {
  std::filesystem::path directory;
  std::vector<TensorSpec> specs;
  ChecksumTime checksum_time = ChecksumTime::kBeforeReturn;
  Fences fences = Fences::kOn;
};

struct AdoptedSave {
  std::uint64_t step = 0;
  std::string objects;  // the state tree
  // By tensor: where it lies if that is not its place; null for those that live there.
  std::span<const std::byte* const> sources;
};

class AdoptedState {
 public:
  // What opening can fail to make.
  struct Parts {
    std::unique_ptr<Vfs> vfs;
    RunWriter writer;
    std::unique_ptr<WriteEngine> write_engine;
    Arena arena;
    TensorTable tensors;  // each at its place
    std::uint64_t data_bytes = 0;
  };
  // Takes and touches the memory, makes or opens the run.
  [[nodiscard]] static Result<std::unique_ptr<AdoptedState>> open(AdoptionOptions options);
  AdoptedState(Parts parts, const AdoptionOptions& options);
  ~AdoptedState();  // close()

  // Where a tensor is to live; zeros at first.
  [[nodiscard]] std::span<const std::byte> place(std::size_t tensor) const {
    return request_.tensors[tensor].data;
  }
  [[nodiscard]] std::size_t tensor_count() const { return request_.tensors.size(); }
  // That the places are in.
  [[nodiscard]] std::span<std::byte> memory() const { return arena_.bytes(); }

  // Begins a checkpoint of what lies in all places now. Waits for the memory of the one before.
  [[nodiscard]] Status save(const AdoptedSave& save);
  // Before anything that lives in its place changes: returns when all of the last save is
  // checksummed, which it helps with, and written to its file. What is not written yet is waited
  // for, not copied out: a PartWriter writes from one image. Returns the seconds that it took.
  double fence();
  // Until every save has settled, and older checkpoints are deleted.
  void wait();
  // Of a save; empty where there was none of this step.
  [[nodiscard]] std::optional<SaveOutcome> outcome(std::uint64_t step);
  // Waits, then gives threads and the run back. The memory stays.
  void close();

 private:
  void copy_sources(const AdoptedSave& save);
  [[nodiscard]] Result<SavePlan> make_plan();
  void begin(std::shared_ptr<LiveSave> save);
  void checksum_now();
  void wait_for_memory();
  void wait_for_saves();
  void work();
  void collect(LiveSave& save);

  const std::unique_ptr<Vfs> vfs_;
  RunWriter writer_;
  SavePlanner planner_;
  const ChecksumTime checksum_time_;
  const Fences fences_;
  const Arena arena_;
  const Image image_;
  SaveRequest request_;                              // of the last save; its tensors are the places
  const std::unique_ptr<WriteEngine> write_engine_;  // after the arena, whose memory it registers
  std::shared_ptr<LiveSave> last_;                   // also held by the worker

  std::mutex mutex_;  // guards the next three
  std::condition_variable changed_;
  std::size_t saves_unfinished_ = 0;
  std::map<std::uint64_t, SaveOutcome> outcomes_;  // by step

  std::unique_ptr<ChecksumThread> helper_;      // of save() and fences
  std::unique_ptr<ChecksumThread> background_;  // null where nothing is done behind training
  BoundedQueue<std::shared_ptr<LiveSave>> saves_{kLiveSavesQueuedMax};
  std::vector<std::jthread> worker_;  // last: it uses all above
};

}  // namespace deepfreeze
