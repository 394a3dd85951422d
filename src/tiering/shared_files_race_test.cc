// A flush and a sweep of shared files in an object store meet at every request.
#include <atomic>
#include <semaphore>
#include <thread>

#include "tiering/shared_files_fixture.h"

namespace deepfreeze::shared_files_race_test {
namespace {

constexpr std::size_t kRequestsMax = 300;

class SharedFilesRace : public ReferredInAStore {
 protected:
  void race_sweeps_and_flushes(bool flush_is_late);
};

// One of the two stands still before its n-th request, for every n, while the other does all of
// its work; then a second sweep, and one more flush, because the first may be a process that was
// long given up.
void SharedFilesRace::race_sweeps_and_flushes(bool flush_is_late) {
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

TEST_F(SharedFilesRace, AFlushThatStandsStillBesideSweepsLosesNothing) {
  race_sweeps_and_flushes(true);
}

TEST_F(SharedFilesRace, ASweepThatStandsStillBesideFlushesTakesNothing) {
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
TEST_F(SharedFilesRace, ASweepThatBeganMeanwhileAndEndsLaterTakesNothing) {
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

}  // namespace
}  // namespace deepfreeze::shared_files_race_test
