// Decides at rank 0 which checkpoint all nodes protect now: one at a time, and on all nodes the
// same one, because it counts only if every node has its parity. A value without a lock.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "format/names.h"
#include "link/link_message.h"

namespace deepfreeze {

class ParityConductor {
 public:
  // A message for these leaders.
  struct Order {
    ParityStage stage = ParityStage::kBegin;
    AttemptName name;
    // Each decision has a greater one. A leader that has heard a later order drops this one,
    // because messages of several threads overtake each other.
    std::uint64_t turn = 0;
    std::optional<AttemptName> last = {};  // of an order to begin: the newest protected checkpoint
    std::vector<std::uint32_t> to;
    bool operator==(const Order&) const = default;
  };
  using Orders = std::vector<Order>;

  // The leaders of all nodes.
  explicit ParityConductor(std::vector<std::uint32_t> leaders) : leaders_(std::move(leaders)) {}

  // Rank 0 has committed it: it is newer than all before it.
  [[nodiscard]] Orders committed(const AttemptName& name);
  // A leader's word about its own parity, kWritten or kFailed. One that has not heard that all have
  // it is told again. A failure counts only if it answers the latest order.
  [[nodiscard]] Orders told(std::uint32_t leader, const AttemptName& name, ParityStage stage,
                            std::uint64_t turn);
  // Messages may have been lost, and causes of failures may be gone: those that have not written
  // their parity are told to begin.
  [[nodiscard]] Orders again();

  [[nodiscard]] std::optional<AttemptName> current() const { return current_; }
  // Leaders that have neither written the current one nor failed to.
  [[nodiscard]] std::vector<std::uint32_t> awaited() const;

 private:
  [[nodiscard]] Orders next();
  [[nodiscard]] Order begin(std::vector<std::uint32_t> to);
  [[nodiscard]] std::vector<std::uint32_t> not_written() const;

  const std::vector<std::uint32_t> leaders_;
  std::optional<AttemptName> newest_;  // the newest checkpoint, until it is begun
  std::optional<AttemptName> current_;
  std::optional<AttemptName> last_;  // the newest checkpoint of which all nodes have parity
  std::set<std::uint32_t> written_;  // leaders that have written their parity of current_
  std::set<std::uint32_t> failed_;   // leaders that could not
  std::uint64_t turn_ = 0;
};

}  // namespace deepfreeze
