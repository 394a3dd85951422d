// When checkpoints were last read in full, for people and for programs.
#pragma once

#include <iosfwd>
#include <vector>

#include "inspect/last_readings.h"
#include "json/json_writer.h"

namespace deepfreeze {

// Says that the blocks were not read now, and when each checkpoint was last; prints nothing if
// there are none.
void print_readings(const std::vector<LastReading>& readings, std::ostream& out);
void write_reading(JsonWriter& json, const LastReading& reading);

}  // namespace deepfreeze
