// The strategies of others: no plan, whole copies, and nothing waits in front of an update.
#include "saver.h"
#include "synchronization.h"

namespace deepfreeze::simulation {
namespace {

// A new file under its own name, synced; a saver that does less is faster and loses data
// (lab/results).
constexpr NameOperations kNewFile{.creates = 1, .fsyncs = 1};

class WholeCopies : public Saver {
 public:
  explicit WholeCopies(World& world) : world_(world) {}

 protected:
  // One rank's whole copy, from start to fsync.
  void write(std::uint64_t rank, std::uint64_t save) {
    const Place place = world_.scenario.storage;
    world_.platform.serialize(rank, world_.state_bytes);
    world_.platform.write(place, rank, world_.state_bytes);
    world_.platform.names(place, kNewFile);
    world_.ledger.wrote(save, world_.state_bytes);
    // The last rank that ends is the one that counts.
    world_.ledger.durable(save, place, world_.platform.now());
  }

  World& world_;
};

class Rank0 : public WholeCopies {
 public:
  using WholeCopies::WholeCopies;
  void save(std::uint64_t rank, std::uint64_t save) override {
    if (rank == 0) write(rank, save);
  }
};

class AllWrite : public WholeCopies {
 public:
  using WholeCopies::WholeCopies;
  void save(std::uint64_t rank, std::uint64_t save) override { write(rank, save); }
};

class Asynchronous : public WholeCopies {
 public:
  explicit Asynchronous(World& world) : WholeCopies(world) { idle_.release(); }

  void save(std::uint64_t rank, std::uint64_t save) override {
    if (rank != 0) return;
    idle_.acquire();  // one copy is all the memory that it has
    world_.platform.copy(rank, world_.state_bytes);
    world_.platform.start("writer", rank, [this, rank, save] {
      write(rank, save);
      idle_.release();
    });
  }

 private:
  Semaphore idle_;
};

}  // namespace

std::unique_ptr<Saver> make_baseline_saver(World& world) {
  switch (world.scenario.strategy) {
    case Strategy::kAllWrite:
      return std::make_unique<AllWrite>(world);
    case Strategy::kAsynchronous:
      return std::make_unique<Asynchronous>(world);
    case Strategy::kRank0:
    case Strategy::kDeepFreeze:
      break;
  }
  return std::make_unique<Rank0>(world);
}

}  // namespace deepfreeze::simulation
