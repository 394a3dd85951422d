// A job over several machines: its ranks claim, and save a few times, each at its own pace.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "format/records.h"
#include "nodes/commit_node.h"
#include "nodes/crash/machines.h"
#include "nodes/crash/post_office.h"

namespace deepfreeze::nodes_test {

// A promise that was told to a rank: from then on it must hold.
struct Told {
  Point committed;
  Machine* machine = nullptr;  // of the rank: `local` is durable there
};

struct JobPlan {
  std::string run_id;
  // The ranks on each machine, ascending. The first machine has rank 0.
  std::vector<std::pair<Machine*, std::vector<std::uint32_t>>> nodes;
  std::uint64_t saves = 1;
  std::optional<std::uint32_t> late_rank = {};
  std::uint64_t late_by = 0;  // of its turns
  bool is_calm = false;       // no rank fails, no letter is lost, nobody gives up waiting
  bool has_heirs = false;     // an agent on each machine goes on for processes that died
  Mutant mutant = Mutant::kNone;
};

class Job {
 public:
  Job(Fate& fate, JobPlan plan, std::vector<Told>& told, std::uint64_t& attempts);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();

  [[nodiscard]] Status claim();
  // The number of events that can happen next; act(i) lets the i-th of them happen.
  [[nodiscard]] std::size_t choices() const;
  void act(std::size_t choice);
  [[nodiscard]] bool is_over() const;  // all ranks have ended
  // All its processes, or those on one machine.
  void kill(const Machine* machine = nullptr);
  // With all memory of that machine, or of all: nobody inherits.
  void lose(const Machine* machine = nullptr);
  [[nodiscard]] const std::string& story() const { return story_; }

 private:
  struct Rank;
  [[nodiscard]] std::vector<Rank*> able() const;
  [[nodiscard]] std::vector<Rank*> heirless() const;
  void inherit(Rank& dead);
  void begin_as_heir(Rank& heir);
  [[nodiscard]] PartName part_of(std::uint32_t rank) const;
  [[nodiscard]] Leader leader(Rank& rank) const;
  void step(Rank& rank);
  void begin_save(Rank& rank);
  void write(Rank& rank);
  void commit(Rank& rank);
  void await(Rank& rank);
  void settle_doubts_of(Rank& rank);
  void fail_rank(Rank& rank, const Error& error);
  void end_save(Rank& rank, const Result<Manifest>& outcome);
  [[nodiscard]] Identity agreed(Rank& rank);
  void tell(const Rank& rank, const std::string& text);
  void note(const std::string& text) { story_ += text + "; "; }

  Fate& fate_;
  const JobPlan plan_;
  std::vector<Told>& told_;
  std::uint64_t& attempts_;  // of all jobs: it numbers the next one
  std::uint32_t world_size_ = 0;
  std::uint64_t late_ = 0;  // turns that the late rank has let pass
  PostOffice office_;
  std::vector<std::unique_ptr<Process>> claimers_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::uint64_t> attempt_ids_;  // of the saves that have begun
  std::optional<GenerationRecord> claim_;
  std::string story_;
};

}  // namespace deepfreeze::nodes_test
