// Saves step after step on whatever disk it is given, and reports the fate of each, a line each:
//   save RUN SAVES       waits for each: "durable N", "failed N CAUSE"
//   skip RUN SAVES       OnBusy::kSkip, a save every five milliseconds: "saved N" or "skipped N"
//                        at once, "durable N" or "failed N CAUSE" when it is known
//   block RUN SAVES      the same with OnBusy::kBlock: save() waits for the one before
// These three end with "stall_milliseconds_max N", the longest call of save(), and "closed".
//   check RUN            reads all that is listed: "good N", "bad N CAUSE" (it was refused),
//                        "wrong N WHAT" (other values were given out)
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <list>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "deepfreeze/deepfreeze.h"
#include "support/state_of_step.h"

namespace deepfreeze {
namespace {

constexpr useconds_t kStepMicros = 5'000;

void say(std::string_view what, std::uint64_t step, std::string_view cause = "") {
  std::printf("%.*s %llu %.*s\n", static_cast<int>(what.size()), what.data(),
              static_cast<unsigned long long>(step), static_cast<int>(cause.size()), cause.data());
  std::fflush(stdout);
}

struct Waiting {
  std::uint64_t step;
  SaveHandle handle;
};

void say_end(std::uint64_t step, const Status& end) {
  end ? say("durable", step) : say("failed", step, end.error().message());
}

bool has_ended(const Waiting& waiting) {
  const SaveStatus status = waiting.handle.status();
  if (!status.durable && !status.error) return false;
  say_end(waiting.step, waiting.handle.wait(Level::kDurable));
  return true;
}

struct Habit {
  OnBusy on_busy = OnBusy::kBlock;
  bool waits_for_each = false;  // after save() has returned
};

class Training {
 public:
  Training(Checkpointer& run, Habit habit) : run_(run), habit_(habit) {}

  void save(std::uint64_t step) {
    const StateOfStep state(step);
    const SaveRequest request{.step = step, .tensors = state.table(), .objects = state.objects()};
    const auto begin = Monotonic::now();
    const auto saved = run_.save(request);
    longest_ = std::max(longest_, Monotonic::now() - begin);
    if (!saved) return say("failed", step, saved.error().message());
    if (!*saved) return say("skipped", step);
    if (habit_.waits_for_each) return say_end(step, (*saved)->wait(Level::kDurable));
    say("saved", step);
    waiting_.push_back({step, **saved});
  }

  void go_on() {
    waiting_.remove_if(has_ended);
    if (!habit_.waits_for_each) ::usleep(kStepMicros);
  }

  void end() {
    for (const Waiting& each : waiting_) say_end(each.step, each.handle.wait(Level::kDurable));
    const auto most = std::chrono::ceil<std::chrono::milliseconds>(longest_);
    say("stall_milliseconds_max", static_cast<std::uint64_t>(most.count()));
  }

 private:
  Checkpointer& run_;
  const Habit habit_;
  std::list<Waiting> waiting_;
  Monotonic::duration longest_{};
};

Status train(const char* path, std::uint64_t saves, Habit habit) {
  auto run = Checkpointer::open(path, {.keep = {.last = 2}, .on_busy = habit.on_busy});
  if (!run) return std::unexpected(run.error());
  const auto found = run->candidates();
  if (!found) return std::unexpected(found.error());
  std::uint64_t step = 1;
  if (!found->empty()) {
    if (const auto continued = run->continue_from(found->front()); !continued) return continued;
    step = found->front().step + 1;
  }
  Training training(*run, habit);
  for (const std::uint64_t last = step + saves; step < last; ++step) {
    training.save(step);
    training.go_on();
  }
  training.end();
  return run->close();
}

void check_one(const CheckpointInfo& info) {
  if (!info.fault.empty()) return say("bad", info.step, info.fault);
  const auto checkpoint = open_checkpoint(info);
  if (!checkpoint) return say("bad", info.step, checkpoint.error().message());
  const Difference found = StateOfStep(info.step).difference(*checkpoint);
  if (found.refused) return say("bad", info.step, found.what);
  found.what.empty() ? say("good", info.step) : say("wrong", info.step, found.what);
}

Status check(const char* path) {
  const auto found = list_checkpoints(path);
  if (!found) return std::unexpected(found.error());
  for (const CheckpointInfo& info : *found) check_one(info);
  return {};
}

Status carry_out(std::string_view verb, const char* path, std::string_view count) {
  std::uint64_t saves = 0;
  std::from_chars(count.data(), count.data() + count.size(), saves);
  if (verb == "check") return check(path);
  if (verb == "save") return train(path, saves, {.waits_for_each = true});
  if (verb == "skip") return train(path, saves, {.on_busy = OnBusy::kSkip});
  if (verb == "block") return train(path, saves, {.on_busy = OnBusy::kBlock});
  return std::unexpected(Error(ErrorCode::kInvalidArgument, "save, skip, block or check"));
}

}  // namespace
}  // namespace deepfreeze

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  deepfreeze::set_log_sink([](std::string_view) {});
  const auto done = deepfreeze::carry_out(argv[1], argv[2], argc > 3 ? argv[3] : "0");
  if (done) {
    std::puts("closed");
    return 0;
  }
  std::printf("refused %s\n", done.error().message().c_str());
  return 1;
}
