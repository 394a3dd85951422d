// A whole state into its image: the cost of the sessions and the pool beyond the copy.
#include <algorithm>
#include <cstring>
#include <utility>

#include "arena/arena.h"
#include "base/cores.h"
#include "base/try.h"
#include "samples.h"
#include "save/save_plan.h"
#include "staging/copier_pool.h"
#include "suite.h"

namespace deepfreeze {
namespace {

constexpr std::int64_t kSmokeTensors = 100;
const std::vector<std::int64_t> kTensors{kSmokeTensors, kResNet50Tensors, 10'000};
constexpr std::uint32_t kGuard = 1;  // all tensors of one optimizer

// The state, its destination, and the place of each tensor.
struct Stage {
  Sample sample;
  Arena arena;
  SavePlan plan;

  [[nodiscard]] static Result<Stage> make(std::size_t tensor_count, std::uint32_t guard) {
    Stage stage{.sample = sample_of(tensor_count)};
    for (Tensor& tensor : stage.sample.request.tensors) tensor.guard = guard;
    SavePlanner planner;
    DF_TRY_VOID(planner.accept(stage.sample.request.tensors));
    stage.plan = planner.plan_capture(stage.sample.request.tensors, 1);
    DF_TRY_VOID(stage.arena.reserve(stage.bytes()));
    return stage;
  }
  [[nodiscard]] std::uint64_t bytes() const { return plan.data_bytes(); }
  [[nodiscard]] bool is_copied() const {
    return std::ranges::equal(sample.memory, arena.bytes().first(bytes()));
  }
  [[nodiscard]] CaptureSession session() const {
    return CaptureSession({.image = Image(arena.bytes().first(bytes()), bytes(), kSlabBytes),
                           .block_bytes = kBlockBytes,
                           .items = plan.items,
                           .on_slab = [](std::size_t) {}});
  }
};

void copy_alone(benchmark::State& state, std::size_t tensor_count) {
  const auto stage = Stage::make(tensor_count, kUnguarded);
  if (!stage) return refuse(state, stage.error());
  for (auto _ : state) {
    for (const CaptureItem& item : stage->plan.items) {
      std::memcpy(stage->arena.bytes().subspan(item.offset).data(), item.source.data(),
                  item.source.size());
    }
    benchmark::ClobberMemory();
  }
  count_bytes(state, stage->bytes());
}

void make_session(benchmark::State& state, std::size_t tensor_count) {
  const auto stage = Stage::make(tensor_count, kGuard);
  if (!stage) return refuse(state, stage.error());
  for (auto _ : state) {
    benchmark::DoNotOptimize(stage->session().group_count());
  }
  count_items(state, tensor_count);
}

// As save() (unguarded) and a fence that finds nothing copied (guarded) do it.
struct Copying {
  std::uint32_t guard = kUnguarded;
  std::size_t helpers = 0;
};
void capture(benchmark::State& state, std::size_t tensor_count, Copying how) {
  const auto stage = Stage::make(tensor_count, how.guard);
  if (!stage) return refuse(state, stage.error());
  CopierPool pool(how.helpers);
  for (auto _ : state) {
    CaptureSession session = stage->session();
    session.release_all();
    pool.run(session, how.guard);
    session.wait();
    if (!session.done()) return state.SkipWithError("the capture is not done");
  }
  if (!stage->is_copied()) state.SkipWithError("the image is not the state");
  count_bytes(state, stage->bytes());
}

std::size_t helpers() { return cores_of_this_process() - 1; }

}  // namespace

void add_capture(const Suite& suite) {
  suite.add("capture/memcpy", kTensors, copy_alone);
  suite.add("capture/make_session", kTensors, make_session);
  suite.add_threaded("capture/one_core", kTensors,
                     [](auto& state, auto count) { capture(state, count, {}); });
  suite.add_threaded("capture/all_cores", kTensors, [](auto& state, auto count) {
    capture(state, count, {.helpers = helpers()});
  });
  suite.add_threaded("capture/guarded", kTensors, [](auto& state, auto count) {
    capture(state, count, {.guard = kGuard, .helpers = helpers()});
  });
}

}  // namespace deepfreeze
