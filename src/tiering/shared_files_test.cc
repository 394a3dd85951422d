// Files that checkpoints share, on tiers with hard links and on an object store. The faults of
// S3Fault that are not tried here are tried by object_flush_test.cc.
#include "tiering/shared_files.h"

#include <algorithm>
#include <atomic>
#include <semaphore>
#include <thread>

#include "base/fail_point.h"
#include "format/file_reference.h"
#include "manifest/parts_check.h"
#include "manifest/remove_attempt.h"
#include "object/object_tier.h"
#include "support/code_of.h"
#include "support/fake_s3.h"
#include "support/passing_vfs.h"
#include "tiering/flusher.h"
#include "tiering/tiers_fixture.h"

namespace deepfreeze::shared_files_test {
namespace {

constexpr std::size_t kColdBytes = kReferredBytesMin + 5000;
constexpr std::size_t kRequestsMax = 300;

// A run whose attempts have a file of their own and one in common: that of the first one, or, if
// the run is a fork, of an attempt of another run.
class SharingRun {
 public:
  explicit SharingRun(SimDisk& disk, bool is_fork = false) : disk_(disk), is_fork_(is_fork) {
    run_id_ = create_or_open_run(disk_, {}).value().run_id;
    std::ignore = claim_generation(disk_, run_id_, std::nullopt).value();
  }
  Manifest save() {
    const std::uint64_t step = ++saves_;
    Identity identity = make_identity(run_id_, {1, step, step, 0xc000 + step}, {0, 1, 0, 2});
    EXPECT_TRUE(begin_attempt(disk_, name_of(identity)));
    EXPECT_TRUE(write_and_seal(disk_, identity));
    identity.part.file = 1;
    bring_cold(identity);
    CheckedParts parts{.files = {}, .annotations = {}};
    for (const std::uint32_t file : {0U, 1U}) {
      identity.part.file = file;
      parts.files.push_back(listed(identity));
    }
    if (is_fork_ || first_) parts.files[1].origin = origin();
    if (is_fork_ && !first_) parts.annotations.parent = ParentPoint{"/parent", kParentPoint.step};
    const std::vector<ManifestFile> here = parts.files;
    identity.part.file = 0;
    Manifest saved = conclude_attempt(disk_, make_request(identity), parts, here).value();
    if (!first_) first_ = saved;
    return saved;
  }
  // With nothing in common.
  Manifest save_alone() {
    const std::uint64_t step = ++saves_;
    return save_attempt(disk_, make_identity(run_id_, {1, step, step, 0xc000 + step})).value();
  }
  [[nodiscard]] const std::string& run_id() const { return run_id_; }

 private:
  static constexpr Point kParentPoint{1, 77, 1, 0xdd};

  [[nodiscard]] Origin origin() const {
    return is_fork_ ? Origin{"00000000000000dd", kParentPoint} : Origin{run_id_, first_->point};
  }
  void bring_cold(const Identity& identity) {
    const std::string path =
        join_name(attempt_dir_name(name_of(identity)), part_file_name(identity.part));
    if (first_) {
      EXPECT_TRUE(disk_.link_file(path_in_run(*first_, sealed_file_name(identity.part)), path));
    } else {
      const Identity writer =
          is_fork_ ? make_identity(origin().run_id, kParentPoint, identity.part) : identity;
      const auto data = make_data(writer, kColdBytes);
      EXPECT_TRUE(write_part(disk_, path, make_header(writer, data), data));
    }
    EXPECT_TRUE(seal_parts(disk_, name_of(identity), std::span(&identity.part, 1)));
  }
  [[nodiscard]] ManifestFile listed(const Identity& identity) {
    const std::string name = sealed_file_name(identity.part);
    const PartHeader part =
        read_part_header(disk_, join_name(attempt_dir_name(name_of(identity)), name)).value();
    return {.name = name, .bytes = part.file_bytes, .header_crc = part.crc};
  }

  SimDisk& disk_;
  const bool is_fork_;
  std::string run_id_;
  std::optional<Manifest> first_;
  std::uint64_t saves_ = 0;
};

class SharedFiles : public testing::Test {
 protected:
  SharedFiles() {
    set_log_sink([](std::string_view) {});
  }
  ~SharedFiles() override { set_log_sink({}); }

  // As the flusher does it: with the tier as it was listed before, or with an older listing.
  Status flush(const Manifest& manifest, TierStore& far, const RunListing* listing = nullptr) {
    return flush_from(near_, manifest, far, listing);
  }
  Status flush_from(Vfs& near, const Manifest& manifest, TierStore& far,
                    const RunListing* listing = nullptr) {
    RateLimit unlimited(0);
    const std::atomic<bool> never{false};
    DF_TRY(const RunListing own, read_run(near));
    DF_TRY(const RunListing there, copy_history(own, near, far));
    sent_ = 0;
    const CopySettings settings = {
        .rate = unlimited,
        .stop = never,
        .on_bytes = [&](std::uint64_t, std::uint64_t sent) { sent_ += sent; },
        .there = listing != nullptr ? listing : &there};
    return flush_attempt(near, manifest, far, settings, &near);
  }
  [[nodiscard]] bool sent_cold() const { return sent_ > kColdBytes; }
  static std::string cold_of(const Manifest& manifest) {
    return path_in_run(manifest, manifest.files[1].name);
  }

  SimDisk near_;
  SharingRun run_{near_};
  std::uint64_t sent_ = 0;  // by the last flush
};

class LinkedOnATier : public SharedFiles {
 protected:
  SimDisk far_;
  VfsTierStore store_{far_};
};

TEST_F(LinkedOnATier, AreSentTwiceAndThenLinkedInTurn) {
  std::vector<Manifest> saved;
  for (int i = 0; i < 7; ++i) {
    saved.push_back(run_.save());
    if (i == 0) continue;  // the tier does not want the first, for which the file was written
    ASSERT_EQ(text_of(flush(saved.back(), store_)), "");
    EXPECT_EQ(sent_cold(), i == 1 || i == 3) << i;
    EXPECT_TRUE(has_committed(far_, saved.back()));
  }
  EXPECT_EQ(broken_tier(far_, run_.run_id()), "");
  ASSERT_TRUE(far_.flip_bit(cold_of(saved[5]), 8 * kColdBytes));
  for (std::size_t i = 1; i < saved.size(); ++i) {
    const bool is_the_first_copy = i < 3 || i == 5;
    EXPECT_EQ(verify_attempt(far_, saved[i]).has_value(), !is_the_first_copy) << i;
  }
}

TEST_F(LinkedOnATier, AreSentTwiceByAForkToo) {
  SimDisk disk;
  SharingRun fork(disk, true);
  for (int i = 0; i < 4; ++i) {
    const Manifest saved = fork.save();
    ASSERT_EQ(text_of(flush_from(disk, saved, store_)), "");
    EXPECT_EQ(sent_cold(), i == 0 || i == 2) << i;
  }
  EXPECT_EQ(broken_tier(far_, fork.run_id()), "");
}

TEST_F(LinkedOnATier, AreLinkedIfOneCheckpointIsKept) {
  for (int i = 0; i < 4; ++i) {
    const Manifest saved = run_.save();
    ASSERT_EQ(text_of(flush(saved, store_)), "");
    EXPECT_EQ(sent_cold(), i < 1) << i;
    ASSERT_TRUE(collect_garbage(far_, {.last = 1}));
  }
  EXPECT_EQ(broken_tier(far_, run_.run_id()), "");
}

TEST_F(LinkedOnATier, AreSentIfTheTierRefusesLinks) {
  far_.refuse_links();
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(text_of(flush(run_.save(), store_)), "");
    EXPECT_TRUE(sent_cold()) << i;
  }
  EXPECT_EQ(broken_tier(far_, run_.run_id()), "");
}

TEST_F(LinkedOnATier, AreSentIfTheListingIsOldOrTheCopyIsNotTheirs) {
  const Manifest first = run_.save();
  ASSERT_EQ(text_of(flush(first, store_)), "");
  const RunListing old = read_run(far_).value();
  ASSERT_TRUE(remove_attempt(far_, name_of(first)));
  const Manifest second = run_.save();
  ASSERT_EQ(text_of(flush(second, store_, &old)), "");
  EXPECT_TRUE(sent_cold());
  ASSERT_TRUE(far_.flip_bit(cold_of(second), 100));  // of the header
  const Manifest third = run_.save();
  ASSERT_EQ(text_of(flush(third, store_)), "");
  EXPECT_TRUE(sent_cold());
  EXPECT_EQ(text_of(verify_attempt(far_, third)), "");
}

// The power fails at the link, and after it; the next flusher completes the attempt.
TEST_F(LinkedOnATier, AnEndAtTheLinkLeavesAWholeRun) {
  std::vector<Manifest> saved;
  for (int i = 0; i < 4; ++i) {
    saved.push_back(run_.save());
    if (i == 3) break;
    ASSERT_EQ(text_of(flush(saved.back(), store_)), "");
  }
  ASSERT_TRUE(fail_points::arm("tier.linked=error"));
  EXPECT_TRUE(flush(saved.back(), store_)) << "it is sent instead";
  fail_points::disarm();
  ASSERT_TRUE(fail_points::arm("flush.file=error@2"));
  const Manifest last = run_.save();
  EXPECT_FALSE(flush(last, store_));
  fail_points::disarm();
  far_.power_off();
  for (const auto& image : far_.crash_images(40, 0)) {
    ASSERT_EQ(broken_tier(*image, run_.run_id()), "") << image->label();
    VfsTierStore again(*image);
    ASSERT_EQ(text_of(flush(last, again)), "") << image->label();
    EXPECT_TRUE(has_committed(*image, last));
    EXPECT_EQ(broken_tier(*image, run_.run_id()), "") << image->label();
  }
}

class ReferredInAStore : public SharedFiles {
 protected:
  struct Far {
    FakeTime time;
    std::shared_ptr<FakeS3> store = std::make_shared<FakeS3>(time);
    std::unique_ptr<TierStore> tier = open(store);

    std::unique_ptr<TierStore> open(const std::shared_ptr<HttpTransport>& transport) {
      return make_object_tier(std::make_shared<S3Client>(FakeS3::settings(transport, time)));
    }
    // Of another process, which no fault and no hook meets.
    std::unique_ptr<TierStore> other() { return open(std::make_shared<UnharmedS3>(store)); }
    [[nodiscard]] std::size_t shared_keys() const {
      return static_cast<std::size_t>(std::ranges::count_if(
          store->keys(), [](const std::string& key) { return key.starts_with("shared/"); }));
    }
  };

  std::string broken(Far& far) { return broken_tier(far.other()->view(), run_.run_id()); }
  static bool is_committed(Far& far, const Manifest& saved) {
    return has_committed(far.other()->view(), saved);
  }
  // With nothing known of before: it reads all.
  static Status sweep(TierStore& store) { return sweep_shared_files(store, RunListing{}); }
  static Status remove(TierStore& store, const Manifest& saved) {
    return remove_attempt(store.view(), name_of(saved));
  }
  void race_sweeps_and_flushes(bool flush_is_late);
};

TEST_F(ReferredInAStore, AreSentOnceMoreAndThenReferredTo) {
  Far far;
  std::vector<Manifest> saved;
  for (int i = 0; i < 5; ++i) {
    saved.push_back(run_.save());
    ASSERT_EQ(text_of(flush(saved.back(), *far.tier)), "");
    EXPECT_EQ(sent_cold(), i < 2) << i;
    EXPECT_TRUE(is_committed(far, saved.back()));
  }
  EXPECT_EQ(broken(far), "");
  EXPECT_EQ(far.shared_keys(), 1U);
  EXPECT_EQ(far.store->contents(cold_of(saved[4])).value().size(), kReferenceBytes);
  for (const std::string& key : far.store->keys()) {
    if (!key.starts_with("shared/")) continue;
    ASSERT_TRUE(far.store->flip_bit(key, 8 * kColdBytes));
    EXPECT_TRUE(verify_attempt(far.tier->view(), saved[0])) << "it has its own";
    EXPECT_FALSE(verify_attempt(far.tier->view(), saved[4]));
  }
}

TEST_F(ReferredInAStore, GoWithTheLastThatRefersToThem) {
  Far far;
  std::vector<Manifest> saved;
  for (int i = 0; i < 4; ++i) {
    saved.push_back(run_.save());
    ASSERT_EQ(text_of(flush(saved.back(), *far.tier)), "");
  }
  for (std::size_t i = 0; i < saved.size(); ++i) {
    EXPECT_EQ(far.shared_keys(), 1U) << i;
    ASSERT_EQ(text_of(remove(*far.tier, saved[i])), "");
    ASSERT_EQ(text_of(sweep(*far.tier)), "");
    EXPECT_EQ(broken(far), "") << i;
  }
  EXPECT_EQ(far.shared_keys(), 0U);
}

TEST_F(ReferredInAStore, StayForAnAttemptThatHasNoManifestYet) {
  const Manifest first = run_.save();
  const Manifest second = run_.save();
  for (const char* point : {"flush.referred", "flush.checked"}) {
    Far far;
    ASSERT_EQ(text_of(flush(first, *far.tier)), "");
    ASSERT_TRUE(fail_points::arm(std::string(point) + "=error"));
    EXPECT_FALSE(flush(second, *far.tier)) << point;
    fail_points::disarm();
    ASSERT_EQ(text_of(sweep(*far.tier)), "");
    EXPECT_EQ(far.shared_keys(), 1U) << point;
    ASSERT_EQ(text_of(flush(second, *far.tier)), "");
    EXPECT_FALSE(sent_cold()) << point;
    EXPECT_EQ(broken(far), "") << point;
  }
}

TEST_F(ReferredInAStore, AreSweptByTheFlusher) {
  Far far;
  for (int i = 0; i < 2; ++i) ASSERT_EQ(text_of(flush(run_.save(), *far.other())), "");
  ASSERT_EQ(far.shared_keys(), 1U);
  const Manifest last = run_.save_alone();
  Flusher::Settings settings;
  settings.open_near = [&]() -> Result<std::unique_ptr<Vfs>> {
    return std::make_unique<PassingVfs>(near_);
  };
  settings.near_keep = {.last = 1};
  settings.tiers.push_back({.place = "s3", .store = far.other(), .keep = {.last = 1}});
  settings.generation = [&] { return last.point.generation; };
  const auto flusher = Flusher::start(std::move(settings));
  ASSERT_EQ(text_of(flusher->drain(std::chrono::seconds(60))), "");
  for (int i = 0; i < 2000 && far.shared_keys() > 0; ++i) {
    flusher->wake();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  flusher->stop();
  EXPECT_EQ(far.shared_keys(), 0U);
  EXPECT_TRUE(is_committed(far, last));
  EXPECT_EQ(broken(far), "");
}

// It was sent, and its process died.
TEST_F(ReferredInAStore, GoIfNobodyCameToReferToThem) {
  Far far;
  const Manifest first = run_.save();
  ASSERT_EQ(text_of(flush(first, *far.tier)), "");
  const Manifest second = run_.save();
  ASSERT_TRUE(fail_points::arm("flush.shared=error"));
  EXPECT_FALSE(flush(second, *far.tier));
  fail_points::disarm();
  EXPECT_EQ(far.shared_keys(), 1U);
  ASSERT_EQ(text_of(sweep(*far.tier)), "");
  EXPECT_EQ(far.shared_keys(), 0U);
  ASSERT_EQ(text_of(flush(second, *far.tier)), "");
  EXPECT_EQ(broken(far), "");
}

// A file that was retired by then stays as long as it may be referred to, and is not used anew.
TEST_F(ReferredInAStore, ASweepThatEndsAnywhereIsFinishedByTheNext) {
  const Manifest first = run_.save();
  const Manifest second = run_.save();
  for (const char* point : {"sweep.retired", "sweep.removed"}) {
    Far far;
    ASSERT_EQ(text_of(flush(first, *far.tier)), "");
    ASSERT_EQ(text_of(flush(second, *far.tier)), "");
    ASSERT_EQ(text_of(remove(*far.tier, second)), "");
    ASSERT_TRUE(fail_points::arm(std::string(point) + "=error"));
    EXPECT_FALSE(sweep(*far.tier)) << point;
    fail_points::disarm();
    EXPECT_EQ(broken(far), "");
    ASSERT_EQ(text_of(flush(second, *far.tier)), "");
    EXPECT_TRUE(sent_cold()) << point;
    EXPECT_EQ(far.store->contents(cold_of(second)).value().size(), kReferenceBytes)
        << "to a new file";
    EXPECT_EQ(broken(far), "") << point;
    ASSERT_EQ(text_of(remove(*far.tier, second)), "");
    ASSERT_EQ(text_of(sweep(*far.tier)), "");
    EXPECT_EQ(far.shared_keys(), 0U) << point;
    EXPECT_EQ(broken(far), "") << point;
  }
}

// Nothing is read beyond the directory as long as the listing refers to all.
TEST_F(ReferredInAStore, ASweepCostsOneRequestIfAllIsReferredTo) {
  Far far;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(text_of(flush(run_.save(), *far.tier)), "");
  const RunListing listing = read_run(far.tier->view()).value();
  const std::size_t before = far.store->request_count();
  ASSERT_EQ(text_of(sweep_shared_files(*far.tier, listing)), "");
  EXPECT_EQ(far.store->request_count(), before + 1);
}

TEST_F(ReferredInAStore, AFaultAtAnyRequestLosesNothing) {
  const Manifest first = run_.save();
  const Manifest second = run_.save();
  const Manifest third = run_.save();
  for (const S3Fault fault :
       {S3Fault::kInternalError, S3Fault::kLostAfter, S3Fault::kTimeout, S3Fault::kFlippedAnswer}) {
    for (std::size_t n = 0;; ++n) {
      Far far;
      ASSERT_EQ(text_of(flush(first, *far.other())), "");
      ASSERT_EQ(text_of(flush(second, *far.other())), "");
      far.store->fail_at(n, fault);
      const std::string label =
          std::to_string(static_cast<int>(fault)) + " at request " + std::to_string(n);
      const Status flushed = flush(third, *far.tier);
      ASSERT_TRUE(flushed || fault == S3Fault::kFlippedAnswer) << label << text_of(flushed);
      ASSERT_TRUE(is_committed(far, third) || !flushed) << label;
      std::ignore = remove(*far.tier, second);
      ASSERT_TRUE(sweep(*far.tier) || fault == S3Fault::kFlippedAnswer) << label;
      ASSERT_EQ(broken(far), "") << label;
      std::ignore = remove(*far.tier, third);
      std::ignore = sweep(*far.tier);
      ASSERT_EQ(broken(far), "") << label;
      if (far.store->request_count() <= n) break;
      ASSERT_LT(n, kRequestsMax);
    }
  }
}

// One of the two stands still before its n-th request, for every n, while the other does all of
// its work; then a second sweep, and one more flush, because the first may be a process that was
// long given up.
void ReferredInAStore::race_sweeps_and_flushes(bool flush_is_late) {
  const Manifest first = run_.save();
  const Manifest second = run_.save();
  const Manifest third = run_.save();
  const Manifest fourth = run_.save();
  for (std::size_t n = 0;; ++n) {
    Far far;
    ASSERT_EQ(text_of(flush(first, *far.other())), "");
    ASSERT_EQ(text_of(flush(second, *far.other())), "");
    ASSERT_EQ(text_of(remove(*far.other(), second)), "");
    std::atomic<std::size_t> asked{0};
    const auto others = [&] {
      if (flush_is_late) {
        ASSERT_EQ(text_of(sweep(*far.other())), "") << n;
      }
      ASSERT_EQ(text_of(flush(fourth, *far.other())), "") << n;
      ASSERT_EQ(text_of(sweep(*far.other())), "") << n;
      ASSERT_EQ(text_of(flush(second, *far.other())), "") << n;
    };
    far.store->set_hook([&](const HttpRequest&) -> std::optional<Result<HttpResponse>> {
      if (asked.fetch_add(1) == n) others();
      return std::nullopt;
    });
    const Status late = flush_is_late ? flush(third, *far.tier) : sweep(*far.tier);
    ASSERT_EQ(text_of(late), "") << n;
    ASSERT_EQ(broken(far), "") << "request " << n;
    EXPECT_EQ(is_committed(far, third), flush_is_late) << n;
    far.store->set_hook({});
    for (const Manifest* each : {&second, &third, &fourth}) {
      ASSERT_EQ(text_of(remove(*far.other(), *each)), "") << n;
      ASSERT_EQ(text_of(sweep(*far.other())), "") << n;
      ASSERT_EQ(broken(far), "") << n;
    }
    EXPECT_EQ(far.shared_keys(), 0U) << n;
    if (asked <= n) break;
    ASSERT_LT(n, kRequestsMax);
  }
}

TEST_F(ReferredInAStore, AFlushThatStandsStillBesideSweepsLosesNothing) {
  race_sweeps_and_flushes(true);
}

TEST_F(ReferredInAStore, ASweepThatStandsStillBesideFlushesTakesNothing) {
  race_sweeps_and_flushes(false);
}

// Stands still before its n-th request until it may go on.
class GatedS3 final : public HttpTransport {
 public:
  GatedS3(std::shared_ptr<FakeS3> store, std::size_t n) : store_(std::move(store)), n_(n) {}
  [[nodiscard]] Result<HttpResponse> send(const HttpRequest& request) override {
    if (asked_.fetch_add(1) == n_) {
      stands_.release();
      goes_on_.acquire();
    }
    return store_->send_unharmed(request);
  }
  void await() { stands_.acquire(); }  // that it stands still, or has_ended()
  void go_on() { goes_on_.release(); }
  void has_ended() { stands_.release(); }
  [[nodiscard]] bool stood() const { return asked_ > n_; }

 private:
  const std::shared_ptr<FakeS3> store_;
  const std::size_t n_;
  std::atomic<std::size_t> asked_{0};
  std::binary_semaphore stands_{0};
  std::binary_semaphore goes_on_{0};
};

// A flush has seen the file, and no mark. Before it puts its reference, looks for the mark, or puts
// the manifest, a sweep begins; it stands still before each of its requests in turn, and goes on
// after the flush.
TEST_F(ReferredInAStore, ASweepThatBeganMeanwhileAndEndsLaterTakesNothing) {
  const Manifest first = run_.save();
  const Manifest second = run_.save();
  const Manifest third = run_.save();
  const std::string manifest = path_in_run(third, kManifestFile);
  for (const std::string& before :
       {"PUT " + cold_of(third), std::string("HEAD .retired"), "PUT " + manifest}) {
    for (std::size_t n = 0;; ++n) {
      Far far;
      ASSERT_EQ(text_of(flush(first, *far.other())), "");
      ASSERT_EQ(text_of(flush(second, *far.other())), "");
      ASSERT_EQ(text_of(remove(*far.other(), second)), "");
      const auto gate = std::make_shared<GatedS3>(far.store, n);
      Status swept;
      std::jthread sweeper;
      bool has_begun = false;
      const std::size_t space = before.find(' ');
      far.store->set_hook([&](const HttpRequest& request) -> std::optional<Result<HttpResponse>> {
        const bool is_it = request.method == before.substr(0, space) &&
                           request.url.find(before.substr(space + 1)) != std::string::npos;
        if (!is_it || std::exchange(has_begun, true)) return std::nullopt;
        sweeper = std::jthread([&] {
          swept = sweep(*far.open(gate));
          gate->has_ended();
        });
        gate->await();
        return std::nullopt;
      });
      const Status flushed = flush(third, *far.tier);
      far.store->set_hook({});
      ASSERT_TRUE(has_begun) << before;
      gate->go_on();
      sweeper.join();
      ASSERT_EQ(text_of(flushed) + text_of(swept), "") << before << ", " << n;
      ASSERT_TRUE(is_committed(far, third));
      ASSERT_EQ(broken(far), "") << before << ", the sweep's request " << n;
      if (!gate->stood()) break;
      ASSERT_LT(n, kRequestsMax);
    }
  }
}

TEST_F(ReferredInAStore, AFileThatHasRottenIsSentAnew) {
  Far far;
  ASSERT_EQ(text_of(flush(run_.save(), *far.tier)), "");
  ASSERT_EQ(text_of(flush(run_.save(), *far.tier)), "");
  for (const std::string& key : far.store->keys()) {
    if (!key.starts_with("shared/")) continue;
    ASSERT_TRUE(far.store->flip_bit(key, 100));  // of the header
  }
  const Manifest third = run_.save();
  ASSERT_EQ(text_of(flush(third, *far.tier)), "");
  EXPECT_EQ(far.shared_keys(), 2U);
  EXPECT_EQ(text_of(verify_attempt(far.tier->view(), third)), "");
}

// As a restore asks for it: the bad copy is retired, and the next flush sends another.
TEST_F(ReferredInAStore, AFileThatARestoreFoundBadIsNotUsedAgain) {
  Far far;
  std::vector<Manifest> saved;
  for (int i = 0; i < 3; ++i) saved.push_back(run_.save());
  ASSERT_EQ(text_of(flush(saved[0], *far.tier)), "");
  ASSERT_EQ(text_of(flush(saved[1], *far.tier)), "");
  ASSERT_EQ(text_of(retire_referred(*far.tier, cold_of(saved[0]))), "") << "it is no reference";
  EXPECT_EQ(far.shared_keys(), 1U);
  ASSERT_EQ(text_of(retire_referred(*far.tier, cold_of(saved[1]))), "");
  ASSERT_EQ(text_of(flush(saved[2], *far.tier)), "");
  EXPECT_TRUE(sent_cold());
  EXPECT_EQ(far.shared_keys(), 3U) << "two files and a mark";
  EXPECT_EQ(broken(far), "");
}

TEST_F(ReferredInAStore, ThatCanNotRefuseASecondFileOfANameAreSent) {
  Far far;
  const auto tier = make_object_tier(
      std::make_shared<S3Client>(FakeS3::settings(far.store, far.time)), kPartBytes, false);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(text_of(flush(run_.save(), *tier)), "");
    EXPECT_TRUE(sent_cold()) << i;
  }
  EXPECT_EQ(far.shared_keys(), 0U);
}

// One file that the store does not let go holds up no other, nor does a page that names nothing.
TEST_F(ReferredInAStore, ASweepGoesOnBehindWhatItCanNotDelete) {
  Far far;
  const Manifest first = run_.save();
  const Manifest second = run_.save();
  ASSERT_EQ(text_of(flush(first, *far.tier)), "");
  ASSERT_EQ(text_of(flush(second, *far.tier)), "");
  ASSERT_EQ(text_of(remove(*far.tier, second)), "");
  const std::string other =
      "shared/" +
      shared_file_name(
          shared_stem({.run_id = run_.run_id(), .point = {1, 1, 1, 0xaa}}, first.files[0].name), 1);
  far.store->plant(other, "held");
  far.store->set_hook([&](const HttpRequest& request) -> std::optional<Result<HttpResponse>> {
    if (request.method != "DELETE" || request.url.find(other) == std::string::npos) return {};
    return FakeS3::error(403, "AccessDenied");
  });
  EXPECT_EQ(code_of(sweep(*far.tier)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(far.shared_keys(), 2U) << "the held one, and its mark";
  far.store->set_hook({});
  const std::string begun = "step-000000000009-00000000000000bb/" + first.files[0].name;
  far.store->plant(begun, std::string("DFrefers") + std::string(kReferenceBytes - 8, 'x'));
  ASSERT_EQ(text_of(sweep(*far.tier)), "");
  EXPECT_EQ(far.shared_keys(), 2U) << "that page may name it";
  ASSERT_TRUE(far.tier->view().remove_file(begun));
  ASSERT_EQ(text_of(sweep(*far.tier)), "");
  EXPECT_EQ(far.shared_keys(), 0U);
}

TEST_F(ReferredInAStore, AMissingFileIsNamed) {
  Far far;
  ASSERT_EQ(text_of(flush(run_.save(), *far.tier)), "");
  const Manifest second = run_.save();
  ASSERT_EQ(text_of(flush(second, *far.tier)), "");
  for (const std::string& key : far.store->keys()) {
    if (!key.starts_with("shared/")) continue;
    ASSERT_TRUE(far.tier->view().remove_file(key));
  }
  const Status verified = verify_attempt(far.tier->view(), second);
  ASSERT_EQ(code_of(verified), ErrorCode::kCorrupt);
  EXPECT_TRUE(verified.error().message().contains("refers to shared/")) << text_of(verified);
}

}  // namespace
}  // namespace deepfreeze::shared_files_test
