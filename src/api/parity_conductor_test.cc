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

std::optional<AttemptName> last_of(std::uint64_t step) {
  return step == 0 ? std::nullopt : std::optional(name_of(step));
}
// `last`: the step that all have; 0: none.
Order begin(std::uint64_t step, std::uint64_t turn, std::uint64_t last = 0,
            std::vector<std::uint32_t> to = kLeaders) {
  return {.stage = ParityStage::kBegin,
          .name = name_of(step),
          .turn = turn,
          .last = last_of(last),
          .to = std::move(to)};
}
Order all(std::uint64_t step, std::uint64_t turn, std::vector<std::uint32_t> to = kLeaders) {
  return {.stage = ParityStage::kAll,
          .name = name_of(step),
          .turn = turn,
          .last = {},
          .to = std::move(to)};
}

class ParityConductorTest : public testing::Test {
 protected:
  Orders written(std::uint32_t leader, std::uint64_t step) {
    return conductor_.told(leader, name_of(step), ParityStage::kWritten, 0);
  }
  Orders failed(std::uint32_t leader, std::uint64_t step, std::uint64_t turn) {
    return conductor_.told(leader, name_of(step), ParityStage::kFailed, turn);
  }
  ParityConductor conductor_{kLeaders};
};

TEST_F(ParityConductorTest, OneCheckpointAtATimeThenTheNewest) {
  EXPECT_EQ(conductor_.committed(name_of(1)), Orders{begin(1, 1)});
  EXPECT_EQ(conductor_.committed(name_of(2)), Orders{});
  EXPECT_EQ(conductor_.committed(name_of(3)), Orders{});
  EXPECT_EQ(written(3, 1), Orders{});
  EXPECT_EQ(written(3, 1), Orders{});
  EXPECT_EQ(conductor_.awaited(), (std::vector<std::uint32_t>{0, 5}));
  EXPECT_EQ(written(0, 1), Orders{});
  EXPECT_EQ(written(5, 1), (Orders{all(1, 2), begin(3, 3, 1)}));
  EXPECT_EQ(conductor_.current(), name_of(3));
  for (const std::uint32_t leader : kLeaders) (void)written(leader, 3);
  EXPECT_EQ(conductor_.current(), std::nullopt);
  EXPECT_EQ(conductor_.awaited().size(), 0U);
  EXPECT_EQ(conductor_.committed(name_of(4)), Orders{begin(4, 5, 3)});
}

TEST_F(ParityConductorTest, OneThatFailsGivesWayToANewerOne) {
  (void)conductor_.committed(name_of(1));
  EXPECT_EQ(failed(5, 1, 1), Orders{});  // there is none
  EXPECT_EQ(conductor_.awaited(), (std::vector<std::uint32_t>{0, 3}));
  EXPECT_EQ(conductor_.committed(name_of(2)), Orders{begin(2, 2)});
  EXPECT_EQ(written(0, 1), Orders{});  // of the one that was given up
  EXPECT_EQ(conductor_.awaited(), kLeaders);
  (void)conductor_.committed(name_of(3));
  EXPECT_EQ(failed(0, 2, 2), Orders{begin(3, 3)});
}

TEST_F(ParityConductorTest, FailuresAndLostWordsAreTriedAgain) {
  EXPECT_EQ(conductor_.again(), Orders{});
  (void)conductor_.committed(name_of(1));
  (void)written(0, 1);
  (void)failed(3, 1, 1);
  EXPECT_EQ(conductor_.again(), (Orders{begin(1, 2, 0, {3, 5})}));
  EXPECT_EQ(conductor_.awaited(), (std::vector<std::uint32_t>{3, 5}));
  (void)written(5, 1);
  EXPECT_EQ(written(3, 1), Orders{all(1, 3)});
  EXPECT_EQ(written(5, 1), (Orders{all(1, 3, {5})}));  // it has not heard the end
}

// The leader is at it again, or has done it meanwhile.
TEST_F(ParityConductorTest, AFailureBeforeTheLatestOrderIsNone) {
  (void)conductor_.committed(name_of(1));
  (void)conductor_.again();
  EXPECT_EQ(failed(3, 1, 1), Orders{});
  EXPECT_EQ(conductor_.awaited(), kLeaders);
  (void)written(3, 1);
  (void)failed(3, 1, 2);
  (void)failed(5, 1, 2);
  (void)written(5, 1);
  EXPECT_EQ(conductor_.committed(name_of(2)), Orders{});  // none has failed: 0 may write it yet
  EXPECT_EQ(written(0, 1), (Orders{all(1, 3), begin(2, 4, 1)}));
}

TEST_F(ParityConductorTest, OthersHaveNoSay) {
  (void)conductor_.committed(name_of(1));
  EXPECT_EQ(written(4, 1), Orders{});
  EXPECT_EQ(failed(4, 1, 1), Orders{});
  EXPECT_EQ(conductor_.committed(name_of(2)), Orders{});
  for (const std::uint32_t leader : {0U, 3U, 4U}) (void)written(leader, 1);
  EXPECT_EQ(conductor_.current(), name_of(1));
  (void)written(5, 1);
  EXPECT_EQ(written(4, 1), Orders{});
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
    send(conductor_.committed(name_of(31)));  // the order tells those that have not heard of 30
    while (!words_.empty()) turn();
    for (const std::uint32_t leader : kLeaders) EXPECT_GE(known_[leader], 30U);
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
        put({.order = {order.stage, order.name, order.turn, order.last, {leader}},
             .from = 0,
             .is_order = true});
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
    const Order& order = word.order;
    if (!word.is_order) {
      return send(conductor_.told(word.from, order.name, order.stage, order.turn));
    }
    obey(order, order.to.front());
  }
  // As NodeParity does.
  void obey(const Order& order, std::uint32_t leader) {
    if (order.turn < turns_[leader]) return;
    turns_[leader] = order.turn;
    const auto known = order.stage == ParityStage::kAll ? order.name : order.last;
    if (known) {
      EXPECT_GE(known->step, known_[leader]);
      known_[leader] = known->step;
    }
    if (order.stage == ParityStage::kAll) return;
    const bool fails = is_lossy_ && random_() % 4 == 0;
    if (!fails) written_[leader].insert(order.name.step);
    const auto stage = fails ? ParityStage::kFailed : ParityStage::kWritten;
    put({.order = {stage, order.name, order.turn, {}, {}}, .from = leader, .is_order = false});
  }

  std::mt19937_64 random_;
  ParityConductor conductor_{kLeaders};
  std::deque<Word> words_;
  std::map<std::uint32_t, std::set<std::uint64_t>> written_;  // steps, by leader, as the next two
  std::map<std::uint32_t, std::uint64_t> known_;  // the newest that is known to be protected
  std::map<std::uint32_t, std::uint64_t> turns_;
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
