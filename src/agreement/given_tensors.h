// The tensors of all ranks, as rank 0 received them, to be shared out. For one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "agreement/save_agreement.h"
#include "plan/holders.h"

namespace deepfreeze {

class GivenTensors {
 public:
  // Encodes a rank's message.
  [[nodiscard]] static std::string encode(const RankTensors& own);

  // Adds the next rank's message.
  [[nodiscard]] Status add(std::string_view bytes);

  // Ranks with equal tables point to the same one.
  [[nodiscard]] const std::vector<RankState>& ranks() const { return ranks_; }

  // kMismatch names the key, and two ranks whose bytes differ.
  [[nodiscard]] Status check_replicas() const;

 private:
  struct Table {
    std::vector<TensorSpec> specs;
    std::uint32_t first_rank = 0;  // that has it
  };

  [[nodiscard]] Status check_same_table(std::size_t rank) const;
  [[nodiscard]] Status check_other_tables() const;

  std::map<std::string, std::uint32_t, std::less<>> nodes_;  // by name
  std::map<std::string, std::size_t, std::less<>> by_text_;  // index into tables_
  std::deque<Table> tables_;
  std::vector<std::size_t> table_of_;             // by rank
  std::vector<std::vector<std::uint32_t>> crcs_;  // by rank
  std::vector<RankState> ranks_;
};

}  // namespace deepfreeze
