// What this process restored last of each run and has not saved since: a Checkpointer that is
// opened after another one restored knows by it from where the state in memory goes on. Any thread.
#pragma once

#include <optional>
#include <string>

#include "format/records.h"

namespace deepfreeze {

void note_restored(const std::string& run_id, const Point& point);
[[nodiscard]] std::optional<Point> restored_point(const std::string& run_id);
// The next save goes on from there, or from elsewhere: from then on the note is no longer true.
void forget_restored(const std::string& run_id);

}  // namespace deepfreeze
