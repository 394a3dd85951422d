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
    std::vector<std::uint32_t> to;
    bool operator==(const Order&) const = default;
  };
  using Orders = std::vector<Order>;

  // The leaders of all nodes.
  explicit ParityConductor(std::vector<std::uint32_t> leaders) : leaders_(std::move(leaders)) {}

  // Rank 0 has committed it: it is newer than all before it.
  [[nodiscard]] Orders committed(const AttemptName& name);
  // A leader's word about its own parity. One that has not heard the end gets it again.
  [[nodiscard]] Orders told(std::uint32_t leader, const AttemptName& name, ParityStage stage);
  // Messages may have been lost, and causes of failures may be gone: those that have not written
  // their parity are told to begin.
  [[nodiscard]] Orders again();

  [[nodiscard]] std::optional<AttemptName> current() const { return current_; }
  // Leaders that have neither written the current one nor failed to.
  [[nodiscard]] std::vector<std::uint32_t> awaited() const;

 private:
  [[nodiscard]] Orders next();
  [[nodiscard]] std::vector<std::uint32_t> not_written() const;

  const std::vector<std::uint32_t> leaders_;
  std::optional<AttemptName> newest_;  // that was not begun
  std::optional<AttemptName> current_;
  std::optional<AttemptName> last_;  // that all have
  std::set<std::uint32_t> written_;  // of the current one, as the next
  std::set<std::uint32_t> failed_;
};

}  // namespace deepfreeze
