#include "support/fake_driver/driver.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

namespace deepfreeze::fake_driver {
namespace {

constexpr std::size_t kChunk = 4096;  // of a copy: between two of them others may write

// Orders later work of `stream` after the work given to `other` so far.
void order_after(FakeStream& stream, FakeStream& other) {
  const auto reached = std::make_shared<Progress>();
  other.push([reached] { reached->reach(1); });
  stream.push([reached] { reached->wait(1); });
}

std::uint64_t this_thread() { return std::hash<std::thread::id>()(std::this_thread::get_id()); }

}  // namespace

std::vector<FakeContext*>& context_stack() {
  static thread_local std::vector<FakeContext*> stack;
  return stack;
}

int& capture_mode() {
  static thread_local int mode = 0;
  return mode;
}

FakeDriver& FakeDriver::get() {
  static FakeDriver driver;
  return driver;
}

FakeDriver::~FakeDriver() {
  for (const auto& stream : streams) stream->let_go();
  for (const auto& stream : destroyed) stream->let_go();
}

int FakeDriver::enter(const std::string& name) {
  ++call_counts[name];
  if (dead != 0) return dead;
  const auto failure = failures.find(name);
  if (failure != failures.end() && --failure->second.countdown == 0) {
    const int code = failure->second.code;
    failures.erase(failure);
    return code;
  }
  return is_initialized || name == "cuInit" ? 0 : kNotInitialized;
}

int FakeDriver::enter_with_context(const std::string& name) {
  if (const int code = enter(name)) return code;
  return context_stack().empty() ? kInvalidContext : 0;
}

int FakeDriver::enter_unsafe(const std::string& name) {
  if (const int code = enter_with_context(name)) return code;
  if (capture_mode() == 2) return 0;
  for (const auto& stream : streams) {
    const bool is_global = stream->graph_mode == 0;
    const bool is_own = stream->graph_mode == 1 && stream->graph_thread == this_thread();
    if (!is_global && !is_own) continue;
    violate(name + " broke a graph that was being captured");
    return kCaptureUnsupported;
  }
  return 0;
}

void FakeDriver::violate(const std::string& what) { violated.push_back(what); }

FakeStream* FakeDriver::find(void* handle) {
  FakeContext& context = *context_stack().back();
  if (handle == nullptr) return &null_stream(context);
  const auto found = std::ranges::find(streams, handle, &std::unique_ptr<FakeStream>::get);
  if (found == streams.end()) {
    violate("a stream that does not exist");
    return nullptr;
  }
  if ((*found)->ordinal == context.ordinal) return found->get();
  violate("a stream of another device's context");
  return nullptr;
}

FakeStream& FakeDriver::null_stream(FakeContext& context) {
  if (!context.null_stream) {
    context.null_stream = std::make_unique<FakeStream>(context.ordinal, true, false, delays);
  }
  return *context.null_stream;
}

// Follows the rules of the legacy default stream: it and blocking ones wait for each other.
void FakeDriver::push(FakeStream& stream, std::function<void()> operation) {
  FakeContext& context = contexts.at(static_cast<std::size_t>(stream.ordinal));
  const bool is_null = context.null_stream && &stream == context.null_stream.get();
  if (is_null) {
    for (const auto& other : streams) {
      if (other->is_blocking && other->ordinal == stream.ordinal) order_after(stream, *other);
    }
  } else if (stream.is_blocking && context.null_stream) {
    order_after(stream, *context.null_stream);
  }
  stream.push(std::move(operation));
}

bool FakeDriver::is_device_memory(const Range& range) const {
  return all_is_device_memory ||
         std::ranges::any_of(device_memory, [&](const Range& known) { return known.holds(range); });
}

bool FakeDriver::is_pinned(const Range& range) const {
  return std::ranges::any_of(registrations, [&](const Range& known) { return known.holds(range); });
}

// A device that has died copies nothing.
bool FakeDriver::is_copied(const Range& device, const Range& host) {
  const std::lock_guard lock(copies_mutex);
  return dead == 0 && std::ranges::any_of(copies, [&](const auto& each) {
           return each.second.device.meets(device) || each.second.host.meets(host);
         });
}

int FakeDriver::copy(std::byte* into, const std::byte* from, const Range& device, const Range& host,
                     FakeStream& stream) {
  if (!is_device_memory(device)) {
    violate("a copy of what is no device memory");
    return kInvalidValue;
  }
  if (!is_pinned(host)) ++unpinned;
  const std::uint64_t number = next_number++;
  {
    const std::lock_guard lock(copies_mutex);
    copies[number] = {.device = device, .host = host};
  }
  const std::size_t bytes = host.bytes;
  push(stream, [this, into, from, bytes, number, &stream] {
    for (std::size_t at = 0; at < bytes && dead == 0; at += kChunk) {
      std::memcpy(into + at, from + at, std::min(kChunk, bytes - at));
      if (at % (16 * kChunk) == 0) stream.sleep_a_little();
    }
    const std::lock_guard lock(copies_mutex);
    copies.erase(number);
  });
  return 0;
}

}  // namespace deepfreeze::fake_driver
