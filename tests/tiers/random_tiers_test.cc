// Lives of a run on two tiers, from seeds: saves, flushes, deletions on both tiers, rot that is
// healed, a machine that is lost. The power goes at a random operation on the near tier, on the far
// one, or on both; the disks that it may leave are checked, and one of them lives on.
//
// DEEPFREEZE_TIER_STATES says how many pairs of disks are checked in all; DEEPFREEZE_TIER_SEED
// replays one life.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "manifest/history.h"
#include "manifest/retention.h"
#include "support/number_from.h"
#include "tiering/flush_plan.h"
#include "tiering/merged_run.h"
#include "tiering/tiers_fixture.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kShards = 4;             // tests that run beside each other
constexpr std::size_t kStates = DF_TIER_STATES;  // fewer under a sanitizer
constexpr std::size_t kImagesMax = 60;
constexpr std::size_t kCutsMax = 4;  // of one life
constexpr std::size_t kActionsMax = 8;
constexpr std::size_t kOperationsMax = 120;

// The acknowledgements that a program has got, and the deletions that it has begun.
struct Told {
  std::string run_id;
  std::vector<Manifest> local;        // acknowledged, in order
  std::vector<Manifest> durable;      // the same, on the far tier
  std::vector<AttemptName> leaving;   // being deleted on the near tier, since the far one has them
  std::vector<AttemptName> given_up;  // the same, since no rule wants them
  std::vector<AttemptName> leaving_far;
  std::vector<AttemptName> rotten;  // on the near tier, until they are healed
};

bool has_name(std::span<const AttemptName> names, const Manifest& manifest) {
  return is_among(names, name_of(manifest));
}

class TieredLife {
 public:
  TieredLife(SimDisk& near, SimDisk& far, Told& told, std::mt19937_64& random)
      : near_(near), far_(far), store_(far), told_(told), random_(random) {}

  void live(std::size_t actions) {
    for (; actions > 0; --actions) {
      const Status status = generation_ == 0 ? begin_process() : act();
      if (!status) story_ += fmt::format("({}) ", status.error().message());
    }
  }
  [[nodiscard]] const std::string& story() const { return story_; }

  // The next process, when all is well again: everything arrives, and nothing is broken after it.
  [[nodiscard]] Status settle() {
    DF_TRY_VOID(begin_process());
    DF_TRY_VOID(save());
    for (int rounds = 0; rounds < 50; ++rounds) {
      DF_TRY(const auto tiers, look());
      if (waiting(tiers).empty()) return {};
      DF_TRY_VOID(flush());
    }
    return fail(ErrorCode::kInternal, "the tier waits for ever");
  }

 private:
  [[nodiscard]] std::uint64_t below(std::uint64_t bound) { return random_() % bound; }

  Status begin_process() {
    story_ += "new process; ";
    generation_ = 0;
    DF_TRY_VOID(adopt_history(near_, far_));
    DF_TRY(const RunRecord run, create_or_open_run(near_, {}));
    if (told_.run_id.empty()) told_.run_id = run.run_id;
    DF_TRY(const RunListing here, read_run(near_));
    const auto there = read_run(far_);
    if (!there && there.error().code() != ErrorCode::kNotFound) {
      return std::unexpected(there.error());
    }
    std::vector<RunListing> listings = {here};
    if (there) listings.push_back(*there);
    const auto newest = newest_first(merge(listings));
    const auto from = newest.empty() ? std::nullopt : std::optional(newest.front().point);
    DF_TRY(const GenerationRecord claimed, claim_generation(near_, run.run_id, from));
    DF_TRY(const RunListing now, read_run(near_));
    DF_TRY(const std::size_t aborted, abort_undecided(near_, now, claimed.generation));
    std::ignore = aborted;
    step_ = from ? from->step : 0;
    generation_ = claimed.generation;
    return {};
  }

  Status save() {
    story_ += fmt::format("save {}; ", ++step_);
    const std::uint64_t id = random_() | 1U;
    const Identity identity =
        make_identity(told_.run_id, {generation_, step_, step_, id}, {0, 1, 0, 1});
    DF_TRY(const Manifest saved, save_attempt(near_, identity));
    told_.local.push_back(saved);
    return {};
  }

  Result<std::vector<TierSeen>> look() {
    DF_TRY(RunListing here, read_run(near_));
    DF_TRY(RunListing there, copy_history(here, near_, store_));
    return std::vector<TierSeen>{{{}, kNear, std::make_shared<RunListing>(std::move(here))},
                                 {2, kFar, std::make_shared<RunListing>(std::move(there))}};
  }

  // Rot would be refused for ever.
  std::vector<Manifest> waiting(std::span<const TierSeen> tiers) const {
    std::vector<Manifest> due = waiting_for(tiers, 1);
    std::erase_if(due, [&](const Manifest& one) { return has_name(told_.rotten, one); });
    return due;
  }

  Status flush() {
    DF_TRY(const auto tiers, look());
    const auto due = waiting(tiers);
    if (due.empty()) return {};
    story_ += fmt::format("flush {}; ", due.front().point.step);
    DF_TRY_VOID(flush_to(near_, due.front(), store_));
    told_.durable.push_back(due.front());
    return {};
  }

  Status collect_near() {
    story_ += "collect near; ";
    DF_TRY(const auto tiers, look());
    const auto held = held_on(tiers, 0);
    for (const AttemptName& name : expired(*tiers[0].listing, kNear)) {
      if (is_among(held, name)) continue;
      auto& going = is_committed_in(*tiers[1].listing, name) ? told_.leaving : told_.given_up;
      going.push_back(name);
    }
    const auto collected =
        collect_garbage(near_, kNear, {.held = [&](const RunListing&) { return held; }});
    return collected ? Status{} : std::unexpected(collected.error());
  }

  Status collect_far() {
    story_ += "collect far; ";
    DF_TRY(const RunListing there, read_run(far_));
    for (const AttemptName& name : expired(there, kFar)) told_.leaving_far.push_back(name);
    const auto collected = collect_garbage(far_, kFar);
    return collected ? Status{} : std::unexpected(collected.error());
  }

  // A bit of a copy that the far tier has, too, flips, and the copy is healed.
  Status rot_and_heal() {
    DF_TRY(const auto tiers, look());
    for (const Manifest& manifest : newest_first(*tiers[0].listing)) {
      if (!is_committed_in(*tiers[1].listing, name_of(manifest))) continue;
      story_ += fmt::format("rot {}; ", manifest.point.step);
      const ManifestFile& file = manifest.files.front();
      told_.rotten.push_back(name_of(manifest));
      if (!near_.flip_bit(path_in_run(manifest, file.name), below(8 * file.bytes))) return {};
      VfsTierStore near_store(near_);
      RateLimit unlimited(0);
      const std::atomic<bool> never{false};
      DF_TRY_VOID(copy_sealed_file({.from = far_,
                                    .manifest = manifest,
                                    .file = file,
                                    .to = near_store,
                                    .if_taken = IfTaken::kReplace},
                                   {.rate = unlimited, .stop = never}));
      DF_TRY_VOID(near_store.settle(attempt_dir_name(name_of(manifest))));
      std::erase(told_.rotten, name_of(manifest));
      return {};
    }
    return {};
  }

  Status act() {
    switch (below(12)) {
      case 0:
        return begin_process();
      case 1:
      case 2:
        return collect_near();
      case 3:
        return collect_far();
      case 4:
        return rot_and_heal();
      case 5:
      case 6:
      case 7:
      case 8:
        return flush();
      default:
        return save();
    }
  }

  static inline const Keep kNear{.last = 1, .every = {}, .best = {}};
  static inline const Keep kFar{.last = 2, .every = 4, .best = {}};

  SimDisk& near_;
  SimDisk& far_;
  VfsTierStore store_;
  Told& told_;
  std::mt19937_64& random_;
  std::string story_;
  std::uint64_t generation_ = 0;
  std::uint64_t step_ = 0;
};

// Itself, or a newer one, whose outcome its process may not have known.
bool has_as_new(Vfs& tier, const Manifest& manifest) {
  const auto listing = read_run(tier);
  if (!listing) return false;
  const auto committed = newest_first(*listing);
  return !committed.empty() && !older(committed.front().point, manifest.point);
}

// "" if both disks keep every acknowledged step.
std::string broken_promise(Vfs& near, Vfs& far, const Told& told) {
  if (told.run_id.empty()) return "";
  if (const std::string broken = broken_tier(far, told.run_id); !broken.empty()) {
    return "far: " + broken;
  }
  // A rotten copy is not read back as whole; its own check is that the far tier has it.
  if (told.rotten.empty()) {
    if (const std::string broken = broken_tier(near, told.run_id); !broken.empty()) {
      return "near: " + broken;
    }
  }
  for (const Manifest& saved : told.local) {
    if (has_name(told.given_up, saved)) continue;
    const bool is_leaving = has_name(told.leaving, saved);
    if (!is_leaving && !has_committed(near, saved)) {
      return fmt::format("step {} was local, and is not there", saved.point.step);
    }
    const bool must_be_far = is_leaving || has_name(told.rotten, saved);
    if (must_be_far && !has_name(told.leaving_far, saved) && !has_committed(far, saved)) {
      return fmt::format("step {} left the near tier, and the far one has lost it",
                         saved.point.step);
    }
  }
  for (const Manifest& saved : told.durable) {
    if (has_name(told.leaving_far, saved) || has_committed(far, saved)) continue;
    return fmt::format("step {} was durable, and is not there", saved.point.step);
  }
  if (told.local.empty() || has_as_new(near, told.local.back()) ||
      has_as_new(far, told.local.back())) {
    return "";
  }
  return fmt::format("the newest step, {}, is gone, and nothing newer is there",
                     told.local.back().point.step);
}

class CutTiers {
 public:
  explicit CutTiers(std::uint64_t seed) : seed_(seed), random_(seed) {}

  // Returns how many pairs of disks were checked.
  std::size_t run() {
    near_ = std::make_unique<SimDisk>();
    far_ = std::make_unique<SimDisk>();
    std::size_t states = 0;
    for (std::size_t cut = 1 + random_() % kCutsMax; cut > 0 && !testing::Test::HasFailure();
         --cut) {
      states += live_and_cut();
      if (random_() % 8 == 0) lose_the_machine();
    }
    return states;
  }

 private:
  std::size_t live_and_cut() {
    const std::uint64_t which = 1 + random_() % 3;
    const bool cuts_near = (which & 1U) != 0;
    const bool cuts_far = (which & 2U) != 0;
    if (cuts_near) near_->crash_at(near_->operation_count() + random_() % kOperationsMax);
    if (cuts_far) far_->crash_at(far_->operation_count() + random_() % kOperationsMax);
    TieredLife life(*near_, *far_, told_, random_);
    life.live(1 + random_() % kActionsMax);
    story_ += life.story();
    if (cuts_near) near_->power_off();
    if (cuts_far) far_->power_off();
    return check_images(cuts_near, cuts_far);
  }

  std::size_t check_images(bool cuts_near, bool cuts_far) {
    std::size_t states = 0;
    std::unique_ptr<SimDisk> next_near;
    std::unique_ptr<SimDisk> next_far;
    const auto visit = [&](SimDisk& near, SimDisk& far) {
      if (random_() % ++states == 0) {
        next_near = near.clone();
        next_far = far.clone();
      }
      check(near, far);
    };
    if (!cuts_near) {
      far_->for_each_crash_image(kImagesMax, random_(),
                                 [&](SimDisk& far) { visit(*near_->clone(), far); });
    } else {
      const auto fars = cuts_far ? far_->crash_images(kImagesMax, random_())
                                 : std::vector<std::unique_ptr<SimDisk>>();
      near_->for_each_crash_image(kImagesMax, random_(), [&](SimDisk& near) {
        const auto far = cuts_far ? fars[random_() % fars.size()]->clone() : far_->clone();
        visit(near, *far);
      });
    }
    near_ = std::move(next_near);
    far_ = std::move(next_far);
    story_ += "POWER CUT; ";
    return states;
  }

  void check(SimDisk& near, SimDisk& far) {
    const std::string where = fmt::format("DEEPFREEZE_TIER_SEED={}: {}POWER CUT (near {}; far {})",
                                          seed_, story_, near.label(), far.label());
    ASSERT_EQ(broken_promise(near, far, told_), "") << where;
    if (random_() % 4 != 0) return;
    Told told = told_;
    TieredLife next(near, far, told, random_);
    ASSERT_EQ(text_of(next.settle()), "") << where;
    ASSERT_EQ(broken_promise(near, far, told), "") << where << ", after all is well again";
  }

  // Only the steps on the far tier are left of the run.
  void lose_the_machine() {
    story_ += "THE MACHINE IS LOST; ";
    near_ = std::make_unique<SimDisk>();
    std::erase_if(told_.local, [&](const Manifest& one) { return !has_committed(*far_, one); });
    for (const Manifest& one : told_.local) told_.leaving.push_back(name_of(one));
    told_.rotten.clear();
    if (!read_run(*far_)) told_ = {};
  }

  const std::uint64_t seed_;
  std::mt19937_64 random_;
  std::string story_;
  std::unique_ptr<SimDisk> near_;
  std::unique_ptr<SimDisk> far_;
  Told told_;
};

class RandomTiers : public testing::TestWithParam<std::uint64_t> {
 protected:
  RandomTiers() {
    set_log_sink([](std::string_view) {});
  }  // repairs are expected
  ~RandomTiers() override { set_log_sink({}); }
};

TEST_P(RandomTiers, EveryPromiseHoldsAfterPowerCutsOnEitherTier) {
  if (const auto seed = number_from("DEEPFREEZE_TIER_SEED")) {
    CutTiers(*seed).run();
    return;
  }
  const std::size_t wanted = number_from("DEEPFREEZE_TIER_STATES").value_or(kStates) / kShards;
  std::size_t states = 0;
  std::size_t lives = 0;
  for (std::uint64_t seed = GetParam(); states < wanted && !HasFailure(); seed += kShards) {
    states += CutTiers(seed).run();
    ++lives;
  }
  std::printf("%zu states after power cuts in %zu lives\n", states, lives);
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomTiers, testing::Range(std::uint64_t{1}, kShards + 1));

}  // namespace
}  // namespace deepfreeze
