// The work of save() before the first byte is copied: all of it, and its dearest steps.
#include <vector>

#include "base/try.h"
#include "samples.h"
#include "save/save_plan.h"
#include "suite.h"
#include "tensor/tensor_table.h"

namespace deepfreeze {
namespace {

const std::vector<std::int64_t> kTensors{1, kResNet50Tensors, 10'000, 100'000, 1'000'000};

// `step` returns a Result or a Status. The result is released inside the time.
template <class Step>
void measure(benchmark::State& state, std::size_t tensor_count, Step step) {
  const Sample sample = sample_of(tensor_count);
  for (auto _ : state) {
    auto made = step(sample.request);
    if (!made) return refuse(state, made.error());
    benchmark::DoNotOptimize(made);
  }
  count_items(state, tensor_count);
}

Result<SavePlan> plan(SavePlanner& planner, const SaveRequest& request) {
  DF_TRY_VOID(planner.accept(request));
  return planner.plan_save(request, sample_identity(), {});
}

void plan_first(benchmark::State& state, std::size_t tensor_count) {
  measure(state, tensor_count, [](const SaveRequest& request) {
    SavePlanner planner;
    return plan(planner, request);
  });
}

void plan_again(benchmark::State& state, std::size_t tensor_count) {
  SavePlanner planner;
  if (const auto first = plan(planner, sample_of(tensor_count).request); !first) {
    return refuse(state, first.error());
  }
  measure(state, tensor_count,
          [&planner](const SaveRequest& request) { return plan(planner, request); });
}

void check_tensors(benchmark::State& state, std::size_t tensor_count) {
  measure(state, tensor_count,
          [](const SaveRequest& request) { return check_table(request.tensors); });
}

void lay_out_tensors(benchmark::State& state, std::size_t tensor_count) {
  std::vector<TensorSpec> specs;
  for (const Tensor& tensor : sample_of(tensor_count).request.tensors) specs.push_back(tensor.spec);
  measure(state, tensor_count, [&specs](const SaveRequest&) { return lay_out(specs); });
}

}  // namespace

void add_plan(const Suite& suite) {
  suite.add("plan/first_save", kTensors, plan_first);
  suite.add("plan/same_tensors", kTensors, plan_again);
  suite.add("plan/check_table", kTensors, check_tensors);
  suite.add("plan/lay_out", kTensors, lay_out_tensors);
}

}  // namespace deepfreeze
