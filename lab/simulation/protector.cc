#include "protector.h"

#include <utility>

namespace deepfreeze::simulation {
namespace {

constexpr NameOperations kTemporary{.creates = 1};
constexpr NameOperations kPlaced{.creates = 1, .fsyncs = 2};  // file, directory
constexpr NameOperations kMark{.creates = 1};

}  // namespace

Protector::Protector(World& world, const Protection& protection)
    : world_(world), protection_(protection) {}

void Protector::committed(std::uint64_t save) {
  next_ = save;
  if (!std::exchange(conducting_, true)) {
    world_.platform.start("conductor", 0, [this] { conduct(); });
  }
}

void Protector::conduct() {
  const Machine& machine = world_.scenario.machine;
  while (next_) {
    const std::uint64_t save = *std::exchange(next_, std::nullopt);
    for (std::uint64_t node = 0; node < machine.nodes; ++node) {  // step 1
      world_.platform.start("leader", node * machine.ranks_per_node,
                            [this, node, save] { lead(node, save); });
    }
    for (std::uint64_t node = 0; node < machine.nodes; ++node) written_.acquire();
    world_.platform.wait(machine.network.latency_seconds);  // step 4
    world_.platform.names(Place::kLocal, kMark);
    world_.ledger.is_protected(save, world_.platform.now());
  }
  conducting_ = false;
}

void Protector::lead(std::uint64_t node, std::uint64_t save) {
  world_.platform.wait(world_.scenario.machine.network.latency_seconds);
  world_.platform.names(Place::kLocal, kTemporary);
  for (std::size_t row = 0; row < protection_.parity(); ++row) {  // step 2
    const std::vector<Source> chunks = protection_.chunks(node, row);
    const std::uint64_t bytes = protection_.piece_bytes(node);
    world_.platform.fetch(node, {.disks = chunks}, bytes);
    for (const Source& chunk : chunks) {
      world_.ledger.pulled(save, {.from_node = chunk.place, .to_node = node, .bytes = chunk.bytes});
    }
    world_.ledger.stored_parity(save, node, bytes);
  }
  world_.platform.names(Place::kLocal, kPlaced);  // step 3
  world_.platform.wait(world_.scenario.machine.network.latency_seconds);
  written_.release();
}

}  // namespace deepfreeze::simulation
