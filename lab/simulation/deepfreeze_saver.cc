// DeepFreeze, as docs/architecture.md has it:
//
// 1. All ranks agree: one gather, one answer.
// 2. Each copies its share while training goes on; save() has returned.
// 3. Copied slabs are written at the same time, slab by slab.
// 4. The fence in front of the update waits for the copy.
// 5. When all is written: header, rename, syncs. The file is sealed.
// 6. Rank 0 waits for all files, checks each, publishes the manifest.
// 7. If asked to, each node copies its files to the parallel file system, and rank 0 commits there
//    in the same way.
// 8. If asked to, the nodes protect it by parity (protector.h), beside step 7.
#include <optional>
#include <utility>

#include "protector.h"
#include "saver.h"
#include "synchronization.h"

namespace deepfreeze::simulation {
namespace {

constexpr NameOperations kOpened{.creates = 1};
constexpr NameOperations kSealed{.creates = 1, .fsyncs = 3};     // data, header, directory
constexpr NameOperations kPublished{.creates = 2, .fsyncs = 2};  // manifest, directory

class DeepFreeze : public Saver {
 public:
  DeepFreeze(World& world, std::vector<std::uint64_t> shares)
      : world_(world),
        shares_(std::move(shares)),
        ranks_(shares_.size()),
        local_seals_(world.scenario.saves),
        flushed_seals_(world.scenario.saves),
        agreement_(shares_.size()) {
    for (Rank& rank : ranks_) rank.idle.release();
    if (world.protection != nullptr) protector_.emplace(world, *world.protection);
  }

  void save(std::uint64_t rank, std::uint64_t save) override {
    ranks_[rank].idle.acquire();  // the save before owns the arena
    world_.platform.wait(world_.scenario.machine.call_seconds);
    agreement_.wait();  // step 1
    world_.platform.wait(world_.pace.agreement_seconds());
    ranks_[rank].capturing = true;
    world_.platform.start("copier", rank, [this, rank] { capture(rank); });
    world_.platform.start("writer", rank, [this, rank, save] { write(rank, save); });
  }

  void fence(std::uint64_t rank) override {  // step 4
    if (std::exchange(ranks_[rank].capturing, false)) ranks_[rank].captured.acquire();
  }

 private:
  struct Rank {
    Semaphore idle;
    Semaphore captured;       // for the fence
    Semaphore all_announced;  // for the writer
    Semaphore all_read;       // for the flusher
    bool capturing = false;
  };

  void capture(std::uint64_t rank) {  // step 2
    world_.platform.copy(rank, shares_[rank]);
    ranks_[rank].captured.release();
    ranks_[rank].all_announced.release();
  }

  void write(std::uint64_t rank, std::uint64_t save) {
    const Place place = world_.scenario.storage;
    world_.platform.names(place, kOpened);
    world_.platform.write(place, rank, shares_[rank]);  // step 3
    ranks_[rank].all_announced.acquire();
    world_.ledger.wrote(save, shares_[rank]);
    seal(place, rank, save);
    ranks_[rank].idle.release();
    if (rank == 0 && world_.scenario.flush) start_flush(save);
    if (rank == 0 && protector_) protector_->committed(save);  // step 8
  }

  // Steps 5 and 6; returns on rank 0 when the checkpoint is committed.
  void seal(Place place, std::uint64_t rank, std::uint64_t save) {
    world_.platform.names(place, kSealed);
    Semaphore& seals = (place == Place::kLocal ? local_seals_ : flushed_seals_)[save];
    if (rank != 0) {
      world_.platform.wait(world_.scenario.machine.network.latency_seconds);
      return seals.release();
    }
    seals.release();
    for (std::size_t i = 0; i < shares_.size(); ++i) {
      seals.acquire();
      world_.platform.wait(world_.scenario.machine.seal_check_seconds);
    }
    world_.platform.names(place, kPublished);
    world_.ledger.durable(save, place, world_.platform.now());
  }

  void start_flush(std::uint64_t save) {  // step 7
    for (std::uint64_t rank = 0; rank < shares_.size(); ++rank) {
      world_.platform.start("flusher", rank, [this, rank, save] { flush(rank, save); });
    }
  }

  void flush(std::uint64_t rank, std::uint64_t save) {
    world_.platform.wait(world_.pace.agreement_seconds());  // the news of the commit
    world_.platform.start("reader", rank, [this, rank] {
      world_.platform.read_local(rank, shares_[rank]);
      ranks_[rank].all_read.release();
    });
    world_.platform.names(Place::kParallel, kOpened);
    world_.platform.write(Place::kParallel, rank, shares_[rank]);
    ranks_[rank].all_read.acquire();
    seal(Place::kParallel, rank, save);
  }

  World& world_;
  std::vector<std::uint64_t> shares_;
  std::vector<Rank> ranks_;
  std::vector<Semaphore> local_seals_;  // by save
  std::vector<Semaphore> flushed_seals_;
  Barrier agreement_;
  std::optional<Protector> protector_;
};

}  // namespace

std::unique_ptr<Saver> make_deepfreeze_saver(World& world, std::vector<std::uint64_t> shares) {
  return std::make_unique<DeepFreeze>(world, std::move(shares));
}

}  // namespace deepfreeze::simulation
