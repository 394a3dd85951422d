// The farther tiers of one Checkpointer: watched for the handles of its saves, and read together
// with the run's own directory.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "deepfreeze/checkpointer.h"
#include "manifest/run_directory.h"
#include "save/save_handle.h"
#include "tiering/flusher.h"
#include "tiering/open_tiers.h"

namespace deepfreeze {

// The run on all tiers. An error if one of them can't be read, or holds another run: a newer
// checkpoint might lie there.
struct TieredListing {
  RunListing merged;
  std::vector<RunListing> tiers;  // by number; the run's own directory is the first
};
[[nodiscard]] Result<TieredListing> read_tiers(Vfs& near, std::span<Vfs* const> far);

// The messages between a flusher's threads and the saves of a Checkpointer. Any thread; a thread
// that hangs may use it after the Checkpointer is gone.
class TierWatch {
 public:
  // Empty for a run without farther tiers.
  explicit TierWatch(std::vector<Tier> tiers) : tiers_(std::move(tiers)) {}

  // Before the save is committed: so no message about it is missed.
  void expect(const AttemptName& name, const std::shared_ptr<SaveHandle::State>& handle);
  // The save has failed.
  void forget(const AttemptName& name);
  // Attempts that are committed in the run's own directory and not settled on the tier.
  [[nodiscard]] std::vector<AttemptName> awaited(std::size_t tier);
  void tell(const AttemptName& name, std::size_t tier, Flusher::Fate fate, std::string_view why);
  // Nothing is told any more: callers that still wait learn why.
  void end(std::string_view why);

  // Of this process's last commit; 0: none.
  std::atomic<std::uint64_t> generation{0};

 private:
  struct Awaited {
    AttemptName name;
    std::weak_ptr<SaveHandle::State> handle;
    std::vector<std::size_t> tiers;  // on which it is not settled
  };

  const std::vector<Tier> tiers_;
  std::mutex mutex_;
  std::vector<Awaited> awaited_;  // guarded by mutex_; oldest first
};

}  // namespace deepfreeze
