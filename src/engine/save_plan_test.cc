#include "engine/save_plan.h"

#include <gtest/gtest.h>

#include <array>

namespace deepfreeze {
namespace {

constexpr std::array<std::byte, 256> kBytes{};
constexpr std::array<std::byte, 256> kElsewhere{};

Tensor tensor(std::string key, Shape shape, std::size_t bytes) {
  return {.spec = {.key = std::move(key), .dtype = DType::kF32, .shape = std::move(shape)},
          .data = std::span(kBytes).first(bytes)};
}

// In the file "large" comes first: it is aligned better.
TensorTable small_table() { return {tensor("small", {1}, 4), tensor("large", {4, 4}, 64)}; }

Identity identity() {
  return {.run_id = "0123456789abcdef", .attempt_id = 1, .generation = 1, .step = 5};
}

class SavePlannerTest : public testing::Test {
 protected:
  SavePlan plan(const SaveRequest& request) {
    EXPECT_TRUE(planner_.accept(request));
    auto plan = planner_.plan_save(request, identity(), std::nullopt);
    EXPECT_TRUE(plan);
    return *plan;
  }

  std::string refusal(const SaveRequest& request) {
    const Status accepted = planner_.accept(request);
    return accepted ? "accepted" : accepted.error().message();
  }

  SavePlanner planner_;
};

TEST_F(SavePlannerTest, ItemsLieWhereTheirTensorsAreStored) {
  const SavePlan made = plan({.tensors = small_table()});
  ASSERT_EQ(made.items.size(), 2U);
  EXPECT_EQ(made.table->text.entries[0].spec.key, "large");
  EXPECT_EQ(made.items[0].source.size(), 64U);
  EXPECT_EQ(made.items[1].offset, 64U);
  EXPECT_EQ(made.data_bytes(), 68U);
}

TEST_F(SavePlannerTest, TheSizeIsThatOfTheHeaderThatIsWritten) {
  for (const double loss : {0.1, 1e-300, -12345.678}) {
    const SavePlan made = plan({.step = 5,
                                .tensors = small_table(),
                                .objects = R"({"epoch":3})",
                                .metrics = {{"loss", loss}}});
    const std::array<std::uint32_t, 1> crcs{0xdeadbeef};
    const auto encoded = encode_header(made.header(), crcs);
    ASSERT_TRUE(encoded);
    EXPECT_EQ(encoded->bytes.size(), made.header_bytes);
  }
}

TEST_F(SavePlannerTest, WhatIsTheSameIsNotPlannedAgain) {
  SaveRequest request{.tensors = small_table(), .objects = "[1]"};
  const SavePlan first = plan(request);
  request.tensors[0].data = std::span(kElsewhere).first(4);
  request.tensors[1].guard = 7;
  request.step = 6;
  const SavePlan second = plan(request);
  EXPECT_EQ(second.table, first.table);
  EXPECT_EQ(second.tree, first.tree);
  EXPECT_EQ(second.items[1].source.data(), kElsewhere.data());
  EXPECT_EQ(second.items[0].guard, 7U);
}

TEST_F(SavePlannerTest, WhatIsNotIs) {
  const SaveRequest before{.tensors = small_table(), .objects = "[1]"};
  const auto changes = std::to_array<void (*)(SaveRequest&)>({
      [](SaveRequest& request) { request.tensors[0].spec.key = "other"; },
      [](SaveRequest& request) { request.tensors[0].spec.dtype = DType::kI32; },
      [](SaveRequest& request) { request.tensors[0].spec.logical_dtype = "quint8"; },
      [](SaveRequest& request) { request.tensors[1].spec.shape = {16}; },
      [](SaveRequest& request) { request.tensors[0] = tensor("small", {2}, 8); },
      [](SaveRequest& request) { std::swap(request.tensors[0], request.tensors[1]); },
      [](SaveRequest& request) { request.tensors.push_back(tensor("new", {1}, 4)); },
      [](SaveRequest& request) { request.tensors.pop_back(); },
  });
  for (const auto& change : changes) {
    const SavePlan first = plan(before);
    SaveRequest request = before;
    change(request);
    const SavePlan second = plan(request);
    EXPECT_NE(second.table, first.table);
    ASSERT_EQ(second.items.size(), request.tensors.size());
    EXPECT_EQ(second.table->text.entries.size(), request.tensors.size());
  }
  SaveRequest other_tree = before;
  other_tree.objects = "[2]";
  EXPECT_EQ(plan(other_tree).tree->tree, "[2]");
}

TEST_F(SavePlannerTest, ARepeatedRequestIsRefusedAllTheSame) {
  const SaveRequest good{.tensors = small_table(), .objects = "[1]"};
  const auto refusal_after_good = [&](auto change) {
    EXPECT_EQ(refusal(good), "accepted");
    SaveRequest bad = good;
    change(bad);
    const std::string first = refusal(bad);
    EXPECT_EQ(refusal(bad), first);
    return first;
  };
  EXPECT_EQ(refusal_after_good([](auto& bad) { bad.tensors[0].guard = kGuardsMax + 1; }),
            "tensor \"small\": its guard is too large");
  EXPECT_EQ(refusal_after_good([](auto& bad) { bad.tensors[0].data = std::span(kBytes).first(8); }),
            "tensor \"small\": 8 bytes given where its shape has 4");
  EXPECT_TRUE(refusal_after_good([](auto& bad) { bad.objects = "[1"; }).starts_with("objects: "));
}

}  // namespace
}  // namespace deepfreeze
