// What the ranks of a job do together, out of a group's two calls. Every rank calls the same
// function; each is collective. Without a group (null) the caller is the only rank.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "deepfreeze/ranks.h"

namespace deepfreeze {

// Rank 0 makes of what all gave, by rank, what each gets. An error of `answer` is every rank's, and
// so is memory that is refused to it. `call` says what is asked: kMismatch, on all, where ranks are
// in different calls.
using Answer = std::function<Result<std::vector<std::string>>(std::vector<std::string> given)>;
[[nodiscard]] Result<std::string> ask_rank0(RankGroup& ranks, std::string_view call,
                                            std::string own, const Answer& answer);

// Nothing where all ranks are well; else the error of the first that is not, which names the rank:
// the same on all of them. kMismatch where they don't agree on the same subject.
[[nodiscard]] Status agree(RankGroup* ranks, std::string_view subject, const Status& own);

// What rank 0 has, or its error.
[[nodiscard]] Result<std::string> share_rank0s(RankGroup& ranks, std::string_view call,
                                               Result<std::string> own);

// "rank 3: ...", where there is more than one.
[[nodiscard]] Error of_rank(const Error& error, std::size_t rank);

}  // namespace deepfreeze
