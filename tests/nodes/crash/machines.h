// Machines with simulated disks, and processes on them that may die at any operation. One thread:
// while a process is within a call to its disk, others act, so that the same seed always tells the
// same story.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/try.h"
#include "support/passing_file.h"
#include "support/passing_vfs.h"
#include "support/sim_disk.h"

namespace deepfreeze::nodes_test {

// Steps of the protocol that are left out: each of them must break a promise.
enum class Mutant : std::uint8_t {
  kNone,
  kNoLeaderSync,      // N2: a leader reports names that nobody has synced
  kFailedRankAborts,  // a rank that fails after its rename aborts the attempt
  kTimeoutAborts,     // so does a leader that gets no answer
  kAnswerBeforeSync,  // N6: rank 0 tells an outcome before its sync
  kOneRound,          // C2 and C3 are one round
  kAbortInDoubt,      // C3: a node aborts its attempts in doubt
};

struct Machine {
  std::uint64_t digits = 0;
  std::unique_ptr<SimDisk> disk;
  bool is_off = false;
};

struct Process {
  Machine* machine = nullptr;
  bool is_alive = true;
  bool is_acting = false;  // within a call: no other may begin in it
};

// Before a directory's sync others see names that a cut takes away: they shall act at that moment.
enum class Moment : std::uint8_t { kAny, kBeforeSync };

// The faults around an operation.
class Fate {
 public:
  virtual ~Fate() = default;
  // Counts an event, and lets others act. False: the process does not live to see it.
  [[nodiscard]] virtual bool lives_through(Process& process, Moment moment = Moment::kAny) = 0;
  [[nodiscard]] virtual std::uint64_t below(std::uint64_t bound) = 0;
  // The caller waits for other machines.
  virtual void wait() = 0;
};

// A machine's disk as one process has it.
class ProcessDisk final : public PassingVfs {
 public:
  ProcessDisk(Process& process, Fate& fate)
      : PassingVfs(*process.machine->disk), process_(process), fate_(fate) {}

  // For mutants.
  bool skips_syncs = false;   // of attempts
  bool delays_syncs = false;  // of attempts that have an outcome, until sync_delayed()
  void sync_delayed() {
    if (delayed_ && process_.is_alive) std::ignore = disk_.sync_dir(*delayed_);
    delayed_.reset();
  }

  [[nodiscard]] Status live(Moment moment = Moment::kAny) {
    if (fate_.lives_through(process_, moment)) return {};
    return fail(ErrorCode::kIo, "the process is dead");
  }

  Result<std::unique_ptr<File>> create(std::string_view name, Access access) override {
    DF_TRY_VOID(live());
    DF_TRY(auto file, disk_.create(name, access));
    return std::make_unique<OpenFile>(std::move(file), *this);
  }
  Status make_dir(std::string_view name) override {
    DF_TRY_VOID(live());
    return disk_.make_dir(name);
  }
  Status rename_no_replace(std::string_view from, std::string_view to) override {
    DF_TRY_VOID(live());
    return disk_.rename_no_replace(from, to);
  }
  Status remove_file(std::string_view name) override {
    DF_TRY_VOID(live());
    return disk_.remove_file(name);
  }
  Status remove_dir(std::string_view name) override {
    DF_TRY_VOID(live());
    return disk_.remove_dir(name);
  }
  Result<std::vector<DirEntry>> list(std::string_view name) override {
    DF_TRY_VOID(live());
    return disk_.list(name);
  }
  Status sync_dir(std::string_view name) override {
    DF_TRY_VOID(live(Moment::kBeforeSync));
    if (skips_syncs && !name.empty()) return {};
    if (!delays_syncs || !disk_.contents(std::string(name) + "/manifest.json")) {
      return disk_.sync_dir(name);
    }
    delayed_ = name;
    return {};
  }

 private:
  class OpenFile final : public PassingFile {
   public:
    OpenFile(std::unique_ptr<File> file, ProcessDisk& disk)
        : PassingFile(std::move(file)), disk_(disk) {}
    Status write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
      DF_TRY_VOID(disk_.live());
      return file_->write_at(offset, bytes);
    }
    Status sync() override {
      DF_TRY_VOID(disk_.live());
      return file_->sync();
    }

   private:
    ProcessDisk& disk_;
  };

  Process& process_;
  Fate& fate_;
  SimDisk& disk_ = *process_.machine->disk;
  std::optional<std::string> delayed_;
};

}  // namespace deepfreeze::nodes_test
