#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>

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

class ExportTransformers : public Export {
 protected:
  void SetUp() override {
    Export::SetUp();
    std::filesystem::create_directory(config_);
    for (const char* name : {"config.json", "tokenizer.model", "merges.txt", "chat_template.jinja",
                             "model.safetensors.index.json", "trainer_state.json",
                             "pytorch_model.bin", "modeling.py"}) {
      std::ofstream(config_ / name) << name;
    }
    std::filesystem::create_directory(config_ / "more.json");
    std::ofstream(run_.path() / "blob") << "{}";  // as caches of models have them
    std::filesystem::create_symlink("../blob", config_ / "tokenizer.json");
  }
  Answer export_to(const std::filesystem::path& out, std::vector<std::string> more = {}) {
    std::vector<std::string> words = {"export", run_.text(), out.string(), "--transformers"};
    words.insert(words.end(), more.begin(), more.end());
    return call_json(words);
  }
  static std::set<std::string> names_in(const std::filesystem::path& directory) {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }
  const std::filesystem::path config_ = run_.path() / "config";
  const std::filesystem::path model_ =
      run_.path() / "out.safetensors";  // counted by files_like_out
};

TEST_F(ExportTransformers, IsTheModelWithItsConfigAndTokenizer) {
  const Answer answer = export_to(model_.string() + "/", {"--config", config_.string()});
  ASSERT_EQ(answer.code, 0) << answer.err;
  const std::set<std::string> names = {"config.json",       "tokenizer.model",
                                       "merges.txt",        "chat_template.jinja",
                                       "model.safetensors", "tokenizer.json"};
  EXPECT_EQ(names_in(model_), names);
  EXPECT_EQ(std::filesystem::file_size(model_ / "merges.txt"), 10U);
  EXPECT_EQ(std::filesystem::file_size(model_ / "tokenizer.json"), 2U);
  EXPECT_EQ(answer.json()["files"].get<std::set<std::string>>(), names);
  EXPECT_EQ(answer.json()["tensors"], 4);
  EXPECT_EQ(answer.json()["bytes"], std::filesystem::file_size(model_ / "model.safetensors"));
  const Exported file = read_exported(model_ / "model.safetensors");
  EXPECT_EQ(file.header.size(), 5U) << "without the optimizer";
  EXPECT_EQ(file.bytes_of("w"), text_of(save_.ranks[0][0].data));
  EXPECT_EQ(files_like_out(), 1U) << "no temporary directory is left";
}

TEST_F(ExportTransformers, IsShardedWithAnIndex) {
  const Answer answer = export_to(model_, {"--shard-bytes", "100"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  const json index =
      json::parse(std::ifstream(model_ / "model.safetensors.index.json"), nullptr, false);
  std::set<std::string> shards;
  std::uint64_t bytes = 0;
  for (const auto& [key, home] : index["weight_map"].items()) {
    shards.insert(home.get<std::string>());
    bytes += read_exported(model_ / home).bytes_of(key).size();
  }
  EXPECT_EQ(index["weight_map"].size(), 4U);
  EXPECT_EQ(index["metadata"]["total_size"], bytes);
  EXPECT_EQ(bytes, 12U + 140'000U + 32U);
  shards.insert("model.safetensors.index.json");
  EXPECT_EQ(names_in(model_), shards);
  EXPECT_GE(shards.size(), 3U);
  EXPECT_TRUE(shards.contains(fmt::format("model-00001-of-{:05}.safetensors", shards.size() - 1)));
  for (const std::string& shard : shards) {
    if (shard.ends_with(".json")) continue;
    const Exported file = read_exported(model_ / shard);
    EXPECT_TRUE(file.data.size() <= 100 || file.header.size() == 2U) << shard;
  }
}

TEST_F(ExportTransformers, TakesNoNameThatIsTaken) {
  std::filesystem::create_directory(model_);
  EXPECT_EQ(export_to(model_).code, 0) << "an empty directory may be there";
  const Answer again = export_to(model_);
  EXPECT_EQ(again.code, 3);
  EXPECT_EQ(again.json()["error"]["code"], "exists");
  EXPECT_EQ(export_to(model_, {"--force"}).code, 2);
  const std::filesystem::path file = run_.path() / "out.safetensors.txt";
  std::ofstream(file) << "precious";
  EXPECT_EQ(export_to(file).code, 3);
  EXPECT_EQ(std::filesystem::file_size(file), 8U);
}

TEST_F(ExportTransformers, LeavesNothingIfItFails) {
  flip_bit(run_.file_path(manifest_, manifest_.files[1].name), manifest_.files[1].bytes * 8 - 1);
  EXPECT_EQ(export_to(model_, {"--shard-bytes", "100"}).code, 3);
  std::filesystem::remove(config_ / "config.json");
  const Answer refused = export_to(model_, {"--config", config_.string()});
  EXPECT_EQ(refused.code, 3);
  EXPECT_NE(refused.json()["error"]["message"].get<std::string>().find("no config.json"),
            std::string::npos);
  EXPECT_EQ(export_to(model_, {"--config", (run_.path() / "none").string()}).code, 3);
  EXPECT_EQ(export_to(model_, {"--prefix", "nothing."}).code, 3);
  EXPECT_EQ(call({"export", run_.text(), out_.string(), "--config", config_.string()}).code, 2);
  EXPECT_EQ(files_like_out(), 0U);
}

}  // namespace
}  // namespace deepfreeze
