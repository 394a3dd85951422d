// Goes on as the leader of a node in place of a process that is gone, with its key and, for rank 0,
// its port: commits the save that it left, or answers other leaders about older ones. No save
// begins any more. It reads no files for others. Owned by the thread that calls it; its endpoint
// has the threads `df-link` and `df-mail`.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "nodes/commit_node.h"
#include "nodes/leader_handover.h"
#include "nodes/letter_box.h"
#include "nodes/link_dispatcher.h"
#include "storage/vfs.h"

namespace deepfreeze {

class LeaderHeir {
 public:
  struct Left {
    LeaderHandover handover;
    UniqueFd listener;  // of rank 0; of another leader nobody needs it
    // It names the save that was under way, which may have an outcome already, here or elsewhere.
    std::optional<Identity> identity = {};
  };
  // `near` is the node's directory. The process must be gone: one key has one speaker. kNotFound:
  // the directory has no claim that it could speak for; else the errors of LeaderHandover and
  // Endpoint.
  [[nodiscard]] static Result<std::unique_ptr<LeaderHeir>> start(Left left,
                                                                 std::unique_ptr<Vfs> near);
  struct Parts {
    std::unique_ptr<Vfs> near;
    std::unique_ptr<Endpoint> endpoint;
    JobNodes nodes;
    std::uint32_t rank = 0;
    GenerationRecord claim;
  };
  explicit LeaderHeir(Parts parts);
  LeaderHeir(const LeaderHeir&) = delete;
  LeaderHeir& operator=(const LeaderHeir&) = delete;
  ~LeaderHeir() = default;

  [[nodiscard]] bool decides() const { return ledger_.own() == 0; }

  // commit_node() for the save that was left. Once `is_awaited` returns true it waits only as long
  // as something changes: here or at another leader, within `quiet_max`.
  struct Patience {
    std::function<bool()> is_awaited;
    std::chrono::milliseconds quiet_max{0};
  };
  [[nodiscard]] Result<Manifest> commit(const NodeSave& save, const Patience& patience);

  // For rank 0, once nothing is left to commit: answers leaders, whether they have asked already or
  // ask within this time. True if a letter has come.
  [[nodiscard]] bool answer(std::chrono::milliseconds timeout);

 private:
  // Counts the letters that come.
  class CountedMail final : public Mail {
   public:
    explicit CountedMail(Mail& mail) : mail_(mail) {}
    [[nodiscard]] Status send(std::uint32_t rank, const LinkMessage& message) override {
      return mail_.send(rank, message);
    }
    [[nodiscard]] Result<Letter> take(std::chrono::milliseconds timeout) override;
    [[nodiscard]] std::uint64_t taken() const { return taken_; }

   private:
    Mail& mail_;
    std::uint64_t taken_ = 0;
  };

  // Parity ends with the trainer: the other leaders must not wait for its word.
  class NoParity final : public LinkTaker {
   public:
    explicit NoParity(Endpoint& endpoint) : endpoint_(endpoint) {}
    void take(std::uint32_t /*rank*/, LinkMessage /*message*/) override {}
    void note(const LinkState& state) override;
    void end() override {}

   private:
    Endpoint& endpoint_;
  };

  [[nodiscard]] Leader leader() { return {*near_, mail_, ledger_, claim_}; }

  const std::unique_ptr<Vfs> near_;
  const std::unique_ptr<Endpoint> endpoint_;
  LetterBox letters_;
  NoParity parity_;
  CountedMail mail_;
  Ledger ledger_;
  const GenerationRecord claim_;
  std::optional<LinkAttempt> left_;             // until answer()
  std::unique_ptr<LinkDispatcher> dispatcher_;  // last: it uses all above
};

}  // namespace deepfreeze
