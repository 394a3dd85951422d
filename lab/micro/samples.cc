#include "samples.h"

#include <fmt/format.h>

#include <array>
#include <span>
#include <string>
#include <utility>

namespace deepfreeze {
namespace {

using Specs = std::vector<TensorSpec>;

constexpr std::byte kFilling{7};  // unlike new memory, so that a missing copy shows

void add(Specs& specs, std::string key, Shape shape, DType dtype = DType::kF32) {
  specs.push_back({.key = std::move(key), .dtype = dtype, .shape = std::move(shape)});
}

Specs small_specs(std::size_t count) {
  const std::array<Shape, 3> shapes{Shape{32, 32}, Shape{32}, Shape{}};
  Specs specs;
  for (std::size_t i = 0; i < count; ++i) {
    add(specs, fmt::format("optimizer.state.{}.exp_avg_sq", i), shapes.at(i % shapes.size()));
  }
  return specs;
}

// As torchvision names and shapes them.
class ResNet50 {
 public:
  ResNet50() {
    convolution("conv1", {64, 3, 7, 7});
    norm("bn1", 64);
    std::uint64_t inputs = 64;
    for (std::size_t stage = 0; stage < 4; ++stage) inputs = add_stage(stage, inputs);
    parameter("fc.weight", {1000, inputs});
    parameter("fc.bias", {1000});
  }

  [[nodiscard]] Specs with_adam() const {
    Specs all = parameters_;
    all.insert(all.end(), buffers_.begin(), buffers_.end());
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      add(all, fmt::format("optimizer.state.{}.step", i), {});
      add(all, fmt::format("optimizer.state.{}.exp_avg", i), parameters_[i].shape);
      add(all, fmt::format("optimizer.state.{}.exp_avg_sq", i), parameters_[i].shape);
    }
    return all;
  }

 private:
  void parameter(const std::string& name, Shape shape) {
    add(parameters_, "model." + name, std::move(shape));
  }
  void convolution(const std::string& name, Shape shape) {
    parameter(name + ".weight", std::move(shape));
  }
  void norm(const std::string& name, std::uint64_t channels) {
    parameter(name + ".weight", {channels});
    parameter(name + ".bias", {channels});
    add(buffers_, fmt::format("model.{}.running_mean", name), {channels});
    add(buffers_, fmt::format("model.{}.running_var", name), {channels});
    add(buffers_, fmt::format("model.{}.num_batches_tracked", name), {}, DType::kI64);
  }
  void block(const std::string& name, std::uint64_t inputs, std::uint64_t width) {
    convolution(name + ".conv1", {width, inputs, 1, 1});
    norm(name + ".bn1", width);
    convolution(name + ".conv2", {width, width, 3, 3});
    norm(name + ".bn2", width);
    convolution(name + ".conv3", {4 * width, width, 1, 1});
    norm(name + ".bn3", 4 * width);
    if (inputs == 4 * width) return;
    convolution(name + ".downsample.0", {4 * width, inputs, 1, 1});
    norm(name + ".downsample.1", 4 * width);
  }
  // Returns how many channels it has.
  std::uint64_t add_stage(std::size_t stage, std::uint64_t inputs) {
    constexpr std::array<std::size_t, 4> kBlocks{3, 4, 6, 3};
    const std::uint64_t width = std::uint64_t{64} << stage;
    for (std::size_t i = 0; i < kBlocks.at(stage); ++i) {
      block(fmt::format("layer{}.{}", stage + 1, i), inputs, width);
      inputs = 4 * width;
    }
    return inputs;
  }

  Specs parameters_;
  Specs buffers_;
};

std::string tree_of(const Specs& specs) {
  std::string tree = R"({"epoch":3,"state":{"empty":null)";
  for (const TensorSpec& spec : specs) {
    tree += fmt::format(R"(,"{0}":{{"$":"tensor","k":"{0}"}})", spec.key);
  }
  return tree + "}}";
}

std::uint64_t bytes_of(const TensorSpec& spec) { return spec_bytes(spec).value(); }

Sample sample_of(const Specs& specs) {
  std::uint64_t bytes = 0;
  for (const TensorSpec& spec : specs) bytes += bytes_of(spec);
  Sample sample{.memory = std::vector(bytes, kFilling), .request = {.step = 1}};
  std::span<const std::byte> rest = sample.memory;
  for (const TensorSpec& spec : specs) {
    sample.request.tensors.push_back({.spec = spec, .data = rest.first(bytes_of(spec))});
    rest = rest.subspan(bytes_of(spec));
  }
  sample.request.objects = tree_of(specs);
  return sample;
}

}  // namespace

Sample sample_of(std::size_t tensor_count) {
  return sample_of(tensor_count == kResNet50Tensors ? ResNet50().with_adam()
                                                    : small_specs(tensor_count));
}

Sample equal_sample(std::size_t tensor_count, std::uint64_t bytes_of_each) {
  Specs specs;
  for (std::size_t i = 0; i < tensor_count; ++i) {
    add(specs, fmt::format("optimizer.state.layer{}.block.{}.exp_avg_sq", i / 100, i),
        {bytes_of_each / sizeof(float)});
  }
  return sample_of(specs);
}

Identity sample_identity() {
  return {.run_id = "0123456789abcdef",
          .attempt_id = 0x9f2c41d07a3be856,
          .generation = 1,
          .step = 1,
          .save_index = 1};
}

}  // namespace deepfreeze
