// A run in a directory of its own, and a state whose every byte follows from the step.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/fail_point.h"
#include "base/log.h"
#include "deepfreeze/deepfreeze.h"

namespace deepfreeze {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kDeadline{60'000};  // for waits that must not hang, not a verdict on speed

class EngineTest : public testing::Test {
 protected:
  EngineTest() {
    std::string pattern = testing::TempDir() + "/engine-XXXXXX";
    root_ = ::mkdtemp(pattern.data());
    set_log_sink([this](std::string_view line) {
      const std::lock_guard lock(warnings_mutex_);  // threads of the engine log, too
      warnings_.emplace_back(line);
    });
  }
  ~EngineTest() override {
    fail_points::disarm();
    set_log_sink({});
    fs::remove_all(root_);
  }

  Checkpointer open(Options options = {}) {
    auto opened = Checkpointer::open(run_dir(), std::move(options));
    EXPECT_TRUE(opened.has_value()) << opened.error().message();
    return std::move(*opened);
  }

  [[nodiscard]] fs::path run_dir() const { return root_ / "run"; }

  fs::path root_;
  std::mutex warnings_mutex_;
  std::vector<std::string> warnings_;
};

// Two tensors whose every byte follows from the step.
struct State {
  std::vector<float> weights = std::vector<float>(300'001);
  std::vector<std::uint8_t> counters = std::vector<std::uint8_t>(77);

  void fill(std::uint64_t step) {
    std::iota(weights.begin(), weights.end(), static_cast<float>(step * 1000));
    std::ranges::fill(counters, static_cast<std::uint8_t>(step));
  }

  [[nodiscard]] TensorTable table() const {
    return {{.spec = {.key = "w", .dtype = DType::kF32, .shape = {weights.size()}},
             .data = std::as_bytes(std::span(weights))},
            {.spec = {.key = "c", .dtype = DType::kU8, .shape = {7, 11}},
             .data = std::as_bytes(std::span(counters))}};
  }
  std::vector<RestoreTarget> targets() {
    return {{"w", std::as_writable_bytes(std::span(weights))},
            {"c", std::as_writable_bytes(std::span(counters))}};
  }
  bool operator==(const State&) const = default;
};

inline State state_at(std::uint64_t step) {
  State state;
  state.fill(step);
  return state;
}

inline SaveHandle save(Checkpointer& run, std::uint64_t step) {
  const State state = state_at(step);
  auto handle = run.save({.step = step, .tensors = state.table(), .objects = R"({"step":1})"});
  EXPECT_TRUE(handle.has_value() && handle->has_value());
  return **handle;
}

inline void save_durably(Checkpointer& run, std::uint64_t step) {
  const Status durable = save(run, step).wait(Level::kDurable, kDeadline);
  ASSERT_TRUE(durable.has_value()) << durable.error().message();
}

inline std::vector<std::uint64_t> steps_of(const fs::path& run) {
  const auto listed = list_checkpoints(run);
  EXPECT_TRUE(listed.has_value());
  std::vector<std::uint64_t> steps;
  for (const CheckpointInfo& info : *listed) steps.push_back(info.step);
  return steps;
}

}  // namespace deepfreeze
