// For tests: a run on one simulated disk, a tier on another, and the reports of a flusher between
// them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "support/passing_vfs.h"
#include "tiering/flusher.h"
#include "tiering/tiers_fixture.h"

namespace deepfreeze {

class FlusherTest : public testing::Test {
 protected:
  using Steps = std::vector<std::uint64_t>;
  static constexpr std::chrono::seconds kDeadline{60};  // for waits that must not hang

  FlusherTest() {
    set_log_sink([this](std::string_view line) {
      const std::lock_guard lock(log_mutex_);
      log_.emplace_back(line);
    });
  }
  ~FlusherTest() override { set_log_sink({}); }

  FarTier far(Vfs& vfs, Keep keep = {}, std::optional<std::uint64_t> every = {}) {
    return {.place = "far",
            .store = std::make_unique<VfsTierStore>(vfs),
            .every = every,
            .keep = std::move(keep)};
  }
  Flusher::Settings settings(std::vector<FarTier> tiers) {
    return {.open_near = [this]() -> Result<std::unique_ptr<Vfs>> {
              return std::make_unique<PassingVfs>(near_);
            },
            .near_keep = near_keep_,
            .held = [this] { return held_; },
            .tiers = std::move(tiers),
            .generation = [this] { return generation_.load(); },
            .awaited =
                [this](std::size_t tier) {
                  const std::lock_guard lock(log_mutex_);
                  return tier == 0 ? awaited_ : std::vector<AttemptName>();
                },
            .tell =
                [this](const AttemptName& name, std::size_t, Flusher::Fate fate, std::string_view) {
                  const std::lock_guard lock(log_mutex_);
                  (fate == Flusher::Fate::kCommitted ? arrived_ : left_out_).push_back(name.step);
                  std::erase(awaited_, name);
                }};
  }
  std::shared_ptr<Flusher> start(std::vector<FarTier> tiers) {
    return Flusher::start(settings(std::move(tiers)));
  }
  Manifest save_awaited(std::uint64_t step) {
    const Manifest saved = run_.save(step);
    const std::lock_guard lock(log_mutex_);
    awaited_.push_back(name_of(saved));
    return saved;
  }
  template <class... Tiers>
  std::vector<FarTier> several(Tiers... tiers) {
    std::vector<FarTier> all;
    (all.push_back(std::move(tiers)), ...);
    return all;
  }
  std::vector<std::uint64_t> arrived() {
    const std::lock_guard lock(log_mutex_);
    return arrived_;
  }
  std::vector<std::uint64_t> left_out() {
    const std::lock_guard lock(log_mutex_);
    return left_out_;
  }
  std::size_t logged(std::string_view part) {
    const std::lock_guard lock(log_mutex_);
    return static_cast<std::size_t>(std::ranges::count_if(
        log_, [&](const std::string& line) { return line.find(part) != std::string::npos; }));
  }
  static std::vector<std::uint64_t> steps_on(Vfs& tier) {
    std::vector<std::uint64_t> steps;
    const RunListing listing = read_run(tier).value();
    for (const AttemptState& attempt : listing.attempts) {
      if (attempt.committed()) steps.push_back(attempt.name.step);
    }
    return steps;
  }

  SimDisk near_;
  SimDisk disk_;
  NearRun run_{near_};

 private:
  std::mutex log_mutex_;
  std::vector<std::string> log_;
  std::vector<std::uint64_t> arrived_;
  std::vector<std::uint64_t> left_out_;
  std::vector<AttemptName> awaited_;

 protected:
  Keep near_keep_;
  std::vector<AttemptName> held_;  // fixed while a flusher is at work
  std::atomic<std::uint64_t> generation_{0};
};

}  // namespace deepfreeze
