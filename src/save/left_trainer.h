// For tests: a trainer that ends at any step of its save, and the state that it leaves.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "crash/attempt_maker.h"
#include "ipc/shared_memory.h"
#include "manifest/several_ranks.h"
#include "pipeline/write_engine.h"
#include "save/audit_scan.h"
#include "save/finish_save.h"
#include "save/range_scan.h"

namespace deepfreeze {

inline constexpr std::uint64_t kLeftFloats = 50'000;  // of one tensor: three blocks and a bit

// The step of a trainer at which it ends.
enum class End : std::uint8_t {
  kPlanned,          // nothing is on disk
  kPlannedAndBegun,  // its directory is
  kCaptured,
  kBegun,
  kHalfWritten,
  kWritten,
  kOneSealed,  // of two files
  kSealed,
  kCommitted,
};

struct Kind {
  bool several_files = false;
  bool ranges = false;
  bool audit = false;  // among two ranks
  bool cold = false;   // the second tensor has a file of its own, that later saves may link
};

// One write after the other, so that the same operations come in the same order.
inline Result<LeftOutcome> finish_in_order(Vfs& disk, const LeftSave& left,
                                           std::span<std::byte> arena, const Others& others = {}) {
  const auto engine = WriteEngine::open({.mode = IoMode::kBuffered, .writes_in_flight = 1});
  return finish_left_save(disk, left, arena, **engine, others);
}

class LeftTrainer {
 public:
  LeftTrainer(Vfs& disk, const std::string& run_id, std::uint64_t generation, Kind kind = {},
              std::chrono::milliseconds commit_wait = {})
      : commit_wait_(commit_wait), disk_(disk), values_(2 * kLeftFloats) {
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(i) - 7.5F;
    HeaderBudget budget{.with_ranges = kind.ranges};
    if (kind.several_files) budget.table_bytes = 1;
    SavePlanner planner(budget, kind.audit);
    const SaveRequest request{.step = 5,
                              .tensors = {tensor("a", 0), tensor("b", kLeftFloats)},
                              .objects = R"({"epoch":3})",
                              .metrics = {{"loss", 0.25}}};
    EXPECT_TRUE(planner.accept(request));
    if (kind.audit) share(planner);
    if (kind.cold) {
      EXPECT_TRUE(planner.make_cold({false, true}));
    }
    Identity identity{.run_id = run_id,
                      .attempt_id = 0x9f2c41d07a3be856,
                      .generation = generation,
                      .step = 5,
                      .save_index = 1};
    if (kind.audit) identity.part = {.rank = 0, .world_size = 2};
    auto plan = planner.plan_save(request, identity, std::nullopt);
    EXPECT_TRUE(plan) << plan.error().message();
    plan_ = *std::move(plan);
    capture();
  }

  void go_to(End end) {
    EXPECT_TRUE(handover_->plan(plan_, commit_wait_));
    if (end == End::kPlanned) return;
    if (end == End::kPlannedAndBegun) return begin();
    EXPECT_TRUE(handover_->captured(crcs_));
    if (end >= End::kBegun) begin();
    if (end >= End::kHalfWritten) write(end != End::kHalfWritten);
    if (end >= End::kOneSealed) seal(end == End::kOneSealed ? 1 : plan_.file_count());
    if (end == End::kCommitted) {
      EXPECT_TRUE(commit_attempt(disk_, make_request(plan_.identity)));
    }
  }

  [[nodiscard]] LeftSave left() const {
    auto left = read_handover(handover_->fd());
    EXPECT_TRUE(left) << left.error().message();
    return *std::move(left);
  }
  [[nodiscard]] Result<LeftOutcome> finish() { return finish_on(disk_); }
  [[nodiscard]] Result<LeftOutcome> finish_on(Vfs& disk) {
    return finish_in_order(disk, left(), arena_.bytes());
  }

  // The file as the trainer's own engine would have written it.
  [[nodiscard]] std::string whole_file(std::size_t file) const {
    const std::vector<std::byte> header = header_of(file);
    std::string text(reinterpret_cast<const char*>(header.data()), header.size());
    const Section& section = plan_.sections[file];
    const auto data = arena_.bytes().subspan(section.begin, section.size());
    return text.append(reinterpret_cast<const char*>(data.data()), data.size());
  }
  [[nodiscard]] std::string path_of(std::size_t file) const {
    return attempt_dir_name(name_of(plan_.identity)) + "/" +
           sealed_file_name(plan_.identity_of(file).part);
  }
  [[nodiscard]] std::size_t file_count() const { return plan_.file_count(); }
  [[nodiscard]] const SavePlan& plan() const { return plan_; }
  [[nodiscard]] std::span<std::byte> arena() const { return arena_.bytes(); }
  [[nodiscard]] int arena_fd() const { return arena_.fd(); }
  [[nodiscard]] Handover& handover() { return *handover_; }

 private:
  Tensor tensor(std::string key, std::size_t first) {
    return {.spec = {.key = std::move(key), .dtype = DType::kF32, .shape = {kLeftFloats}},
            .data = std::as_bytes(std::span(values_)).subspan(4 * first, 4 * kLeftFloats)};
  }

  static void share(SavePlanner& planner) {
    std::vector<Share> shares;
    AuditPlan audit{.saves = 1, .groups_of_rank_max = 1, .groups = {}};
    for (const TensorSpec& spec : planner.specs()) {
      shares.push_back({.tensor = static_cast<std::uint32_t>(shares.size()),
                        .first_row = 0,
                        .rows = spec.shape.front()});
      audit.groups.push_back(1);
    }
    EXPECT_TRUE(planner.take_shares(shares, audit));
  }

  void capture() {
    auto memory = SharedMemory::allocate(round_up(plan_.image_bytes(), kSlabBytes));
    arena_ = *std::move(memory);
    image_ = Image(arena_.bytes(), plan_.image_sections(), kSlabBytes);
    for (const CaptureItem& item : plan_.items) {
      std::ranges::copy(item.source, image_.at(item.offset, item.source.size()).begin());
    }
    for (std::uint64_t at = 0; at < image_.end(); at += kBlockBytes) {
      crcs_.push_back(crc32c(image_.at(at, image_.held(at, kBlockBytes))));
    }
    auto handover = Handover::make();
    EXPECT_TRUE(handover);
    handover_ = *std::move(handover);
  }

  [[nodiscard]] std::vector<std::byte> header_of(std::size_t file) const {
    const Section& section = plan_.sections[file];
    std::optional<RangeScan> ranges;
    if (plan_.has_ranges()) ranges.emplace(*plan_.table, image_);
    AuditScan audit(plan_, image_);
    for (std::size_t slab = 0; slab < image_.slab_count(); ++slab) {
      if (audit.has(slab)) {
        audit.take(slab);
      } else if (ranges) {
        ranges->take(slab);
      }
    }
    const auto crcs = block_crcs(arena_.bytes().subspan(section.begin, section.size()));
    const auto found = ranges ? ranges->ranges_of(file) : std::vector<ValueRange>();
    HeaderSums sums{.block_crcs = crcs, .ranges = found};
    const std::vector<LinkedFile> links = plan_.no_links();
    if (file == 0) sums.audit_crcs = audit.crcs();
    if (file == 0) sums.links = links;
    const Identity identity = plan_.identity_of(file);
    return encode_header(plan_.header(file, identity), sums)->bytes;
  }

  void begin() { EXPECT_TRUE(join_attempt(disk_, name_of(plan_.identity))); }

  void write(bool whole) {
    for (std::size_t file = 0; file < file_count(); ++file) {
      const std::string path = attempt_dir_name(name_of(plan_.identity)) + "/" +
                               part_file_name(plan_.identity_of(file).part);
      const std::string bytes = whole_file(file);
      const auto made = disk_.create(path, Access::kBuffered);
      ASSERT_TRUE(made);
      const auto all = std::as_bytes(std::span(bytes));
      EXPECT_TRUE((*made)->write_at(0, whole ? all : all.first(all.size() / 2)));
      if (whole) {
        EXPECT_TRUE((*made)->sync());
      }
    }
  }

  void seal(std::size_t count) {
    const auto all = plan_.part_names();
    EXPECT_TRUE(seal_parts(disk_, name_of(plan_.identity), std::span(all).first(count)));
  }

  const std::chrono::milliseconds commit_wait_;  // for other ranks
  Vfs& disk_;
  std::vector<float> values_;
  SavePlan plan_;
  SharedMemory arena_;
  Image image_;
  std::vector<std::uint32_t> crcs_;
  std::unique_ptr<Handover> handover_;
};

}  // namespace deepfreeze
