// A header that the decoder accepts is written by the encoder and reads back equal.
#include "fuzz/framed.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/same_metrics.h"

namespace deepfreeze {

Status fuzz_header_round_trip(std::string_view input) {
  const auto header = decode_framed(input);
  if (!header) return {};
  const auto encoded = encode_header(*header);
  if (!encoded) return broken("accepted and not to be written: " + encoded.error().message());
  std::uint32_t crc = 0;
  const std::uint64_t file_bytes = encoded->bytes.size() + header->data_bytes;
  const auto again = decode_header(encoded->bytes, file_bytes, crc);
  if (!again) return broken("written and not to be read: " + again.error().message());
  DF_TRY_VOID(promise(crc == encoded->crc, "another checksum"));
  DF_TRY_VOID(promise(same_but_nan(*header, *again), "another header"));
  const auto twice = encode_header(*again);
  return promise(twice && twice->bytes == encoded->bytes, "other bytes for the same header");
}

}  // namespace deepfreeze
