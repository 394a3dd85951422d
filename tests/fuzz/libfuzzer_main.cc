// The entry point of libFuzzer: calls one target, DF_FUZZ_TARGET.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "base/log.h"
#include "fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  deepfreeze::set_log_sink([](std::string_view) {});  // hostile runs are warned of, often
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const deepfreeze::FuzzTarget* const target = deepfreeze::find_fuzz_target(DF_FUZZ_TARGET);
  const auto kept = target->run({reinterpret_cast<const char*>(data), size});
  if (kept) return 0;
  std::fprintf(stderr, "%s: %s\n", DF_FUZZ_TARGET, kept.error().message().c_str());
  std::abort();  // as libFuzzer wants it
}
