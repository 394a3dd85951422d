#include "nodes/file_server.h"

#include <fmt/format.h>

#include <exception>
#include <utility>
#include <variant>

#include "base/log.h"
#include "base/named_threads.h"
#include "base/try.h"

namespace deepfreeze {
namespace {

// Nobody says when a peer has taken its answers.
constexpr std::chrono::milliseconds kFullPause{1};

}  // namespace

FileServer::FileServer(Endpoint& endpoint, std::unique_ptr<Vfs> run, Idle idle)
    : endpoint_(endpoint), idle_(idle), files_(std::move(run), idle) {}

Result<std::unique_ptr<FileServer>> FileServer::start(Endpoint& endpoint, std::unique_ptr<Vfs> run,
                                                      Idle idle) {
  auto server = std::make_unique<FileServer>(endpoint, std::move(run), idle);
  server->threads_ = start_threads(1, "df-serve", [self = server.get()] { self->serve(); });
  if (server->threads_.empty()) return fail(ErrorCode::kNoSpace, "the system refuses a thread");
  return server;
}

void FileServer::take(std::uint32_t rank, LinkMessage message) {
  auto* const read = std::get_if<LinkRead>(&message);
  if (read == nullptr) return;
  {
    const std::lock_guard lock(mutex_);
    std::deque<LinkRead>& waiting = waiting_[rank];
    if (waiting.size() < kReadsWaitingMax) {
      waiting.push_back(std::move(*read));
      changed_.notify_one();
      return;
    }
  }
  // It fails only if the peer has taken no answers for long, or there is no link any more.
  std::ignore = endpoint_.send(
      rank, LinkError{.number = read->number,
                      .error = Error(ErrorCode::kBusy,
                                     fmt::format("{} reads wait already", kReadsWaitingMax))});
}

// A peer asks again over its new connection, so that old reads are work for nothing.
void FileServer::note(const LinkState& state) {
  const std::lock_guard lock(mutex_);
  waiting_.erase(state.rank);
}

void FileServer::end() {
  const std::lock_guard lock(mutex_);
  is_ended_ = true;
  changed_.notify_all();
}

void FileServer::close() {
  end();
  threads_.clear();  // joins
}

bool FileServer::may_answer(std::uint32_t rank) const {
  const LinkUnsent unsent = endpoint_.unsent(rank);
  if (unsent.of_rank == 0) return true;
  return unsent.of_rank < kUnsentOfPeerMax && unsent.of_all < kUnsentOfAllMax;
}

// The next one after the rank that had its turn.
std::optional<FileServer::Asked> FileServer::take_next() {
  auto next = waiting_.upper_bound(last_rank_);
  for (std::size_t i = 0; i < waiting_.size(); ++i, ++next) {
    if (next == waiting_.end()) next = waiting_.begin();
    if (!may_answer(next->first)) continue;
    auto& [rank, reads] = *next;
    Asked asked{.rank = rank, .read = std::move(reads.front())};
    last_rank_ = rank;
    reads.pop_front();
    if (reads.empty()) waiting_.erase(next);
    return asked;
  }
  return std::nullopt;
}

// Until something changes, a peer may have taken its answers, or files may be closed.
void FileServer::rest(std::unique_lock<std::mutex>& lock) {
  if (!waiting_.empty()) {
    changed_.wait_for(lock, kFullPause);
  } else if (files_.open_count() > 0) {
    changed_.wait_for(lock, idle_);
  } else {
    changed_.wait(lock);
  }
}

void FileServer::serve() {
  while (true) {
    std::optional<Asked> asked;
    {
      std::unique_lock lock(mutex_);
      if (is_ended_) return;
      asked = take_next();
      if (!asked) rest(lock);
    }
    const auto now = Monotonic::now();
    files_.close_idle(now);
    if (!asked) continue;
    try {
      // It fails only if there is no link any more; then the peer asks again.
      std::ignore = endpoint_.send(asked->rank, files_.answer(asked->read, now));
    } catch (const std::exception& cause) {  // as if the answer were lost
      log_exception("a range of a file is not given to another node", cause);
    }
  }
}

}  // namespace deepfreeze
