// For each run, the point that this process restored last, unless it has saved since. A
// Checkpointer that is opened after another one restored learns from it which checkpoint the state
// in memory continues. Any thread.
#pragma once

#include <optional>
#include <string>

#include "format/records.h"

namespace deepfreeze {

void note_restored(const std::string& run_id, const Point& point);
[[nodiscard]] std::optional<Point> restored_point(const std::string& run_id);
// The next save continues from there, or from elsewhere: after that the note is out of date.
void forget_restored(const std::string& run_id);

}  // namespace deepfreeze
