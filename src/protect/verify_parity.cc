#include "protect/verify_parity.h"

#include <algorithm>

#include "base/checked_math.h"
#include "base/mapped_memory.h"
#include "base/try.h"
#include "format/layout.h"
#include "protect/checked_file.h"
#include "protect/parity_record.h"

namespace deepfreeze {

Status verify_parity(Vfs& vfs, const std::string& path, const Manifest& manifest) {
  DF_TRY(const CheckedFile file, CheckedFile::open(vfs, path, {}));
  DF_TRY(const ParityRecord record, decode_parity(file.header(), manifest));
  DF_TRY(const MappedMemory memory, MappedMemory::allocate(kSlabBytes));
  for (std::uint64_t at = 0; at < file.header().data_bytes; at += kSlabBytes) {
    const std::uint64_t left = round_up(file.header().data_bytes - at, kBlockBytes);
    DF_TRY_VOID(file.read_data(at, memory.bytes().first(std::min(left, kSlabBytes))));
  }
  return {};
}

}  // namespace deepfreeze
