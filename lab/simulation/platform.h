// The machine, as SimGrid's hosts, disks and links. Every call but the constructor's takes
// simulated time and returns when that is over, so it belongs in an actor.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ledger.h"
#include "scenario.h"

namespace deepfreeze::simulation {

// The calls to a file system that a step of the commit protocol makes.
struct NameOperations {
  int creates = 0;  // and renames
  int fsyncs = 0;
};

// Bytes that lie on a node or a server of the parallel file system.
struct Source {
  std::uint64_t place = 0;
  std::uint64_t bytes = 0;
};

// Reads of one node that begin at the same time.
struct Reads {
  std::vector<Source> disks;     // of nodes; over the network if it is another one
  std::vector<Source> memories;  // of other nodes: read from a disk already
  std::vector<Source> servers;
};

class Platform {
 public:
  // One at a time in a process: SimGrid has one engine. `scenario` and `ledger` outlive it.
  Platform(const Scenario& scenario, Ledger& ledger);
  ~Platform();

  // An actor on a rank's node; it lives until `work` returns.
  void start(const std::string& name, std::uint64_t rank, std::function<void()> work);
  // Until no actor can go on.
  void run();

  [[nodiscard]] double now() const;  // seconds since the simulation began
  void wait(double seconds);

  void copy(std::uint64_t rank, std::uint64_t bytes);       // memory to memory, by one core
  void serialize(std::uint64_t rank, std::uint64_t bytes);  // by one core
  void write(Place place, std::uint64_t rank, std::uint64_t bytes);
  void read_local(std::uint64_t rank, std::uint64_t bytes);
  // All at once, and so many bytes are written to the node's own disk meanwhile.
  void fetch(std::uint64_t node, const Reads& reads, std::uint64_t stored_bytes);
  // The servers on which the file of this rank has its stripes, with their parts of `bytes`.
  [[nodiscard]] std::vector<Source> stripes(std::uint64_t rank, std::uint64_t bytes) const;
  void names(Place place, NameOperations operations);

 private:
  struct Parts;  // SimGrid's

  void stream(std::uint64_t rank, std::uint64_t bytes);

  const Scenario& scenario_;
  Ledger& ledger_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace deepfreeze::simulation
