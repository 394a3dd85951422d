// .deepfreeze-index: the facts about a run that a catalogue shows, kept in the run's directory, so
// that the next one need not read every manifest. It is a hint: it counts only if every record that
// it was made from is still the same file, by inode, size and time of change; without it, or with
// one that is damaged or of another run, the run is read. It is replaced whole and never synced,
// and a directory that can't be written has none. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "deepfreeze/result.h"
#include "inspect/catalogue.h"
#include "storage/vfs.h"

namespace deepfreeze {

// Two changes within one tick of the file system's clock look the same.
inline constexpr std::int64_t kSettledMicros = 3'000'000;

// Takes the index, or reads the run. Then the index is written anew, if the run has no faults, no
// attempt without an outcome, and has not changed for `settled_micros` by the file system's clock.
[[nodiscard]] Result<CataloguedRun> look_up(Vfs& vfs, std::int64_t settled_micros = kSettledMicros);

// The number of the record of tags, by the directory's name, of each attempt that has one.
using TagNumbers = std::map<std::string, std::uint64_t>;

struct RunIndex {
  std::string key;  // the stamps of the records that it was made from
  TagNumbers tag_numbers;
  CataloguedRun run;
};
[[nodiscard]] std::string encode_index(const RunIndex& index);
[[nodiscard]] Result<RunIndex> decode_index(std::string_view text);

}  // namespace deepfreeze
