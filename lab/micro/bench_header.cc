// The header of a data file, there and back.
#include <utility>
#include <vector>

#include "base/try.h"
#include "samples.h"
#include "save/save_plan.h"
#include "suite.h"

namespace deepfreeze {
namespace {

const std::vector<std::int64_t> kTensors{1, 100, 10'000};

struct Planned {
  SavePlan plan;
  std::vector<std::uint32_t> block_crcs;
  EncodedHeader header;

  [[nodiscard]] static Result<Planned> make(std::size_t tensor_count) {
    const Sample sample = sample_of(tensor_count);
    SavePlanner planner;
    DF_TRY_VOID(planner.accept(sample.request));
    DF_TRY(SavePlan plan, planner.plan_save(sample.request, sample_identity(), {}));
    std::vector<std::uint32_t> block_crcs(block_count(plan.data_bytes()));
    DF_TRY(EncodedHeader header,
           encode_header(plan.header(0, plan.identity), {.block_crcs = block_crcs}));
    return Planned{std::move(plan), std::move(block_crcs), std::move(header)};
  }
};

// Once for a table that stays as it is. The copy of its entries is in the time.
void write_members(benchmark::State& state, std::size_t tensor_count) {
  const auto planned = Planned::make(tensor_count);
  if (!planned) return refuse(state, planned.error());
  const TableText& table = planned->plan.table->files.front();
  for (auto _ : state) {
    const auto written = write_table(table.entries, table.data_bytes, false);
    if (!written) return refuse(state, written.error());
    benchmark::DoNotOptimize(written->members.data());
  }
  count_items(state, tensor_count);
}

// At every save.
void encode(benchmark::State& state, std::size_t tensor_count) {
  const auto planned = Planned::make(tensor_count);
  if (!planned) return refuse(state, planned.error());
  for (auto _ : state) {
    const auto encoded = encode_header(planned->plan.header(0, planned->plan.identity),
                                       {.block_crcs = planned->block_crcs});
    if (!encoded) return refuse(state, encoded.error());
    benchmark::DoNotOptimize(encoded->crc);
  }
  count_items(state, tensor_count);
}

void decode(benchmark::State& state, std::size_t tensor_count) {
  const auto planned = Planned::make(tensor_count);
  if (!planned) return refuse(state, planned.error());
  const auto& [bytes, expected_crc] = planned->header;
  std::uint32_t crc = 0;
  for (auto _ : state) {
    const auto decoded = decode_header(bytes, bytes.size() + planned->plan.data_bytes(), crc);
    if (!decoded) return refuse(state, decoded.error());
    benchmark::DoNotOptimize(decoded->entries.data());
  }
  if (crc != expected_crc) state.SkipWithError("another checksum than was encoded");
  count_items(state, tensor_count);
}

}  // namespace

void add_header(const Suite& suite) {
  suite.add("header/write_table", kTensors, write_members);
  suite.add("header/encode", kTensors, encode);
  suite.add("header/decode", kTensors, decode);
}

}  // namespace deepfreeze
