// The state of the fake driver: contexts, streams, events, memory. One, for the whole process.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "support/fake_driver/control.h"
#include "support/fake_driver/streams.h"

namespace deepfreeze::fake_driver {

constexpr int kDevices = 2;

// CUresult, as the driver's documentation numbers them.
constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr int kNotInitialized = 3;
constexpr int kInvalidDevice = 101;
constexpr int kInvalidContext = 201;
constexpr int kInvalidHandle = 400;
constexpr int kAlreadyRegistered = 712;
constexpr int kNotRegistered = 713;
constexpr int kCaptureUnsupported = 900;
constexpr int kCaptureIsolation = 905;

struct Range {
  const std::byte* begin = nullptr;
  std::size_t bytes = 0;
  [[nodiscard]] bool holds(const Range& other) const {
    return other.begin >= begin && other.begin + other.bytes <= begin + bytes;
  }
  [[nodiscard]] bool meets(const Range& other) const {
    return other.begin < begin + bytes && begin < other.begin + other.bytes;
  }
};

struct FakeContext {
  int ordinal = 0;
  int references = 0;
  std::unique_ptr<FakeStream> null_stream;  // from its first use on
};

// A copy from its enqueuing to its end.
struct CopyUnderWay {
  Range device;
  Range host;
};

struct FakeEvent {
  int ordinal = 0;
  std::shared_ptr<Progress> progress = std::make_shared<Progress>();  // also held by streams
};

struct Failure {
  int countdown = 0;
  int code = 0;
};

struct FakeDriver {
  static FakeDriver& get();

  // Counts the call; returns the code that it must return at once, or 0.
  [[nodiscard]] int enter(const std::string& name);
  [[nodiscard]] int enter_with_context(const std::string& name);
  // For calls that are forbidden while a graph is being captured.
  [[nodiscard]] int enter_unsafe(const std::string& name);

  void violate(const std::string& what);
  // Null if the handle is none of the current context's.
  [[nodiscard]] FakeStream* find(void* handle);
  [[nodiscard]] FakeStream& null_stream(FakeContext& context);
  void push(FakeStream& stream, std::function<void()> operation);
  [[nodiscard]] int copy(std::byte* into, const std::byte* from, const Range& device,
                         const Range& host, FakeStream& stream);
  [[nodiscard]] bool is_device_memory(const Range& range) const;
  [[nodiscard]] bool is_pinned(const Range& range) const;

  ~FakeDriver();  // lets all streams go first: one may wait for another

  // These two come before the streams, whose threads use them.
  std::mutex copies_mutex;  // guards the next; taken last
  std::map<std::uint64_t, CopyUnderWay> copies;
  std::mutex mutex;  // guards all below, unless a member says otherwise
  std::array<FakeContext, kDevices> contexts{FakeContext{0, 0, {}}, FakeContext{1, 0, {}}};
  std::vector<std::unique_ptr<FakeStream>> streams;    // not the default ones
  std::vector<std::unique_ptr<FakeStream>> destroyed;  // and still at work
  std::map<void*, std::shared_ptr<FakeEvent>> events;
  std::vector<Range> registrations;
  std::vector<Range> device_memory;
  std::map<std::string, int> call_counts;
  std::map<std::string, Failure> failures;
  std::vector<std::string> violated;
  std::uint64_t next_number = 1;
  std::size_t pinned_bytes_max = SIZE_MAX;
  int unpinned = 0;
  std::set<const FakeStream*> own_streams;   // of tests
  std::array<int, kDevices> own_contexts{};  // retained by them
  bool all_is_device_memory = false;
  bool holds_new_streams = false;
  bool is_initialized = false;
  Delays delays;
  std::atomic<int> dead{0};  // without the lock

  [[nodiscard]] bool is_copied(const Range& device, const Range& host);
};

inline FakeDriver& driver() { return FakeDriver::get(); }

// The state of the calling thread.
std::vector<FakeContext*>& context_stack();
int& capture_mode();

}  // namespace deepfreeze::fake_driver
