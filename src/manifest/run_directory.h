// A run's directory as a whole: its identity, its claims and its attempts. Stateless over a Vfs:
// each call reads the disk. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/node_record.h"
#include "format/records.h"
#include "format/tag_record.h"
#include "storage/vfs.h"

namespace deepfreeze {

inline constexpr std::uint64_t kRecordBytesMax = 1 << 20;  // run file and claims
inline constexpr std::uint64_t kManifestBytesMax = 64 << 20;

// The name that a manifest gets when its attempt is deleted: readers leave such attempts out, and
// the next collector finishes them.
inline constexpr std::string_view kDeletedManifestFile = "manifest.deleted.json";

// An attempt is in doubt if it has no outcome here, has a sealed file, and another directory
// decides it (decision 0026). It is undecided for everybody; in_doubt.h.
struct Doubt {
  std::optional<Identity> identity;   // in a header of it; empty if none can be read
  std::optional<std::uint64_t> node;  // that decides it; empty if no claim here tells
};

// The tags that a committed attempt was given after its save (given_tags.h).
struct GivenTags {
  std::uint64_t number = 0;    // of their record
  Tags tags;                   // may be empty: all were removed again
  std::optional<Error> fault;  // the record can't be read or does not verify: nobody knows them
};

// The known facts about one attempt directory.
struct AttemptState {
  AttemptName name;
  // Set if manifest.json exists and verifies.
  std::optional<Manifest> manifest;
  // Set if manifest.json exists and does not verify, or contradicts its directory.
  std::optional<Error> fault;
  bool has_sealed = false;    // a file with its final name
  bool has_parity = false;    // shows_parity()
  bool is_protected = false;  // all nodes have parity of it (docs/decisions/0033)
  bool is_given_up = false;   // some have not, and it gets none
  std::optional<Doubt> doubt = {};
  std::optional<GivenTags> given = {};  // absent: it was never given any
  // No manifest and no fault: not decided yet.
  [[nodiscard]] bool committed() const {
    return manifest.has_value() && manifest->outcome == Outcome::kCommitted;
  }
  [[nodiscard]] bool undecided() const { return !manifest.has_value() && !fault.has_value(); }
};

struct Claim {
  std::uint64_t generation = 0;
  std::optional<GenerationRecord> record;  // empty if the file does not verify (still a claim)
};

// node.json, which a near directory of a node has.
struct NodeMarker {
  std::optional<NodeRecord> record;  // empty if it does not verify or can't be read
};

// The result of listing a run once.
struct RunListing {
  RunRecord run;
  bool run_rebuilt = false;               // deepfreeze.json was lost or bad: taken from a manifest
  std::vector<AttemptState> attempts;     // by (step, attempt id)
  std::vector<AttemptName> half_deleted;  // in no list above; collect_garbage finishes them
  std::vector<Claim> claims;              // by generation
  std::optional<NodeMarker> node = {};
};

// kNotFound: neither deepfreeze.json nor an attempt nor a claim ("not a DeepFreeze run directory").
// kUnsupported: any record is of a newer format. Attempts that vanish while being read (gc in
// another process) are left out. If the run file is lost or bad, it is rebuilt in memory and a
// warning logged; kCorrupt if no record tells the run's id.
[[nodiscard]] Result<RunListing> read_run(Vfs& vfs);

// Writes deepfreeze.json (tmp, sync, rename without replacing, directory sync); adopts an
// existing one. Repairs a bad or lost one from the manifests or claims; a bad one is kept as
// deepfreeze.bad-<nonce>.json. The directory may hold other files.
[[nodiscard]] Result<RunRecord> create_or_open_run(Vfs& vfs, std::optional<ParentPoint> parent);

// Reads and checks one manifest: well sealed, and of this directory and run ("" is any run).
[[nodiscard]] Result<Manifest> read_manifest(Vfs& vfs, const AttemptName& name,
                                             std::string_view run_id);

// Returns the result of `read`, which lists a run and reads some of its files. Calls it again if
// such a file was deleted meanwhile (kGone): the newer attempt that allowed the deletion may not be
// in the list.
inline constexpr int kListsMax = 100;

template <class Read>
[[nodiscard]] auto list_anew_while_gone(const Read& read) -> decltype(read()) {
  for (int lists = 1;; ++lists) {
    auto found = read();
    if (found || found.error().code() != ErrorCode::kGone || lists == kListsMax) return found;
  }
}

}  // namespace deepfreeze
