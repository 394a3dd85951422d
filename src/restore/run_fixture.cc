#include "restore/run_fixture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <span>

#include "base/random_id.h"
#include "codec/crc32c.h"
#include "format/shard_header.h"
#include "manifest/claims.h"
#include "manifest/commit.h"
#include "manifest/run_directory.h"
#include "storage/posix_vfs.h"

namespace deepfreeze {
namespace {

constexpr std::chrono::seconds kCommitDeadline{30};

// The image of the data section and the entries that describe it.
struct Image {
  std::vector<ShardEntry> entries;
  std::vector<std::byte> data;
};

Image lay_out_image(const std::vector<OwnedTensor>& tensors) {
  std::vector<TensorSpec> specs;
  for (const OwnedTensor& tensor : tensors) specs.push_back(tensor.spec);
  const Layout layout = must(lay_out(specs));
  Image image{.entries = {}, .data = std::vector<std::byte>(layout.data_bytes)};
  for (const std::size_t index : layout.order) {
    const Extent& extent = layout.extents[index];
    image.entries.push_back({specs[index], extent});
    std::ranges::copy(tensors[index].data,
                      image.data.begin() + static_cast<std::ptrdiff_t>(extent.begin));
  }
  return image;
}

std::vector<std::uint32_t> checksums(std::span<const std::byte> data) {
  std::vector<std::uint32_t> crcs;
  for (std::uint64_t begin = 0; begin < data.size(); begin += kBlockBytes) {
    crcs.push_back(crc32c(data.subspan(begin, std::min(kBlockBytes, data.size() - begin))));
  }
  return crcs;
}

}  // namespace

void give_up(const Error& error) {
  fmt::print(stderr, "fixture: {}\n", error.message());
  std::abort();
}

void must(const Status& status) {
  if (!status) give_up(status.error());
}

OwnedTensor f32_tensor(std::string key, const std::vector<float>& values) {
  OwnedTensor tensor;
  tensor.spec = {.key = std::move(key),
                 .dtype = DType::kF32,
                 .shape = {values.size()},
                 .logical_dtype = {},
                 .box = {},
                 .global_shape = {}};
  tensor.data.resize(values.size() * sizeof(float));
  if (!values.empty()) std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
  return tensor;
}

OwnedTensor random_tensor(std::string key, DType dtype, Shape shape, std::uint64_t seed) {
  OwnedTensor tensor;
  tensor.spec = {.key = std::move(key),
                 .dtype = dtype,
                 .shape = std::move(shape),
                 .logical_dtype = {},
                 .box = {},
                 .global_shape = {}};
  tensor.data.resize(must(spec_bytes(tensor.spec)));
  std::mt19937_64 random(seed);
  for (std::byte& byte : tensor.data) byte = static_cast<std::byte>(random() & 0xFFU);
  return tensor;
}

RunFixture::RunFixture(std::optional<ParentPoint> parent) {
  std::string pattern = (std::filesystem::temp_directory_path() / "deepfreeze-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) give_up({ErrorCode::kIo, "mkdtemp failed"});
  path_ = pattern;
  vfs_ = must(open_posix_vfs(path_));
  run_id_ = must(create_or_open_run(*vfs_, std::move(parent))).run_id;
  claim(std::nullopt);
}

RunFixture::~RunFixture() {
  std::error_code ignored;  // the temporary directory is no verdict of the test
  std::filesystem::remove_all(path_, ignored);
}

void RunFixture::claim(std::optional<Point> resumed_from, const Keep& keep) {
  generation_ = must(claim_generation(*vfs_, run_id_, resumed_from, {.keep = keep})).generation;
}

void RunFixture::write_part(const FixtureSave& save, const Identity& identity) {
  Image image = lay_out_image(save.ranks[identity.part.rank]);
  ShardHeader header;
  header.identity = identity;
  header.entries = std::move(image.entries);
  header.data_bytes = image.data.size();
  header.block_crcs = checksums(image.data);
  header.tree = identity.part.rank == 0 ? save.tree : save.tree_of_others;
  if (identity.part.rank == 0) header.annotations = save.annotations;
  const EncodedHeader encoded = must(encode_header(header));
  const AttemptName attempt{identity.step, identity.attempt_id};
  const std::string name =
      fmt::format("{}/{}", attempt_dir_name(attempt), part_file_name(identity.part));
  const auto file = must(vfs_->create(name, Access::kBuffered));
  must(file->write_at(0, encoded.bytes));
  must(file->write_at(encoded.bytes.size(), image.data));
  must(file->sync());
  must(file->close());
  must(seal_parts(*vfs_, attempt, std::span(&identity.part, 1)));
}

Identity RunFixture::write_undecided(const FixtureSave& save) {
  Identity identity{.run_id = run_id_,
                    .attempt_id = random_id(),
                    .generation = generation_,
                    .step = save.step,
                    .save_index = ++save_count_,
                    .part = {}};
  must(begin_attempt(*vfs_, {identity.step, identity.attempt_id}));
  const auto world_size = static_cast<std::uint32_t>(save.ranks.size());
  for (std::uint32_t rank = 0; rank < world_size; ++rank) {
    identity.part = {.rank = rank, .world_size = world_size, .file = 0, .file_count = 1};
    write_part(save, identity);
  }
  identity.part.rank = 0;
  return identity;
}

Manifest RunFixture::save(const FixtureSave& save) {
  const Identity identity = write_undecided(save);
  return must(commit_attempt(
      *vfs_,
      {.identity = identity, .world_size = identity.part.world_size, .deadline = kCommitDeadline}));
}

std::filesystem::path RunFixture::file_path(const Manifest& manifest,
                                            const std::string& name) const {
  return path_ / attempt_dir_name({manifest.point.step, manifest.point.attempt_id}) / name;
}

void flip_bit(const std::filesystem::path& file, std::uint64_t bit) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  const auto at = static_cast<std::streamoff>(bit / 8);
  stream.seekg(at);
  const int byte = stream.get();
  stream.seekp(at);
  stream.put(static_cast<char>(static_cast<unsigned>(byte) ^ (1U << (bit % 8))));
  stream.flush();
  if (!stream) give_up({ErrorCode::kIo, "flip a bit of " + file.string() + ": failed"});
}

}  // namespace deepfreeze
