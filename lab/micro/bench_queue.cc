// Handing slabs from the thread that fills them to the one that writes them.
#include <thread>
#include <vector>

#include "base/bounded_queue.h"
#include "staging/slab_gate.h"
#include "suite.h"

namespace deepfreeze {
namespace {

const std::vector<std::int64_t> kRoom{1, 16, 4'096};  // items or slabs that wait at most
const std::vector<std::int64_t> kSlots{2, 64};        // of a ring

void push(benchmark::State& state, std::size_t room) {
  BoundedQueue<std::uint64_t> queue(room);
  std::int64_t popped = 0;
  std::jthread reader([&] {
    while (queue.pop()) ++popped;
  });
  std::uint64_t slab = 0;
  for (auto _ : state) queue.push(slab++);
  queue.close();
  reader.join();
  if (popped != state.iterations()) state.SkipWithError("not all that was pushed came out");
  count_items(state, 1);
}

void fill_and_drain(benchmark::State& state, std::size_t room) {
  BoundedQueue<std::uint64_t> queue(room);
  for (auto _ : state) {
    for (std::size_t slab = 0; slab < room; ++slab) queue.push(slab);
    for (std::size_t slab = 0; slab < room; ++slab) benchmark::DoNotOptimize(queue.pop());
  }
  count_items(state, room);
}

void pass_gate(benchmark::State& state, std::size_t slots) {
  SlabGate gate(slots);
  std::uint64_t slab = 0;
  for (auto _ : state) {
    if (!gate.wait(slab)) return state.SkipWithError("the gate is open for good");
    gate.free(slab++);
  }
  count_items(state, 1);
}

// A ring with no copy and no disk: gate, slab, queue, and its place back.
void turn_ring(benchmark::State& state, std::size_t slots) {
  SlabGate gate(slots);
  BoundedQueue<std::uint64_t> filled(slots);
  std::jthread writer([&] {
    while (const auto slab = filled.pop()) gate.free(*slab);
  });
  std::uint64_t slab = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(gate.wait(slab));
    filled.push(slab++);
  }
  filled.close();
  count_items(state, 1);
}

}  // namespace

void add_queue(const Suite& suite) {
  suite.add("queue/one_thread", kRoom, fill_and_drain);
  suite.add_threaded("queue/two_threads", kRoom, push);
  suite.add("gate/one_thread", kSlots, pass_gate);
  suite.add_threaded("gate/ring", kSlots, turn_ring);
}

}  // namespace deepfreeze
