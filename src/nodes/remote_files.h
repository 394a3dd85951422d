// The sealed files and manifests of another node, as a Vfs that only reads: each range comes over a
// link. A restore takes it like the directory of a tier.
//
// Any thread, also for one file. Borrows the asks, which must outlive it and its files. Opening and
// reading wait, within the bounds of remote_asks.h. kNotFound: the peer has no such file; kGone: it
// was deleted after it was opened; kTimeout: the peer can't be reached or does not answer;
// kUnsupported: all other calls and names. An error names the node, the file, and the cause.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "nodes/remote_asks.h"
#include "storage/vfs.h"

namespace deepfreeze {

// The ranges of one call that are asked for at a time, so that the link is never idle.
inline constexpr std::size_t kAsksInFlight = 4;

struct RemoteNode {
  std::uint32_t rank = 0;  // the peer that answers
  std::string place;       // its host or address, for messages
};

// kInvalidArgument: the endpoint has no such peer.
[[nodiscard]] Result<std::unique_ptr<Vfs>> open_remote_files(RemoteAsks& asks, RemoteNode node);

}  // namespace deepfreeze
