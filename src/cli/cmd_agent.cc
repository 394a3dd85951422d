// deepfreeze agent: serves the trainers of this machine; or looks at, or ends, the one that does.
#include <fmt/ostream.h>

#include <chrono>
#include <ostream>

#include "agent/agent_process.h"
#include "base/try.h"
#include "cli/command.h"
#include "cli/output.h"
#include "ipc/message_socket.h"
#include "ipc/private_directory.h"

namespace deepfreeze {
namespace {

constexpr std::uint64_t kSecondsMax = 365ULL * 24 * 3600;
constexpr std::chrono::milliseconds kAnswerMax = std::chrono::seconds(10);
// The agent may be at a save when its deadline comes.
constexpr std::chrono::milliseconds kEndMax = std::chrono::minutes(20);

struct AgentArguments {
  std::string directory;
  std::uint64_t idle = 0;       // seconds; 0: never
  std::uint64_t deadline = 20;  // seconds
  bool background = false;
  bool drain = false;
  bool status = false;

  [[nodiscard]] std::filesystem::path place() const {
    return directory.empty() ? default_agent_directory() : std::filesystem::path(directory);
  }
  [[nodiscard]] std::chrono::milliseconds deadline_ms() const {
    return std::chrono::seconds(deadline);
  }
};

Result<std::string> ask(const AgentArguments& arguments, const AgentRequest& request,
                        std::chrono::milliseconds patience) {
  DF_TRY(const MessageSocket socket, MessageSocket::connect(arguments.place() / kAgentSocket));
  DF_TRY_VOID(socket.send(encode(request)));
  DF_TRY(SocketMessage answer, socket.receive(patience));
  return std::move(answer.text);
}

std::unexpected<Error> none_there(const AgentArguments& arguments, const Error& error) {
  if (error.code() != ErrorCode::kNotFound) return std::unexpected(error);
  return fail(ErrorCode::kNotFound,
              fmt::format("{}: no agent is at work there", arguments.place().string()));
}

void print_status(const AgentStatus& status, Console& console) {
  if (console.json) {
    JsonWriter document = json_document("agent");
    document.members("version", status.version, "process", status.process, "clients",
                     json_array(status.clients, [](JsonWriter& json, const AgentClient& client) {
                       json.object("run", client.run, "process", client.process, "state",
                                   client.state, "outcome", client.outcome, "error", client.error);
                     }));
    return print_json(console.out, std::move(document));
  }
  fmt::print(console.out, "agent {}, process {}\n", status.version, status.process);
  Table table({{"run"}, {"process", Column::Align::kRight}, {"state"}, {"save"}, {"error"}});
  for (const AgentClient& client : status.clients) {
    table.add(
        {client.run, std::to_string(client.process), client.state, client.outcome, client.error});
  }
  if (!table.empty()) table.print(console.out);
}

Result<ExitCode> show_status(const AgentArguments& arguments, Console& console) {
  const auto answer =
      ask(arguments, {.kind = AgentRequest::Kind::kStatus, .hello = {}}, kAnswerMax);
  if (!answer) return none_there(arguments, answer.error());
  DF_TRY(const AgentStatus status, decode_status(*answer));
  print_status(status, console);
  return kExitGood;
}

Result<ExitCode> drain(const AgentArguments& arguments, Console& console) {
  const AgentRequest request = {
      .kind = AgentRequest::Kind::kDrain, .hello = {}, .deadline = arguments.deadline_ms()};
  const auto answer = ask(arguments, request, arguments.deadline_ms() + kEndMax);
  if (!answer) return none_there(arguments, answer.error());
  const Status done = decode_answer(*answer);
  if (console.json) {
    JsonWriter document = json_document("agent");
    document.members("done", done.has_value(), "reason", done ? "" : done.error().message());
    print_json(console.out, std::move(document));
  } else if (done) {
    fmt::print(console.out, "all saves are finished, and all tiers have what they are to have\n");
  } else {
    fmt::print(console.out, "{}\n", readable(done.error().message()));
  }
  return done ? kExitGood : kExitFault;
}

Result<ExitCode> run_agent(const AgentArguments& arguments, Console& console) {
  if (arguments.status) return show_status(arguments, console);
  if (arguments.drain) return drain(arguments, console);
  AgentServerSettings settings = {
      .directory = arguments.place(), .idle_max = {}, .end_max = arguments.deadline_ms()};
  if (arguments.idle > 0) settings.idle_max = std::chrono::seconds(arguments.idle);
  DF_TRY_VOID(arguments.background ? start_agent_in_background(std::move(settings))
                                   : serve_agent(std::move(settings)));
  return kExitGood;
}

}  // namespace

Command add_agent(Program& program) {
  Verb verb = program.add_verb("agent", "Serve trainers: what they captured outlives them");
  const auto arguments = std::make_shared<AgentArguments>();  // also held by the parser
  verb.value("--directory", arguments->directory,
             "Of its socket; otherwise $DEEPFREEZE_AGENT_DIR, $XDG_RUNTIME_DIR/deepfreeze or\n"
             "deepfreeze-UID among temporary files");
  verb.value("--idle", arguments->idle, "End after so many seconds without work; 0: never")
      .between(0, kSecondsMax);
  verb.value("--deadline", arguments->deadline,
             "Seconds for what tiers wait for, after SIGTERM or --drain")
      .between(0, kSecondsMax)
      .default_in_help();
  verb.flag("--background", arguments->background, "Return once it is ready");
  verb.flag("--status", arguments->status, "Ask the agent what it does");
  verb.flag("--drain", arguments->drain, "Tell the agent to finish all work, then to end");
  verb.footer(
      "A Checkpointer with agent= starts one by itself. When a trainer is killed, the agent\n"
      "finishes the save that was captured, and copies checkpoints to the tiers.\n"
      "--status --json: {version, process, clients: [{run, process, state, outcome, error}]}\n"
      "--drain --json: {done, reason}; exit code 1 if the deadline came first");
  return {verb, [arguments](Console& console) { return run_agent(*arguments, console); }};
}

}  // namespace deepfreeze
