// The part of save() that the training thread waits for, if names, types and shapes are those of
// the save before and every tensor is guarded, so that nothing has to be copied at once.
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "deepfreeze/deepfreeze.h"
#include "samples.h"
#include "suite.h"
#include "support/fake_driver/control.h"

namespace deepfreeze {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSmokeTensors = 100;
// ResNet-152 and its Adam state.
const std::vector<std::int64_t> kTensors{kSmokeTensors, 2'333, 10'000};
constexpr std::uint64_t kBytesOfEach = 16'384;
constexpr std::uint32_t kGuard = 1;

// A run in memory, so that the disk's time is not in it.
class RunInMemory {
 public:
  RunInMemory() : place_(fs::path("/dev/shm") / ("deepfreeze-save-" + std::to_string(::getpid()))) {
    fs::remove_all(place_);
  }
  RunInMemory(const RunInMemory&) = delete;
  RunInMemory& operator=(const RunInMemory&) = delete;
  ~RunInMemory() { fs::remove_all(place_); }

  [[nodiscard]] const fs::path& place() const { return place_; }

 private:
  const fs::path place_;
};

double thread_cpu_seconds() {
  timespec used = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

// The time is that of the calling thread's processor alone, and only inside save().
void save_again(benchmark::State& state, SaveRequest& request) {
  const RunInMemory run;
  auto opened =
      Checkpointer::open(run.place(), {.keep = {.last = 1}, .profile = Profile::kLatency});
  if (!opened) return refuse(state, opened.error());
  // As a counter in the state does, which changes from save to save.
  const std::size_t epoch_at = request.objects.find(':') + 1;
  const auto save_once = [&]() -> Result<double> {
    ++request.step;
    request.objects.replace(epoch_at, 1, std::to_string(request.step % 10));
    const double before = thread_cpu_seconds();
    const auto saved = opened->save(request);
    const double took = thread_cpu_seconds() - before;
    if (!saved) return std::unexpected(saved.error());
    const Status committed = (*saved)->wait(Level::kLocal);
    if (!committed) return std::unexpected(committed.error());
    return took;
  };
  if (const auto first = save_once(); !first) return refuse(state, first.error());
  for (auto _ : state) {
    const auto took = save_once();
    if (!took) return refuse(state, took.error());
    state.SetIterationTime(*took);
  }
  count_items(state, request.tensors.size());
}

void save_host(benchmark::State& state, std::size_t tensor_count) {
  Sample sample = equal_sample(tensor_count, kBytesOfEach);
  for (Tensor& tensor : sample.request.tensors) tensor.guard = kGuard;
  save_again(state, sample.request);
}

// The fake driver's calls take other time than a real one's; their number is the same.
void save_device(benchmark::State& state, std::size_t tensor_count) {
  ::setenv("DEEPFREEZE_CUDA_LIBRARY", fake_driver::library_path().c_str(), 1);
  fake_driver::reset();
  fake_driver::let_all_memory_be_devices(true);
  Sample sample = equal_sample(tensor_count, kBytesOfEach);
  for (Tensor& tensor : sample.request.tensors) {
    tensor.guard = kGuard;
    tensor.device = 0;
  }
  sample.request.streams = {{.device = 0, .stream = fake_driver::make_stream(0)}};
  save_again(state, sample.request);
}

}  // namespace

void add_save(const Suite& suite) {
  suite.add_manual("save/host", kTensors, save_host);
  suite.add_manual("save/device", kTensors, save_device);
}

}  // namespace deepfreeze
