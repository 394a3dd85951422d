// A driver of CUDA devices that are none: the functions that the product looks for, over host
// memory, by the rules of streams and with real asynchrony. Each stream is a thread that comes late
// to its work. A call that breaks a rule, which a device would punish some day, is kept as a
// violation. A test double, and never in the product. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace deepfreeze::fake_driver {

// The path of this driver, for programs that load it at run time.
[[nodiscard]] std::string library_path();

// Before each operation a stream sleeps up to so long; copies also sleep in their middle.
void set_delays(std::uint64_t seed, unsigned micros_max);

// Streams do nothing more before let_go(), those that are made meanwhile neither; but for a test's
// own.
void hold();
void let_go();

// Device memory: copies may read and write it until it is retracted. A copy under way then is a
// violation.
void declare(const void* memory, std::size_t bytes);
void retract(const void* memory);
void let_all_memory_be_devices(bool all);

// The n-th call of that function from now on, from 1, returns `code` and does nothing.
void fail_call(const std::string& name, int nth, int code);
// Every call but for texts returns `code`, and nothing that was enqueued happens: a dead device.
// Lets all streams go.
void die(int code);
[[nodiscard]] int calls(const std::string& name);

void limit_pinned_bytes(std::size_t bytes);
[[nodiscard]] int unpinned_copies();

struct Left {
  int contexts = 0;  // references to primary ones
  int streams = 0;
  int events = 0;
  int registrations = 0;
  bool operator==(const Left&) const = default;
};
[[nodiscard]] Left left();
[[nodiscard]] std::vector<std::string> violations();

// Streams of a test's own, as training has them. `ordinal`: of the device; blocking: ordered with
// its default stream. Their contexts are retained until reset().
[[nodiscard]] std::uintptr_t make_stream(int ordinal, bool is_blocking = false);
// A kernel.
void launch(std::uintptr_t stream, std::function<void()> kernel);
void synchronize(std::uintptr_t stream);
void synchronize_all();
// That device's context becomes this thread's, as training has it, until it is left.
void enter_context(int ordinal);
void leave_context();
// 0: restricts all threads that don't say otherwise; 1: this one; 2: none.
void begin_graph(std::uintptr_t stream, int mode);
void end_graph(std::uintptr_t stream);

// Lets all streams finish, and forgets everything.
void reset();

}  // namespace deepfreeze::fake_driver
