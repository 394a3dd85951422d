// deepfreeze.json.
#include "base/hex.h"
#include "fuzz/record_check.h"

namespace deepfreeze {

Status fuzz_run_file(std::string_view input) {
  const auto record = checked_record<RunRecord>({decode_run, encode_run}, input);
  if (!record) return promises_of(record);
  return promise(parse_hex64(record->run_id).has_value(), "a run id that is none");
}

}  // namespace deepfreeze
