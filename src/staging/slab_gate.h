// Ring mode: decides which slab may be copied to its place, because the previous one there is
// written. Any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

namespace deepfreeze {

class SlabGate {
 public:
  // `slots` of 0: no ring, nothing ever waits.
  explicit SlabGate(std::uint64_t slots);

  // Waits until the place of `slab` is free. False once the gate is open for good: copy nothing.
  [[nodiscard]] bool wait(std::uint64_t slab);
  // `slab` is written or given up; its place goes to the next.
  void free(std::uint64_t slab);
  void open_for_good();

 private:
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::vector<std::uint64_t> turn_;  // by place: the slab that may be there
  bool open_ = false;
};

}  // namespace deepfreeze
