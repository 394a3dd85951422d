// Attempts whose files lie on several nodes, each of which brings its own.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <set>
#include <thread>

#include "manifest/commit.h"
#include "manifest/remove_attempt.h"
#include "support/code_of.h"
#include "support/passing_vfs.h"
#include "tiering/flusher.h"
#include "tiering/tiers_fixture.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kShareImagesMax = 200;
constexpr std::chrono::seconds kShareWait{20};

class FlushShareTest : public testing::Test {
 protected:
  FlushShareTest() {
    set_log_sink([](std::string_view) {});
  }
  ~FlushShareTest() override { set_log_sink({}); }

  // The near directory of a node that has these files of the attempt.
  [[nodiscard]] std::unique_ptr<SimDisk> node_with(const Manifest& manifest,
                                                   const std::set<std::size_t>& files) const {
    auto disk = whole_.clone();
    for (std::size_t i = 0; i < manifest.files.size(); ++i) {
      if (files.contains(i)) continue;
      EXPECT_TRUE(disk->remove_file(path_in_run(manifest, manifest.files[i].name)));
    }
    return disk;
  }
  Status flush(SimDisk& node, const Manifest& manifest) { return flush(node, manifest, far_); }
  static Status flush(SimDisk& node, const Manifest& manifest, Vfs& far) {
    RateLimit unlimited(0);
    const std::atomic<bool> never{false};
    VfsTierStore store(far);
    DF_TRY(const RunListing listing, read_run(node));
    DF_TRY_VOID(copy_history(listing, node, store));
    return flush_attempt(node, manifest, store, {.rate = unlimited, .stop = never}, &node,
                         FlushShare::kOfNode);
  }
  [[nodiscard]] bool is_committed(SimDisk& far, const Manifest& manifest) const {
    return read_manifest(far, name_of(manifest), run_.run_id()).has_value();
  }

  SimDisk whole_;
  SimDisk far_;
  NearRun run_{whole_};
};

TEST_F(FlushShareTest, TheLastNodeGivesTheManifest) {
  const Manifest saved = run_.save(1, 3);
  const auto a = node_with(saved, {0});
  const auto b = node_with(saved, {1, 2});
  const Status early = flush(*a, saved);
  ASSERT_EQ(code_of(early), ErrorCode::kBusy);
  EXPECT_TRUE(early.error().message().contains(saved.files[1].name)) << early.error().message();
  EXPECT_FALSE(is_committed(far_, saved));
  EXPECT_TRUE(far_.contents(path_in_run(saved, saved.files[0].name)));
  EXPECT_EQ(far_.pending_count(), 0U) << "its own share is durable";
  EXPECT_EQ(text_of(flush(*b, saved)), "");
  EXPECT_TRUE(is_committed(far_, saved));
  EXPECT_EQ(text_of(flush(*a, saved)), "") << "it is there";
  EXPECT_EQ(broken_tier(far_, run_.run_id()), "");
  EXPECT_EQ(far_.list_all(), whole_.list_all());
}

// A far tier on which another node gives its file the name right after this node has settled the
// names; that node dies before it settles its own.
class OvertakenTier final : public PassingVfs {
 public:
  OvertakenTier(Vfs& disk, std::string directory, std::string file)
      : PassingVfs(disk), directory_(std::move(directory)), file_(std::move(file)) {}
  static constexpr std::string_view kUnnamed = "/rank-00000-of-00001-0-of-2.tmp";

  Status sync_dir(std::string_view name) override {
    DF_TRY_VOID(PassingVfs::sync_dir(name));
    if (name != directory_ || std::exchange(is_named_, true)) return {};
    return PassingVfs::rename_no_replace(directory_ + std::string(kUnnamed), file_);
  }

 private:
  const std::string directory_;
  const std::string file_;
  bool is_named_ = false;
};

// A cut of the far tier at each operation of the node that comes last.
TEST_F(FlushShareTest, NoPowerCutLeavesAManifestWithoutItsFiles) {
  const Manifest saved = run_.save(1, 2);
  const auto b = node_with(saved, {1});
  const std::string directory = attempt_dir_name(name_of(saved));
  const std::string file = path_in_run(saved, saved.files[0].name);
  ASSERT_EQ(code_of(flush(*b, saved)), ErrorCode::kBusy);
  ASSERT_TRUE(far_.remove_file(path_in_run(saved, saved.files[1].name)));
  ASSERT_TRUE(write_new_file(far_, directory + std::string(OvertakenTier::kUnnamed),
                             whole_.contents(file).value()));
  ASSERT_TRUE(far_.sync_dir(directory));
  const auto finish = [&](SimDisk& disk) {
    OvertakenTier tier(disk, directory, file);
    return flush(*b, saved, tier);
  };
  const auto counted = far_.clone();
  ASSERT_EQ(text_of(finish(*counted)), "");
  for (std::size_t index = 0; index < counted->operation_count(); ++index) {  // a clone counts anew
    const auto far = far_.clone();
    far->crash_at(index);
    std::ignore = finish(*far);
    for (const auto& image : far->crash_images(kShareImagesMax, index)) {
      EXPECT_EQ(broken_tier(*image, run_.run_id()), "") << index << ", " << image->label();
    }
  }
}

TEST_F(FlushShareTest, ABegunCopyIsLeftToRankZero) {
  const Manifest saved = run_.save(1, 2);
  const auto a = node_with(saved, {0});
  ASSERT_EQ(code_of(flush(*a, saved)), ErrorCode::kBusy);
  ASSERT_TRUE(remove_attempt(*a, name_of(saved)));
  EXPECT_EQ(code_of(flush(*a, saved)), ErrorCode::kGone);
  EXPECT_TRUE(far_.contents(path_in_run(saved, saved.files[0].name)));
}

class ShareFlusherTest : public FlushShareTest {
 protected:
  std::shared_ptr<Flusher> start(SimDisk& near, bool deletes_far,
                                 std::chrono::milliseconds share_wait_max = kStallMax) {
    return start([&near] { return std::make_unique<PassingVfs>(near); }, far_, deletes_far,
                 share_wait_max);
  }
  static std::shared_ptr<Flusher> start(std::function<std::unique_ptr<Vfs>()> open_near, Vfs& far,
                                        bool deletes_far,
                                        std::chrono::milliseconds share_wait_max = kStallMax) {
    Flusher::Settings settings = settings_of(std::move(open_near), far, deletes_far);
    settings.share_wait_max = share_wait_max;
    return Flusher::start(std::move(settings));
  }
  static Flusher::Settings settings_of(SimDisk& near, Vfs& far, bool deletes_far) {
    return settings_of([&near] { return std::make_unique<PassingVfs>(near); }, far, deletes_far);
  }
  static Flusher::Settings settings_of(std::function<std::unique_ptr<Vfs>()> open_near, Vfs& far,
                                       bool deletes_far) {
    Flusher::Settings settings;
    settings.open_near = [open = std::move(open_near)]() -> Result<std::unique_ptr<Vfs>> {
      return open();
    };
    FarTier tier{.place = "far", .store = std::make_unique<VfsTierStore>(far)};
    settings.tiers.push_back(std::move(tier));
    settings.share = FlushShare::kOfNode;
    settings.deletes_far = deletes_far;
    settings.generation = [] { return std::uint64_t{1}; };
    return settings;
  }
};

TEST_F(ShareFlusherTest, WaitingForOtherNodesIsNoFailure) {
  const Manifest saved = run_.save(1, 2);
  const auto a = node_with(saved, {0});
  const auto b = node_with(saved, {1});
  const auto first = start(*a, true);
  EXPECT_EQ(code_of(first->drain(std::chrono::milliseconds(300))), ErrorCode::kTimeout);
  EXPECT_EQ(first->reports()[0].failures, 0U);
  EXPECT_FALSE(first->reports()[0].error);
  EXPECT_EQ(first->reports()[0].waiting, 1U);
  const auto second = start(*b, false);
  EXPECT_EQ(text_of(second->drain(kShareWait)), "");
  EXPECT_EQ(text_of(first->drain(kShareWait)), "");
  EXPECT_TRUE(is_committed(far_, saved));
}

TEST_F(ShareFlusherTest, FilesThatNeverComeAreAFailureAndHoldUpNoOtherAttempt) {
  const Manifest whole = run_.save(1, 1);
  const Manifest lost = run_.save(2, 2);  // the newest goes first
  const auto a = node_with(lost, {0});
  const auto flusher = start(*a, true, std::chrono::milliseconds(300));
  EXPECT_EQ(code_of(flusher->drain(kShareWait, Flusher::OnFailure::kGiveUp)), ErrorCode::kTimeout);
  const TierReport report = flusher->reports()[0];
  EXPECT_GT(report.failures, 0U);
  ASSERT_TRUE(report.error);
  EXPECT_TRUE(report.error->message().contains(lost.files[1].name)) << report.error->message();
  EXPECT_TRUE(is_committed(far_, whole));
}

// Each attempt has its own time: one that others have completed long ago does not count.
TEST_F(ShareFlusherTest, EachAttemptIsWaitedForByItself) {
  constexpr std::chrono::milliseconds kShort{400};
  const Manifest first = run_.save(1, 2);
  const auto a = node_with(first, {0});
  const auto b = node_with(first, {1});
  const auto flusher = start(*a, false, kShort);
  EXPECT_EQ(code_of(flusher->drain(kShort / 4)), ErrorCode::kTimeout);
  const auto ends = Monotonic::now() + kShareWait;
  while (!has_sealed_file(far_, first, first.files[0]) && Monotonic::now() < ends) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ASSERT_EQ(text_of(flush(*b, first)), "");
  EXPECT_EQ(text_of(flusher->drain(kShareWait)), "");
  std::this_thread::sleep_for(kShort);
  const Manifest second = run_.save(2, 2);
  const std::string directory = attempt_dir_name(name_of(second));
  ASSERT_TRUE(a->make_dir(directory));
  for (const std::string& file : {second.files[0].name, std::string(kManifestFile)}) {
    a->plant(directory + "/" + file, whole_.contents(directory + "/" + file).value());
  }
  EXPECT_EQ(code_of(flusher->drain(kShort / 4)), ErrorCode::kTimeout);
  EXPECT_EQ(flusher->reports()[0].failures, 0U);
}

// One node copies from a nearer tier that is whole, and not all of them.
TEST_F(ShareFlusherTest, OneNodeAloneCopiesFromANearerTier) {
  const Manifest saved = run_.save(1, 2);
  VfsTierStore store(far_);
  ASSERT_EQ(text_of(flush_to(whole_, saved, store)), "");
  SimDisk farther;
  for (const bool deletes_far : {false, true}) {
    const auto near = node_with(saved, {0});
    Flusher::Settings settings = settings_of(*near, far_, deletes_far);
    settings.tiers.push_back(
        {.place = "farther", .store = std::make_unique<VfsTierStore>(farther)});
    const auto flusher = Flusher::start(std::move(settings));
    const Status drained = flusher->drain(std::chrono::milliseconds(deletes_far ? 20'000 : 300));
    EXPECT_EQ(drained.has_value(), deletes_far);
    EXPECT_EQ(is_committed(farther, saved), deletes_far);
    EXPECT_EQ(flusher->reports()[1].failures, 0U);
  }
}

TEST_F(ShareFlusherTest, RankZeroAloneRemovesWhatNobodyWillComplete) {
  const Manifest old = run_.save(1, 2);
  const auto a = node_with(old, {0});
  const auto other = start(*a, false);
  const auto deciding = start(*a, true);
  for (const auto& flusher : {other, deciding}) {
    EXPECT_EQ(code_of(flusher->drain(std::chrono::milliseconds(300))), ErrorCode::kTimeout);
  }
  ASSERT_TRUE(remove_attempt(*a, name_of(old)));
  EXPECT_EQ(text_of(other->drain(kShareWait)), "");
  EXPECT_TRUE(far_.contents(path_in_run(old, old.files[0].name)));
  EXPECT_EQ(text_of(deciding->drain(kShareWait)), "");
  EXPECT_FALSE(far_.contents(path_in_run(old, old.files[0].name)));
}

// The first tier is read once more before a copy is removed: just then the other node completes it.
class BusyNear final : public PassingVfs {
 public:
  BusyNear(Vfs& near, const std::function<void()>& listed) : PassingVfs(near), listed_(listed) {}
  Result<std::vector<DirEntry>> list(std::string_view name) override {
    if (name.empty()) listed_();
    return PassingVfs::list(name);
  }

 private:
  const std::function<void()>& listed_;
};

TEST_F(ShareFlusherTest, RankZeroLeavesACopyThatAnotherNodeHasJustCompleted) {
  const Manifest old = run_.save(1, 2);
  const auto a = node_with(old, {0});
  const auto b = node_with(old, {1});
  std::atomic<int> lists_left{-1};
  const std::function<void()> listed = [&] {
    if (lists_left <= 0 || --lists_left > 0) return;
    EXPECT_EQ(text_of(flush(*b, old)), "");
  };
  const auto deciding = start([&] { return std::make_unique<BusyNear>(*a, listed); }, far_, true);
  EXPECT_EQ(code_of(deciding->drain(std::chrono::milliseconds(300))), ErrorCode::kTimeout);
  ASSERT_TRUE(remove_attempt(*a, name_of(old)));
  lists_left = 4;  // the pass begins; may it delete; the history; the copies that nobody completes
  EXPECT_EQ(text_of(deciding->drain(kShareWait)), "");
  EXPECT_TRUE(is_committed(far_, old));
}

// Its near directory may be new, and lack steps that other nodes still bring.
TEST_F(ShareFlusherTest, RankZeroLeavesWhatItDoesNotKnow) {
  const Manifest old = run_.save(1, 2);
  const auto b = node_with(old, {1});
  ASSERT_EQ(code_of(flush(*b, old)), ErrorCode::kBusy);
  const auto a = node_with(old, {});
  ASSERT_TRUE(remove_attempt(*a, name_of(old)));
  const auto deciding = start(*a, true);
  EXPECT_EQ(text_of(deciding->drain(kShareWait)), "");
  EXPECT_TRUE(far_.contents(path_in_run(old, old.files[1].name)));
}

// Has no attempts until the other one, a tier, has been listed.
class LateNear final : public PassingVfs {
 public:
  LateNear(Vfs& near, std::atomic<bool>& is_late) : PassingVfs(near), is_late_(is_late) {}
  Result<std::vector<DirEntry>> list(std::string_view name) override {
    DF_TRY(auto entries, PassingVfs::list(name));
    if (is_late_) {
      std::erase_if(entries, [](const DirEntry& entry) { return entry.name.starts_with("step-"); });
    }
    return entries;
  }

 private:
  std::atomic<bool>& is_late_;
};

class ListedTier final : public PassingVfs {
 public:
  ListedTier(Vfs& far, std::atomic<bool>& is_late) : PassingVfs(far), is_late_(is_late) {}
  Result<std::vector<DirEntry>> list(std::string_view name) override {
    is_late_ = false;
    return PassingVfs::list(name);
  }

 private:
  std::atomic<bool>& is_late_;
};

TEST_F(ShareFlusherTest, RankZeroLeavesWhatAnotherNodeHasBegunMeanwhile) {
  const Manifest saved = run_.save(1, 2);
  const auto a = node_with(saved, {0});
  const auto b = node_with(saved, {1});
  ASSERT_EQ(code_of(flush(*b, saved)), ErrorCode::kBusy);
  std::atomic<bool> is_late{true};
  ListedTier far(far_, is_late);
  const auto deciding = start([&] { return std::make_unique<LateNear>(*a, is_late); }, far, true);
  EXPECT_EQ(text_of(deciding->drain(kShareWait)), "");
  EXPECT_TRUE(far_.contents(path_in_run(saved, saved.files[1].name)));
}

}  // namespace
}  // namespace deepfreeze
