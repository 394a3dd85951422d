// A group of ranks that is given up once one of its calls has failed: after that nobody knows which
// rank waits in which call. For the thread of the group's user.
#pragma once

#include <memory>
#include <optional>

#include "deepfreeze/ranks.h"

namespace deepfreeze {

class RanksInStep final : public RankGroup {
 public:
  explicit RanksInStep(std::shared_ptr<RankGroup> ranks) : ranks_(std::move(ranks)) {}

  [[nodiscard]] std::uint32_t rank() const override { return ranks_->rank(); }
  [[nodiscard]] std::uint32_t world_size() const override { return ranks_->world_size(); }
  // After the first error: kUnsupported at once, with that error.
  [[nodiscard]] Result<std::vector<std::string>> gather(std::string bytes) override;
  [[nodiscard]] Result<std::string> scatter(std::vector<std::string> bytes) override;

 private:
  [[nodiscard]] Status check_in_step() const;
  [[nodiscard]] Error lost(const Error& error);

  const std::shared_ptr<RankGroup> ranks_;
  std::optional<Error> lost_;  // the first
};

}  // namespace deepfreeze
