#include "object/curl_transport.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <ranges>
#include <tuple>
#include <utility>
#include <vector>

#include "base/try.h"
#include "object/curl_session.h"

namespace deepfreeze {
namespace {

constexpr int kServerErrorsBegin = 500;

using Session = std::unique_ptr<CurlSession>;

// Idle connections. Any thread.
class CurlPool {
 public:
  // The last one used for that server; null if there is none.
  [[nodiscard]] Session take(std::string_view origin) {
    const std::lock_guard lock(mutex_);
    const auto found =
        std::ranges::find_if(idle_.rbegin(), idle_.rend(),
                             [&](const Session& session) { return session->origin() == origin; });
    if (found == idle_.rend()) return nullptr;
    Session session = std::move(*found);
    idle_.erase(std::prev(found.base()));
    return session;
  }

  void keep(Session session) {
    Session oldest;  // ended without the lock
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(session));
    if (idle_.size() <= kIdleConnectionsMax) return;
    oldest = std::move(idle_.front());
    idle_.erase(idle_.begin());
  }

  void drop(std::string_view origin) {
    std::vector<Session> dropped;  // ended without the lock
    const std::lock_guard lock(mutex_);
    for (Session& idle : idle_) {
      if (idle->origin() == origin) dropped.push_back(std::move(idle));
    }
    std::erase(idle_, nullptr);
  }

  // In a forked child: ending a connection would end the parent's.
  void abandon() {
    for (Session& idle : idle_) std::ignore = idle.release();
  }

 private:
  std::mutex mutex_;
  std::vector<Session> idle_;
};

class CurlTransport final : public HttpTransport {
 public:
  CurlTransport(const curl::Library& library, CurlSettings settings)
      : library_(library), settings_(std::move(settings)) {}
  ~CurlTransport() override {
    if (owner_ != ::getpid()) pool_.abandon();
  }

  [[nodiscard]] Result<HttpResponse> send(const HttpRequest& request) override {
    const auto url = split_url(request.url);
    if (!url) return std::unexpected(url.error().within(request.method));
    auto answer = exchange(request, *url);
    if (answer) return answer;
    return std::unexpected(
        answer.error().within(fmt::format("{} {}{}", request.method, url->origin, url->path)));
  }

 private:
  Result<HttpResponse> exchange(const HttpRequest& request, const UrlParts& url) {
    if (owner_ != ::getpid()) {
      return fail(ErrorCode::kUnsupported, "the connections are of the process that forked this");
    }
    Session session = connection_to(url.origin);
    auto answer = session->send(request, url);
    if (answer && answer->status < kServerErrorsBegin) {
      if (session->is_open()) pool_.keep(std::move(session));
    } else {
      pool_.drop(url.origin);  // the next try is to find another server behind the name
    }
    return answer;
  }

  Session connection_to(std::string_view origin) {
    while (Session idle = pool_.take(origin)) {
      if (idle->is_open()) return idle;
    }
    return std::make_unique<CurlSession>(library_, origin, settings_.ca_bundle);
  }

  const pid_t owner_ = ::getpid();
  const curl::Library& library_;
  const CurlSettings settings_;
  CurlPool pool_;
};

}  // namespace

Result<std::shared_ptr<HttpTransport>> make_curl_transport(const CurlSettings& settings) {
  DF_TRY(const curl::Library* library, curl::library());
  return std::make_shared<CurlTransport>(*library, settings);
}

}  // namespace deepfreeze
