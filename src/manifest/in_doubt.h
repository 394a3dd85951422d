// Attempts in doubt (decision 0026): sealed on this node, and decided by the directory of another
// one. Until its answer is placed here, nobody on this node decides them or removes their files,
// except retention once they are old. Stateless; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "manifest/run_directory.h"
#include "manifest/run_records.h"

namespace deepfreeze {

// The records of this directory that tell which one decides an attempt.
struct DecidersView {
  std::span<const Claim> claims;
  const std::optional<NodeMarker>& node;
};

// Whether another directory decides an attempt, or may do so: a claim that is missing or can't be
// read tells nothing. Empty if this one decides. `identity` is in a header of the attempt; without
// it, every claim must give the right to this directory. Pure.
[[nodiscard]] std::optional<Doubt> doubt_about(const DecidersView& here,
                                               const std::optional<Identity>& identity);

// doubt_about() an attempt as it is now. Empty, too, if no file of it is sealed.
[[nodiscard]] Result<std::optional<Doubt>> find_doubt(Vfs& vfs, const DecidersView& here,
                                                      const AttemptName& name);

// "in doubt: node 3f… decides", for people.
[[nodiscard]] std::string describe(const Doubt& doubt);

// An attempt in doubt, as its node's leader asks for it.
struct Question {
  Identity identity;
  std::uint64_t node = 0;  // that decides it
  bool operator==(const Question&) const = default;
};

// The attempts of the listing that somebody can be asked about.
[[nodiscard]] std::vector<Question> questions(const RunListing& listing);

// For the leader of the deciding directory, once it has aborted all that was undecided: the text of
// the outcome, which is durable by then; "aborted" if nothing is there. Empty: no answer, because
// the directory is not the one that decides, the attempt is undecided, or its manifest does not
// verify.
[[nodiscard]] Result<std::optional<std::string>> answer(Vfs& vfs, const Question& question);

// For the leader that asked: makes the answer this directory's outcome, durably and to the byte,
// and returns it. kCorrupt, kMismatch: the text is no outcome of this attempt, or not with the
// sealed files that are here, or another outcome is here. kIncomplete: a rank has lost one of its
// files.
[[nodiscard]] Result<Manifest> place_answer(Vfs& vfs, const Question& question,
                                            std::string_view text);

}  // namespace deepfreeze
