#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "cli/plain_safetensors.h"
#include "cli/test_run.h"
#include "restore/run_fixture.h"

namespace deepfreeze {
namespace {

using nlohmann::json;

// A safetensors file, read as its specification says.
struct Exported {
  json header;
  std::string data;

  [[nodiscard]] std::string bytes_of(const std::string& key) const {
    const std::uint64_t begin = header[key]["data_offsets"][0];
    const std::uint64_t end = header[key]["data_offsets"][1];
    return data.substr(begin, end - begin);
  }
};

Exported read_exported(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  std::uint64_t length = 0;
  std::memcpy(&length, text.data(), sizeof(length));
  EXPECT_EQ((8 + length) % 4096, 0U) << "data starts aligned";
  return {.header = json::parse(text.substr(8, length), nullptr, false),
          .data = text.substr(8 + length)};
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class Export : public testing::Test {
 protected:
  void SetUp() override {
    save_.ranks = {{f32_tensor("model.w", {1, 2, 3}), f32_tensor("optim.w", {4}),
                    random_tensor("model.empty", DType::kI64, {0}, 1)},
                   {random_tensor("model.b", DType::kBF16, {70'000}, 2),
                    random_tensor("model.z", DType::kF32, {4, 2}, 3)}};
    save_.ranks[1][1].spec.logical_dtype = "complex64";
    manifest_ = run_.save(save_);
    out_ = run_.path() / "out.safetensors";
  }
  // Counts the output files beside the run's own files.
  std::size_t files_like_out() {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(run_.path())) {
      if (entry.path().filename().string().starts_with("out.safetensors")) ++count;
    }
    return count;
  }
  RunFixture run_;
  FixtureSave save_;
  Manifest manifest_;
  std::filesystem::path out_;
};

TEST_F(Export, WritesEveryTensorWithItsBytes) {
  const Answer answer = call_json({"export", run_.text(), out_.string()});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.json()["tensors"], 5);
  EXPECT_EQ(answer.json()["bytes"], std::filesystem::file_size(out_));
  EXPECT_EQ(answer.json()["logical_dtypes"], (json{{"model.z", "complex64"}}));
  EXPECT_NE(answer.err.find("model.z"), std::string::npos) << "a stored dtype that means another";
  const Exported file = read_exported(out_);
  EXPECT_EQ(file.header["__metadata__"], (json{{"format", "pt"}}));
  for (const auto& rank : save_.ranks) {
    for (const OwnedTensor& tensor : rank) {
      EXPECT_EQ(file.header[tensor.spec.key]["shape"], json(tensor.spec.shape));
      EXPECT_EQ(file.bytes_of(tensor.spec.key), text_of(tensor.data)) << tensor.spec.key;
    }
  }
  EXPECT_EQ(files_like_out(), 1U) << "no temporary file is left";
}

TEST_F(Export, SelectsByPrefixAndGlobAndCutsThePrefixOff) {
  const Answer answer = call(
      {"export", run_.text() + "@1", out_.string(), "--prefix", "model.", "--keys", "*.w", "*.b"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  const Exported file = read_exported(out_);
  EXPECT_EQ(file.header.size(), 3U) << file.header;
  EXPECT_EQ(file.bytes_of("w"), text_of(save_.ranks[0][0].data));
  EXPECT_EQ(file.bytes_of("b"), text_of(save_.ranks[1][0].data));
}

TEST_F(Export, ReplacesAFileOnlyWhenForced) {
  std::ofstream(out_) << "precious";
  const Answer refused = call_json({"export", run_.text(), out_.string()});
  EXPECT_EQ(refused.code, 3);
  EXPECT_EQ(refused.json()["error"]["code"], "exists");
  EXPECT_EQ(std::filesystem::file_size(out_), 8U);
  EXPECT_EQ(call({"export", run_.text(), out_.string(), "--force"}).code, 0);
  EXPECT_EQ(read_exported(out_).header.size(), 6U);
}

TEST_F(Export, CorruptTensorLeavesNoFile) {
  flip_bit(run_.file_path(manifest_, manifest_.files[1].name), manifest_.files[1].bytes * 8 - 1);
  const Answer answer = call({"export", run_.text(), out_.string()});
  EXPECT_EQ(answer.code, 3);
  EXPECT_EQ(files_like_out(), 0U);
  EXPECT_EQ(call({"export", run_.text(), out_.string(), "--keys", "model.w"}).code, 0)
      << "what is whole can still be taken out";
}

TEST_F(Export, NothingSelectedOrNowhereToWriteIsAFailure) {
  EXPECT_EQ(call({"export", run_.text(), out_.string(), "--prefix", "nothing."}).code, 3);
  EXPECT_EQ(call({"export", run_.text(), out_.string(), "--prefix", "model.w"}).code, 2);
  EXPECT_EQ(call({"export", run_.text(), (run_.path() / "no" / "x.safetensors").string()}).code, 3);
  EXPECT_EQ(files_like_out(), 0U);
}

TEST(PlainSafetensors, RefusesTheReservedName) {
  const std::vector<TensorSpec> specs{f32_tensor("__metadata__", {1}).spec};
  EXPECT_FALSE(plain_safetensors_header(specs, must(lay_out(specs))).has_value());
}

}  // namespace
}  // namespace deepfreeze
