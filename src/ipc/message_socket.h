// A Unix socket of whole messages (SOCK_SEQPACKET), which may carry open files. Only processes of
// the same user are served. Each object belongs to one thread at a time.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "deepfreeze/result.h"

namespace deepfreeze {

inline constexpr std::size_t kMessageBytesMax = 64 * 1024;
inline constexpr std::size_t kMessageFilesMax = 4;

struct SocketMessage {
  std::string text;
  std::vector<UniqueFd> files;
};

class MessageSocket {
 public:
  // kNotFound if nobody listens there; kUnsupported if another user does, or if the path has more
  // than 107 bytes, which no socket's name can have.
  [[nodiscard]] static Result<MessageSocket> connect(const std::filesystem::path& path);
  // Takes the place of a socket at the path that nobody listens at any more.
  [[nodiscard]] static Result<MessageSocket> listen(const std::filesystem::path& path);

  // Of a listening socket: the next process that wants to talk; nothing if none is there. One of
  // another user is turned away.
  [[nodiscard]] std::optional<MessageSocket> accept() const;

  // Never waits: kBusy if the other side does not read. Files are lent for the call only.
  [[nodiscard]] Status send(std::string_view text, std::span<const int> files = {}) const;
  // Waits at most so long: kTimeout. kNotFound once the other side has closed, and has been heard.
  [[nodiscard]] Result<SocketMessage> receive(std::chrono::milliseconds timeout) const;

  [[nodiscard]] bool is_open() const { return fd_.valid(); }
  // The other side is gone, or has closed. Messages that it sent before may still be there.
  [[nodiscard]] bool has_lost_peer() const;
  // The process that connected or listens.
  [[nodiscard]] pid_t peer() const { return peer_; }
  // A descriptor of that process, which can be read once all of its threads have ended. kNotFound
  // if they have already.
  [[nodiscard]] Result<UniqueFd> open_peer() const;
  // Ends the connection, also for copies of the socket that a forked child has.
  void close();
  [[nodiscard]] int fd() const { return fd_.get(); }  // for poll()

 private:
  MessageSocket(UniqueFd fd, pid_t peer) : fd_(std::move(fd)), peer_(peer) {}

  UniqueFd fd_;
  pid_t peer_ = 0;  // of a connection
};

}  // namespace deepfreeze
