#include "save/copy_profile.h"

#include <ctime>

namespace deepfreeze {
namespace {

// A shorter stretch than this says little: the clock of CPU time may advance in ticks.
constexpr double kStretchSecondsMin = 0.02;

// If a computation fills all cores most of the time, the average still leaves a part of one free.
constexpr double kFreeCoreMin = 1;

double process_cpu_seconds() {
  timespec used = {};
  if (::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) != 0) return 0;
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

}  // namespace

bool leaves_a_core(const CoreUse& use, std::size_t cores) {
  return use.cpu_seconds < (static_cast<double>(cores) - kFreeCoreMin) * use.wall_seconds;
}

CopyProfile::CopyProfile(Profile wanted, std::size_t cores)
    : wanted_(wanted), cores_(cores), cpu_seconds_(process_cpu_seconds()) {}

CopyTime CopyProfile::next() {
  if (wanted_ == Profile::kLatency) return CopyTime::kBehind;
  if (wanted_ == Profile::kThroughput) return CopyTime::kAtOnce;
  const double wall = seconds_since(looked_at_);
  if (wall >= kStretchSecondsMin) {
    const double cpu = process_cpu_seconds();
    const CoreUse use = {.wall_seconds = wall, .cpu_seconds = cpu - cpu_seconds_};
    core_is_free_ = leaves_a_core(use, cores_);
    looked_at_ = Monotonic::now();
    cpu_seconds_ = cpu;
  }
  return core_is_free_ ? CopyTime::kBehind : CopyTime::kAtOnce;
}

}  // namespace deepfreeze
