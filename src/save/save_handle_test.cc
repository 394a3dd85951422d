// A handle and its save own each other until the save is confirmed, abandoned or failed; and who
// knows of the failure.
#include "save/save_handle.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/code_of.h"

namespace deepfreeze {
namespace {

using std::chrono::milliseconds;
using State = SaveHandle::State;

// As a SaveJob does, it owns the state of its handle.
class Save final : public UnconfirmedSave {
 public:
  explicit Save(std::shared_ptr<State> handle) : handle_(std::move(handle)) {}
  void captured(std::vector<std::string> /*torn*/) override {}
  void abandoned() override {}

 private:
  const std::shared_ptr<State> handle_;
};

TEST(SaveHandle, EachEndOfAnUnconfirmedSaveLetsGoOfIt) {
  const std::vector<std::function<void(const std::shared_ptr<State>&)>> ends = {
      [](const auto& state) { SaveHandle(state).confirm({}); },
      [](const auto& state) { state->abandon(); },
      [](const auto& state) { state->fail(Error(ErrorCode::kIo, "the disk is gone")); },
  };
  for (const auto& end : ends) {
    auto state = make_handle_state(1);
    state->unconfirmed = std::make_shared<Save>(state);
    state->copied();
    const std::weak_ptr<UnconfirmedSave> save = state->unconfirmed;
    end(state);
    EXPECT_TRUE(save.expired());
    const std::weak_ptr<State> left = std::exchange(state, nullptr);
    EXPECT_TRUE(left.expired());
  }
}

TEST(SaveHandle, OnlyACallerThatWaitsIsToldOfTheFailure) {
  const auto state = make_handle_state(1);
  const SaveHandle handle(state);
  EXPECT_EQ(code_of(handle.wait(Level::kDurable, milliseconds(0))), ErrorCode::kTimeout);
  state->fail(Error(ErrorCode::kIo, "the disk is gone"));
  EXPECT_EQ(code_of(state->wait_copied()), ErrorCode::kIo);
  EXPECT_FALSE(state->is_told);
  EXPECT_EQ(code_of(handle.wait_copied()), ErrorCode::kIo);
  EXPECT_TRUE(state->is_told);
}

}  // namespace
}  // namespace deepfreeze
