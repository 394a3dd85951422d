#include "crash/random_life.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kKillWithinMax = 40;  // operations; a save has about twenty
constexpr std::uint64_t kStepAheadMax = 3;
constexpr std::size_t kKeepMax = 3;

bool is_removing(const Promises& promises, const Point& point) {
  return std::ranges::find(promises.removing, AttemptName{point.step, point.attempt_id}) !=
         promises.removing.end();
}

}  // namespace

Status RandomLife::begin_process() {
  story_ += "new process; ";
  DF_TRY_VOID(life_.open());
  DF_TRY_VOID(life_.claim());
  if (below(4) == 0) return {};
  return life_.abort_undecided_attempts();
}

Status RandomLife::save() {
  step_ += 1 + below(kStepAheadMax);
  switch (below(5)) {
    case 0:
      story_ += fmt::format("save {} of two ranks; ", step_);
      return life_.save_of_two_ranks(step_);
    case 1:
      story_ += fmt::format("save {} of several files; ", step_);
      return life_.save_of_several_files(step_);
    default:
      story_ += fmt::format("save {}; ", step_);
      return life_.save(step_);
  }
}

// To any step that is there for certain.
Status RandomLife::roll_back() {
  std::vector<std::uint64_t> steps;
  for (const Point& point : life_.promises().committed) {
    if (!is_removing(life_.promises(), point)) steps.push_back(point.step);
  }
  if (steps.empty()) return {};
  step_ = steps[below(steps.size())];
  story_ += fmt::format("back to {}; ", step_);
  return life_.claim_from(step_);
}

Status RandomLife::ruin() {
  story_ += "ruin deepfreeze.json; ";
  life_.ruin_run_file();
  return begin_process();
}

Status RandomLife::act() {
  if (!life_.may_save()) return begin_process();
  switch (below(16)) {
    case 0:
      return begin_process();
    case 1:
      return roll_back();
    case 2:
      story_ += fmt::format("seal {} only; ", ++step_);
      return life_.seal_only(step_);
    case 3:
      return ruin();
    case 4:
    case 5:
    case 6:
    case 7:
      story_ += "collect; ";
      return life_.collect(1 + below(kKeepMax));
    default:
      return save();
  }
}

void RandomLife::live(std::size_t actions) {
  for (; actions > 0; --actions) {
    const bool is_killed = below(3) == 0;
    if (is_killed) disk_.kill_at(disk_.operation_count() + below(kKillWithinMax));
    const Status status = act();
    if (!status) story_ += fmt::format("({}) ", status.error().message());
    if (!is_killed) continue;
    disk_.revive();
    story_ += "killed; ";
    std::ignore = begin_process();
  }
}

}  // namespace deepfreeze
