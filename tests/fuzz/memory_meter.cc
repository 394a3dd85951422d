// Measures by the hooks that the sanitizers call for each allocation.
#include "fuzz/memory_meter.h"

#include <fmt/format.h>
#include <sanitizer/allocator_interface.h>

#include <algorithm>
#include <atomic>

#include "fuzz/fuzz_target.h"

namespace deepfreeze {
namespace {

// relaxed: sums only; memory that is freed may have been allocated before, so they can fall below
// zero.
std::atomic<bool> measuring{false};
std::atomic<std::int64_t> held{0};
std::atomic<std::int64_t> peak{0};

void add(std::int64_t bytes) {
  if (!measuring.load(std::memory_order_relaxed)) return;
  const std::int64_t now = held.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::int64_t before = peak.load(std::memory_order_relaxed);
  while (now > before && !peak.compare_exchange_weak(before, now, std::memory_order_relaxed)) {
  }
}

bool install() {
  return __sanitizer_install_malloc_and_free_hooks(
             [](auto*, std::size_t bytes) { add(static_cast<std::int64_t>(bytes)); },
             [](auto* pointer) {
               if (pointer == nullptr || !measuring.load(std::memory_order_relaxed)) return;
               add(-static_cast<std::int64_t>(
                   __sanitizer_get_allocated_size_fast(const_cast<const void*>(pointer))));
             }) != 0;
}

}  // namespace

MemoryMeter::MemoryMeter() {
  [[maybe_unused]] static const bool installed = install();
  held.store(0, std::memory_order_relaxed);
  peak.store(0, std::memory_order_relaxed);
  measuring.store(true, std::memory_order_relaxed);
}

MemoryMeter::~MemoryMeter() { measuring.store(false, std::memory_order_relaxed); }

Status MemoryMeter::check(std::size_t input_bytes, std::uint64_t times_input) const {
  const auto bytes = static_cast<std::uint64_t>(peak.load(std::memory_order_relaxed));
  if (bytes <= kFreeBytes + times_input * input_bytes) return {};
  return broken(fmt::format("{} bytes of memory for {} bytes of input", bytes, input_bytes));
}

}  // namespace deepfreeze
