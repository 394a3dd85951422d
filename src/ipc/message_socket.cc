#include "ipc/message_socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/try.h"

#ifndef SO_PEERPIDFD  // Linux 6.5, newer than the C library here
#define SO_PEERPIDFD 77
#endif

namespace deepfreeze {
namespace {

constexpr int kBacklog = 64;

std::unexpected<Error> socket_fail(std::string_view operation, const std::filesystem::path& path,
                                   int cause) {
  const bool is_absent = cause == ENOENT || cause == ECONNREFUSED;
  return fail(is_absent ? ErrorCode::kNotFound : ErrorCode::kIo,
              fmt::format("{} {}: {}", operation, path.string(), std::strerror(cause)), cause);
}

Result<sockaddr_un> address_of(const std::filesystem::path& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string& text = path.native();
  if (text.size() >= sizeof(address.sun_path)) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: the name of a socket has at most {} bytes; choose a shorter "
                            "directory",
                            text, sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path, text.data(), text.size());
  return address;
}

Result<UniqueFd> make_socket(const std::filesystem::path& path) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return socket_fail("make a socket for", path, errno);
  return fd;
}

std::optional<ucred> credentials_of(const UniqueFd& fd) {
  ucred peer = {};
  socklen_t bytes = sizeof(peer);
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return std::nullopt;
  return peer;
}

Status bind_and_listen(const UniqueFd& fd, const std::filesystem::path& path) {
  DF_TRY(const sockaddr_un address, address_of(path));
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return socket_fail("remove", path, errno);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return socket_fail("bind", path, errno);
  }
  if (::listen(fd.get(), kBacklog) != 0) return socket_fail("listen at", path, errno);
  return {};
}

// The files that came with a message, owned from here on.
std::vector<UniqueFd> files_of(msghdr& header) {
  std::vector<UniqueFd> files;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      files.emplace_back(fd);
    }
  }
  return files;
}

}  // namespace

Result<MessageSocket> MessageSocket::connect(const std::filesystem::path& path) {
  DF_TRY(const sockaddr_un address, address_of(path));
  DF_TRY(UniqueFd fd, make_socket(path));
  // At once, or EAGAIN if too many wait there.
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return socket_fail("connect to", path, errno);
  }
  const auto peer = credentials_of(fd);
  if (!peer || peer->uid != ::geteuid()) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("connect to {}: a process of another user listens there", path.string()));
  }
  return MessageSocket(std::move(fd), peer->pid);
}

Result<MessageSocket> MessageSocket::listen(const std::filesystem::path& path) {
  DF_TRY(UniqueFd fd, make_socket(path));
  DF_TRY_VOID(bind_and_listen(fd, path));
  return MessageSocket(std::move(fd), 0);
}

std::optional<MessageSocket> MessageSocket::accept() const {
  UniqueFd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) {
    constexpr std::chrono::milliseconds kScarcePause{10};
    const bool is_scarce = errno == EMFILE || errno == ENFILE;  // it can be read all the same
    if (is_scarce) std::this_thread::sleep_for(kScarcePause);
    return std::nullopt;
  }
  const auto peer = credentials_of(fd);
  if (!peer || peer->uid != ::geteuid()) return std::nullopt;
  return MessageSocket(std::move(fd), peer->pid);
}

Status MessageSocket::send(std::string_view text, std::span<const int> files) const {
  if (text.size() > kMessageBytesMax || text.empty() || files.size() > kMessageFilesMax) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("send: a message of {} bytes and {} files", text.size(), files.size()));
  }
  iovec bytes = {.iov_base = const_cast<char*>(text.data()), .iov_len = text.size()};
  msghdr header = {};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMessageFilesMax * sizeof(int))> room{};
  if (!files.empty()) {
    header.msg_control = room.data();
    header.msg_controllen = CMSG_SPACE(files.size_bytes());
    cmsghdr* part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(files.size_bytes());
    std::memcpy(CMSG_DATA(part), files.data(), files.size_bytes());
  }
  while (::sendmsg(fd_.get(), &header, MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    const int cause = errno;
    return fail(cause == EAGAIN ? ErrorCode::kBusy : ErrorCode::kNotFound,
                fmt::format("send to process {}: {}", peer_, std::strerror(cause)), cause);
  }
  return {};
}

Result<SocketMessage> MessageSocket::receive(std::chrono::milliseconds timeout) const {
  const auto deadline = Monotonic::now() + timeout;
  SocketMessage message{.text = std::string(kMessageBytesMax, '\0'), .files = {}};
  while (true) {
    iovec bytes = {.iov_base = message.text.data(), .iov_len = message.text.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(kMessageFilesMax * sizeof(int))> room{};
    msghdr header = {};
    header.msg_iov = &bytes;
    header.msg_iovlen = 1;
    header.msg_control = room.data();
    header.msg_controllen = room.size();
    const ssize_t count = ::recvmsg(fd_.get(), &header, MSG_CMSG_CLOEXEC);
    if (count > 0) {
      message.files = files_of(header);
      message.text.resize(static_cast<std::size_t>(count));
      return message;
    }
    if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
      return fail(ErrorCode::kNotFound, fmt::format("process {} has closed the socket", peer_));
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Monotonic::now());
    if (left.count() <= 0) {
      return fail(ErrorCode::kTimeout, fmt::format("process {} does not answer", peer_));
    }
    pollfd ready = {.fd = fd_.get(), .events = POLLIN, .revents = 0};
    constexpr std::chrono::milliseconds kPollMax = std::chrono::hours(1);
    ::poll(&ready, 1, static_cast<int>(std::min(left, kPollMax).count()));
  }
}

Result<UniqueFd> MessageSocket::open_peer() const {
  int process = -1;
  socklen_t bytes = sizeof(process);
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_PEERPIDFD, &process, &bytes) != 0) {
    // An older kernel knows processes by number alone, which may be another one's by now.
    const bool is_old = errno == ENOPROTOOPT;
    process = is_old ? static_cast<int>(::syscall(SYS_pidfd_open, peer_, 0)) : -1;
  }
  const int cause = errno;
  if (process < 0) {
    const bool is_scarce = cause == EMFILE || cause == ENFILE || cause == ENOMEM;
    return fail(is_scarce ? ErrorCode::kNoSpace : ErrorCode::kNotFound,
                fmt::format("look at process {}: {}", peer_, std::strerror(cause)), cause);
  }
  ::fcntl(process, F_SETFD, FD_CLOEXEC);
  return UniqueFd(process);
}

void MessageSocket::close() {
  ::shutdown(fd_.get(), SHUT_RDWR);
  fd_ = UniqueFd();
}

bool MessageSocket::has_lost_peer() const {
  pollfd state = {.fd = fd_.get(), .events = 0, .revents = 0};
  return ::poll(&state, 1, 0) > 0 && (state.revents & (POLLHUP | POLLERR)) != 0;
}

}  // namespace deepfreeze
