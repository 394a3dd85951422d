#include "plan/holders.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/try.h"
#include "tensor/region.h"

namespace deepfreeze {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;

// One key of the state.
struct Key {
  std::uint32_t first_box = kNone;
  std::uint32_t last_table = kNone;
};

// Steps of MurmurHash3's finalizer (public domain): offsets are multiples of large powers of two.
std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0xFF51AFD7ED558CCDU;
  return hash ^ (hash >> 33U);
}

bool is_whole(const TensorSpec& spec) { return !spec.box || spec.box->extent == spec.global_shape; }

std::uint64_t hash_of(std::uint32_t key, const TensorSpec& spec) {
  std::uint64_t hash = mixed(1, key);
  if (is_whole(spec)) return hash;
  for (const std::uint64_t offset : spec.box->offset) hash = mixed(hash, offset);
  for (const std::uint64_t extent : spec.box->extent) hash = mixed(hash, extent);
  return hash;
}

bool is_same_box(const TensorSpec& a, const TensorSpec& b) {
  return is_whole(a) ? is_whole(b) : !is_whole(b) && *a.box == *b.box;
}

// Boxes by their hash: open addressing, since a job may have millions.
class BoxTable {
 public:
  explicit BoxTable(std::size_t boxes_max) : slots_(std::bit_ceil(2 * boxes_max + 1)) {}

  // The box with that hash for which `is_it` returns true, else kNone.
  template <class IsIt>
  [[nodiscard]] std::uint32_t find(std::uint64_t hash, IsIt is_it) const {
    for (std::size_t i = place_of(hash); slots_[i].box != kNone; i = after(i)) {
      if (slots_[i].hash == short_of(hash) && is_it(slots_[i].box)) return slots_[i].box;
    }
    return kNone;
  }

  void add(std::uint64_t hash, std::uint32_t box) {
    std::size_t i = place_of(hash);
    while (slots_[i].box != kNone) i = after(i);
    slots_[i] = {short_of(hash), box};
  }

 private:
  struct Slot {
    std::uint32_t hash = 0;
    std::uint32_t box = kNone;
  };

  [[nodiscard]] std::size_t place_of(std::uint64_t hash) const {
    return hash & (slots_.size() - 1);
  }
  [[nodiscard]] std::size_t after(std::size_t i) const { return (i + 1) & (slots_.size() - 1); }
  [[nodiscard]] static std::uint32_t short_of(std::uint64_t hash) {
    return static_cast<std::uint32_t>(hash >> 32U);
  }

  std::vector<Slot> slots_;  // a power of two, at most half of them used
};

std::unexpected<Error> disagree(const TensorSpec& spec, std::uint32_t a, std::uint32_t b,
                                std::string_view about) {
  return fail(ErrorCode::kMismatch,
              fmt::format("tensor \"{}\": ranks {} and {} disagree on {}", spec.key, a, b, about));
}

std::string_view dtype_of(const TensorSpec& spec) {
  return spec.logical_dtype.empty() ? dtype_name(spec.dtype) : spec.logical_dtype;
}

Status check_same_whole(const TensorSpec& known, std::uint32_t known_rank, const TensorSpec& spec,
                        std::uint32_t rank) {
  if (known.dtype != spec.dtype || known.logical_dtype != spec.logical_dtype) {
    return disagree(spec, known_rank, rank,
                    fmt::format("its dtype: {} and {}", dtype_of(known), dtype_of(spec)));
  }
  if (whole_shape(known) == whole_shape(spec)) return {};
  return disagree(spec, known_rank, rank,
                  fmt::format("its shape: {} and {}", whole_shape(known), whole_shape(spec)));
}

// Sets of tables as a tree: each set is another one plus one table. There are few, because meshes
// are regular.
class TableSets {
 public:
  [[nodiscard]] GroupId with(GroupId set, std::uint32_t table) {
    if (last_ != kNone && sets_[last_] == std::pair(set, table)) return last_;
    const auto [found, is_new] =
        next_.try_emplace({set, table}, static_cast<GroupId>(sets_.size()));
    if (is_new) sets_.push_back({set, table});
    last_ = found->second;
    return last_;
  }
  [[nodiscard]] std::size_t size() const { return sets_.size(); }
  // From the last to the first.
  template <class Visit>
  void each_table(GroupId set, Visit visit) const {
    for (; set != kNone; set = sets_[set].first) visit(sets_[set].second);
  }

 private:
  std::map<std::pair<GroupId, std::uint32_t>, GroupId> next_;
  std::vector<std::pair<GroupId, std::uint32_t>> sets_;  // the rest, and the last table
  GroupId last_ = kNone;                                 // asked for; mostly again
};

Holders distinct_tables(std::span<const RankState> ranks) {
  Holders holders;
  std::unordered_map<const void*, std::size_t> known;
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
    const auto* tensors = ranks[rank].tensors;
    const auto [place, is_new] = known.try_emplace(tensors, holders.tables.size());
    if (is_new) holders.tables.push_back({.tensors = tensors, .ranks = {}, .boxes = {}});
    holders.tables[place->second].ranks.push_back(rank);
  }
  return holders;
}

std::size_t tensor_count(const Holders& holders) {
  std::size_t count = 0;
  for (const TableUsers& table : holders.tables) count += table.tensors->size();
  return count;
}

class Finder {
 public:
  Finder(std::span<const RankState> ranks, Holders tables)
      : ranks_(ranks), holders_(std::move(tables)), box_numbers_(tensor_count(holders_)) {}

  Result<Holders> find() {
    for (std::uint32_t table = 0; table < holders_.tables.size(); ++table) {
      DF_TRY_VOID(add_table(table));
    }
    DF_TRY_VOID(check_tilings());
    name_groups();
    return std::move(holders_);
  }

 private:
  Status add_table(std::uint32_t table) {
    TableUsers& users = holders_.tables[table];
    users.boxes.reserve(users.tensors->size());
    for (std::size_t i = 0; i < users.tensors->size(); ++i) {
      const TensorSpec& spec = (*users.tensors)[i];
      const std::uint32_t key = key_of(spec, i);
      if (std::exchange(keys_[key].last_table, table) == table) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("tensor \"{}\": its key is used twice on rank {}", spec.key,
                                users.ranks.front()));
      }
      DF_TRY(const std::uint32_t box, box_of(key, spec, table));
      holders_.boxes[box].group = sets_.with(holders_.boxes[box].group, table);
      users.boxes.push_back(box);
    }
    return {};
  }

  // Ranks mostly name the same keys in the same order.
  std::uint32_t key_of(const TensorSpec& spec, std::size_t place) {
    if (place < keys_.size() && first_spec(keys_[place]).key == spec.key) {
      return static_cast<std::uint32_t>(place);
    }
    const auto number = static_cast<std::uint32_t>(keys_.size());
    const auto [found, is_new] = key_numbers_.try_emplace(spec.key, number);
    if (is_new) keys_.emplace_back();
    return found->second;
  }

  [[nodiscard]] const TensorSpec& first_spec(const Key& key) const {
    return *holders_.boxes[key.first_box].spec;
  }

  Result<std::uint32_t> box_of(std::uint32_t key, const TensorSpec& spec, std::uint32_t table) {
    if (keys_[key].first_box != kNone) {
      const std::uint32_t first = keys_[key].first_box;
      DF_TRY_VOID(check_same_whole(*holders_.boxes[first].spec, rank_of_box_[first], spec,
                                   holders_.tables[table].ranks.front()));
    }
    const std::uint64_t hash = hash_of(key, spec);
    const std::uint32_t known = box_numbers_.find(hash, [&](std::uint32_t box) {
      return key_of_box_[box] == key && is_same_box(*holders_.boxes[box].spec, spec);
    });
    return known != kNone ? known : new_box(key, spec, table, hash);
  }

  std::uint32_t new_box(std::uint32_t key, const TensorSpec& spec, std::uint32_t table,
                        std::uint64_t hash) {
    const auto box = static_cast<std::uint32_t>(holders_.boxes.size());
    holders_.boxes.push_back({.spec = &spec, .group = kNone});
    rank_of_box_.push_back(holders_.tables[table].ranks.front());
    key_of_box_.push_back(key);
    box_numbers_.add(hash, box);
    if (keys_[key].first_box == kNone) keys_[key].first_box = box;
    return box;
  }

  // The boxes of a key must tile its whole; a tensor without a box is all of it.
  Status check_tilings() {
    std::vector<std::vector<std::uint32_t>> boxes_of(keys_.size());
    for (std::uint32_t box = 0; box < holders_.boxes.size(); ++box) {
      boxes_of[key_of_box_[box]].push_back(box);
    }
    for (const std::vector<std::uint32_t>& boxes : boxes_of) {
      const TensorSpec& spec = *holders_.boxes[boxes.front()].spec;
      if (boxes.size() == 1 && !spec.box) continue;
      const auto fault = fault_of(boxes, whole_shape(spec));
      if (!fault) continue;
      return fail(ErrorCode::kMismatch, fmt::format("tensor \"{}\": {}", spec.key, *fault));
    }
    return {};
  }

  [[nodiscard]] std::optional<std::string> fault_of(const std::vector<std::uint32_t>& boxes,
                                                    const Shape& whole) const {
    const Box all{.offset = Shape(whole.size()), .extent = whole};
    std::vector<const Box*> tiles;
    for (const std::uint32_t box : boxes) {
      const TensorSpec& spec = *holders_.boxes[box].spec;
      tiles.push_back(spec.box ? &*spec.box : &all);
    }
    return fault_of_tiling(std::move(tiles), whole);
  }

  void name_groups() {
    holders_.groups.resize(sets_.size());
    std::vector<bool> is_used(sets_.size());
    for (const HeldBox& box : holders_.boxes) is_used[box.group] = true;
    for (GroupId group = 0; group < sets_.size(); ++group) {
      if (is_used[group]) holders_.groups[group] = ranks_of(group);
    }
  }

  [[nodiscard]] std::vector<std::uint32_t> ranks_of(GroupId group) const {
    std::vector<std::uint32_t> found;
    sets_.each_table(group, [&](std::uint32_t table) {
      const auto& ranks = holders_.tables[table].ranks;
      found.insert(found.end(), ranks.begin(), ranks.end());
    });
    std::ranges::sort(found, {},
                      [this](std::uint32_t rank) { return std::pair(ranks_[rank].node, rank); });
    return found;
  }

  std::span<const RankState> ranks_;
  Holders holders_;
  TableSets sets_;
  std::vector<Key> keys_;
  std::unordered_map<std::string_view, std::uint32_t> key_numbers_;
  BoxTable box_numbers_;                    // by hash_of()
  std::vector<std::uint32_t> rank_of_box_;  // the first that has it
  std::vector<std::uint32_t> key_of_box_;
};

}  // namespace

Result<Holders> find_holders(std::span<const RankState> ranks) {
  return Finder(ranks, distinct_tables(ranks)).find();
}

}  // namespace deepfreeze
