// The state tree, which Python encodes and the core checks, and the manifest.
#include <string>
#include <vector>

#include "format/records.h"
#include "format/state_tree.h"
#include "format/tree_text.h"
#include "samples.h"
#include "suite.h"

namespace deepfreeze {
namespace {

const std::vector<std::int64_t> kNodes{1, 100, 10'000};
const std::vector<std::int64_t> kFiles{1, 1'024};

void check(benchmark::State& state, std::size_t node_count) {
  const std::string tree = sample_of(node_count).request.objects;
  for (auto _ : state) {
    const Status checked = check_tree(tree);
    if (!checked) return refuse(state, checked.error());
  }
  count_items(state, node_count);
}

// As a member of a header, after a plain value has changed.
void rewrite(benchmark::State& state, std::size_t node_count) {
  const std::string tree = sample_of(node_count).request.objects;
  auto last = write_tree(tree, kTreeBytesMax);
  if (!last) return refuse(state, last.error());
  last->tree.front() = ' ';
  for (auto _ : state) {
    const auto written = rewrite_tree(tree, *last, kTreeBytesMax);
    if (!written) return refuse(state, written.error());
    benchmark::DoNotOptimize(written->members.data());
  }
  count_items(state, node_count);
}

void walk(benchmark::State& state, std::size_t node_count) {
  const std::string tree = sample_of(node_count).request.objects;
  for (auto _ : state) {
    const auto leaves = walk_tree(tree);
    if (!leaves) return refuse(state, leaves.error());
    benchmark::DoNotOptimize(leaves->data());
  }
  count_items(state, node_count);
}

// A manifest of as many ranks as files.
Manifest manifest_of(std::size_t file_count) {
  const auto ranks = static_cast<std::uint32_t>(file_count);
  Manifest manifest{.run_id = sample_identity().run_id, .world_size = ranks};
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    manifest.files.push_back({.name = sealed_file_name({.rank = rank, .world_size = ranks}),
                              .bytes = kSlabBytes,
                              .header_crc = rank});
  }
  return manifest;
}

void encode(benchmark::State& state, std::size_t file_count) {
  const Manifest manifest = manifest_of(file_count);
  for (auto _ : state) benchmark::DoNotOptimize(encode_manifest(manifest));
  count_items(state, file_count);
}

void decode(benchmark::State& state, std::size_t file_count) {
  const std::string text = encode_manifest(manifest_of(file_count));
  for (auto _ : state) {
    const auto manifest = decode_manifest(text);
    if (!manifest) return refuse(state, manifest.error());
    benchmark::DoNotOptimize(manifest->files.data());
  }
  count_items(state, file_count);
}

}  // namespace

void add_records(const Suite& suite) {
  suite.add("tree/check", kNodes, check);
  suite.add("tree/rewrite", kNodes, rewrite);
  suite.add("tree/walk", kNodes, walk);
  suite.add("manifest/encode", kFiles, encode);
  suite.add("manifest/decode", kFiles, decode);
}

}  // namespace deepfreeze
