#include "plan/share_plan.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "base/try.h"
#include "plan/quotas.h"

namespace deepfreeze {
namespace {

// Rows of one of Holders::boxes.
struct BoxShare {
  std::uint32_t box = 0;
  std::uint64_t first_row = 0;
  std::uint64_t rows = 0;
};

// Lays the boxes of a group end to end and cuts this line at each point at which one rank's quota
// ends and the next one's begins: at the nearest row, or at an end of a box that is too small to
// cut.
class Line {
 public:
  Line(const Holders& holders, std::span<const std::uint32_t> boxes)
      : holders_(holders), boxes_(boxes) {}

  // Takes the part of the line before `place` that was not taken yet.
  void take_until(std::uint64_t place, std::vector<BoxShare>& taken) {
    while (next_ < boxes_.size()) {
      const Rows rows = rows_of(*holders_.boxes[boxes_[next_]].spec);
      const std::uint64_t until = std::max(row_at(rows, place), row_);
      if (until > row_) taken.push_back({boxes_[next_], row_, until - row_});
      row_ = until;
      if (until < rows.count) return;
      // A box without elements goes to the first rank that reaches it.
      if (rows.count == 0) taken.push_back({boxes_[next_], 0, 0});
      begin_ += rows.count * rows.bytes;
      row_ = 0;
      ++next_;
    }
  }

 private:
  // The row of the next box at which a cut at `place` falls.
  [[nodiscard]] std::uint64_t row_at(const Rows& rows, std::uint64_t place) const {
    const std::uint64_t bytes = rows.count * rows.bytes;
    if (place >= begin_ + bytes) return rows.count;
    if (place <= begin_) return 0;
    const std::uint64_t within = place - begin_;
    if (bytes < kCutBytesMin) return 2 * within >= bytes ? rows.count : 0;
    return (within + rows.bytes / 2) / rows.bytes;
  }

  const Holders& holders_;
  std::span<const std::uint32_t> boxes_;
  std::size_t next_ = 0;
  std::uint64_t begin_ = 0;  // of the next box, on the line
  std::uint64_t row_ = 0;    // of it, the first that was not taken
};

class Divider {
 public:
  Divider(Holders holders, std::size_t rank_count)
      : holders_(std::move(holders)), loads_(rank_count), taken_(rank_count) {}

  SharePlan divide() {
    for (const GroupId group : groups_in_order()) give(group);
    SharePlan plan;
    plan.ranks.resize(loads_.size());
    plan.groups.resize(loads_.size());
    for (const TableUsers& table : holders_.tables) name_by_table(table, plan);
    return plan;
  }

 private:
  // Groups with the fewest ranks come first: the larger groups then even out the loads. The order
  // uses the numbers of boxes, which are the same on every rank; the numbers of groups depend on
  // which tables are one object.
  std::vector<GroupId> groups_in_order() {
    boxes_of_.resize(holders_.groups.size());
    for (std::uint32_t box = 0; box < holders_.boxes.size(); ++box) {
      boxes_of_[holders_.boxes[box].group].push_back(box);
    }
    std::vector<GroupId> order(holders_.groups.size());
    std::iota(order.begin(), order.end(), GroupId{0});
    std::erase_if(order, [this](GroupId group) { return boxes_of_[group].empty(); });
    std::ranges::sort(order, {}, [this](GroupId group) {
      return std::pair(holders_.groups[group].size(), boxes_of_[group].front());
    });
    return order;
  }

  void give(GroupId group) {
    const std::vector<std::uint32_t>& ranks = holders_.groups[group];
    std::vector<std::uint64_t> loads;
    for (const std::uint32_t rank : ranks) loads.push_back(loads_[rank]);
    const auto quotas = fill_quotas(loads, bytes_of(group));
    Line line(holders_, boxes_of_[group]);
    std::uint64_t place = 0;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      place += quotas[i];
      const std::size_t before = taken_[ranks[i]].size();
      line.take_until(i + 1 == ranks.size() ? UINT64_MAX : place, taken_[ranks[i]]);
      loads_[ranks[i]] += bytes_since(ranks[i], before);
    }
  }

  [[nodiscard]] std::uint64_t bytes_of(GroupId group) const {
    std::uint64_t bytes = 0;
    for (const std::uint32_t box : boxes_of_[group]) {
      bytes += spec_bytes(*holders_.boxes[box].spec).value_or(0);
    }
    return bytes;
  }

  [[nodiscard]] std::uint64_t bytes_since(std::uint32_t rank, std::size_t first) const {
    std::uint64_t bytes = 0;
    for (std::size_t i = first; i < taken_[rank].size(); ++i) {
      bytes += taken_[rank][i].rows * rows_of(*holders_.boxes[taken_[rank][i].box].spec).bytes;
    }
    return bytes;
  }

  void name_by_table(const TableUsers& table, SharePlan& plan) {
    tensor_of_box_.resize(holders_.boxes.size());
    for (std::uint32_t i = 0; i < table.boxes.size(); ++i) tensor_of_box_[table.boxes[i]] = i;
    const std::vector<GroupId> groups = groups_of(table);
    const std::set<GroupId> distinct(groups.begin(), groups.end());
    plan.groups_of_rank_max =
        std::max(plan.groups_of_rank_max, static_cast<std::uint32_t>(distinct.size()));
    for (const std::uint32_t rank : table.ranks) {
      for (const BoxShare& share : taken_[rank]) {
        plan.ranks[rank].push_back({tensor_of_box_[share.box], share.first_row, share.rows});
      }
      std::ranges::sort(plan.ranks[rank], {}, &Share::tensor);
      plan.groups[rank] = groups;
    }
  }

  [[nodiscard]] std::vector<GroupId> groups_of(const TableUsers& table) const {
    std::vector<GroupId> groups;
    groups.reserve(table.boxes.size());
    for (const std::uint32_t box : table.boxes) {
      const GroupId group = holders_.boxes[box].group;
      groups.push_back(holders_.groups[group].size() > 1 ? group : kNoCopies);
    }
    return groups;
  }

  Holders holders_;
  std::vector<std::uint64_t> loads_;                  // by rank: bytes
  std::vector<std::vector<BoxShare>> taken_;          // by rank
  std::vector<std::vector<std::uint32_t>> boxes_of_;  // by group
  std::vector<std::uint32_t> tensor_of_box_;          // of the table at hand
};

}  // namespace

Result<SharePlan> plan_shares(std::span<const RankState> ranks) {
  DF_TRY(Holders holders, find_holders(ranks));
  return Divider(std::move(holders), ranks.size()).divide();
}

}  // namespace deepfreeze
