#include "agent/agent_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/try.h"
#include "deepfreeze/version.h"
#include "format/json_parts.h"
#include "format/members.h"
#include "json/json_value.h"
#include "json/json_writer.h"

namespace deepfreeze {
namespace {

using Kind = AgentRequest::Kind;

constexpr std::array<std::pair<Kind, std::string_view>, 6> kKinds = {{{Kind::kHello, "hello"},
                                                                      {Kind::kArena, "arena"},
                                                                      {Kind::kLeader, "leader"},
                                                                      {Kind::kBye, "bye"},
                                                                      {Kind::kStatus, "status"},
                                                                      {Kind::kDrain, "drain"}}};

std::unexpected<Error> malformed(std::string_view why) {
  return fail(ErrorCode::kCorrupt, fmt::format("a message of the agent: {}", why));
}

std::string_view name_of(Kind kind) {
  for (const auto& [one, name] : kKinds) {
    if (one == kind) return name;
  }
  return "";
}

Result<Kind> kind_of(std::string_view text) {
  for (const auto& [kind, name] : kKinds) {
    if (name == text) return kind;
  }
  return malformed(fmt::format("it is of no known kind: {}", text));
}

void write_tier(JsonWriter& json, const Tier& tier) {
  json.begin_object();
  json.members("path", tier.path, "bytes_per_second", whole(tier.bytes_per_second), "endpoint",
               tier.endpoint, "region", tier.region, "compress", tier.compress == Compress::kAuto);
  if (tier.every) json.members("every", whole(*tier.every));
  json.key("keep");
  write_keep(json, tier.keep);
  json.end_object();
}

Result<bool> flag_of(const JsonValue& object, std::string_view name) {
  const JsonValue* found = object.find(name);
  const bool* flag = found == nullptr ? nullptr : found->as_bool();
  if (flag == nullptr) return malformed(fmt::format("{} is missing", name));
  return *flag;
}

Result<Tier> tier_of(const JsonValue& object) {
  Tier tier;
  DF_TRY(tier.path, get_string(object, "path"));
  DF_TRY(tier.bytes_per_second, get_u64(object, "bytes_per_second"));
  DF_TRY(tier.endpoint, get_string(object, "endpoint"));
  DF_TRY(tier.region, get_string(object, "region"));
  DF_TRY(const bool compresses, flag_of(object, "compress"));
  tier.compress = compresses ? Compress::kAuto : Compress::kNone;
  if (object.find("every") != nullptr) {
    DF_TRY(tier.every, get_u64(object, "every"));
  }
  DF_TRY(tier.keep, keep_of(object));
  return tier;
}

Result<AgentHello> hello_of(const JsonValue& object) {
  AgentHello hello;
  DF_TRY(hello.run, get_string(object, "run"));
  DF_TRY(hello.commits, flag_of(object, "commits"));
  DF_TRY(hello.is_on_nodes, flag_of(object, "on_nodes"));
  DF_TRY(hello.is_rank0, flag_of(object, "rank0"));
  DF_TRY(hello.settles, flag_of(object, "settles"));
  DF_TRY(const JsonArray* tiers, get_array(object, "tiers"));
  for (const JsonValue& one : *tiers) {
    DF_TRY(Tier tier, tier_of(one));
    hello.tiers.push_back(std::move(tier));
  }
  return hello;
}

void write_client(JsonWriter& json, const AgentClient& client) {
  json.object("run", client.run, "process", client.process, "state", client.state, "outcome",
              client.outcome, "error", client.error);
}

Result<AgentClient> client_of(const JsonValue& object) {
  AgentClient client;
  DF_TRY(client.run, get_string(object, "run"));
  DF_TRY(const std::uint64_t process, get_u64(object, "process"));
  client.process = static_cast<std::int64_t>(process);
  DF_TRY(client.state, get_string(object, "state"));
  DF_TRY(client.outcome, get_string(object, "outcome"));
  DF_TRY(client.error, get_string(object, "error"));
  return client;
}

Status check_protocol(const JsonValue& message) {
  DF_TRY(const std::uint64_t protocol, get_u64(message, "protocol"));
  if (protocol == kAgentProtocol) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("the agent and this program are of different versions (protocol {} and "
                          "{}): end the one that runs with deepfreeze agent --drain",
                          kAgentProtocol, protocol));
}

}  // namespace

std::string encode(const AgentRequest& request) {
  JsonWriter json;
  json.begin_object();
  json.members("protocol", kAgentProtocol, "kind", name_of(request.kind));
  if (request.kind == Kind::kHello) {
    const AgentHello& hello = request.hello;
    json.members("run", hello.run, "commits", hello.commits, "on_nodes", hello.is_on_nodes, "rank0",
                 hello.is_rank0, "settles", hello.settles, "tiers",
                 json_array(hello.tiers, write_tier));
  }
  if (request.kind == Kind::kDrain) {
    json.members("deadline_ms", whole(request.deadline.count()));
  }
  json.end_object();
  return json.text();
}

Result<AgentRequest> decode_request(std::string_view text) {
  DF_TRY(const JsonValue message, parse_strict(text));
  DF_TRY(const std::string kind, get_string(message, "kind"));
  // An agent of another version must be told to end.
  if (kind != name_of(Kind::kDrain)) DF_TRY_VOID(check_protocol(message));
  AgentRequest request;
  DF_TRY(request.kind, kind_of(kind));
  if (request.kind == Kind::kHello) {
    DF_TRY(request.hello, hello_of(message));
  }
  if (request.kind == Kind::kDrain) {
    DF_TRY(const std::uint64_t deadline, get_u64(message, "deadline_ms"));
    constexpr std::uint64_t kDeadlineMax = 365ULL * 24 * 3600 * 1000;
    request.deadline = std::chrono::milliseconds(std::min(deadline, kDeadlineMax));
  }
  return request;
}

std::string encode_answer(const Status& done) {
  JsonWriter json;
  json.object("protocol", kAgentProtocol, "error", done ? "" : done.error().message());
  return json.text();
}

Status decode_answer(std::string_view text) {
  DF_TRY(const JsonValue message, parse_strict(text));
  DF_TRY(const std::string error, get_string(message, "error"));
  if (error.empty()) return {};
  return fail(ErrorCode::kUnsupported, error);
}

std::string encode(const AgentStatus& status) {
  JsonWriter json;
  json.object("protocol", kAgentProtocol, "version", status.version, "process", status.process,
              "clients", json_array(status.clients, write_client));
  return json.text();
}

Result<AgentStatus> decode_status(std::string_view text) {
  DF_TRY(const JsonValue message, parse_strict(text));
  DF_TRY_VOID(check_protocol(message));
  AgentStatus status;
  DF_TRY(status.version, get_string(message, "version"));
  DF_TRY(const std::uint64_t process, get_u64(message, "process"));
  status.process = static_cast<std::int64_t>(process);
  DF_TRY(const JsonArray* clients, get_array(message, "clients"));
  for (const JsonValue& one : *clients) {
    DF_TRY(AgentClient client, client_of(one));
    status.clients.push_back(std::move(client));
  }
  return status;
}

}  // namespace deepfreeze
