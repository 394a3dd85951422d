// The farther tiers of one Checkpointer: opened, watched for the handles of its saves, and read
// together with the run's own directory.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "deepfreeze/checkpointer.h"
#include "manifest/run_directory.h"
#include "save/save_handle.h"
#include "tiering/flusher.h"

namespace deepfreeze {

// Opens, and unless `read_only` makes, the directories of the tiers. kInvalidArgument: two of them
// are one directory, or one lies in another or in the run's; or a rule makes no sense.
[[nodiscard]] Result<std::vector<FarTier>> open_tiers(const std::filesystem::path& root,
                                                      std::span<const Tier> wanted, bool read_only);

// The run on all tiers, as far as they can be read: one that can't is logged and left out.
struct TieredListing {
  RunListing merged;
  std::vector<RunListing> tiers;  // by number; the run's own directory is the first
};
[[nodiscard]] Result<TieredListing> read_tiers(Vfs& near, std::span<Vfs* const> far);

// Tells the handles of saves what the tiers have. Any thread.
class TierWatch {
 public:
  // Empty for a run without farther tiers.
  explicit TierWatch(std::vector<Tier> tiers) : tiers_(std::move(tiers)) {}

  // Before the save is committed: so no message about it is missed.
  void expect(const AttemptName& name, const std::shared_ptr<SaveHandle::State>& handle);
  void committed(const AttemptName& name, std::size_t tier);
  // The run's own directory has deleted it. A tier without it by now will not get it.
  void deleted(std::span<const AttemptName> names);
  // The save has failed.
  void forget(const AttemptName& name);
  [[nodiscard]] bool is_awaited(std::size_t tier) const;

 private:
  struct Awaited {
    AttemptName name;
    std::weak_ptr<SaveHandle::State> handle;
    std::vector<std::size_t> meant;  // the tiers that are to have it; sorted
    std::vector<std::size_t> tiers;  // those of them that do not have it yet; sorted
  };

  const std::vector<Tier> tiers_;
  mutable std::mutex mutex_;
  std::vector<Awaited> awaited_;  // guarded by mutex_; oldest first
};

}  // namespace deepfreeze
