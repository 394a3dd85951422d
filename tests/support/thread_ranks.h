// Ranks that are threads of one process, for tests. A rank that does not come makes the others'
// calls fail after a deadline.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "deepfreeze/ranks.h"

namespace deepfreeze {

class ThreadRanks {
 public:
  explicit ThreadRanks(std::uint32_t world_size,
                       std::chrono::milliseconds deadline = std::chrono::milliseconds(20'000))
      : room_(std::make_shared<Room>(world_size, deadline)) {}

  [[nodiscard]] std::shared_ptr<RankGroup> group(std::uint32_t rank) const {
    return std::make_shared<Member>(room_, rank);
  }

  // Runs `rank` in a thread for each and joins them.
  void run(const std::function<void(std::uint32_t rank, std::shared_ptr<RankGroup>)>& rank) const {
    std::vector<std::jthread> threads;
    for (std::uint32_t i = 0; i < room_->given.size(); ++i) {
      threads.emplace_back([&rank, i, group = group(i)] { rank(i, group); });
    }
  }

 private:
  // All ranks meet here as they come and as they leave: the last one opens the next round.
  struct Room {
    Room(std::uint32_t world_size, std::chrono::milliseconds wait_max)
        : deadline(wait_max), given(world_size), answers(world_size) {}

    [[nodiscard]] Status meet(std::unique_lock<std::mutex>& lock) {
      const std::uint64_t round = rounds;
      if (++arrived == given.size()) {
        arrived = 0;
        ++rounds;
        changed.notify_all();
        return {};
      }
      if (changed.wait_for(lock, deadline, [&] { return rounds != round; })) return {};
      return std::unexpected(Error(ErrorCode::kTimeout, "not all ranks came"));
    }

    const std::chrono::milliseconds deadline;
    std::mutex mutex;  // guards all below
    std::condition_variable changed;
    std::uint64_t rounds = 0;
    std::size_t arrived = 0;
    std::vector<std::string> given;
    std::vector<std::string> answers;
  };

  class Member final : public RankGroup {
   public:
    Member(std::shared_ptr<Room> room, std::uint32_t rank) : room_(std::move(room)), rank_(rank) {}

    [[nodiscard]] std::uint32_t rank() const override { return rank_; }
    [[nodiscard]] std::uint32_t world_size() const override {
      return static_cast<std::uint32_t>(room_->given.size());
    }
    [[nodiscard]] Result<std::vector<std::string>> gather(std::string bytes) override {
      std::unique_lock lock(room_->mutex);
      room_->given[rank_] = std::move(bytes);
      if (const Status met = room_->meet(lock); !met) return std::unexpected(met.error());
      auto all = rank_ == 0 ? room_->given : std::vector<std::string>();
      if (const Status left = room_->meet(lock); !left) return std::unexpected(left.error());
      return all;
    }
    [[nodiscard]] Result<std::string> scatter(std::vector<std::string> bytes) override {
      std::unique_lock lock(room_->mutex);
      if (rank_ == 0) room_->answers = std::move(bytes);
      if (const Status met = room_->meet(lock); !met) return std::unexpected(met.error());
      std::string own = room_->answers[rank_];
      if (const Status left = room_->meet(lock); !left) return std::unexpected(left.error());
      return own;
    }

   private:
    const std::shared_ptr<Room> room_;
    const std::uint32_t rank_;
  };

  std::shared_ptr<Room> room_;
};

}  // namespace deepfreeze
