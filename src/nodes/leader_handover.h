// All that another process needs to go on as a node's leader once this one is gone: the nodes,
// the other leaders, and this process's private key, in memory of its own that is neither
// swapped nor dumped. Written once; read only when the writer is gone, so that one key never has
// two speakers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ipc/shared_memory.h"
#include "link/link_loop.h"
#include "link/tls_identity.h"

namespace deepfreeze {

struct LeftLeader {
  std::string run_id;
  std::uint32_t rank = 0;
  std::vector<std::vector<std::uint32_t>> nodes;  // as in JobNodes
  std::vector<LinkPeer> peers;  // for rank 0 all other leaders, for those rank 0 alone
};

// Holds a secret: it goes to the agent of this user, and nowhere else.
class LeaderHandover {
 public:
  // kNoSpace if the system refuses the memory, or to lock it.
  [[nodiscard]] static Result<LeaderHandover> make(const LeftLeader& left,
                                                   const TlsIdentity& identity);
  // In the other process, as soon as it has it. The errors of SharedMemory.
  [[nodiscard]] static Result<LeaderHandover> take(UniqueFd secret, UniqueFd facts);

  [[nodiscard]] int secret() const { return secret_.fd(); }
  [[nodiscard]] int facts() const { return facts_.fd(); }

  // kCorrupt: it was not written by make().
  [[nodiscard]] Result<LeftLeader> read() const;
  // Wipes the key in this memory.
  [[nodiscard]] Result<TlsIdentity> take_identity();

 private:
  LeaderHandover(SharedMemory secret, SharedMemory facts)
      : secret_(std::move(secret)), facts_(std::move(facts)) {}

  SharedMemory secret_;
  SharedMemory facts_;
};

}  // namespace deepfreeze
