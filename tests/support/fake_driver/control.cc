#include "support/fake_driver/control.h"

#include <dlfcn.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>

#include "support/fake_driver/driver.h"

namespace deepfreeze::fake_driver {
namespace {

FakeStream& stream_of(std::uintptr_t handle) { return *reinterpret_cast<FakeStream*>(handle); }

}  // namespace

std::string library_path() {
  Dl_info info{};
  ::dladdr(reinterpret_cast<const void*>(&library_path), &info);
  return info.dli_fname;
}

void set_delays(std::uint64_t seed, unsigned micros_max) {
  const std::lock_guard lock(driver().mutex);
  driver().delays = {.seed = seed, .micros_max = micros_max};
}

void hold() {
  FakeDriver& own = driver();
  const std::lock_guard lock(own.mutex);
  own.holds_new_streams = true;
  for (const auto& stream : own.streams) {
    if (!own.own_streams.contains(stream.get())) stream->hold();
  }
}

void let_go() {
  const std::lock_guard lock(driver().mutex);
  driver().holds_new_streams = false;
  for (const auto& stream : driver().streams) stream->let_go();
  for (const auto& stream : driver().destroyed) stream->let_go();
}

void declare(const void* memory, std::size_t bytes) {
  const std::lock_guard lock(driver().mutex);
  driver().device_memory.push_back({static_cast<const std::byte*>(memory), bytes});
}

void retract(const void* memory) {
  FakeDriver& own = driver();
  const std::lock_guard lock(own.mutex);
  const auto found = std::ranges::find(own.device_memory, memory, &Range::begin);
  if (found == own.device_memory.end()) return;
  if (own.is_copied(*found, {})) own.violate("device memory is freed while it is copied");
  own.device_memory.erase(found);
}

void let_all_memory_be_devices(bool all) {
  const std::lock_guard lock(driver().mutex);
  driver().all_is_device_memory = all;
}

void fail_call(const std::string& name, int nth, int code) {
  const std::lock_guard lock(driver().mutex);
  driver().failures[name] = {.countdown = nth, .code = code};
}

void die(int code) {
  FakeDriver& own = driver();
  own.dead = code;
  let_go();
  synchronize_all();  // no copy is in its middle
}

int calls(const std::string& name) {
  const std::lock_guard lock(driver().mutex);
  return driver().call_counts[name];
}

void limit_pinned_bytes(std::size_t bytes) {
  const std::lock_guard lock(driver().mutex);
  driver().pinned_bytes_max = bytes;
}

int unpinned_copies() {
  const std::lock_guard lock(driver().mutex);
  return driver().unpinned;
}

Left left() {
  FakeDriver& own = driver();
  const std::lock_guard lock(own.mutex);
  Left found{.contexts = 0,
             .streams = static_cast<int>(own.streams.size() - own.own_streams.size()),
             .events = static_cast<int>(own.events.size()),
             .registrations = static_cast<int>(own.registrations.size())};
  for (std::size_t i = 0; i < kDevices; ++i) {
    found.contexts += own.contexts.at(i).references - own.own_contexts.at(i);
  }
  return found;
}

std::vector<std::string> violations() {
  const std::lock_guard lock(driver().mutex);
  return driver().violated;
}

std::uintptr_t make_stream(int ordinal, bool is_blocking) {
  FakeDriver& own = driver();
  const std::lock_guard lock(own.mutex);
  ++own.contexts.at(static_cast<std::size_t>(ordinal)).references;
  ++own.own_contexts.at(static_cast<std::size_t>(ordinal));
  own.is_initialized = true;  // a user of streams has initialised the driver
  Delays delays = own.delays;
  delays.seed += own.next_number++;
  own.streams.push_back(std::make_unique<FakeStream>(ordinal, is_blocking, false, delays));
  own.own_streams.insert(own.streams.back().get());
  return reinterpret_cast<std::uintptr_t>(own.streams.back().get());
}

void launch(std::uintptr_t stream, std::function<void()> kernel) {
  const std::lock_guard lock(driver().mutex);
  driver().push(stream_of(stream), std::move(kernel));
}

void synchronize(std::uintptr_t stream) { stream_of(stream).finish(); }

void synchronize_all() {
  std::vector<FakeStream*> all;
  {
    const std::lock_guard lock(driver().mutex);
    for (const auto& stream : driver().streams) all.push_back(stream.get());
  }
  for (FakeStream* stream : all) stream->finish();
}

void enter_context(int ordinal) {
  const std::lock_guard lock(driver().mutex);
  context_stack().push_back(&driver().contexts.at(static_cast<std::size_t>(ordinal)));
}

void leave_context() {
  const std::lock_guard lock(driver().mutex);
  context_stack().pop_back();
}

void begin_graph(std::uintptr_t stream, int mode) {
  const std::lock_guard lock(driver().mutex);
  stream_of(stream).graph_mode = mode;
  stream_of(stream).graph_thread = std::hash<std::thread::id>()(std::this_thread::get_id());
}

void end_graph(std::uintptr_t stream) {
  const std::lock_guard lock(driver().mutex);
  stream_of(stream).graph_mode = -1;
}

void reset() {
  FakeDriver& own = driver();
  let_go();
  std::vector<std::unique_ptr<FakeStream>> gone;  // they end without the lock
  {
    const std::lock_guard lock(own.mutex);
    std::swap(gone, own.streams);
    std::ranges::move(own.destroyed, std::back_inserter(gone));
    own.destroyed.clear();
    for (FakeContext& context : own.contexts) {
      if (context.null_stream) gone.push_back(std::move(context.null_stream));
    }
  }
  for (const auto& stream : gone) stream->finish();
  gone.clear();
  const std::lock_guard lock(own.mutex);
  for (FakeContext& context : own.contexts) context.references = 0;
  own.events.clear();
  own.registrations.clear();
  own.device_memory.clear();
  own.call_counts.clear();
  own.failures.clear();
  own.violated.clear();
  own.pinned_bytes_max = SIZE_MAX;
  own.unpinned = 0;
  own.own_streams.clear();
  own.own_contexts = {};
  own.all_is_device_memory = false;
  own.delays = {};
  own.dead = 0;
}

}  // namespace deepfreeze::fake_driver
