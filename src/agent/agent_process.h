// The process around an AgentServer. For a program that has no other threads.
#pragma once

#include "agent/agent.h"

namespace deepfreeze {

// Serves until the server is over; SIGTERM and SIGINT tell it to end. Errors: those of
// AgentServer::open().
[[nodiscard]] Status serve_agent(AgentServerSettings settings);

// The same in a process of its own, whose messages go to agent.log in the directory. Returns once
// it is ready, also if another agent is at work there.
[[nodiscard]] Status start_agent_in_background(AgentServerSettings settings);

}  // namespace deepfreeze
