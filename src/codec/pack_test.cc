#include "codec/pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace deepfreeze {
namespace {

using Bytes = std::vector<std::byte>;

Bytes noise(std::size_t count, std::mt19937_64& random) {
  Bytes bytes(count);
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random()); });
  return bytes;
}

// As weights are: sign and exponent vary little.
template <class T>
Bytes weights(std::size_t count, std::mt19937_64& random) {
  std::normal_distribution<T> value(0, static_cast<T>(0.02));
  Bytes bytes(count * sizeof(T));
  for (std::size_t i = 0; i < count; ++i) {
    const T one = value(random);
    std::memcpy(bytes.data() + i * sizeof(T), &one, sizeof(T));
  }
  return bytes;
}

// The upper halves of floats.
Bytes bf16_weights(std::size_t count, std::mt19937_64& random) {
  const Bytes floats = weights<float>(count, random);
  Bytes bytes(2 * count);
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(bytes.data() + 2 * i, floats.data() + 4 * i + 2, 2);
  }
  return bytes;
}

class Pack : public testing::Test {
 protected:
  Packer packer = Packer::make().value();
  Unpacker unpacker = Unpacker::make().value();
  std::mt19937_64 random{20};

  // The packed size, or the plain one if it does not pack; checks that the bytes come back.
  std::size_t packed_bytes(const Bytes& plain, std::size_t element_bytes) {
    const auto packed = packer.pack(plain, element_bytes);
    if (packed.empty()) return plain.size();
    EXPECT_LT(packed.size(), plain.size());
    Bytes back(plain.size(), std::byte{0x5a});
    const Status unpacked = unpacker.unpack(packed, back);
    EXPECT_TRUE(unpacked) << unpacked.error().message();
    EXPECT_EQ(back, plain);
    return packed.size();
  }
};

TEST_F(Pack, WeightsShrinkBySignAndExponent) {
  const auto ratio = [&](const Bytes& plain, std::size_t element_bytes) {
    return static_cast<double>(plain.size()) /
           static_cast<double>(packed_bytes(plain, element_bytes));
  };
  EXPECT_GT(ratio(weights<float>(16'384, random), 4), 1.17);
  EXPECT_GT(ratio(bf16_weights(32'768, random), 2), 1.45);
  EXPECT_GT(ratio(weights<double>(8'192, random), 8), 1.05);
}

TEST_F(Pack, NoiseStaysPlain) {
  for (const std::size_t element : {1U, 2U, 4U, 8U}) {
    EXPECT_TRUE(packer.pack(noise(kPackBytesMax, random), element).empty()) << element;
  }
}

TEST_F(Pack, ZerosAreNearlyNothing) {
  for (const std::size_t element : {1U, 2U, 4U, 8U}) {
    EXPECT_LT(packed_bytes(Bytes(kPackBytesMax), element), 20) << element;
  }
}

TEST_F(Pack, EverySizeAndKindOfBytesComesBack) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  random.seed(seed);
  for (int i = 0; i < 500; ++i) {
    const std::size_t bytes = i < 200 ? static_cast<std::size_t>(i) : random() % kPackBytesMax + 1;
    Bytes plain;
    switch (random() % 4) {
      case 0:
        plain = noise(bytes, random);
        break;
      case 1:
        plain = weights<float>(bytes / 4 + 1, random);
        break;
      case 2:
        plain = bf16_weights(bytes / 2 + 1, random);
        break;
      default:  // rare values among zeros
        for (std::size_t at = 0; at < bytes; ++at) {
          plain.push_back(random() % 50 == 0 ? std::byte{7} : std::byte{0});
        }
    }
    plain.resize(bytes);
    packed_bytes(plain, std::size_t{1} << (random() % 4));
  }
}

TEST_F(Pack, OtherSizesAreNotPacked) {
  EXPECT_TRUE(packer.pack({}, 4).empty());
  EXPECT_TRUE(packer.pack(Bytes(3), 4).empty());
  EXPECT_TRUE(packer.pack(Bytes(kPackBytesMax + 1), 4).empty());
  EXPECT_TRUE(packer.pack(Bytes(4'096), 3).empty());
  EXPECT_TRUE(packer.pack(Bytes(4'096), 16).empty());
}

class DamagedPack : public Pack {
 protected:
  Bytes plain = weights<float>(5'001, random);
  Bytes packed = pack_once();

  Bytes pack_once() {
    plain.resize(plain.size() - 1);  // the last element is not whole
    const auto bytes = packer.pack(plain, 4);
    return {bytes.begin(), bytes.end()};
  }
  [[nodiscard]] ErrorCode refused(const Bytes& bytes, std::size_t plain_bytes) {
    Bytes back(plain_bytes);
    const Status unpacked = unpacker.unpack(bytes, back);
    return unpacked ? ErrorCode::kInternal : unpacked.error().code();
  }
};

TEST_F(DamagedPack, AnotherLengthIsRefused) {
  ASSERT_FALSE(packed.empty());
  for (std::size_t bytes = 0; bytes < packed.size(); ++bytes) {
    EXPECT_EQ(refused({packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(bytes)},
                      plain.size()),
              ErrorCode::kCorrupt)
        << bytes;
  }
  Bytes longer = packed;
  longer.push_back({});
  EXPECT_EQ(refused(longer, plain.size()), ErrorCode::kCorrupt);
}

TEST_F(DamagedPack, AnotherPlainSizeIsRefused) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{3}, plain.size() - 1,
                                  plain.size() + 1, plain.size() + 4, kPackBytesMax + 1}) {
    EXPECT_EQ(refused(packed, bytes), ErrorCode::kCorrupt) << bytes;
  }
}

TEST_F(DamagedPack, UnknownKindsAndSizesOfElementsAreRefused) {
  for (const int log : {4, 5, 64, 255}) {
    Bytes other = packed;
    other[0] = static_cast<std::byte>(log);
    EXPECT_EQ(refused(other, plain.size()), ErrorCode::kCorrupt) << log;
  }
  for (const int kind : {3, 255}) {
    Bytes other = packed;
    other[1] = static_cast<std::byte>(kind);
    EXPECT_EQ(refused(other, plain.size()), ErrorCode::kCorrupt) << kind;
  }
}

// A flipped bit may give other bytes, which their checksum refuses, but no access outside of them.
TEST_F(DamagedPack, FlippedBitsAreDecodedOrRefusedWithinBounds) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  random.seed(seed);
  for (int i = 0; i < 2'000; ++i) {
    Bytes other = packed;
    for (std::uint64_t flips = random() % 3 + 1; flips > 0; --flips) {
      other[random() % other.size()] ^= static_cast<std::byte>(1U << (random() % 8));
    }
    Bytes back(plain.size());
    const Status unpacked = unpacker.unpack(other, back);
    EXPECT_TRUE(unpacked || unpacked.error().code() == ErrorCode::kCorrupt);
  }
}

}  // namespace
}  // namespace deepfreeze
