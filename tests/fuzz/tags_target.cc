// tags-….json: tags that a checkpoint was given after its save.
#include "format/tag_record.h"
#include "fuzz/record_check.h"

namespace deepfreeze {

Status fuzz_tags(std::string_view input) {
  return promises_of(checked_record<TagRecord>({decode_tags, encode_tags}, input));
}

}  // namespace deepfreeze
