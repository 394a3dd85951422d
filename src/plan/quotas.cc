#include "plan/quotas.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/checked_math.h"

namespace deepfreeze {
namespace {

// The ranks below the level, and their common load.
struct Pool {
  std::size_t ranks = 0;
  std::uint64_t load = 0;
};

// The smallest pool of least loaded ranks that `bytes` lift no higher than the next rank's load.
Pool pool_for(std::span<const std::uint64_t> ascending, std::uint64_t bytes) {
  Pool pool;
  for (const std::uint64_t load : ascending) {
    if (pool.ranks > 0 && ceil_div(pool.load + bytes, pool.ranks) <= load) break;
    ++pool.ranks;
    pool.load += load;
  }
  return pool;
}

}  // namespace

std::vector<std::uint64_t> fill_quotas(std::span<const std::uint64_t> loads, std::uint64_t bytes) {
  std::vector<std::size_t> order(loads.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t rank) { return std::pair(loads[rank], rank); });
  std::vector<std::uint64_t> ascending;
  for (const std::size_t rank : order) ascending.push_back(loads[rank]);
  const Pool pool = pool_for(ascending, bytes);
  const std::uint64_t level = (pool.load + bytes) / pool.ranks;
  std::uint64_t odd = (pool.load + bytes) % pool.ranks;  // a byte more for so many
  std::vector<std::uint64_t> quotas(loads.size());
  for (std::size_t i = 0; i < pool.ranks; ++i) {
    quotas[order[i]] = level - ascending[i];
    if (odd == 0) continue;
    ++quotas[order[i]];
    --odd;
  }
  return quotas;
}

}  // namespace deepfreeze
