#include "ipc/background.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <tuple>

#include "base/try.h"

namespace deepfreeze {
namespace {

constexpr std::string_view kReady = "ready";
constexpr std::size_t kReasonBytesMax = 4096;

std::unexpected<Error> refused(const char* operation) {
  const int cause = errno;
  return fail(ErrorCode::kIo, std::string(operation) + ": " + std::strerror(cause), cause);
}

// A log that can't be opened leaves the output nowhere.
void leave_terminal(const std::filesystem::path& log) {
  constexpr mode_t kOwnerOnly = 0600;
  ::setsid();
  std::ignore = ::chdir("/");  // the starter's directory may be unmounted
  const UniqueFd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const UniqueFd file(
      ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, kOwnerOnly));
  ::dup2(nothing.get(), STDIN_FILENO);
  ::dup2(file.valid() ? file.get() : nothing.get(), STDOUT_FILENO);
  ::dup2(file.valid() ? file.get() : nothing.get(), STDERR_FILENO);
}

// In the child: never returns.
[[noreturn]] void serve_on(const Service& service, const std::filesystem::path& log,
                           int to_parent) {
  const Status prepared = service.prepare();
  const std::string said = prepared ? std::string(kReady) : prepared.error().message();
  if (prepared) leave_terminal(log);
  std::ignore = ::write(to_parent, said.data(), said.size());
  ::close(to_parent);
  ::_exit(prepared && service.serve() ? EXIT_SUCCESS : EXIT_FAILURE);
}

}  // namespace

Result<UniqueFd> take_end_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  UniqueFd file(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (file.valid()) return file;
  return refused("make a signalfd");
}

// sd_notify(3), of which no more is needed than one datagram.
void tell_systemd(std::string_view state) {
  const char* place = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address = {};
  if (place == nullptr || std::strlen(place) >= sizeof(address.sun_path)) return;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, place, std::strlen(place));
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';  // an abstract name
  const UniqueFd to(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(place));
  std::ignore = ::sendto(to.get(), state.data(), state.size(), MSG_NOSIGNAL,
                         reinterpret_cast<const sockaddr*>(&address), bytes);
}

Status start_in_background(const Service& service, const std::filesystem::path& log) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return refused("make a pipe");
  const UniqueFd from_child(ends[0]);
  UniqueFd to_parent(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return refused("start a process");
  if (child == 0) serve_on(service, log, to_parent.get());
  to_parent = UniqueFd();
  std::string said(kReasonBytesMax, '\0');
  ssize_t count = 0;
  do {
    count = ::read(from_child.get(), said.data(), said.size());
  } while (count < 0 && errno == EINTR);
  said.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  if (said == kReady) return {};
  return fail(ErrorCode::kUnsupported, said.empty() ? "it ended at once" : said);
}

}  // namespace deepfreeze
