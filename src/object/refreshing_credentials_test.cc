#include "object/refreshing_credentials.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <stdexcept>
#include <thread>

#include "base/log.h"
#include "object/keys_fixture.h"

namespace deepfreeze {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

class Refreshing : public testing::Test {
 protected:
  Refreshing() {
    set_log_sink([this](std::string_view line) { log_.emplace_back(line); });
  }
  ~Refreshing() override { set_log_sink({}); }

  // The keys "AK<n>", which end so long after the start.
  Result<Credentials> ask() {
    ++asked_;
    if (error_) return std::unexpected(*error_);
    return Credentials{.access_key = "AK" + std::to_string(asked_.load()),
                       .secret_key = "s",
                       .expires = end_ ? std::optional(time_at(*end_)) : std::nullopt};
  }
  std::string get() {
    const auto keys = source_.get();
    return keys ? keys->access_key.text() : keys.error().message();
  }
  void refuse(const char* access_key) {
    Credentials keys = source_.get().value();
    keys.access_key = access_key;
    source_.refuse(keys);
  }

  std::atomic<seconds> now_{seconds(0)};
  std::atomic<int> asked_{0};
  std::optional<seconds> end_ = minutes(60);
  std::optional<Error> error_;
  std::vector<std::string> log_;
  RefreshingCredentials source_{[this] { return ask(); }, [this] { return time_at(now_); }};
};

TEST_F(Refreshing, ASourceThatThrowsHasFailed) {
  bool throws = true;
  const auto source = credentials_from(
      [&]() -> Result<Credentials> {
        if (throws) throw std::runtime_error("no memory");
        return ask();
      },
      [this] { return time_at(now_); });
  const auto keys = source->get();
  ASSERT_FALSE(keys);
  EXPECT_EQ(keys.error().code(), ErrorCode::kIo);
  EXPECT_TRUE(keys.error().message().contains("no memory"));
  throws = false;
  now_ = seconds(60);
  EXPECT_TRUE(source->get());
}

TEST_F(Refreshing, KeysAreKeptUntilFiveMinutesBeforeTheirEnd) {
  EXPECT_EQ(get(), "AK1");
  now_ = minutes(55) - seconds(1);
  EXPECT_EQ(get(), "AK1");
  now_ = minutes(55);
  end_ = minutes(120);
  EXPECT_EQ(get(), "AK2");
  now_ = minutes(100);
  EXPECT_EQ(get(), "AK2");
}

TEST_F(Refreshing, KeysWithoutAnEndAreKept) {
  end_.reset();
  EXPECT_EQ(get(), "AK1");
  now_ = std::chrono::hours(100'000);
  EXPECT_EQ(get(), "AK1");
}

TEST_F(Refreshing, AFailedRefreshKeepsValidKeysAndIsTriedAgainWithPauses) {
  EXPECT_EQ(get(), "AK1");
  error_ = Error(ErrorCode::kTimeout, "no answer");
  now_ = minutes(55);
  std::vector<int> tries;
  for (; now_.load() < minutes(58); now_ = now_.load() + seconds(1)) {
    const int before = asked_;
    EXPECT_EQ(get(), "AK1");
    if (asked_ != before) tries.push_back(static_cast<int>((now_.load() - minutes(55)).count()));
  }
  EXPECT_EQ(tries, (std::vector<int>{0, 1, 3, 7, 15, 31, 63, 123}));  // 60 s at most
  EXPECT_EQ(log_,
            (std::vector<std::string>{"deepfreeze: note: no answer; the present keys are used "
                                      "as long as they are valid"}));
  error_.reset();
  end_ = minutes(120);
  now_ = minutes(59);
  EXPECT_EQ(get(), "AK10");
}

TEST_F(Refreshing, AfterASuccessThePausesBeginAnew) {
  end_ = minutes(6);
  EXPECT_EQ(get(), "AK1");
  error_ = Error(ErrorCode::kTimeout, "no answer");
  now_ = minutes(1);
  EXPECT_EQ(get(), "AK1");
  error_.reset();
  now_ = minutes(2);
  end_ = minutes(9);
  EXPECT_EQ(get(), "AK3");
  error_ = Error(ErrorCode::kTimeout, "no answer");
  now_ = minutes(4);
  EXPECT_EQ(get(), "AK3");
  now_ = minutes(4) + seconds(1);
  EXPECT_EQ(get(), "AK3");
  EXPECT_EQ(asked_, 5);
  EXPECT_EQ(log_.size(), 2U);
}

TEST_F(Refreshing, ExpiredKeysAreNotGiven) {
  EXPECT_EQ(get(), "AK1");
  error_ = Error(ErrorCode::kTimeout, "no answer");
  now_ = minutes(60) - seconds(1);
  EXPECT_EQ(get(), "AK1");
  now_ = minutes(60);
  EXPECT_EQ(get(), "no answer");
}

TEST_F(Refreshing, WithoutKeysTheErrorIsRepeatedDuringAPause) {
  error_ = Error(ErrorCode::kInvalidArgument, "there are none");
  EXPECT_EQ(get(), "there are none");
  EXPECT_EQ(get(), "there are none");
  EXPECT_EQ(asked_, 1);
  error_.reset();
  now_ = seconds(1);
  EXPECT_EQ(get(), "AK2");
  EXPECT_TRUE(log_.empty());
}

TEST_F(Refreshing, AClockThatIsSetBackMakesNoPauseLonger) {
  error_ = Error(ErrorCode::kTimeout, "no answer");
  EXPECT_EQ(get(), "no answer");
  now_ = -minutes(60);
  error_.reset();
  EXPECT_EQ(get(), "AK2");
}

TEST_F(Refreshing, NewKeysAreUsedForAMomentWhateverTheClockSays) {
  now_ = minutes(100);
  EXPECT_EQ(get(), "AK1");  // expired long ago, says this machine
  now_ = now_.load() + kNewKeysMin - seconds(1);
  EXPECT_EQ(get(), "AK1");
  now_ = now_.load() + seconds(1);
  EXPECT_EQ(get(), "AK2");
  now_ = now_.load() + kNewKeysMin;
  error_ = Error(ErrorCode::kTimeout, "no answer");
  EXPECT_EQ(get(), "no answer");
}

TEST_F(Refreshing, AnyTimeMayBeWrittenAsTheEnd) {
  for (const auto end : {std::chrono::system_clock::time_point::min(),
                         std::chrono::system_clock::time_point::max()}) {
    const auto source = credentials_from(
        [=] { return Credentials{.access_key = "a", .secret_key = "s", .expires = end}; },
        [] { return time_at(seconds(0)); });
    EXPECT_TRUE(source->get());
    EXPECT_TRUE(source->get());
  }
}

TEST_F(Refreshing, RefusedKeysAreReplaced) {
  EXPECT_EQ(get(), "AK1");
  refuse("AK1");
  EXPECT_EQ(get(), "AK2");
  refuse("AK1");  // another thread was late
  EXPECT_EQ(get(), "AK2");
  EXPECT_EQ(asked_, 2);
}

TEST_F(Refreshing, RefusedKeysComeBackOnlyIfThereAreNoOthers) {
  EXPECT_EQ(get(), "AK1");
  refuse("AK1");
  error_ = Error(ErrorCode::kTimeout, "no answer");
  EXPECT_EQ(get(), "AK1");  // a store refuses for other reasons as well
  EXPECT_EQ(get(), "AK1");
  EXPECT_EQ(asked_, 2);
  error_.reset();
  now_ = kRefreshPauseMin;
  EXPECT_EQ(get(), "AK3");
}

TEST_F(Refreshing, KeysThatCanNotBeKeysAreAFailure) {
  const auto source = credentials_from(
      [] { return Credentials{.access_key = "planted\r\nx: y", .secret_key = "s"}; },
      [] { return time_at(seconds(0)); });
  const auto keys = source->get();
  ASSERT_FALSE(keys);
  EXPECT_FALSE(keys.error().message().contains("planted"));
}

// A source whose answer waits until the test lets it go.
class HeldRefresh : public testing::Test {
 protected:
  Result<Credentials> ask() {
    if (++asked_ == held_) {
      began_.count_down();
      go_on_.wait();
    }
    if (fails_) return std::unexpected(Error(ErrorCode::kTimeout, "no answer"));
    return Credentials{.access_key = "AK" + std::to_string(asked_.load()),
                       .secret_key = "s",
                       .expires = time_at(minutes(60) * asked_.load())};
  }

  std::atomic<seconds> now_{seconds(0)};
  std::atomic<int> asked_{0};
  std::atomic<bool> fails_{false};
  int held_ = 1;
  std::latch began_{1};
  std::latch go_on_{1};
  std::atomic<int> clock_calls_{0};
  RefreshingCredentials source_{[this] { return ask(); },
                                [this] {
                                  ++clock_calls_;
                                  return time_at(now_);
                                }};

  // Returns once so many threads have begun to get(); most of them wait by then.
  void await_callers(int count) {
    while (clock_calls_ < count) std::this_thread::yield();
  }
};

TEST_F(HeldRefresh, OthersGoOnWithTheOldKeysWhileTheseAreValid) {
  held_ = 2;
  ASSERT_EQ(source_.get()->access_key, "AK1");
  now_ = minutes(56);
  std::jthread refresher([&] { EXPECT_EQ(source_.get()->access_key, "AK2"); });
  began_.wait();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(source_.get()->access_key, "AK1");
  go_on_.count_down();
  refresher.join();
  EXPECT_EQ(source_.get()->access_key, "AK2");
  EXPECT_EQ(asked_, 2);
}

TEST_F(HeldRefresh, OthersWaitIfThereAreNoValidKeysAndShareTheNewOnes) {
  std::jthread refresher([&] { EXPECT_EQ(source_.get()->access_key, "AK1"); });
  began_.wait();
  std::vector<std::jthread> others;
  for (int i = 0; i < 4; ++i) {
    others.emplace_back([&] { EXPECT_EQ(source_.get()->access_key, "AK1"); });
  }
  await_callers(5);
  go_on_.count_down();
  others.clear();
  EXPECT_EQ(asked_, 1);
}

TEST_F(HeldRefresh, OthersShareTheErrorToo) {
  fails_ = true;
  std::jthread refresher([&] { EXPECT_FALSE(source_.get()); });
  began_.wait();
  std::vector<std::jthread> others;
  for (int i = 0; i < 4; ++i) others.emplace_back([&] { EXPECT_FALSE(source_.get()); });
  await_callers(5);
  go_on_.count_down();
  others.clear();
  EXPECT_EQ(asked_, 1);
}

TEST_F(HeldRefresh, ARefusalDuringARefreshIsOfTheOldKeys) {
  held_ = 2;
  const Credentials old = source_.get().value();
  now_ = minutes(56);
  std::jthread refresher([&] { EXPECT_EQ(source_.get()->access_key, "AK2"); });
  began_.wait();
  source_.refuse(old);
  std::jthread other([&] { EXPECT_EQ(source_.get()->access_key, "AK2"); });
  go_on_.count_down();
  other.join();
  EXPECT_EQ(asked_, 2);
}

}  // namespace
}  // namespace deepfreeze
