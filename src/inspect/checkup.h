// The findings of verify and scrub about the checkpoints and records of one run. Read-only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "inspect/reading.h"
#include "restore/opened_run.h"
#include "restore/snapshot.h"

namespace deepfreeze {

// The findings about one attempt.
struct Finding {
  std::string directory;
  std::optional<Point> point;
  std::uint64_t bytes = 0;
  std::size_t files_elsewhere = 0;  // on other nodes: they were not read
  std::vector<Fault> faults;
  std::vector<std::string> unlisted;  // --deep: names that its manifest does not list
  // --fast: files that were looked at, and those of them of which the place keeps no checksum.
  std::size_t files = 0;
  std::vector<std::string> without_checksum;
};

struct Findings {
  bool deep = false;  // unlisted names were looked for
  bool fast = false;  // no data was read
  std::vector<Finding> attempts;
  std::vector<Fault> records;      // the run file and the claims
  std::vector<std::string> notes;  // worth knowing, not a fault
  [[nodiscard]] bool good() const;
  [[nodiscard]] std::size_t bad_count() const;  // attempts with a fault
};

struct CheckSettings {
  bool deep = false;  // state trees and unlisted files too
  bool fast = false;  // instead: no data, but the checksums that an object store keeps
  bool is_of_several_nodes =
      false;  // other nodes may have files of the attempt: missing ones are no fault
  FileReadings* readings = nullptr;  // of other attempts
  std::size_t thread_count = kReadThreads;
  std::string_view verb = "verify";  // for the progress bar
};

enum class Verdict : std::uint8_t {
  kGood,
  kFault,
  kUnread,   // faults, and none of them says anything of the stored bytes
  kNothing,  // it promises nothing, or was removed meanwhile
};

// Reads the attempt and adds the findings. Fails only if reading itself is impossible.
[[nodiscard]] Result<Verdict> check_attempt(Vfs& vfs, const AttemptState& attempt,
                                            const CheckSettings& settings, const Watch& watch,
                                            Findings& findings);
void check_records(const RunListing& listing, Findings& findings);
// `path`: the first file not read past the page cache, as DeviceReader says; empty if there was
// none.
// Says which data nobody has read, and on whose word its checksums were taken.
void add_fast_notes(Findings& findings);
void add_device_note(const std::string& path, Findings& findings);

}  // namespace deepfreeze
