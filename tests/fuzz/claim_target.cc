// generation-….json: the process that continues the run, and its starting point.
#include "fuzz/record_check.h"

namespace deepfreeze {

Status fuzz_claim(std::string_view input) {
  return promises_of(
      checked_record<GenerationRecord>({decode_generation, encode_generation}, input));
}

}  // namespace deepfreeze
