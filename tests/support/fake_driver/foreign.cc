// Some of the controls for callers that are not C++: tests in Python, by ctypes.
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "support/fake_driver/control.h"

namespace deepfreeze::fake_driver {
extern "C" {

void fake_driver_reset() { reset(); }
void fake_driver_all_memory(int all) { let_all_memory_be_devices(all != 0); }
void fake_driver_set_delays(std::uint64_t seed, unsigned micros_max) {
  set_delays(seed, micros_max);
}
void fake_driver_hold() { hold(); }
void fake_driver_let_go() { let_go(); }
void fake_driver_let_go_in(unsigned millis) {
  static std::jthread timer;
  timer = std::jthread([millis] {
    std::this_thread::sleep_for(std::chrono::milliseconds(millis));
    let_go();
  });
}
std::uintptr_t fake_driver_make_stream(int ordinal) { return make_stream(ordinal); }
void fake_driver_synchronize(std::uintptr_t stream) { synchronize(stream); }
// A kernel that comes late.
void fake_driver_fill(std::uintptr_t stream, void* memory, std::size_t bytes, int value,
                      unsigned millis) {
  launch(stream, [memory, bytes, value, millis] {
    std::this_thread::sleep_for(std::chrono::milliseconds(millis));
    std::memset(memory, value, bytes);
  });
}
int fake_driver_calls(const char* name) { return calls(name); }

// All violations, a line each; and the resources left over, as one more.
void fake_driver_complaints(char* text, std::size_t bytes) {
  std::string all;
  for (const std::string& each : violations()) all += each + "\n";
  const Left more = left();
  if (!(more == Left())) {
    all += "not given back: " + std::to_string(more.contexts) + " contexts, " +
           std::to_string(more.streams) + " streams, " + std::to_string(more.events) + " events, " +
           std::to_string(more.registrations) + " registrations\n";
  }
  std::strncpy(text, all.c_str(), bytes - 1);
  text[bytes - 1] = '\0';
}

}  // extern "C"
}  // namespace deepfreeze::fake_driver
