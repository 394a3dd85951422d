// Power cuts while checkpoints share files: whatever a cut leaves, no file of a listed step is
// gone, each has its own bytes, and an acknowledged step is there unless newer ones replaced it.
//
// DEEPFREEZE_LINK_STATES says how many disks are checked in all; DEEPFREEZE_LINK_SEED replays one
// life.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>

#include "crash/attempt_maker.h"
#include "manifest/claims.h"
#include "manifest/history.h"
#include "manifest/retention.h"
#include "manifest/run_directory.h"
#include "manifest/run_file.h"
#include "pipeline/write_engine.h"
#include "restore/snapshot.h"
#include "save/save_job.h"
#include "support/aligned_bytes.h"
#include "support/sim_disk.h"

namespace deepfreeze::linked_life_test {
namespace {

constexpr std::size_t kStates = DF_LINK_STATES;  // fewer under a sanitizer
constexpr std::size_t kImagesMax = 60;
constexpr std::size_t kFloats = 400;
constexpr std::uint64_t kOperationsMax = 260;
constexpr std::uint64_t kSavesMax = 9;
constexpr std::size_t kStepsKept = 2;

std::optional<std::uint64_t> number_from(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  return std::strtoull(text, nullptr, 10);
}

using Values = std::vector<float>;

// The promises that were made about a run, beside its disk.
struct Promises {
  std::map<std::uint64_t, std::pair<Values, Values>> states;  // by attempt: frozen, trained
  std::optional<std::uint64_t> acked;                         // the newest save
};

// One process that saves a frozen and a trained tensor, in one thread.
class Trainer {
 public:
  Trainer(SimDisk& disk, Promises& promises, std::mt19937_64& random)
      : disk_(disk), promises_(promises), random_(random) {}

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
    if (random_() % 6 == 0) frozen_[random_() % kFloats] += 1;  // the tensor wakes
    DF_TRY_VOID(planner_.accept(request()));
    DF_TRY_VOID(planner_.make_cold({true, false}));
    DF_TRY(const SavePlan plan, planner_.plan_save(request(), next_identity(), std::nullopt));
    promises_.states[plan.identity.attempt_id] = {frozen_, trained_};
    const Status saved = run_job(plan);
    DF_TRY_VOID(saved);
    promises_.acked = plan.identity.save_index;
    DF_TRY_VOID(collect_garbage(disk_, {.last = kStepsKept, .every = {}, .best = {}}, {}));
    return {};
  }

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
        disk_, plan, image, SaveJobSettings{.write_engine = *engine_, .reuse = &reuse_}, capture,
        handle);
    capture->belongs_to(job);
    capture->session().release_all();
    capture->session().help();
    const Status written = job->write();
    kept_ = job->kept_image();
    if (job->settle(written)) return {};
    return SaveHandle(handle).wait(Level::kLocal);
  }

  SimDisk& disk_;
  Promises& promises_;
  std::mt19937_64& random_;
  Identity identity_;
  std::uint64_t step_ = 0;
  std::uint64_t save_index_ = 0;
  Values frozen_ = Values(kFloats, 1);
  Values trained_ = Values(kFloats, 2);
  SavePlanner planner_;
  AlignedBytes memory_{2 * kSlabBytes};
  KeptImage kept_;
  Reuse reuse_;
  std::unique_ptr<WriteEngine> engine_;
};

Values read(const Snapshot& snapshot, const std::string& key) {
  Values values(kFloats);
  const ReadTarget target{.key = key, .into = std::as_writable_bytes(std::span(values))};
  const Status done = snapshot.read(std::span(&target, 1), {});
  EXPECT_TRUE(done) << done.error().message();
  return values;
}

// Empty if all is well; and how many files were shared.
std::string finding_about(SimDisk& disk, const Promises& promises, std::size_t& shared) {
  const auto listing = read_run(disk);
  if (!listing) {
    return promises.acked ? "the run does not open: " + listing.error().message() : "";
  }
  std::uint64_t newest = 0;
  for (const AttemptState& attempt : listing->attempts) {
    if (attempt.fault) return "a torn record: " + attempt.fault->message();
    if (!attempt.committed()) continue;
    const Manifest& manifest = *attempt.manifest;
    const std::string name = attempt_dir_name(attempt.name);
    newest = std::max(newest, manifest.point.save_index);
    shared += shared_bytes(manifest) > 0 ? 1 : 0;
    // Another checkpoint's copy does not count.
    const auto faults = verify_attempt(disk, manifest, {});
    if (!faults || !faults->empty()) return name + " does not verify";
    const auto snapshot = Snapshot::open(disk, manifest);
    if (!snapshot) return name + ": " + snapshot.error().message();
    const auto& [frozen, trained] = promises.states.at(attempt.name.attempt_id);
    if (read(**snapshot, "frozen") != frozen || read(**snapshot, "trained") != trained) {
      return name + " has bytes of another step";
    }
  }
  if (promises.acked && newest < *promises.acked) {
    return fmt::format("save {} was acknowledged, {} is the newest", *promises.acked, newest);
  }
  return "";
}

class LinkedLife : public testing::Test {
 protected:
  // Two processes, each until the power is cut; returns how many disks were checked.
  std::size_t live(std::uint64_t seed) {
    SCOPED_TRACE(testing::Message() << "DEEPFREEZE_LINK_SEED=" << seed);
    std::mt19937_64 random(seed);
    Promises promises;
    auto disk = std::make_unique<SimDisk>();
    std::size_t states = 0;
    for (int process = 0; process < 2 && !HasFailure(); ++process) {
      if (random() % 8 == 0) disk->refuse_links();
      disk->crash_at(disk->operation_count() + random() % kOperationsMax);
      Trainer trainer(*disk, promises, random);
      Status lived = trainer.begin();
      for (std::uint64_t i = 0; i < kSavesMax && lived; ++i) {
        if (random() % 5 == 0) disk->fail_at(disk->operation_count() + random() % 12, ENOSPC);
        const bool has_failed = disk->injected().has_value();
        lived = trainer.save();
        // After an injected error it goes on.
        if (!lived && !has_failed && disk->injected()) lived = Status();
      }
      disk->power_off();
      std::unique_ptr<SimDisk> next;
      std::size_t here = 0;
      disk->for_each_crash_image(kImagesMax, random(), [&](SimDisk& image) {
        if (random() % ++here == 0) next = image.clone();
        if (HasFailure()) return;
        EXPECT_EQ(finding_about(image, promises, shared_), "") << image.label();
      });
      states += here;
      disk = std::move(next);
    }
    return states;
  }

  std::size_t shared_ = 0;  // listed steps that share a file, over all disks
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
  std::cout << "links: " << states << " states, " << shared_ << " steps in them share a file\n";
  EXPECT_GT(shared_, states / 10) << "few links were tried";
}

}  // namespace
}  // namespace deepfreeze::linked_life_test
