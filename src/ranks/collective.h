// Operations of all ranks of a job, built from a group's two calls. Every rank calls the same
// function; each is collective. Without a group (null) the caller is the only rank.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "deepfreeze/ranks.h"

namespace deepfreeze {

// `answer` runs on rank 0: it takes all ranks' texts, by rank, and returns one text for each rank.
// If it fails or runs out of memory, every rank gets that error. `call` names the operation:
// kMismatch, on all ranks, if they are in different calls.
using Answer = std::function<Result<std::vector<std::string>>(std::vector<std::string> given)>;
[[nodiscard]] Result<std::string> ask_rank0(RankGroup& ranks, std::string_view call,
                                            std::string own, const Answer& answer);

// Success if all ranks report success; else every rank gets the same error, that of the first rank
// that failed, with its number. kMismatch if they do not agree on the same subject.
[[nodiscard]] Status agree(RankGroup* ranks, std::string_view subject, const Status& own);

// Rank 0's value, or its error.
[[nodiscard]] Result<std::string> share_rank0s(RankGroup& ranks, std::string_view call,
                                               Result<std::string> own);

// "rank 3: ...", if there is more than one rank.
[[nodiscard]] Error of_rank(const Error& error, std::size_t rank);

}  // namespace deepfreeze
