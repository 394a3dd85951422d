// Copies and checksums, from one page to a size that fits no cache.
#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "arena/arena.h"
#include "codec/crc32c.h"
#include "codec/crc32c_copy.h"
#include "format/layout.h"
#include "suite.h"

namespace deepfreeze {
namespace {

using Source = std::span<const std::byte>;
using Target = std::span<std::byte>;

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMiB = 1024 * kKiB;
const std::vector<std::int64_t> kSizes{4 * kKiB, 64 * kKiB, 4 * kMiB, 256 * kMiB};

// Block by block, as a capture does it: a second pass finds the block in the cache.
template <class CopyBlock>
void copy(benchmark::State& state, std::size_t bytes, CopyBlock copy_block) {
  const std::vector<std::byte> source(bytes, std::byte{7});
  Arena arena;
  if (const Status reserved = arena.reserve(bytes); !reserved) {
    return refuse(state, reserved.error());
  }
  const Target target = arena.bytes().first(bytes);
  for (auto _ : state) {
    for (std::size_t at = 0; at < bytes; at += kBlockBytes) {
      const std::size_t size = std::min<std::size_t>(kBlockBytes, bytes - at);
      copy_block(Source(source).subspan(at, size), target.subspan(at, size));
    }
    benchmark::ClobberMemory();
  }
  if (!std::ranges::equal(source, target)) state.SkipWithError("the copy is not the source");
  count_bytes(state, bytes);
}

void copy_alone(Source from, Target to) { std::memcpy(to.data(), from.data(), from.size()); }

void copy_then_sum(Source from, Target to) {
  copy_alone(from, to);
  benchmark::DoNotOptimize(crc32c(to));
}

void copy_and_sum(Source from, Target to) { benchmark::DoNotOptimize(copy_with_crc32c(from, to)); }

void sum(benchmark::State& state, std::size_t bytes) {
  const std::vector<std::byte> source(bytes, std::byte{7});
  for (auto _ : state) benchmark::DoNotOptimize(crc32c(source));
  count_bytes(state, bytes);
}

}  // namespace

void add_codec(const Suite& suite) {
  suite.add("codec/memcpy", kSizes,
            [](auto& state, auto bytes) { copy(state, bytes, copy_alone); });
  suite.add("codec/memcpy_then_crc32c", kSizes,
            [](auto& state, auto bytes) { copy(state, bytes, copy_then_sum); });
  suite.add("codec/copy_with_crc32c", kSizes,
            [](auto& state, auto bytes) { copy(state, bytes, copy_and_sum); });
  suite.add("codec/crc32c", kSizes, sum);
}

}  // namespace deepfreeze
