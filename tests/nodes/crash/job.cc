#include "nodes/crash/job.h"

#include <fmt/format.h>

#include <algorithm>

#include "crash/attempt_maker.h"
#include "manifest/claims.h"
#include "manifest/record_file.h"
#include "manifest/run_directory.h"
#include "manifest/several_ranks.h"
#include "nodes/answered.h"
#include "nodes/crash/claim_model.h"

namespace deepfreeze::nodes_test {

struct Job::Rank {
  enum class Stage : std::uint8_t { kIdle, kInheriting, kWriting, kCommitting, kOver };
  Rank(std::uint32_t rank_number, bool leads, Machine& machine, Fate& fate, PostOffice& office)
      : number(rank_number),
        is_leader(leads),
        process{.machine = &machine},
        disk(process, fate),
        box(office, rank_number, process) {}

  const std::uint32_t number;
  const bool is_leader;
  Process process;
  ProcessDisk disk;
  PostOffice::Box box;
  std::unique_ptr<Ledger> ledger;  // of a leader
  std::unique_ptr<NodeCommit> commit;
  Stage stage = Stage::kIdle;
  std::uint64_t saves = 0;  // that it has begun
  Identity identity;
  std::optional<Error> failure;
  bool has_heir = false;  // or its memory is lost
  bool is_heir = false;
  bool is_captured = true;            // of an heir: the save that was left
  std::optional<LinkAttempt> left{};  // the same, until nobody commits it any more
};

Job::Job(Fate& fate, JobPlan plan, std::vector<Told>& told, std::uint64_t& attempts)
    : fate_(fate),
      plan_(std::move(plan)),
      told_(told),
      attempts_(attempts),
      office_(fate, plan_.is_calm) {
  std::vector<std::vector<std::uint32_t>> nodes;
  for (const auto& [machine, ranks] : plan_.nodes) nodes.push_back(ranks);
  const JobNodes job_nodes(nodes);
  world_size_ = job_nodes.world_size();
  for (const auto& [machine, ranks] : plan_.nodes) {
    claimers_.push_back(std::make_unique<Process>(Process{.machine = machine}));
    for (const std::uint32_t number : ranks) {
      const bool leads = job_nodes.is_leader(number);
      auto rank = std::make_unique<Rank>(number, leads, *machine, fate, office_);
      if (leads) {
        rank->ledger = std::make_unique<Ledger>(job_nodes, number);
        office_.open(number, rank->box);
      }
      ranks_.push_back(std::move(rank));
    }
  }
}

Job::~Job() = default;

Status Job::claim() {
  std::vector<std::unique_ptr<ProcessDisk>> disks;
  std::vector<ClaimingNode> nodes;
  for (const auto& process : claimers_) {
    disks.push_back(std::make_unique<ProcessDisk>(*process, fate_));
    nodes.push_back({.digits = process->machine->digits, .vfs = disks.back().get()});
  }
  const auto claimed = claim_for_all(nodes, plan_.run_id, plan_.mutant, fate_);
  if (!claimed) {
    note("claim: " + claimed.error().message());
    kill();
    return std::unexpected(claimed.error());
  }
  claim_ = *claimed;
  note(fmt::format("claim {}, decided by {:x}", claim_->generation, *claim_->node));
  return {};
}

void Job::kill(const Machine* machine) {
  for (auto& process : claimers_) {
    if (machine == nullptr || process->machine == machine) process->is_alive = false;
  }
  for (auto& rank : ranks_) {
    if (machine == nullptr || rank->process.machine == machine) rank->process.is_alive = false;
  }
}

void Job::lose(const Machine* machine) {
  kill(machine);
  for (auto& rank : ranks_) {
    if (machine == nullptr || rank->process.machine == machine) rank->has_heir = true;
  }
}

// A process that is within a call has not ended yet.
std::vector<Job::Rank*> Job::heirless() const {
  std::vector<Rank*> dead;
  if (!claim_ || !plan_.has_heirs) return dead;
  for (const auto& rank : ranks_) {
    const bool is_gone = !rank->process.is_alive && !rank->process.is_acting;
    if (is_gone && !rank->has_heir && !rank->is_heir) dead.push_back(rank.get());
  }
  return dead;
}

std::vector<Job::Rank*> Job::able() const {
  std::vector<Rank*> able;
  if (!claim_) return able;
  for (const auto& rank : ranks_) {
    const bool has_work = rank->stage != Rank::Stage::kOver || rank->is_leader;
    if (rank->process.is_alive && !rank->process.is_acting && has_work) able.push_back(rank.get());
  }
  return able;
}

std::size_t Job::choices() const {
  return able().size() * 2 + (office_.is_empty() ? 0U : 3U) + heirless().size();
}

void Job::act(std::size_t choice) {
  const std::vector<Rank*> all = able();
  const std::size_t letters = office_.is_empty() ? 0 : 3;
  if (choice >= all.size() * 2 + letters) {
    return inherit(*heirless()[choice - all.size() * 2 - letters]);
  }
  if (choice >= all.size() * 2) return office_.deliver();
  Rank& rank = *all[choice / 2];
  if (rank.number == plan_.late_rank && ++late_ < plan_.late_by) return;
  rank.process.is_acting = true;
  step(rank);
  rank.process.is_acting = false;
}

bool Job::is_over() const {
  return std::ranges::all_of(ranks_, [](const auto& rank) {
    return rank->stage == Rank::Stage::kOver || !rank->process.is_alive;
  });
}

Leader Job::leader(Rank& rank) const {
  return {.vfs = rank.disk, .mail = rank.box, .ledger = *rank.ledger, .claim = *claim_};
}

PartName Job::part_of(std::uint32_t rank) const { return {rank, world_size_, 0, 1}; }

void Job::tell(const Rank& rank, const std::string& text) {
  note(fmt::format("{}.{}: {}", claim_->generation, rank.number, text));
}

void Job::step(Rank& rank) {
  rank.disk.sync_delayed();
  const bool is_over = rank.stage == Rank::Stage::kOver;
  if (rank.left && is_over) rank.ledger->end(*std::exchange(rank.left, std::nullopt));
  const bool is_busy = rank.is_heir && !is_over && rank.stage != Rank::Stage::kCommitting;
  if (rank.is_leader && !is_busy)
    std::ignore = take_letters(leader(rank), std::chrono::milliseconds(0));
  if (rank.is_leader && rank.number != 0) settle_doubts_of(rank);
  switch (rank.stage) {
    case Rank::Stage::kIdle:
      return begin_save(rank);
    case Rank::Stage::kInheriting:
      return begin_as_heir(rank);
    case Rank::Stage::kWriting:
      return write(rank);
    case Rank::Stage::kCommitting:
      return rank.is_leader ? commit(rank) : await(rank);
    case Rank::Stage::kOver:
      return;
  }
}

void Job::settle_doubts_of(Rank& rank) {
  if (rank.ledger->doubts().empty() || fate_.below(2) == 0) return;
  ask_about_doubts(leader(rank));
  settle_doubts(leader(rank));
}

// As save/finish_save.cc and nodes/leader_heir.cc have it.
void Job::inherit(Rank& dead) {
  dead.has_heir = true;
  auto heir =
      std::make_unique<Rank>(dead.number, dead.is_leader, *dead.process.machine, fate_, office_);
  heir->is_heir = true;
  heir->saves = plan_.saves;  // none begins
  heir->identity = dead.identity;
  const bool has_save =
      dead.stage == Rank::Stage::kWriting || dead.stage == Rank::Stage::kCommitting;
  heir->stage = has_save ? Rank::Stage::kInheriting : Rank::Stage::kOver;
  heir->is_captured =
      !dead.failure && (dead.stage == Rank::Stage::kCommitting || fate_.below(2) == 0);
  tell(dead, has_save ? fmt::format("has an heir for {}", dead.identity.step) : "has an heir");
  if (heir->is_leader) {
    heir->ledger = std::make_unique<Ledger>(dead.ledger->nodes(), dead.number);
    if (has_save) heir->left = link_attempt(dead.identity);
    if (has_save) heir->ledger->begin(*heir->left);
    heir->ledger->close();
    office_.inherit(heir->number, heir->box);
  }
  ranks_.push_back(std::move(heir));
}

void Job::begin_as_heir(Rank& heir) {
  const AttemptName name = name_of(heir.identity);
  heir.stage = Rank::Stage::kOver;
  if (read_manifest(heir.disk, name, plan_.run_id)) {
    std::ignore = heir.disk.sync_dir(attempt_dir_name(name));
    return;
  }
  if (!check_not_fenced(heir.disk, claim_->generation)) return;
  if (!heir.is_captured) {
    if (!heir.disk.list(attempt_dir_name(name))) std::ignore = join_attempt(heir.disk, name);
    return fail_rank(heir, Error(ErrorCode::kCancelled, "not captured"));
  }
  const std::string directory = attempt_dir_name(name);
  const auto entries = heir.disk.list(directory);
  if (entries && has_name(*entries, sealed_file_name(heir.identity.part))) {
    heir.stage = Rank::Stage::kCommitting;
    // Its name may not be durable yet.
    if (const Status synced = heir.disk.sync_dir(directory); !synced) {
      fail_rank(heir, synced.error());
    }
    return;
  }
  std::ignore = heir.disk.remove_file(join_name(directory, part_file_name(heir.identity.part)));
  const Status joined = join_attempt(heir.disk, name);
  heir.stage = Rank::Stage::kWriting;
  if (!joined) fail_rank(heir, joined.error());
}

// The agreement of a save, which rank 0 makes before any rank knows the attempt's name.
Identity Job::agreed(Rank& rank) {
  if (rank.saves == attempt_ids_.size()) {
    attempt_ids_.push_back(++attempts_);
    const Rank& zero = **std::ranges::find(ranks_, 0U, &Rank::number);
    zero.ledger->begin({.step = attempts_, .attempt_id = attempts_});
  }
  const std::uint64_t id = attempt_ids_[rank.saves];
  return make_identity(plan_.run_id, {claim_->generation, id, id, id}, part_of(rank.number));
}

void Job::begin_save(Rank& rank) {
  if (rank.saves == plan_.saves) {
    rank.stage = Rank::Stage::kOver;
    return;
  }
  rank.identity = agreed(rank);
  rank.failure.reset();
  ++rank.saves;
  tell(rank, fmt::format("joins {}", rank.identity.step));
  const Status joined = join_attempt(rank.disk, name_of(rank.identity));
  rank.stage = Rank::Stage::kWriting;
  if (!joined) fail_rank(rank, joined.error());
}

void Job::write(Rank& rank) {
  const bool fails_early = !plan_.is_calm && fate_.below(15) == 0;
  if (fails_early) return fail_rank(rank, Error(ErrorCode::kIo, "fails early"));
  const Status sealed = write_and_seal(rank.disk, rank.identity);
  if (!sealed) return fail_rank(rank, sealed.error());
  tell(rank, fmt::format("has sealed {}", rank.identity.step));
  rank.stage = Rank::Stage::kCommitting;
}

// As decision 0026 has it: once a file has its final name, a rank of a node that does not decide
// keeps it, and decides nothing.
void Job::fail_rank(Rank& rank, const Error& error) {
  tell(rank, fmt::format("fails {}: {}", rank.identity.step, error.message()));
  const std::string sealed =
      join_name(attempt_dir_name(name_of(rank.identity)), sealed_file_name(rank.identity.part));
  const bool decides = rank.process.machine->digits == *claim_->node;
  const bool is_sealed = rank.process.machine->disk->contents(sealed).has_value();
  if (is_sealed && !decides) {
    report_failed_part(rank.disk, name_of(rank.identity), rank.identity.part, error);
    if (plan_.mutant == Mutant::kFailedRankAborts) give_attempt_up(rank.disk, rank.identity);
  } else {
    std::ignore = withdraw(rank.disk, rank.identity, error);
  }
  rank.failure = error;
  rank.stage = rank.is_leader ? Rank::Stage::kCommitting : Rank::Stage::kIdle;
}

void Job::commit(Rank& rank) {
  if (!rank.commit) {
    if (!plan_.is_calm && !rank.failure && fate_.below(20) == 0) {
      return fail_rank(rank, Error(ErrorCode::kInternal, "fails late"));
    }
    rank.box.has_reported = false;
    rank.commit = NodeCommit::start(
        leader(rank), {.identity = rank.identity, .commit_wait_max = {}, .failure = rank.failure});
  }
  rank.disk.skips_syncs =
      plan_.mutant == Mutant::kNoLeaderSync && rank.number != 0 && !rank.box.has_reported;
  rank.disk.delays_syncs = plan_.mutant == Mutant::kAnswerBeforeSync && rank.number == 0;
  auto outcome = rank.commit->advance();
  if (!outcome && !plan_.is_calm && fate_.below(40) == 0) {
    outcome = rank.commit->time_out();
    if (plan_.mutant == Mutant::kTimeoutAborts) give_attempt_up(rank.disk, rank.identity);
  }
  rank.disk.skips_syncs = false;
  rank.disk.delays_syncs = false;
  if (!outcome) return;
  rank.commit.reset();
  end_save(rank, *outcome);
}

void Job::await(Rank& rank) {
  if (!plan_.is_calm && fate_.below(40) == 0) {
    return fail_rank(rank, Error(ErrorCode::kInternal, "fails late"));
  }
  const auto outcome = await_outcome(rank.disk, rank.identity, std::chrono::milliseconds(0));
  const bool waits = !outcome && outcome.error().code() == ErrorCode::kTimeout;
  if (!waits || (!plan_.is_calm && fate_.below(60) == 0)) end_save(rank, outcome);
}

void Job::end_save(Rank& rank, const Result<Manifest>& outcome) {
  rank.stage = Rank::Stage::kIdle;
  if (!rank.process.is_alive) return;
  tell(rank, outcome ? fmt::format("is told {}", rank.identity.step) : outcome.error().message());
  if (outcome) return told_.push_back({outcome->point, rank.process.machine});
  const auto recorded = read_manifest(rank.disk, name_of(rank.identity), plan_.run_id);
  if (!recorded || recorded->outcome != Outcome::kAborted) return;
  remove_own_files(rank.disk, rank.identity);
  // The next save's collector, by chance.
  if (rank.is_leader && fate_.below(3) == 0) {
    std::ignore = remove_attempt(rank.disk, name_of(rank.identity));
  }
}

}  // namespace deepfreeze::nodes_test
