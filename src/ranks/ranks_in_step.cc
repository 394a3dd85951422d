#include "ranks/ranks_in_step.h"

#include <fmt/format.h>

#include "base/try.h"

namespace deepfreeze {

Status RanksInStep::check_in_step() const {
  if (!lost_) return {};
  return fail(ErrorCode::kUnsupported,
              "the ranks have lost each other, start them again: " + lost_->message());
}

Error RanksInStep::lost(const Error& error) {
  lost_ = error.within(fmt::format("rank {} of {}", rank(), world_size()));
  return *lost_;
}

Result<std::vector<std::string>> RanksInStep::gather(std::string bytes) {
  DF_TRY_VOID(check_in_step());
  auto given = ranks_->gather(std::move(bytes));
  if (!given) return std::unexpected(lost(given.error()));
  const std::size_t expected = rank() == 0 ? world_size() : 0;
  if (given->size() == expected) return given;
  return std::unexpected(
      lost({ErrorCode::kInternal, "gather: it did not return one message of each rank"}));
}

Result<std::string> RanksInStep::scatter(std::vector<std::string> bytes) {
  DF_TRY_VOID(check_in_step());
  auto own = ranks_->scatter(std::move(bytes));
  if (!own) return std::unexpected(lost(own.error()));
  return own;
}

}  // namespace deepfreeze
