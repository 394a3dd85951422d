// The events of a simulation, written down by its actors, and figures derived from them. One
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "scenario.h"

namespace deepfreeze::simulation {

// A transfer of one rank's data to the parallel file system. Seconds since the simulation began.
struct Transfer {
  double start_seconds = 0;
  double end_seconds = 0;
  std::uint64_t bytes = 0;
};

// Bytes that one node reads from another.
struct Pull {
  std::uint64_t from_node = 0;
  std::uint64_t to_node = 0;
  std::uint64_t bytes = 0;
};

// The record of one save.
struct SaveRecord {
  std::optional<double> start_seconds;   // the first rank called save()
  std::vector<double> blocking_seconds;  // by rank: in save(), in the fence, in collectives
  double straggler_seconds = 0;          // slowest minus median rank, at the worst collective
  std::optional<double> local_seconds;   // from the start until it is durable there
  std::optional<double> parallel_seconds;
  std::uint64_t bytes = 0;  // written by all ranks to the first place
  // Until its parity is durable on all nodes; never if a newer save overtook it.
  std::optional<double> protected_seconds;
  // For parity, by node: read from other nodes, read by other nodes, and stored.
  std::vector<std::uint64_t> pulled_bytes;
  std::vector<std::uint64_t> sent_bytes;
  std::vector<std::uint64_t> parity_bytes;
};

struct LedgerSize {
  std::uint64_t ranks = 0;
  std::uint64_t nodes = 0;
  std::uint64_t saves = 0;
};

class Ledger {
 public:
  explicit Ledger(LedgerSize size);

  void save_begins(std::uint64_t save, double now);
  void blocked(std::uint64_t save, std::uint64_t rank, double seconds);
  void wrote(std::uint64_t save, std::uint64_t bytes) { saves_[save].bytes += bytes; }
  void durable(std::uint64_t save, Place place, double now);
  void pulled(std::uint64_t save, const Pull& pull);
  void stored_parity(std::uint64_t save, std::uint64_t node, std::uint64_t bytes);
  void is_protected(std::uint64_t save, double now);
  void transferred(const Transfer& transfer) { transfers_.push_back(transfer); }
  // At each collective: `arrivals` are the moments of all ranks.
  void collective(std::uint64_t save, std::vector<double> arrivals);

  [[nodiscard]] const std::vector<SaveRecord>& saves() const { return saves_; }
  [[nodiscard]] const std::vector<Transfer>& transfers() const { return transfers_; }

 private:
  std::vector<SaveRecord> saves_;
  std::vector<Transfer> transfers_;
};

// The mean of the two in the middle if their count is even. At least one value.
[[nodiscard]] double median(std::vector<double> values);

// Bytes that arrive in each of `bin_count` bins of `bin_seconds`: each transfer spread evenly over
// its time. Later bytes count in the last bin.
[[nodiscard]] std::vector<double> load_of(const std::vector<Transfer>& transfers,
                                          double bin_seconds, std::size_t bin_count);

// The most bytes a second at any moment, each transfer spread evenly over its time.
[[nodiscard]] double peak_of(const std::vector<Transfer>& transfers);

}  // namespace deepfreeze::simulation
