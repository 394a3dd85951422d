// Step N7: rank 0's answer comes into the directory of another node, for a save under way or one in
// doubt. Any thread; one at a time for each attempt.
#pragma once

#include <optional>

#include "nodes/leader.h"

namespace deepfreeze {

[[nodiscard]] LinkAttempt link_attempt(const Identity& identity);

// Nothing while no answer to this leader's own report has come, or none that verifies. An outcome
// is placed durably before it is returned. "gone": aborts the attempt and removes it; kCancelled.
// If that fails the error has "outcome unknown" in its message, and the attempt stays in doubt.
[[nodiscard]] std::optional<Result<Manifest>> take_answer(const Leader& leader,
                                                          const LinkAttempt& attempt);

// Asks rank 0 about each attempt in doubt. The answers are letters.
void ask_about_doubts(const Leader& leader);
// Ends the attempts in doubt whose answers have come. Errors are only logged: there will be another
// question.
void settle_doubts(const Leader& leader);

}  // namespace deepfreeze
