// Links between the nodes of a job (docs/decisions/0026, steps O2 and O4). For the thread of the
// Checkpointer's caller.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agreement/node_map.h"
#include "deepfreeze/ranks.h"
#include "link/endpoint.h"

namespace deepfreeze {

// An endpoint, and the means by which another process could go on with it.
struct Links {
  std::unique_ptr<Endpoint> endpoint;
  TlsIdentity identity;
  std::vector<LinkPeer> peers;
};

// Collective: every rank gets an endpoint. Leaders keep a link with rank 0; all may dial the
// leaders of other nodes. The group carries public keys and addresses, and no secret. `interface`:
// the network interface by which nodes reach each other; empty: all that are up but the loopback.
// Errors are every rank's: kUnsupported without OpenSSL; kInvalidArgument if an interface has no
// address.
[[nodiscard]] Result<Links> open_links(RankGroup& ranks, const NodeMap& nodes,
                                       const std::string& run, const std::string& interface);

}  // namespace deepfreeze
