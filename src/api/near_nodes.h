// The other nodes of a job whose near directories are their own (docs/decisions/0026): links with
// them, their part in each commit, and their files.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "agreement/link_round.h"
#include "agreement/node_map.h"
#include "api/node_parity.h"
#include "api/open_checkpoint.h"
#include "manifest/run_directory.h"
#include "nodes/commit_node.h"
#include "nodes/file_server.h"
#include "nodes/leader_handover.h"
#include "nodes/ledger.h"
#include "nodes/letter_box.h"
#include "nodes/link_dispatcher.h"
#include "nodes/remote_files.h"
#include "save/run_writer.h"
#include "storage/vfs.h"

namespace deepfreeze {

// How long open() waits for the links between rank 0 and the leaders.
inline constexpr std::chrono::milliseconds kLinkUpMax{10'000};

// Owned by the Checkpointer. commit() is for its worker, all else for its caller's thread. On rank
// 0 the thread `df-answer` answers the other leaders, also while no save commits.
class NearNodes {
 public:
  // Collective, for several nodes. `near` is this node's directory, and has the run's history. An
  // error is every rank's: kIo if a leader has no link with rank 0 within kLinkUpMax.
  [[nodiscard]] static Result<std::shared_ptr<NearNodes>> open(RankGroup& ranks, NodeMap map,
                                                               Vfs& near, const std::string& run,
                                                               const std::string& interface);
  NearNodes(RankGroup& ranks, NodeMap map, Vfs& near, const std::string& run, Links links);
  NearNodes(const NearNodes&) = delete;
  NearNodes& operator=(const NearNodes&) = delete;
  ~NearNodes() { close(); }

  [[nodiscard]] const NodeMap& map() const { return map_; }

  // Collective: see claim_on_nodes(). No save may be under way.
  [[nodiscard]] Status claim(RunWriter& writer, std::uint64_t step);
  // On rank 0, before another rank knows the attempt.
  void begin(const Identity& identity);
  // Commits as this node's leader.
  [[nodiscard]] Result<Manifest> commit(const NodeSave& save);

  // Collective: the committed checkpoints of the other nodes, and the files that they are read by.
  // `own`: the listing of this node's directory; an error is every rank's.
  struct Other {
    Vfs* files = nullptr;
    RunListing listing;
  };
  [[nodiscard]] Result<std::vector<Other>> list_others(const Result<RunListing>& own);
  // Collective: the files of a checkpoint on other nodes, and those that can be calculated from
  // parity. They borrow this.
  [[nodiscard]] Result<CheckpointFiles> files_of(const AttemptName& attempt);

  // The nodes of this rank's group, by their places in map(), each with files of its own.
  [[nodiscard]] Result<std::vector<NodeParity::Peer>> peers(std::span<const std::size_t> group);
  [[nodiscard]] Status send(std::uint32_t rank, const LinkMessage& message) {
    return endpoint_->send(rank, message);
  }
  // From here on until close() it gets the messages about parity. It must outlive that.
  void give_parity_to(LinkTaker& taker) { parity_.to = &taker; }

  // For a leader: the means by which an agent goes on in its place, and rank 0's port. To be given
  // to the agent before the first save.
  struct Estate {
    LeaderHandover handover;
    UniqueFd listener;
  };
  [[nodiscard]] Result<Estate> estate() const;

  void close();

 private:
  // The dispatcher is at work before parity is.
  struct LateTaker final : public LinkTaker {
    void take(std::uint32_t rank, LinkMessage message) override {
      if (LinkTaker* const taker = to) taker->take(rank, std::move(message));
    }
    void note(const LinkState& state) override {
      if (LinkTaker* const taker = to) taker->note(state);
    }
    void end() override {}
    std::atomic<LinkTaker*> to = nullptr;
  };
  [[nodiscard]] Status start();
  [[nodiscard]] Status start_answering();
  void answer();
  [[nodiscard]] Status await_links() const;
  [[nodiscard]] Leader leader(Vfs& vfs);
  [[nodiscard]] Result<Vfs*> files_on(const JobNode& node);

  RankGroup& ranks_;
  const NodeMap map_;
  Vfs& near_;
  const TlsIdentity identity_;
  const std::vector<LinkPeer> peers_;
  const std::string run_;
  const std::unique_ptr<Endpoint> endpoint_;
  LetterBox letters_;
  Ledger ledger_;
  RemoteAsks asks_;
  std::mutex claim_mutex_;  // guards the next
  GenerationRecord claim_;  // of the saves that follow
  std::map<std::uint32_t, std::unique_ptr<Vfs>>
      files_;                           // of other nodes, by leader, once asked for
  std::unique_ptr<FileServer> server_;  // of a leader
  LateTaker parity_;
  std::unique_ptr<LinkDispatcher> dispatcher_;
  std::unique_ptr<Vfs> answers_;         // this directory, for the next alone
  std::vector<std::jthread> answering_;  // one on rank 0, until close()
};

}  // namespace deepfreeze
