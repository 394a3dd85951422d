#include "save/save_plan.h"

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
  EXPECT_EQ(made.table->key_of(0), "large");
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
    const auto encoded = encode_header(made.header(0, made.identity), {.block_crcs = crcs});
    ASSERT_TRUE(encoded);
    EXPECT_EQ(encoded->bytes.size(), made.header_bytes.at(0));
  }
}

TEST_F(SavePlannerTest, AColdTensorThatIsColdNoMoreLiesAmongTheOthersAgain) {
  const SaveRequest request{.tensors = small_table()};
  EXPECT_EQ(plan(request).table->cold_files, 0U);
  ASSERT_TRUE(planner_.make_cold({true, false}));
  EXPECT_EQ(plan(request).table->cold_files, 1U);
  ASSERT_TRUE(planner_.make_cold({}));
  EXPECT_EQ(plan(request).table->cold_files, 0U);
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
    EXPECT_EQ(second.table->files.at(0).entries.size(), request.tensors.size());
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
            "tensor \"small\": 8 bytes were given, and its shape has 4");
  EXPECT_TRUE(refusal_after_good([](auto& bad) { bad.objects = "[1"; }).starts_with("objects: "));
}

TEST(SavePlannerShares, AreOfTensorsThatTheRankHas) {
  SavePlanner planner({}, true);
  ASSERT_TRUE(planner.accept(small_table()));
  const auto refused = [&](const Share& share, const AuditPlan& audit = {}) {
    const Status taken = planner.take_shares(std::vector{share}, audit);
    return taken ? "accepted" : taken.error().message();
  };
  const auto count = static_cast<std::uint32_t>(planner.specs().size());
  EXPECT_EQ(refused({count, 0, 0}), "a share of a tensor that this rank does not have");
  EXPECT_TRUE(refused({0, 0, 1'000}).starts_with("a share beyond the end of tensor"));
  EXPECT_TRUE(refused({0, 1'000, 0}).starts_with("a share beyond the end of tensor"));
  EXPECT_EQ(refused({0, 0, 1}, {.saves = 1, .groups = {0}}),
            "an audit of other tensors than this rank has");
  EXPECT_FALSE(planner.has_shares());
  EXPECT_EQ(refused({0, 0, 1}, {.saves = 1, .groups = std::vector<GroupId>(count)}), "accepted");
}

// The planner of the audit estimates a header's size; another file writes the header.
TEST(SavePlannerShares, NothingOfAnAuditIsLeftOut) {
  for (const char* stem : {"layers.", "\"\\\n"}) {
    SavePlanner planner({}, true);
    SaveRequest request;
    for (int i = 0; i < 20'000; ++i) {
      request.tensors.push_back(tensor(stem + std::to_string(i), {4, 4}, 64));
    }
    ASSERT_TRUE(planner.accept(request));
    const AuditPlan audit{.saves = 1, .groups = std::vector<GroupId>(request.tensors.size())};
    ASSERT_TRUE(planner.take_shares({}, audit));
    const SavePlan made = planner.plan_save(request, identity(), std::nullopt).value();
    EXPECT_GT(made.audit.size(), 50U);
    EXPECT_EQ(made.audit.size(), made.table->audit.pieces(identity().save_index).size());
    const std::uint64_t with_crcs = made.audit_text.member.size() + 8 * made.audit.size();
    EXPECT_LE(with_crcs, kAuditTextBytesMax);
  }
}

// The plan's headers, read as from files of the planned sizes.
std::vector<ShardHeader> headers_of(const SavePlan& made) {
  std::vector<ShardHeader> headers;
  for (std::size_t file = 0; file < made.file_count(); ++file) {
    const Identity own = made.identity_of(file);
    const std::vector<std::uint32_t> crcs(block_count(made.sections[file].size()));
    const auto encoded = encode_header(made.header(file, own), {.block_crcs = crcs});
    EXPECT_TRUE(encoded.has_value()) << encoded.error().message();
    EXPECT_EQ(encoded->bytes.size(), made.header_bytes.at(file));
    std::uint32_t crc = 0;
    const auto decoded =
        decode_header(encoded->bytes, encoded->bytes.size() + made.sections[file].size(), crc);
    EXPECT_TRUE(decoded.has_value()) << decoded.error().message();
    headers.push_back(*decoded);
  }
  return headers;
}

TEST(SavePlannerBudget, ATableThatIsTooLongGoesOnInFurtherFiles) {
  SavePlanner planner({.table_bytes = 500});
  SaveRequest request{.metrics = {{"loss", 0.5}}};
  for (const char* key : {"a", "b", "c", "d", "e", "f", "g"}) {
    request.tensors.push_back(tensor(key, {4, 4}, 64));
  }
  ASSERT_TRUE(planner.accept(request));
  const auto made = planner.plan_save(request, identity(), std::nullopt);
  ASSERT_TRUE(made.has_value());
  const std::vector<ShardHeader> headers = headers_of(*made);
  ASSERT_EQ(headers.size(), 3U);
  std::string keys;
  for (std::size_t file = 0; file < headers.size(); ++file) {
    const PartName part{.file = static_cast<std::uint32_t>(file), .file_count = 3};
    EXPECT_EQ(headers[file].identity.part, part);
    EXPECT_EQ(headers[file].entries.front().extent.begin, 0U);
    EXPECT_EQ(headers[file].annotations.metrics.size(), file == 0 ? 1U : 0U);
    for (const ShardEntry& entry : headers[file].entries) {
      const CaptureItem& item = made->items[keys.size()];
      EXPECT_EQ(item.offset, made->sections[file].begin + entry.extent.begin);
      EXPECT_EQ(made->table->key_of(keys.size()), entry.spec.key);
      keys += entry.spec.key;
    }
  }
  EXPECT_EQ(keys, "abcdefg");
  EXPECT_EQ(made->data_bytes(), 7U * 64U);
  EXPECT_EQ(made->image_bytes(), 2 * kSlabBytes + headers[2].data_bytes);
}

TEST(SavePlannerBudget, ATreeThatIsTooLongGoesOnInFilesWithoutTensors) {
  SavePlanner planner({.tree_bytes = 10});
  const SaveRequest request{.tensors = small_table(),
                            .objects = "[\"\u00e4\u00f6\u00fc\u20ac\U0001F600 and \\\"more\\\"\"]"};
  ASSERT_TRUE(planner.accept(request));
  const auto made = planner.plan_save(request, identity(), std::nullopt);
  ASSERT_TRUE(made.has_value());
  const std::vector<ShardHeader> headers = headers_of(*made);
  ASSERT_GT(headers.size(), 2U);
  std::string tree;
  for (const ShardHeader& header : headers) {
    EXPECT_LE(header.tree.size(), 10U);
    tree += header.tree;
  }
  EXPECT_EQ(tree, request.objects);
  EXPECT_EQ(headers[0].entries.size(), 2U);
  EXPECT_TRUE(headers[1].entries.empty());
  EXPECT_EQ(made->image_bytes(), 68U);
}

TEST(SavePlannerBudget, OneTensorIsStoredHoweverLongItsName) {
  SavePlanner planner({.table_bytes = 10});
  const SaveRequest request{.tensors = small_table()};
  ASSERT_TRUE(planner.accept(request));
  const auto made = planner.plan_save(request, identity(), std::nullopt);
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(headers_of(*made).size(), 2U);
}

}  // namespace
}  // namespace deepfreeze
