// Saves step after step on whatever disk it is given, and says what became of each, a line each:
//   save RUN SAVES       waits for each: "durable N", "failed N CAUSE"
//   skip RUN SAVES       OnBusy::kSkip, a save every five milliseconds: "saved N" or "skipped N"
//                        at once, "durable N" or "failed N CAUSE" when it is known; "closed"
//   check RUN            reads all that is listed: "good N", "bad N CAUSE" (it was refused),
//                        "wrong N WHAT" (other values were given out)
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <list>
#include <string_view>
#include <utility>

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

void save_one(Checkpointer& run, std::uint64_t step, OnBusy on_busy, std::list<Waiting>& waiting) {
  const StateOfStep state(step);
  const auto saved = run.save({.step = step, .tensors = state.table(), .objects = state.objects()});
  if (!saved) return say("failed", step, saved.error().message());
  if (!*saved) return say("skipped", step);
  if (on_busy == OnBusy::kBlock) return say_end(step, (*saved)->wait(Level::kDurable));
  say("saved", step);
  waiting.push_back({step, **saved});
}

Status train(const char* path, std::uint64_t saves, OnBusy on_busy) {
  auto run = Checkpointer::open(path, {.keep = {.last = 2}, .on_busy = on_busy});
  if (!run) return std::unexpected(run.error());
  const auto found = run->candidates();
  if (!found) return std::unexpected(found.error());
  std::uint64_t step = 1;
  if (!found->empty()) {
    if (const auto continued = run->continue_from(found->front()); !continued) return continued;
    step = found->front().step + 1;
  }
  std::list<Waiting> waiting;
  for (const std::uint64_t last = step + saves; step < last; ++step) {
    save_one(*run, step, on_busy, waiting);
    waiting.remove_if(has_ended);
    if (on_busy == OnBusy::kSkip) ::usleep(kStepMicros);
  }
  for (const Waiting& each : waiting) say_end(each.step, each.handle.wait(Level::kDurable));
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
  if (verb == "save") return train(path, saves, OnBusy::kBlock);
  if (verb == "skip") return train(path, saves, OnBusy::kSkip);
  return std::unexpected(Error(ErrorCode::kInvalidArgument, "save, skip or check"));
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
