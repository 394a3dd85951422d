// The properties of every kind of sealed record, whatever the input.
#pragma once

#include "format/records.h"
#include "fuzz/framed.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/memory_meter.h"
#include "fuzz/same_metrics.h"

namespace deepfreeze {

template <class Record>
struct RecordCodec {
  Result<Record> (*decode)(std::string_view text);
  std::string (*encode)(const Record& record);
};

inline bool same_record(const Manifest& a, const Manifest& b) { return same_but_nan(a, b); }
template <class Record>
[[nodiscard]] bool same_record(const Record& a, const Record& b) {
  return a == b;
}

template <class Record>
[[nodiscard]] Result<Record> decode_within_memory(const RecordCodec<Record>& codec,
                                                  std::string_view text) {
  const MemoryMeter meter;
  auto record = codec.decode(text);
  DF_TRY_VOID(meter.check(text.size()));
  return record;
}

// The record that the input is once its checksum fits; kCorrupt or kUnsupported if it is none.
template <class Record>
[[nodiscard]] Result<Record> checked_record(const RecordCodec<Record>& codec,
                                            std::string_view input) {
  const auto as_it_is = codec.decode(input);
  if (!as_it_is) DF_TRY_VOID(check_refusal(as_it_is.error()));
  auto record = decode_within_memory(codec, framed_record(input));
  if (!record) {
    DF_TRY_VOID(check_refusal(record.error()));
    return record;
  }
  const std::string text = codec.encode(*record);
  const auto again = codec.decode(text);
  if (!again) return broken("written and not to be read: " + again.error().message());
  DF_TRY_VOID(promise(same_record(*again, *record), "another record"));
  DF_TRY_VOID(promise(codec.encode(*again) == text, "another text for the same record"));
  return record;
}

// A refusal of the input is no broken promise.
template <class Record>
[[nodiscard]] Status promises_of(const Result<Record>& checked) {
  if (checked || checked.error().code() != ErrorCode::kInternal) return {};
  return std::unexpected(checked.error());
}

}  // namespace deepfreeze
