// generation-….json: who continues the run, and from where.
#include "fuzz/record_check.h"

namespace deepfreeze {

Status fuzz_claim(std::string_view input) {
  return promises_of(
      checked_record<GenerationRecord>({decode_generation, encode_generation}, input));
}

}  // namespace deepfreeze
