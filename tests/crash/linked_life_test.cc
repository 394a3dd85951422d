// Power cuts while checkpoints share files, are forked, and their parent is deleted: behind every
// cut no file of a listed step is gone, each has its own bytes, and an acknowledged step or
// fork is there unless newer ones replaced it.
//
// DEEPFREEZE_LINK_STATES says how many disks are checked in all; DEEPFREEZE_LINK_SEED replays one
// life.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <random>

#include "crash/attempt_maker.h"
#include "manifest/claims.h"
#include "manifest/history.h"
#include "manifest/record_file.h"
#include "manifest/retention.h"
#include "manifest/run_directory.h"
#include "manifest/run_file.h"
#include "pipeline/write_engine.h"
#include "restore/snapshot.h"
#include "save/save_job.h"
#include "support/aligned_bytes.h"
#include "support/directory_vfs.h"
#include "support/number_from.h"
#include "support/sim_disk.h"
#include "tiering/fork.h"

namespace deepfreeze::linked_life_test {
namespace {

constexpr std::size_t kStates = DF_LINK_STATES;  // fewer under a sanitizer
constexpr std::size_t kStatesToCount = 1'000;
constexpr std::size_t kImagesMax = 60;
constexpr std::size_t kFloats = 400;
constexpr std::uint64_t kOperationsMax = 600;
constexpr std::uint64_t kForkOperations = 32;  // so many and some more
constexpr int kProcesses = 3;                  // in turn
constexpr std::size_t kRunsMax = 4;
constexpr int kActsMax = 60;

using Values = std::vector<float>;

using States = std::map<std::uint64_t, std::pair<Values, Values>>;  // by attempt: frozen, trained

// A run, and the promises that were made about it.
struct SharedRun {
  std::string directory;
  std::string parent = {};
  std::optional<std::uint64_t> acked = {};  // the newest save
};

struct Counts {
  std::size_t shared = 0;     // listed steps that share a file, over all disks
  std::size_t orphans = 0;    // and steps of forks whose parent is gone
  std::size_t forks = 0;      // acknowledged
  std::size_t refreshes = 0;  // of a copy that was still good
};

// One process that saves a frozen and a trained tensor, in one thread.
class Trainer {
 public:
  Trainer(SimDisk& disk, SharedRun& run, States& states, std::mt19937_64& random)
      : disk_(disk, run.directory),
        run_(run),
        states_(states),
        random_(random),
        frozen_(kFloats, static_cast<float>(random() % 1'000)) {
    keep_.last = 1 + random() % 3;
    if (random() % 3 == 0) keep_.every = 3;
    ColdLimits limits;
    if (random() % 2 == 0) limits.saves_max = 3 + random() % 4;
    if (random() % 8 == 0) limits.age_max = {};
    reuse_ = std::make_unique<Reuse>(ColdRules(), limits);
  }

  Status begin() {
    DF_TRY(const RunRecord run, create_or_open_run(disk_, std::nullopt));
    DF_TRY(const RunListing listing, read_run(disk_));
    std::optional<Point> newest;
    for (const AttemptState& attempt : listing.attempts) {
      if (!attempt.committed()) continue;
      if (!newest || older(*newest, attempt.manifest->point)) newest = attempt.manifest->point;
    }
    step_ = newest ? newest->step : 0;
    save_index_ = newest ? newest->save_index : 0;
    DF_TRY(const GenerationRecord claim, claim_generation(disk_, run.run_id, newest));
    identity_ = {.run_id = run.run_id, .generation = claim.generation};
    DF_TRY(engine_, WriteEngine::open({.mode = IoMode::kBuffered, .writes_in_flight = 1}));
    return {};
  }

  Status save() {
    for (float& value : trained_) value += 1;
    if (random_() % 10 == 0) frozen_[random_() % kFloats] += 1;  // the tensor wakes
    DF_TRY_VOID(planner_.accept(request()));
    DF_TRY_VOID(planner_.make_cold({true, false}));
    DF_TRY(const SavePlan plan, planner_.plan_save(request(), next_identity(), std::nullopt));
    states_[plan.identity.attempt_id] = {frozen_, trained_};
    const ColdFiles::Turn turn = reuse_->files.next_turn();
    const bool is_good =
        reuse_->files.are_of(plan.table) && !reuse_->files.sources(turn.copy).empty();
    DF_TRY_VOID(run_job(plan));
    refreshes_ += is_good && turn.must_write ? 1 : 0;
    run_.acked = plan.identity.save_index;
    DF_TRY_VOID(collect_garbage(disk_, keep_, {}));
    return {};
  }
  [[nodiscard]] const SharedRun& run() const { return run_; }
  [[nodiscard]] std::size_t refreshes() const { return refreshes_; }

 private:
  [[nodiscard]] SaveRequest request() const {
    return {.step = step_ + 1, .tensors = {tensor("frozen", frozen_), tensor("trained", trained_)}};
  }
  static Tensor tensor(std::string key, const Values& values) {
    return {.spec = {.key = std::move(key), .dtype = DType::kF32, .shape = {kFloats}},
            .data = std::as_bytes(std::span(values))};
  }
  Identity next_identity() {
    identity_.step = ++step_;
    identity_.save_index = ++save_index_;
    identity_.attempt_id = random_();
    return identity_;
  }

  Status run_job(const SavePlan& plan) {
    const Image image(memory_.bytes(), plan.image_sections(), kSlabBytes);
    CaptureSpec spec{.image = image, .block_bytes = kBlockBytes, .items = plan.items};
    if (kept_.table == plan.table) spec.old_block_crcs = kept_.block_crcs;
    const auto capture = std::make_shared<LiveCapture>(std::move(spec));
    const auto handle = make_handle_state(plan.identity.step);
    const auto job = std::make_shared<SaveJob>(
        disk_, plan, image, SaveJobSettings{.write_engine = *engine_, .reuse = reuse_.get()},
        capture, handle);
    capture->belongs_to(job);
    capture->session().release_all();
    capture->session().help();
    const Status written = job->write();
    kept_ = job->kept_image();
    if (job->settle(written)) return {};
    return SaveHandle(handle).wait(Level::kLocal);
  }

  DirectoryVfs disk_;
  SharedRun& run_;
  States& states_;
  std::mt19937_64& random_;
  Identity identity_;
  std::uint64_t step_ = 0;
  std::uint64_t save_index_ = 0;
  Values frozen_;
  Values trained_ = Values(kFloats, 2);
  SavePlanner planner_;
  AlignedBytes memory_{2 * kSlabBytes};
  KeptImage kept_;
  Keep keep_;
  std::unique_ptr<Reuse> reuse_;
  std::size_t refreshes_ = 0;
  std::unique_ptr<WriteEngine> engine_;
};

Status remove_tree(Vfs& disk, const std::string& directory) {
  DF_TRY(const std::vector<DirEntry> entries, disk.list(directory));
  for (const DirEntry& entry : entries) {
    const std::string name = join_name(directory, entry.name);
    DF_TRY_VOID(entry.is_directory ? remove_tree(disk, name) : disk.remove_file(name));
  }
  return disk.remove_dir(directory);
}

// The users of one disk until its power is cut: a trainer, and a person that forks and deletes
// runs.
class Users {
 public:
  Users(SimDisk& disk, std::list<SharedRun>& runs, States& states, std::mt19937_64& random)
      : disk_(disk), runs_(runs), states_(states), random_(random) {
    cut_within(kOperationsMax);
  }

  Status act() {
    const std::uint64_t drawn = random_() % 16;
    if (trainer_ == nullptr || drawn == 0) return train_another();
    if (drawn <= 2) return fork();
    if (drawn == 3) return delete_another();
    return trainer_->save();
  }
  [[nodiscard]] bool has_power() const { return disk_.operation_count() < cut_; }
  [[nodiscard]] std::size_t forks() const { return forks_; }
  [[nodiscard]] std::size_t refreshes() const {
    return refreshes_ + (trainer_ == nullptr ? 0 : trainer_->refreshes());
  }

 private:
  SharedRun& any_run() {
    return *std::next(runs_.begin(), static_cast<int>(random_() % runs_.size()));
  }

  void cut_within(std::size_t operations) {
    cut_ = std::min(cut_, disk_.operation_count() + random_() % operations);
    disk_.crash_at(cut_);
  }

  Status train_another() {
    SharedRun& run = any_run();
    if (!run.parent.empty() && !run.acked) return {};  // a fork that did not succeed
    refreshes_ = refreshes();
    trainer_.reset();
    auto trainer = std::make_unique<Trainer>(disk_, run, states_, random_);
    DF_TRY_VOID(trainer->begin());
    trainer_ = std::move(trainer);
    return {};
  }

  Status fork() {
    const SharedRun& parent = any_run();
    if (runs_.size() == kRunsMax || !parent.acked) return {};
    if (random_() % 2 == 0) cut_within(kForkOperations);
    DirectoryVfs from(disk_, parent.directory);
    DF_TRY(const RunListing listing, read_run(from));
    std::vector<Manifest> committed;
    for (const AttemptState& attempt : listing.attempts) {
      if (attempt.committed()) committed.push_back(*attempt.manifest);
    }
    const Manifest& chosen = committed.at(random_() % committed.size());
    const std::string directory = fmt::format("fork-{}", random_());
    DF_TRY_VOID(disk_.make_dir(directory));
    DF_TRY_VOID(disk_.sync_dir(""));
    SharedRun& run =
        runs_.emplace_back(SharedRun{.directory = directory, .parent = parent.directory});
    DirectoryVfs to(disk_, directory);
    DF_TRY(const Forked forked, fork_attempt(from, chosen, parent.directory, to));
    run.acked = forked.manifest.point.save_index;
    ++forks_;
    return {};
  }

  Status delete_another() {
    const SharedRun& run = any_run();
    if (runs_.size() == 1 || &run == &trainer_->run()) return {};
    const std::string directory = run.directory;
    runs_.remove_if([&](const SharedRun& each) { return &each == &run; });
    return remove_tree(disk_, directory);
  }

  SimDisk& disk_;
  std::list<SharedRun>& runs_;
  States& states_;
  std::mt19937_64& random_;
  std::size_t cut_ = std::numeric_limits<std::size_t>::max();  // the operation without power
  std::unique_ptr<Trainer> trainer_;
  std::size_t forks_ = 0;
  std::size_t refreshes_ = 0;  // of earlier trainers
};

Values read(const Snapshot& snapshot, const std::string& key) {
  Values values(kFloats);
  const ReadTarget target{.key = key, .into = std::as_writable_bytes(std::span(values))};
  const Status done = snapshot.read(std::span(&target, 1), {});
  EXPECT_TRUE(done) << done.error().message();
  return values;
}

// The attempt that wrote the trained tensor: of a fork, one of another run.
std::uint64_t writer_of(const Manifest& manifest) {
  return origin_of(manifest, manifest.files.front()).point.attempt_id;
}

// Empty if all is well.
std::string finding_about(Vfs& disk, const Manifest& manifest, const States& states) {
  // Another checkpoint's copy does not count.
  const auto faults = verify_attempt(disk, manifest, {});
  if (!faults || !faults->empty()) return "does not verify";
  const auto snapshot = Snapshot::open(disk, manifest);
  if (!snapshot) return snapshot.error().message();
  const auto state = states.find(writer_of(manifest));
  if (state == states.end()) return "was never begun";
  const auto& [frozen, trained] = state->second;
  if (read(**snapshot, "frozen") == frozen && read(**snapshot, "trained") == trained) return "";
  return "has bytes of another step";
}

std::string finding_about(Vfs& disk, const SharedRun& run, const States& states, Counts& counts,
                          bool is_orphan) {
  const auto listing = read_run(disk);
  if (!listing) return run.acked ? "the run does not open: " + listing.error().message() : "";
  std::uint64_t newest = 0;
  for (const AttemptState& attempt : listing->attempts) {
    if (attempt.fault) return "a torn record: " + attempt.fault->message();
    if (!attempt.committed()) continue;
    const std::string finding = finding_about(disk, *attempt.manifest, states);
    if (!finding.empty()) return attempt_dir_name(attempt.name) + " " + finding;
    newest = std::max(newest, attempt.manifest->point.save_index);
    counts.shared += shared_bytes(*attempt.manifest) > 0 ? 1 : 0;
    counts.orphans += is_orphan ? 1 : 0;
  }
  if (run.acked && newest < *run.acked) {
    return fmt::format("save {} was acknowledged, {} is the newest", *run.acked, newest);
  }
  return "";
}

class LinkedLife : public testing::Test {
 protected:
  // Some processes, each until the power is cut; returns how many disks were checked.
  std::size_t live(std::uint64_t seed) {
    SCOPED_TRACE(testing::Message() << "DEEPFREEZE_LINK_SEED=" << seed);
    std::mt19937_64 random(seed);
    States states;
    std::list<SharedRun> runs = {{.directory = "run"}};
    auto disk = std::make_unique<SimDisk>();
    EXPECT_TRUE(disk->make_dir("run") && disk->sync_dir(""));
    std::size_t count = 0;
    for (int process = 0; process < kProcesses && !HasFailure(); ++process) {
      if (random() % 8 == 0) disk->refuse_links();
      live_until_cut(*disk, runs, states, random);
      disk->power_off();
      std::unique_ptr<SimDisk> next;
      std::size_t here = 0;
      disk->for_each_crash_image(kImagesMax, random(), [&](SimDisk& image) {
        if (random() % ++here == 0) next = image.clone();
        if (!HasFailure()) check(image, runs, states);
      });
      count += here;
      disk = std::move(next);
    }
    return count;
  }

  // After an error that was injected others may come; no act fails without one.
  void live_until_cut(SimDisk& disk, std::list<SharedRun>& runs, States& states,
                      std::mt19937_64& random) {
    Users users(disk, runs, states, random);
    bool has_failed = false;
    for (int acts = 0; acts < kActsMax && users.has_power(); ++acts) {
      if (random() % 12 == 0) disk.fail_at(disk.operation_count() + random() % 12, ENOSPC);
      const Status done = users.act();
      has_failed = has_failed || disk.injected();
      EXPECT_TRUE(done || has_failed || !users.has_power()) << done.error().message();
    }
    counts_.forks += users.forks();
    counts_.refreshes += users.refreshes();
  }

  void check(SimDisk& image, const std::list<SharedRun>& runs, const States& states) {
    for (const SharedRun& run : runs) {
      DirectoryVfs disk(image, run.directory);
      const bool is_orphan =
          !run.parent.empty() && std::ranges::none_of(runs, [&](const SharedRun& each) {
            return each.directory == run.parent;
          });
      EXPECT_EQ(finding_about(disk, run, states, counts_, is_orphan), "")
          << run.directory << ": " << image.label();
    }
  }

  Counts counts_;
};

TEST_F(LinkedLife, NoPowerCutTakesAFileFromAStepThatIsListed) {
  if (const auto seed = number_from("DEEPFREEZE_LINK_SEED")) {
    live(*seed);
    return;
  }
  const std::uint64_t wanted = number_from("DEEPFREEZE_LINK_STATES").value_or(kStates);
  std::uint64_t seed = std::random_device{}();
  std::cout << "first seed " << seed << "\n";
  std::size_t states = 0;
  while (states < wanted && !HasFailure()) states += live(seed++);
  std::cout << "links: " << states << " states, " << counts_.shared
            << " steps in them share a file, " << counts_.orphans
            << " are in forks without a parent; " << counts_.forks << " forks, "
            << counts_.refreshes << " copies written anew\n";
  EXPECT_GT(counts_.shared, states / 10) << "few links were tried";
  if (states < kStatesToCount) return;  // under a sanitizer: too few lives to tell
  EXPECT_GT(counts_.orphans, states / 100) << "few parents were deleted";
  EXPECT_GT(counts_.refreshes, states / 1'000) << "few copies were written anew";
}

}  // namespace
}  // namespace deepfreeze::linked_life_test
