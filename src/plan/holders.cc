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
  std::uint32_t first_part = kNone;
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

// Parts by their hash: open addressing, since a job may have millions.
class PartTable {
 public:
  explicit PartTable(std::size_t parts_max) : slots_(std::bit_ceil(2 * parts_max + 1)) {}

  // The part of that hash of which `is_it` says so, else kNone.
  template <class IsIt>
  [[nodiscard]] std::uint32_t find(std::uint64_t hash, IsIt is_it) const {
    for (std::size_t i = place_of(hash); slots_[i].part != kNone; i = after(i)) {
      if (slots_[i].hash == short_of(hash) && is_it(slots_[i].part)) return slots_[i].part;
    }
    return kNone;
  }

  void add(std::uint64_t hash, std::uint32_t part) {
    std::size_t i = place_of(hash);
    while (slots_[i].part != kNone) i = after(i);
    slots_[i] = {short_of(hash), part};
  }

 private:
  struct Slot {
    std::uint32_t hash = 0;
    std::uint32_t part = kNone;
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

// Sets of tables as a tree: each is another one and one table more. Few, as meshes are regular.
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
    if (is_new) holders.tables.push_back({.tensors = tensors, .ranks = {}, .parts = {}});
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
      : ranks_(ranks), holders_(std::move(tables)), part_numbers_(tensor_count(holders_)) {}

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
    users.parts.reserve(users.tensors->size());
    for (std::size_t i = 0; i < users.tensors->size(); ++i) {
      const TensorSpec& spec = (*users.tensors)[i];
      const std::uint32_t key = key_of(spec, i);
      if (std::exchange(keys_[key].last_table, table) == table) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("tensor \"{}\": its key is used twice on rank {}", spec.key,
                                users.ranks.front()));
      }
      DF_TRY(const std::uint32_t part, part_of(key, spec, table));
      holders_.parts[part].group = sets_.with(holders_.parts[part].group, table);
      users.parts.push_back(part);
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
    return *holders_.parts[key.first_part].spec;
  }

  Result<std::uint32_t> part_of(std::uint32_t key, const TensorSpec& spec, std::uint32_t table) {
    if (keys_[key].first_part != kNone) {
      const std::uint32_t first = keys_[key].first_part;
      DF_TRY_VOID(check_same_whole(*holders_.parts[first].spec, rank_of_part_[first], spec,
                                   holders_.tables[table].ranks.front()));
    }
    const std::uint64_t hash = hash_of(key, spec);
    const std::uint32_t known = part_numbers_.find(hash, [&](std::uint32_t part) {
      return key_of_part_[part] == key && is_same_box(*holders_.parts[part].spec, spec);
    });
    return known != kNone ? known : new_part(key, spec, table, hash);
  }

  std::uint32_t new_part(std::uint32_t key, const TensorSpec& spec, std::uint32_t table,
                         std::uint64_t hash) {
    const auto part = static_cast<std::uint32_t>(holders_.parts.size());
    holders_.parts.push_back({.spec = &spec, .group = kNone});
    rank_of_part_.push_back(holders_.tables[table].ranks.front());
    key_of_part_.push_back(key);
    part_numbers_.add(hash, part);
    if (keys_[key].first_part == kNone) keys_[key].first_part = part;
    return part;
  }

  // Parts that are boxes, or that are not the only ones of their key, must tile its whole.
  Status check_tilings() {
    std::vector<std::vector<std::uint32_t>> parts_of(keys_.size());
    for (std::uint32_t part = 0; part < holders_.parts.size(); ++part) {
      parts_of[key_of_part_[part]].push_back(part);
    }
    for (const std::vector<std::uint32_t>& parts : parts_of) {
      const TensorSpec& spec = *holders_.parts[parts.front()].spec;
      if (parts.size() == 1 && !spec.box) continue;
      const auto fault = fault_of(parts, whole_shape(spec));
      if (!fault) continue;
      return fail(ErrorCode::kMismatch, fmt::format("tensor \"{}\": {}", spec.key, *fault));
    }
    return {};
  }

  [[nodiscard]] std::optional<std::string> fault_of(const std::vector<std::uint32_t>& parts,
                                                    const Shape& whole) const {
    const Box all{.offset = Shape(whole.size()), .extent = whole};
    std::vector<const Box*> boxes;
    for (const std::uint32_t part : parts) {
      const TensorSpec& spec = *holders_.parts[part].spec;
      boxes.push_back(spec.box ? &*spec.box : &all);
    }
    return fault_of_tiling(std::move(boxes), whole);
  }

  void name_groups() {
    holders_.groups.resize(sets_.size());
    std::vector<bool> is_used(sets_.size());
    for (const Part& part : holders_.parts) is_used[part.group] = true;
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
  PartTable part_numbers_;                   // by hash_of()
  std::vector<std::uint32_t> rank_of_part_;  // the first that has it
  std::vector<std::uint32_t> key_of_part_;
};

}  // namespace

Result<Holders> find_holders(std::span<const RankState> ranks) {
  return Finder(ranks, distinct_tables(ranks)).find();
}

}  // namespace deepfreeze
