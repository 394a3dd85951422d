// Answers the reads of other nodes from this node's directory: the other end of remote_files.h.
// Peers are served in turn, one range each, so that none waits for another one's many.
//
// The owner of the endpoint owns it; one thread, `df-serve`, from start() to close(). In a forked
// child the owner must leave it alone.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "nodes/link_dispatcher.h"
#include "nodes/served_files.h"

namespace deepfreeze {

// Of one peer, that wait; it gets kBusy for any more.
inline constexpr std::size_t kReadsWaitingMax = 256;
// A peer with so many bytes of answers on the way waits, but may always have one.
inline constexpr std::size_t kUnsentOfPeerMax = 4 * 1024 * 1024;
// And so does each one if all together have so many.
inline constexpr std::size_t kUnsentOfAllMax = 64 * 1024 * 1024;

class FileServer final : public LinkTaker {
 public:
  using Idle = std::chrono::milliseconds;
  // Borrows the endpoint; `run` is the server's alone; tests shorten `idle`. kNoSpace: the system
  // refuses a thread.
  [[nodiscard]] static Result<std::unique_ptr<FileServer>> start(Endpoint& endpoint,
                                                                 std::unique_ptr<Vfs> run,
                                                                 Idle idle = kServedIdleMax);
  FileServer(Endpoint& endpoint, std::unique_ptr<Vfs> run, Idle idle);
  FileServer(const FileServer&) = delete;
  FileServer& operator=(const FileServer&) = delete;
  ~FileServer() override { close(); }

  // Returns once the read that is being answered is over. After the dispatcher's.
  void close();

  // The dispatcher's.
  void take(std::uint32_t rank, LinkMessage message) override;
  void note(const LinkState& state) override;
  void end() override;

 private:
  struct Asked {
    std::uint32_t rank;
    LinkRead read;
  };
  void serve();
  void rest(std::unique_lock<std::mutex>& lock);
  [[nodiscard]] std::optional<Asked> take_next();
  [[nodiscard]] bool may_answer(std::uint32_t rank) const;

  Endpoint& endpoint_;
  const Idle idle_;
  ServedFiles files_;  // the thread's

  std::mutex mutex_;  // guards all below, up to the thread
  std::condition_variable changed_;
  std::map<std::uint32_t, std::deque<LinkRead>> waiting_;  // by rank, none empty
  std::uint32_t last_rank_ = 0;                            // that had its turn
  bool is_ended_ = false;

  std::vector<std::jthread> threads_;  // one, until close()
};

}  // namespace deepfreeze
