// scrub.json: when which checkpoint was read.
#include "format/scrub_record.h"
#include "fuzz/record_check.h"

namespace deepfreeze {

Status fuzz_scrub(std::string_view input) {
  return promises_of(checked_record<ScrubRecord>({decode_scrub, encode_scrub}, input));
}

}  // namespace deepfreeze
