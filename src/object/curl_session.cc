#include "object/curl_session.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>

#include "base/no_broken_pipe.h"
#include "base/scope_exit.h"
#include "base/try.h"

namespace deepfreeze {
namespace {

constexpr std::chrono::milliseconds kStopCheck{100};

// Notices that no byte has moved for too long.
class SilenceBound {
 public:
  explicit SilenceBound(std::chrono::milliseconds max) : max_(max) {}

  [[nodiscard]] bool is_passed(std::uint64_t moved_bytes) {
    const auto now = Monotonic::now();
    if (std::exchange(moved_bytes_, moved_bytes) != moved_bytes) last_ = now;
    left_ = max_ - (now - last_);
    return left_ <= std::chrono::nanoseconds(0);
  }
  // Until it is to be asked again.
  [[nodiscard]] int pause_milliseconds() const {
    const auto pause = std::chrono::ceil<std::chrono::milliseconds>(left_);
    return static_cast<int>(std::min(pause, kStopCheck).count());
  }

 private:
  const std::chrono::milliseconds max_;
  std::uint64_t moved_bytes_ = 0;
  Monotonic::time_point last_ = Monotonic::now();
  std::chrono::nanoseconds left_ = max_;
};

}  // namespace

bool CurlSession::is_open(Monotonic::time_point now) const {
  if (sockets_.empty() || now - last_used_ > kIdleConnectionMax) return false;
  // Bytes, or their end, that come without a request are no answer to the next one.
  pollfd socket = {.fd = sockets_.front(), .events = POLLIN | POLLRDHUP, .revents = 0};
  return ::poll(&socket, 1, 0) == 0;
}

Result<HttpResponse> CurlSession::send(const HttpRequest& request, const UrlParts& url) {
  const NoBrokenPipe no_broken_pipe;
  CurlExchange exchange(library_, request);
  DF_TRY_VOID(prepare());
  DF_TRY_VOID(exchange.prepare(easy_.get(), url));
  if (library_.add(multi_.get(), easy_.get()) != curl::kOk) {
    return fail(ErrorCode::kInternal, "libcurl does not take an exchange");
  }
  const ScopeExit removed([&] { library_.remove(multi_.get(), easy_.get()); });
  DF_TRY(const int result, run(request, exchange.answer()));
  may_connect_ = false;
  last_used_ = Monotonic::now();
  if (is_lost_) {
    return fail(ErrorCode::kIo, "the server ended the connection before its answer");
  }
  if (result == curl::kBadCaFile) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("trusted certificates of {}: {}",
                    ca_bundle_.empty() ? "the system" : ca_bundle_, library_.result_text(result)));
  }
  return exchange.finish(result);
}

// Options that no request changes.
Status CurlSession::prepare() {
  if (!multi_ || !easy_) {
    return fail(ErrorCode::kIo, "libcurl has no memory or no descriptors for a connection");
  }
  library_.reset_easy(easy_.get());
  CurlOptions options(library_, easy_.get());
  options.set(curl::kNoSignal, 1L);
  options.set(curl::kHttpVersion, curl::kHttp11);
  options.set(curl::kSslVersion, curl::kTls12OrNewer);
  options.set(curl::kPathAsIs, 1L);
  if (!ca_bundle_.empty()) options.set(curl::kCaFile, ca_bundle_.c_str());
  options.set(curl::kOpenSocket, &CurlSession::open_socket);
  options.set(curl::kOpenSocketData, static_cast<void*>(this));
  options.set(curl::kCloseSocket, &CurlSession::close_socket);
  options.set(curl::kCloseSocketData, static_cast<void*>(this));
  // A look-up of a name that hangs is left to its thread; older versions wait for it.
  std::ignore = library_.set(easy_.get(), curl::kQuickExit, 1L);
  return options.status();
}

Result<int> CurlSession::run(const HttpRequest& request, const AnswerReader& answer) {
  SilenceBound silence(request.silence_max);
  const auto began = Monotonic::now();
  while (true) {
    int running = 0;
    if (library_.perform(multi_.get(), &running) != curl::kOk) {
      return fail(ErrorCode::kInternal, "libcurl can't go on with an exchange");
    }
    if (running == 0) return result();
    // A lone flag: nothing that another thread has written depends on it.
    if (request.stop != nullptr && request.stop->load(std::memory_order_relaxed)) {
      return fail(ErrorCode::kCancelled, "stopped on request");
    }
    if (silence.is_passed(moved_bytes(answer))) {
      return fail(ErrorCode::kTimeout, fmt::format("no byte in {}", request.silence_max));
    }
    if (request.whole_max.count() > 0 && Monotonic::now() - began >= request.whole_max) {
      return fail(ErrorCode::kTimeout, fmt::format("no whole answer in {}", request.whole_max));
    }
    if (library_.poll(multi_.get(), nullptr, 0, silence.pause_milliseconds(), nullptr) !=
        curl::kOk) {
      return fail(ErrorCode::kIo, "libcurl can't wait for a connection");
    }
  }
}

std::uint64_t CurlSession::moved_bytes(const AnswerReader& answer) const {
  long request = 0;
  std::int64_t sent = 0;
  std::int64_t received = 0;
  library_.get(easy_.get(), curl::kRequestBytes, &request);
  library_.get(easy_.get(), curl::kSentBodyBytes, &sent);
  library_.get(easy_.get(), curl::kReceivedBodyBytes, &received);
  return answer.head_bytes() + static_cast<std::uint64_t>(request + sent + received);
}

int CurlSession::result() {
  int ignored = 0;
  const curl::Message* const message = library_.next_message(multi_.get(), &ignored);
  return message != nullptr && message->kind == curl::kDone ? message->data.result : curl::kOk;
}

int CurlSession::open_socket(void* self, int /*purpose*/, curl::SocketAddress* address) {
  auto& session = *static_cast<CurlSession*>(self);
  session.is_lost_ = !session.may_connect_;
  if (session.is_lost_) return -1;
  const int socket = ::socket(address->family, address->type | SOCK_CLOEXEC, address->protocol);
  if (socket >= 0) session.sockets_.push_back(socket);
  return socket;
}

// Also for copies that a forked child has: else the server would not see the end.
int CurlSession::close_socket(void* self, int socket) {
  std::erase(static_cast<CurlSession*>(self)->sockets_, socket);
  ::shutdown(socket, SHUT_RDWR);
  return ::close(socket);
}

}  // namespace deepfreeze
