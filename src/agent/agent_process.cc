#include "agent/agent_process.h"

#include <sched.h>

#include <cstring>
#include <tuple>

#include "base/log.h"
#include "base/named_threads.h"
#include "base/try.h"
#include "ipc/background.h"

namespace deepfreeze {
namespace {

constexpr const char* kLogFile = "agent.log";

// An agent that a pinned trainer has started shall not share its core.
void leave_the_trainers_cores() {
  cpu_set_t all;
  std::memset(&all, 0xff, sizeof(all));  // the kernel takes those that it may use
  std::ignore = ::sched_setaffinity(0, sizeof(all), &all);
}

Status serve(AgentServer& server, int end_fd) {
  tell_systemd("READY=1");
  const Status done = server.run(end_fd);
  tell_systemd("STOPPING=1");
  if (!done) log_warning(done.error().message());
  return {};  // the rest of the work lies on disk, for the next one
}

}  // namespace

Status serve_agent(AgentServerSettings settings) {
  DF_TRY(const UniqueFd signals, take_end_signals());
  DF_TRY(const auto server, AgentServer::open(std::move(settings)));
  log_note("the agent is ready");
  return serve(*server, signals.get());
}

Status start_agent_in_background(AgentServerSettings settings) {
  const std::filesystem::path log = settings.directory / kLogFile;
  UniqueFd signals;
  std::unique_ptr<AgentServer> server;  // null: another one is at work
  const auto prepare = [&]() -> Status {
    DF_TRY(signals, take_end_signals());
    auto opened = AgentServer::open(std::move(settings));
    if (!opened && opened.error().code() == ErrorCode::kExists) return {};
    if (!opened) return std::unexpected(opened.error());
    server = *std::move(opened);
    return {};
  };
  const auto serve_on = [&]() -> Status {
    if (!server) return {};
    step_aside();
    leave_the_trainers_cores();
    const Status served = serve(*server, signals.get());
    server.reset();  // the process ends without unwinding
    return served;
  };
  return start_in_background({.prepare = prepare, .serve = serve_on}, log);
}

}  // namespace deepfreeze
