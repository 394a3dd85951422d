#include "corruption/stored_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/try.h"
#include "support/thread_ranks.h"

namespace deepfreeze {
namespace {

// Odd sizes, less than a page and more than a block; each comes three times, so that the files of
// three ranks have one length and one may be put in place of another.
constexpr std::array<std::size_t, 9> kTensorBytes = {1,      700, 65'537, 1,     700,
                                                     65'537, 1,   700,    65'537};
constexpr std::chrono::milliseconds kDeadline{60'000};

using State = std::vector<std::vector<std::byte>>;

State made_state_of(std::uint64_t step) {
  State state;
  std::uint64_t random = step;
  for (const std::size_t bytes : kTensorBytes) {
    std::vector<std::byte>& tensor = state.emplace_back(bytes);
    for (std::byte& byte : tensor) {
      random = random * 6364136223846793005U + 1442695040888963407U;
      byte = static_cast<std::byte>(random >> 56);
    }
  }
  return state;
}

// Made once: each damage reads all steps.
const State& state_of(std::uint64_t step) {
  static std::mutex alone;  // of the ranks' threads
  static std::map<std::uint64_t, State> made;
  const std::scoped_lock lock(alone);
  const auto found = made.find(step);
  return found != made.end() ? found->second
                             : made.emplace(step, made_state_of(step)).first->second;
}

// By the library's function: a loop of ours is not optimized, and this is most of the time.
bool is_same(const State& one, const State& other) {
  return std::ranges::equal(one, other, [](const auto& left, const auto& right) {
    return left.size() == right.size() && std::memcmp(left.data(), right.data(), left.size()) == 0;
  });
}

std::string objects_of(std::uint64_t step) { return fmt::format(R"({{"step":{}}})", step); }

std::string key_of(std::size_t tensor) { return fmt::format("tensor{}", tensor); }

SaveRequest request_of(std::uint64_t step, const State& state) {
  SaveRequest request{.step = step, .objects = objects_of(step)};
  for (std::size_t i = 0; i < state.size(); ++i) {
    request.tensors.push_back(
        {.spec = {.key = key_of(i), .dtype = DType::kU8, .shape = {state[i].size()}},
         .data = state[i]});
  }
  return request;
}

std::vector<RestoreTarget> targets_of(State& state) {
  std::vector<RestoreTarget> targets;
  for (std::size_t i = 0; i < state.size(); ++i) targets.push_back({key_of(i), state[i]});
  return targets;
}

// Whether the reader returned the checkpoint; then it must equal the saved state.
bool read_one(const CheckpointInfo& info, std::string& wrong) {
  const auto opened = open_checkpoint(info);
  if (!opened) return false;
  State found = state_of(0);
  if (!opened->read(targets_of(found))) return false;
  if (!is_same(found, state_of(info.step)))
    wrong = fmt::format("step {} has other bytes", info.step);
  if (opened->objects() != objects_of(info.step)) {
    wrong = fmt::format("step {} has other objects: {}", info.step, opened->objects());
  }
  return true;
}

bool is_found_bad(const CheckpointInfo& info) {
  if (!info.fault.empty()) return true;
  const auto faults = verify_checkpoint(info);
  return !faults || !faults->empty();
}

// All ranks have the same, so that each writes a share of it.
Status save_all(const std::filesystem::path& run, std::shared_ptr<RankGroup> group) {
  DF_TRY(Checkpointer checkpointer, Checkpointer::open(run, {.ranks = std::move(group)}));
  for (std::uint64_t step = 1; step <= kStoredSteps; ++step) {
    const State& state = state_of(step);
    DF_TRY(const auto handle, checkpointer.save(request_of(step, state)));
    DF_TRY_VOID(handle->wait(Level::kDurable, kDeadline));
  }
  return checkpointer.close();
}

}  // namespace

Status store_run(const std::filesystem::path& run, std::uint32_t ranks) {
  std::vector<Status> stored(ranks);
  ThreadRanks(ranks).run([&](std::uint32_t rank, std::shared_ptr<RankGroup> group) {
    stored[rank] = save_all(run, std::move(group));
  });
  for (const Status& each : stored) DF_TRY_VOID(each);
  return {};
}

Reading read_run_through(const std::filesystem::path& run,
                         std::optional<std::uint64_t> changed_step) {
  Reading reading;
  const auto infos = list_checkpoints(run);
  if (!infos) return reading;
  for (const CheckpointInfo& info : *infos) {
    const bool is_given_out = read_one(info, reading.wrong);
    (is_given_out ? reading.good : reading.faulty).push_back(info.step);
    const bool is_bad = is_found_bad(info);
    if (info.step == changed_step && !is_bad) reading.wrong = "the full check finds nothing";
    if (is_bad && info.step != changed_step) {
      reading.wrong = fmt::format("step {} is called bad", info.step);
    }
  }
  return reading;
}

std::string go_on_from(const std::filesystem::path& run) {
  auto checkpointer = Checkpointer::open(run, {});
  if (!checkpointer) return checkpointer.error().message();
  State found = state_of(0);
  const auto report = restore_newest(*checkpointer, targets_of(found));
  if (!report) return report.error().message();
  if (!is_same(found, state_of(report->restored.step))) return "other bytes were restored";
  const std::uint64_t next = kStoredSteps + 1;
  const State& state = state_of(next);
  const auto handle = checkpointer->save(request_of(next, state));
  if (!handle) return handle.error().message();
  const Status saved = (*handle)->wait(Level::kDurable, kDeadline);
  return saved ? "" : saved.error().message();
}

}  // namespace deepfreeze
