// For tests of credentials: services that answer by script, an environment, a clock.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "object/credentials.h"
#include "object/http.h"

namespace deepfreeze {

// Any thread.
class ScriptedServices final : public HttpTransport {
 public:
  struct Asked {
    std::string line;  // "GET http://host/path"
    std::vector<HttpField> fields;
    std::string body;
    std::chrono::milliseconds silence_max;
    std::chrono::milliseconds whole_max;

    [[nodiscard]] std::string field(std::string_view name) const {
      const auto found = std::ranges::find(fields, name, &HttpField::name);
      return found == fields.end() ? "" : found->value;
    }
  };
  using Answer = std::function<Result<HttpResponse>()>;

  // Everything that has no answer fails with kTimeout.
  void answer(const std::string& line, Answer answer) { answers_[line] = std::move(answer); }
  void answer(const std::string& line, int status, const std::string& body) {
    answer(line, [=] { return HttpResponse{.status = status, .body = body}; });
  }

  [[nodiscard]] Result<HttpResponse> send(const HttpRequest& request) override {
    const std::string line = request.method + " " + request.url;
    {
      const std::lock_guard lock(mutex_);
      asked_.push_back(
          {.line = line,
           .fields = request.fields,
           .body = {reinterpret_cast<const char*>(request.body.data()), request.body.size()},
           .silence_max = request.silence_max,
           .whole_max = request.whole_max});
    }
    const auto found = answers_.find(line);
    if (found == answers_.end()) {
      return std::unexpected(Error(ErrorCode::kTimeout, line + ": Connection timed out"));
    }
    auto answer = found->second();
    if (!answer || !answer->is_success() || request.into.empty()) return answer;
    if (answer->body.size() > request.into.size()) {
      return std::unexpected(Error(ErrorCode::kIo, line + ": the answer is too long"));
    }
    std::memcpy(request.into.data(), answer->body.data(), answer->body.size());
    answer->into_bytes = answer->body.size();
    answer->body.clear();
    return answer;
  }

  [[nodiscard]] std::vector<Asked> asked() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  std::map<std::string, Answer> answers_;  // set before the first send()
  mutable std::mutex mutex_;
  std::vector<Asked> asked_;  // guarded by mutex_
};

using Variables = std::map<std::string, std::string>;

inline Environment environment_of(Variables variables) {
  return [variables = std::move(variables)](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

inline std::string keys_json(std::string_view token_name = "Token",
                             std::string_view expires = "2026-01-01T02:00:00Z") {
  return std::string(R"({"Code": "Success", "Version": 1, "AccessKeyId": "AKIDANSWER", )") +
         R"("SecretAccessKey": "secret/answer", ")" + std::string(token_name) +
         R"(": "token-answer", "Expiration": ")" + std::string(expires) + "\"}";
}

// 2026-01-01T00:00:00Z and some seconds.
inline std::chrono::system_clock::time_point time_at(std::chrono::seconds after) {
  return std::chrono::sys_days(std::chrono::year(2026) / 1 / 1) + after;
}

}  // namespace deepfreeze
