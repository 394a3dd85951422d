// Machines without a driver of CUDA devices, or with one that lacks a needed function. Each case
// has its own process, because the driver is looked for once.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "deepfreeze/device.h"
#include "device/cuda_device.h"
#include "support/fake_driver/control.h"

namespace deepfreeze {
namespace {

// Ends the process: 0 if the error says that devices are not supported, and why.
[[noreturn]] void look_for(const char* library) {
  ::setenv("DEEPFREEZE_CUDA_LIBRARY", library, 1);
  const Status found = check_devices();
  CudaDevices devices;
  const bool none = !found && found.error().code() == ErrorCode::kUnsupported && !devices.get(0);
  if (!found) std::cerr << found.error().message();
  std::_Exit(none ? 0 : 1);
}

TEST(NoDriverDeathTest, ALibraryThatIsNotThereIsNamed) {
  EXPECT_EXIT(look_for("/nowhere/libcuda.so"), testing::ExitedWithCode(0), "/nowhere/libcuda.so");
}

TEST(NoDriverDeathTest, OneThatDoesNotBeginIsNone) {
  fake_driver::fail_call("cuInit", 1, 999);
  EXPECT_EXIT(look_for(fake_driver::library_path().c_str()), testing::ExitedWithCode(0),
              "cuInit: .*CUDA error 999");
  fake_driver::reset();
}

TEST(NoDriverDeathTest, OneThatLacksAFunctionIsTooOld) {
  EXPECT_EXIT(look_for("libm.so.6"), testing::ExitedWithCode(0), "too old.*cuInit");
}

}  // namespace
}  // namespace deepfreeze
