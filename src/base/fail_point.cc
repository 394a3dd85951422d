#include "base/fail_point.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "base/log.h"
#include "base/try.h"

namespace deepfreeze::fail_points {
namespace {

constexpr int kAwaitMilliseconds = 60'000;

struct Action {
  enum class Kind { kKill, kError, kSleep, kAfter } kind = Kind::kKill;
  int argument = 0;   // errno, or milliseconds
  std::string other;  // the point to wait for
  int at_pass = 0;    // 0: every pass
  int passes = 0;
};

struct Registry {
  std::mutex mutex;  // guards all below
  std::map<std::string, Action, std::less<>> armed;
  bool recording = false;
  std::vector<std::string> names;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

std::optional<int> errno_from_name(std::string_view name) {
  static const std::map<std::string_view, int> kKnown = {
      {"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT},
      {"EROFS", EROFS},   {"EACCES", EACCES}, {"ESTALE", ESTALE},
      {"ENOMEM", ENOMEM}, {"EMFILE", EMFILE}, {"ENOTEMPTY", ENOTEMPTY}};
  const auto found = kKnown.find(name);
  return found == kKnown.end() ? std::nullopt : std::optional(found->second);
}

std::optional<int> parse_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return {};
  return value;
}

std::optional<Action> parse_kind(std::string_view text) {
  const auto colon = text.find(':');
  const std::string_view argument = colon == text.npos ? "" : text.substr(colon + 1);
  const std::string_view kind = text.substr(0, colon);
  if (kind == "kill") return Action{.kind = Action::Kind::kKill};
  if (kind == "error") {
    const auto number = argument.empty() ? std::optional(EIO) : errno_from_name(argument);
    if (!number) return {};
    return Action{.kind = Action::Kind::kError, .argument = *number};
  }
  if (kind == "after" && !argument.empty()) {
    return Action{.kind = Action::Kind::kAfter, .other = std::string(argument)};
  }
  const auto milliseconds = parse_number(argument);
  if (kind != "sleep" || !milliseconds) return {};
  return Action{.kind = Action::Kind::kSleep, .argument = *milliseconds};
}

std::optional<Action> parse_action(std::string_view text) {
  const auto at = text.find('@');
  auto action = parse_kind(text.substr(0, at));
  if (!action || at == text.npos) return action;
  const auto pass_number = parse_number(text.substr(at + 1));
  if (!pass_number || *pass_number == 0) return {};
  action->at_pass = *pass_number;
  return action;
}

Result<std::map<std::string, Action, std::less<>>> parse(std::string_view specification) {
  std::map<std::string, Action, std::less<>> armed;
  while (!specification.empty()) {
    const std::string_view item = specification.substr(0, specification.find(';'));
    specification.remove_prefix(std::min(item.size() + 1, specification.size()));
    const auto equals = item.find('=');
    const auto action = equals == item.npos ? std::nullopt : parse_action(item.substr(equals + 1));
    if (!action) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("fail point \"{}\" not understood", item));
    }
    armed[std::string(item.substr(0, equals))] = *action;
  }
  return armed;
}

// The action due at this pass, if any.
std::optional<Action> take(std::string_view name) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (all.recording && std::ranges::find(all.names, name) == all.names.end()) {
    all.names.emplace_back(name);
  }
  const auto found = all.armed.find(name);
  if (found == all.armed.end()) return {};
  Action& action = found->second;
  ++action.passes;
  if (action.at_pass != 0 && action.passes != action.at_pass) return {};
  return action;
}

bool arm_from_environment() {
  const char* specification = std::getenv("DEEPFREEZE_FAIL");
  if (specification == nullptr || *specification == '\0') return false;
  const Status armed = arm(specification);
  if (!armed) log_warning("DEEPFREEZE_FAIL: " + armed.error().message());
  return armed.has_value();
}

}  // namespace

std::atomic<bool> active{false};
// Declared after `active`, whose initialiser would otherwise undo the arming.
[[maybe_unused]] const bool armed_from_environment = arm_from_environment();

Status arm(std::string_view specification) {
  DF_TRY(auto armed, parse(specification));
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.armed = std::move(armed);
  active.store(true, std::memory_order_relaxed);  // the mutex orders the rest
  return {};
}

void disarm() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.armed.clear();
  all.recording = false;
  active.store(false, std::memory_order_relaxed);
}

void start_recording() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.names.clear();
  all.recording = true;
  active.store(true, std::memory_order_relaxed);
}

std::vector<std::string> recorded() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  return all.names;
}

Status await_recorded(std::string_view name) {
  for (int waited = 0; waited < kAwaitMilliseconds; ++waited) {
    const std::vector<std::string> passed = recorded();
    if (std::ranges::find(passed, name) != passed.end()) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return fail(ErrorCode::kTimeout, fmt::format("fail point {} was not passed", name));
}

Status pass(std::string_view name) {
  const auto action = take(name);
  if (!action) return {};
  if (action->kind == Action::Kind::kSleep) {
    std::this_thread::sleep_for(std::chrono::milliseconds(action->argument));
    return {};
  }
  if (action->kind == Action::Kind::kAfter) return await_recorded(action->other);
  if (action->kind == Action::Kind::kKill) ::kill(::getpid(), SIGKILL);
  const bool full = action->argument == ENOSPC || action->argument == EDQUOT;
  return fail(full ? ErrorCode::kNoSpace : ErrorCode::kIo,
              fmt::format("fail point {}: {}", name, std::strerror(action->argument)),
              action->argument);
}

}  // namespace deepfreeze::fail_points
