// The common part of tests on the fake driver: it is loaded in place of the real one, empty before
// each test; after the test no resource may be left over and no rule may have been broken.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "deepfreeze/device.h"
#include "support/fake_driver/control.h"

namespace deepfreeze {

// Before anything looks for a driver.
inline const bool kFakeDriverChosen =
    ::setenv("DEEPFREEZE_CUDA_LIBRARY", fake_driver::library_path().c_str(), 1) == 0;

// Memory of a device, while this lives.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) : bytes_(bytes) {
    fake_driver::declare(bytes_.data(), bytes_.size());
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { fake_driver::retract(bytes_.data()); }
  [[nodiscard]] std::span<std::byte> bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class FakeDeviceTest : public testing::Test {
 protected:
  FakeDeviceTest() {
    fake_driver::reset();
    fake_driver::set_delays(seed_, 200);
  }
  // Whatever a test has made of the product is gone by then: derived classes end first.
  ~FakeDeviceTest() override {
    EXPECT_EQ(fake_driver::violations(), std::vector<std::string>());
    if (expects_nothing_left_) {
      EXPECT_TRUE(fake_driver::left() == fake_driver::Left())
          << "contexts " << fake_driver::left().contexts << ", streams "
          << fake_driver::left().streams << ", events " << fake_driver::left().events
          << ", registrations " << fake_driver::left().registrations;
    }
    fake_driver::reset();
  }

  bool expects_nothing_left_ = true;  // not of a device that has died

 private:
  const std::uint64_t seed_ = std::random_device()();
  const testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
};

}  // namespace deepfreeze
