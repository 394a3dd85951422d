// A leader's knowledge of the attempts under way: for rank 0 the reports of the other nodes, for
// the others the answers of rank 0. Letters may come twice, late, in any order, before the save has
// begun here, and for attempts that are over: none of this changes an outcome. Memory only, and
// bounded. Any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "format/records.h"
#include "manifest/parts_check.h"
#include "nodes/job_nodes.h"
#include "nodes/mail.h"

namespace deepfreeze {

// Attempts that others have told of before they have begun here. The oldest are forgotten, as if
// their letters had been lost.
inline constexpr std::size_t kEarlyAttemptsMax = 4;
// Attempts that are over, and whose late letters are known as such.
inline constexpr std::size_t kOverAttemptsMax = 64;
// Attempts in doubt that a living process asks about. Others wait for the next claim.
inline constexpr std::size_t kDoubtsMax = 16;
// Bounds the headers that other nodes have reported.
inline constexpr std::size_t kReportBytesMax = std::size_t{4} << 30U;

// A sealed file, as far as step 5 looks at it.
struct SealedPart {
  PartName name;
  PartHeader header;  // without its tree and its checksums of blocks
};
// Both from the header's bytes, whole. kCorrupt.
[[nodiscard]] Result<SealedPart> sealed_part(const PartName& name, std::span<const std::byte> bytes,
                                             std::uint64_t file_bytes);

// An attempt that this leader has reported, or may have.
struct OwnReport {
  Identity identity;                // of its first part
  std::vector<ManifestFile> files;  // of its node; empty until it reports
};

// Rank 0's answer to a report or a question.
struct NodeAnswer {
  std::optional<std::string> decided = {};  // the outcome's record, as it came
  bool is_gone = false;
};

class Ledger {
 public:
  // `own`: the rank of this leader.
  Ledger(JobNodes nodes, std::uint32_t own, std::size_t report_bytes_max = kReportBytesMax);

  [[nodiscard]] const JobNodes& nodes() const { return nodes_; }
  [[nodiscard]] std::uint32_t own() const { return own_; }

  // The attempt is under way here until end(). Rank 0 must call it before another rank knows the
  // attempt's name: a question about an attempt that rank 0 does not know, and of which its
  // directory has nothing, is answered "gone".
  void begin(const LinkAttempt& attempt);
  void end(const LinkAttempt& attempt);
  // For the heir of a leader: no attempt begins here any more. All that are not under way are over.
  void close();
  // Not over: begun, or others have told of it.
  [[nodiscard]] bool is_open(const LinkAttempt& attempt) const;

  // True if the sender wants to know the attempt's outcome: rank 0 then answers.
  [[nodiscard]] bool note(Letter letter);
  // How often letters from and to that rank may have been lost.
  [[nodiscard]] std::uint64_t renewals(std::uint32_t rank) const;

  // For rank 0. The failure that another node has reported, or a fault in a report.
  [[nodiscard]] std::optional<Error> failure(const LinkAttempt& attempt) const;
  // The first leader that has not reported yet; none if all have.
  [[nodiscard]] std::optional<std::uint32_t> awaited(const LinkAttempt& attempt) const;
  // The parts of all nodes that have reported, handed over.
  [[nodiscard]] std::vector<SealedPart> take_parts(const LinkAttempt& attempt);

  // For the other leaders.
  void set_report(const LinkAttempt& attempt, OwnReport report);
  [[nodiscard]] OwnReport report(const LinkAttempt& attempt) const;
  [[nodiscard]] NodeAnswer answer(const LinkAttempt& attempt) const;
  // It was no answer: it did not verify.
  void drop_answer(const LinkAttempt& attempt);
  // From now on this leader asks for the outcome.
  void doubt(const LinkAttempt& attempt);
  [[nodiscard]] std::vector<LinkAttempt> doubts() const;

 private:
  struct NodeReport {
    std::map<std::string, SealedPart, std::less<>> parts;  // by file name
    std::optional<std::vector<LinkSealed::File>> sealed;
    bool is_complete = false;
  };
  enum class State : std::uint8_t { kEarly, kUnderWay, kInDoubt };
  struct Entry {
    LinkAttempt attempt;
    State state = State::kEarly;
    std::map<std::uint32_t, NodeReport> reports = {};  // by leader
    std::size_t report_bytes = 0;
    std::optional<Error> failure = {};
    OwnReport own = {};
    NodeAnswer answer = {};
  };

  [[nodiscard]] bool note_to_rank_0(std::uint32_t sender, LinkMessage message);
  [[nodiscard]] bool note_part(std::uint32_t sender, const LinkPart& part);
  void note_answer(LinkMessage message);
  // With the lock held.
  [[nodiscard]] Entry* find(const LinkAttempt& attempt);
  [[nodiscard]] const Entry* find(const LinkAttempt& attempt) const;
  [[nodiscard]] bool is_over(const LinkAttempt& attempt) const;
  Entry* open(const LinkAttempt& attempt);  // null if it is over
  void keep_bounds(State state, std::size_t count_max);
  void judge(Entry& entry, std::uint32_t sender) const;

  const JobNodes nodes_;
  const std::uint32_t own_;
  const std::size_t report_bytes_max_;

  mutable std::mutex mutex_;  // guards all below
  std::deque<Entry> entries_;
  std::deque<LinkAttempt> over_;
  bool is_closed_ = false;  // then all attempts without an entry are over, too
  std::map<std::uint32_t, std::uint64_t> renewals_;
};

}  // namespace deepfreeze
