// A life of a run on several machines: one job after the other, or beside the other; machines that
// lose power, processes that die, disks that refuse an operation.
#pragma once

#include <random>

#include "nodes/crash/job.h"

namespace deepfreeze::nodes_test {

enum class Blow : std::uint8_t { kProcess, kAllProcesses, kPower };  // of the machine

struct Strike {
  std::size_t event = 0;
  Blow blow = Blow::kProcess;
};

struct LifePlan {
  std::uint64_t seed = 1;
  std::size_t machines = 2;
  std::vector<Strike> strikes;
  Mutant mutant = Mutant::kNone;
  bool has_heirs = false;
  bool is_random = true;  // else: one job, one save, no other trouble than the strikes
};

class Life final : public Fate {
 public:
  explicit Life(LifePlan plan);
  Life(const Life&) = delete;
  Life& operator=(const Life&) = delete;
  ~Life() override;

  // Returns the promise that was broken, if any.
  [[nodiscard]] std::optional<std::string> live();
  [[nodiscard]] std::size_t events() const { return events_; }  // before the last job
  [[nodiscard]] std::size_t told() const { return told_.size(); }
  [[nodiscard]] std::string story() const;

  bool lives_through(Process& process, Moment moment = Moment::kAny) override;
  std::uint64_t below(std::uint64_t bound) override { return random_() % bound; }
  void wait() override;

 private:
  void begin_job();
  void act(std::size_t actions);
  [[nodiscard]] bool act_once();
  void hold_up(Process& process, Moment moment);
  void act_until_told();
  void strike(Process& process, Blow blow);
  void cut(Machine& machine);
  void restore_power(Machine& machine);
  [[nodiscard]] JobPlan plan_job();
  [[nodiscard]] std::optional<std::string> live_calmly();

  const LifePlan plan_;
  std::mt19937_64 random_;
  std::string run_id_;
  std::vector<std::unique_ptr<Machine>> machines_;
  std::vector<std::unique_ptr<SimDisk>> lost_;  // old disks, which dead processes still hold
  std::vector<std::unique_ptr<Job>> jobs_;
  std::vector<Told> told_;
  std::uint64_t attempts_ = 0;
  std::size_t events_ = 0;
  int depth_ = 0;
  bool has_sound_jobs_ = false;  // only machines and processes make trouble
  bool is_unlucky_ = false;      // syncs come right after an acknowledgement
  bool is_calm_ = false;         // the last job
  std::string story_;
};

}  // namespace deepfreeze::nodes_test
