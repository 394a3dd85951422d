#include "api/parity_conductor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>

namespace deepfreeze::parity_conductor_test {
namespace {

using Order = ParityConductor::Order;
using Orders = ParityConductor::Orders;

const std::vector<std::uint32_t> kLeaders = {0, 3, 5};

AttemptName name_of(std::uint64_t step) { return {.step = step, .attempt_id = step}; }

Order begin(std::uint64_t step, std::vector<std::uint32_t> to = kLeaders) {
  return {.stage = ParityStage::kBegin, .name = name_of(step), .to = std::move(to)};
}
Order all(std::uint64_t step, std::vector<std::uint32_t> to = kLeaders) {
  return {.stage = ParityStage::kAll, .name = name_of(step), .to = std::move(to)};
}

class ParityConductorTest : public testing::Test {
 protected:
  Orders written(std::uint32_t leader, std::uint64_t step) {
    return conductor_.told(leader, name_of(step), ParityStage::kWritten);
  }
  Orders failed(std::uint32_t leader, std::uint64_t step) {
    return conductor_.told(leader, name_of(step), ParityStage::kFailed);
  }
  ParityConductor conductor_{kLeaders};
};

TEST_F(ParityConductorTest, OneCheckpointAtATimeThenTheNewest) {
  EXPECT_EQ(conductor_.committed(name_of(1)), Orders{begin(1)});
  EXPECT_EQ(conductor_.committed(name_of(2)), Orders{});
  EXPECT_EQ(conductor_.committed(name_of(3)), Orders{});
  EXPECT_EQ(written(3, 1), Orders{});
  EXPECT_EQ(written(3, 1), Orders{});
  EXPECT_EQ(conductor_.awaited(), (std::vector<std::uint32_t>{0, 5}));
  EXPECT_EQ(written(0, 1), Orders{});
  EXPECT_EQ(written(5, 1), (Orders{all(1), begin(3)}));
  EXPECT_EQ(conductor_.current(), name_of(3));
  for (const std::uint32_t leader : kLeaders) (void)written(leader, 3);
  EXPECT_EQ(conductor_.current(), std::nullopt);
  EXPECT_EQ(conductor_.awaited().size(), 0U);
  EXPECT_EQ(conductor_.committed(name_of(4)), Orders{begin(4)});
}

TEST_F(ParityConductorTest, OneThatFailsGivesWayToANewerOne) {
  (void)conductor_.committed(name_of(1));
  EXPECT_EQ(failed(5, 1), Orders{});  // there is none
  EXPECT_EQ(conductor_.awaited(), (std::vector<std::uint32_t>{0, 3}));
  EXPECT_EQ(conductor_.committed(name_of(2)), Orders{begin(2)});
  EXPECT_EQ(written(0, 1), Orders{});  // of the one that was given up
  EXPECT_EQ(conductor_.awaited(), kLeaders);
  (void)conductor_.committed(name_of(3));
  EXPECT_EQ(failed(0, 2), Orders{begin(3)});
}

TEST_F(ParityConductorTest, FailuresAndLostWordsAreTriedAgain) {
  EXPECT_EQ(conductor_.again(), Orders{});
  (void)conductor_.committed(name_of(1));
  (void)written(0, 1);
  (void)failed(3, 1);
  EXPECT_EQ(conductor_.again(), (Orders{begin(1, {3, 5})}));
  EXPECT_EQ(conductor_.awaited(), (std::vector<std::uint32_t>{3, 5}));
  (void)written(5, 1);
  EXPECT_EQ(written(3, 1), Orders{all(1)});
  EXPECT_EQ(written(5, 1), (Orders{all(1, {5})}));  // it has not heard the end
}

TEST_F(ParityConductorTest, OthersHaveNoSay) {
  (void)conductor_.committed(name_of(1));
  EXPECT_EQ(written(4, 1), Orders{});
  EXPECT_EQ(failed(4, 1), Orders{});
  EXPECT_EQ(conductor_.committed(name_of(2)), Orders{});
  for (const std::uint32_t leader : {0U, 3U, 4U}) (void)written(leader, 1);
  EXPECT_EQ(conductor_.current(), name_of(1));
}

// Leaders that write in their own time, and sometimes fail; words that are lost, doubled and late.
class Job {
 public:
  explicit Job(std::uint64_t seed) : random_(seed) {}

  void run() {
    for (std::uint64_t step = 1; step <= 30; ++step) {
      send(conductor_.committed(name_of(step)));
      for (std::uint64_t turns = random_() % 12; turns > 0; --turns) turn();
    }
    is_lossy_ = false;
    for (int turns = 0; turns < 2'000 && conductor_.current(); ++turns) turn();
    EXPECT_FALSE(conductor_.current()) << "the newest is never protected";
    EXPECT_EQ(protected_.back(), 30U);
  }

 private:
  struct Word {
    Order order;
    std::uint32_t from;  // a leader; an order of rank 0 has `to`
    bool is_order;
  };
  void send(const Orders& orders) {
    for (const Order& order : orders) {
      if (order.stage == ParityStage::kAll) check_all(order);
      for (const std::uint32_t leader : order.to) {
        put({.order = {order.stage, order.name, {leader}}, .from = 0, .is_order = true});
      }
    }
  }
  void check_all(const Order& order) {
    for (const std::uint32_t leader : kLeaders) {
      EXPECT_TRUE(written_[leader].contains(order.name.step)) << "leader " << leader;
    }
    if (protected_.empty() || protected_.back() < order.name.step) {
      protected_.push_back(order.name.step);
    }
    EXPECT_GE(order.name.step, protected_.back());
  }
  void put(Word word) {
    if (is_lossy_ && random_() % 5 == 0) return;
    const std::size_t place = random_() % (words_.size() + 1);
    words_.insert(words_.begin() + static_cast<std::ptrdiff_t>(place), word);
    if (is_lossy_ && random_() % 5 == 0) words_.push_back(word);
  }
  void turn() {
    if (words_.empty() || random_() % 4 == 0) return send(conductor_.again());
    const Word word = words_.front();
    words_.pop_front();
    if (!word.is_order) {
      return send(conductor_.told(word.from, word.order.name, word.order.stage));
    }
    if (word.order.stage == ParityStage::kAll) return;
    const std::uint32_t leader = word.order.to.front();
    const bool fails = is_lossy_ && random_() % 4 == 0;
    if (!fails) written_[leader].insert(word.order.name.step);
    const auto stage = fails ? ParityStage::kFailed : ParityStage::kWritten;
    put({.order = {stage, word.order.name, {}}, .from = leader, .is_order = false});
  }

  std::mt19937_64 random_;
  ParityConductor conductor_{kLeaders};
  std::deque<Word> words_;
  std::map<std::uint32_t, std::set<std::uint64_t>> written_;  // steps, by leader
  std::vector<std::uint64_t> protected_;
  bool is_lossy_ = true;
};

TEST(ParityConductorJobs, TheNewestIsProtectedWhateverGoesWrongBefore) {
  const std::uint64_t seed = std::random_device{}();
  for (std::uint64_t job = 0; job < 500; ++job) {
    SCOPED_TRACE("seed " + std::to_string(seed + job));
    Job(seed + job).run();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace deepfreeze::parity_conductor_test
