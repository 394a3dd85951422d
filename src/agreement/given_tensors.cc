#include "agreement/given_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "agreement/spec_message.h"
#include "base/message.h"
#include "base/try.h"
#include "ranks/collective.h"
#include "tensor/region.h"

namespace deepfreeze {
namespace {

// A key and its box's offset: two boxes of one key either are equal or do not overlap.
using Place = std::pair<std::string_view, Shape>;

// The first rank that has a box, and its checksum.
struct Copy {
  std::size_t rank = 0;
  std::uint32_t crc = 0;
};

std::unexpected<Error> differ(const std::string& key, std::size_t first, std::size_t second) {
  return fail(ErrorCode::kMismatch,
              fmt::format("tensor {}: rank {} and rank {} have different bytes of it, and only one "
                          "could be kept; a value that differs between ranks needs a key for each "
                          "rank (df.per_rank() in Python)",
                          key, first, second));
}

}  // namespace

std::string GivenTensors::encode(const RankTensors& own) {
  MessageWriter message;
  message.status(own.ready).text(own.node).text(encode_specs(own.specs));
  message.number(static_cast<std::uint64_t>(own.crcs.size()));
  for (const std::uint32_t crc : own.crcs) message.number(crc);
  return message.take();
}

Status GivenTensors::add(std::string_view bytes) {
  MessageReader message(bytes);
  const Status ready = message.status();
  const auto next_node = static_cast<std::uint32_t>(nodes_.size());
  const std::uint32_t node = nodes_.try_emplace(message.text(), next_node).first->second;
  std::string text = message.text();
  std::vector<std::uint32_t> crcs(message.count(sizeof(std::uint32_t)));
  for (std::uint32_t& crc : crcs) crc = message.number<std::uint32_t>();
  DF_TRY_VOID(message.end());
  if (!ready) return std::unexpected(of_rank(ready.error(), ranks_.size()));
  const auto [known, is_new] = by_text_.try_emplace(std::move(text), tables_.size());
  if (is_new) {
    DF_TRY(std::vector<TensorSpec> specs, decode_specs(known->first));
    tables_.push_back({std::move(specs), static_cast<std::uint32_t>(ranks_.size())});
  }
  const Table& table = tables_[known->second];
  if (crcs.size() != table.specs.size()) {
    return fail(ErrorCode::kInternal, "a rank did not send one checksum for each tensor");
  }
  table_of_.push_back(known->second);
  crcs_.push_back(std::move(crcs));
  ranks_.push_back({.tensors = &table.specs, .node = node});
  return {};
}

Status GivenTensors::check_replicas() const {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) DF_TRY_VOID(check_same_table(rank));
  return tables_.size() == 1 ? Status{} : check_other_tables();
}

Status GivenTensors::check_same_table(std::size_t rank) const {
  const Table& table = tables_[table_of_[rank]];
  const std::vector<std::uint32_t>& first = crcs_[table.first_rank];
  const auto [there, here] = std::ranges::mismatch(first, crcs_[rank]);
  if (there == first.end()) return {};
  const auto index = static_cast<std::size_t>(there - first.begin());
  return differ(table.specs[index].key, table.first_rank, rank);
}

Status GivenTensors::check_other_tables() const {
  std::map<Place, Copy> copies;
  for (const Table& table : tables_) {
    for (std::size_t i = 0; i < table.specs.size(); ++i) {
      const TensorSpec& spec = table.specs[i];
      if (element_count(spec.shape) == 0) continue;
      const Copy own{.rank = table.first_rank, .crc = crcs_[table.first_rank][i]};
      const auto [copy, is_new] = copies.try_emplace(Place(spec.key, stored_box(spec).offset), own);
      if (is_new || copy->second.crc == own.crc) continue;
      return differ(spec.key, copy->second.rank, own.rank);
    }
  }
  return {};
}

}  // namespace deepfreeze
