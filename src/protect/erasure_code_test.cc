#include "protect/erasure_code.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace deepfreeze {
namespace {

using Piece = std::vector<std::byte>;

// A stripe whose parity pieces are made of its data pieces.
std::vector<Piece> make_stripe(const ErasureCode& code, std::size_t bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Piece> stripe(code.data() + code.parity(), Piece(bytes));
  std::vector<std::size_t> given;
  std::vector<const std::byte*> sources;
  for (std::size_t i = 0; i < code.data(); ++i) {
    std::ranges::generate(stripe[i], [&] { return static_cast<std::byte>(random()); });
    given.push_back(i);
    sources.push_back(stripe[i].data());
  }
  for (std::size_t i = code.data(); i < stripe.size(); ++i) {
    code.make_piece(given, i).value().make(sources, stripe[i]);
  }
  return stripe;
}

// Each piece, from each choice of data() others.
void expect_all_made(std::size_t data, std::size_t parity) {
  const ErasureCode code = ErasureCode::make(data, parity).value();
  const auto stripe = make_stripe(code, 1000, 100 * data + parity);
  std::vector<char> chosen(stripe.size());
  std::fill_n(chosen.begin(), data, 1);
  do {
    std::vector<std::size_t> given;
    std::vector<const std::byte*> sources;
    for (std::size_t i = 0; i < stripe.size(); ++i) {
      if (chosen[i] == 0) continue;
      given.push_back(i);
      sources.push_back(stripe[i].data());
    }
    for (std::size_t wanted = 0; wanted < stripe.size(); ++wanted) {
      if (chosen[wanted] != 0) continue;
      Piece made(stripe[wanted].size());
      code.make_piece(given, wanted).value().make(sources, made);
      ASSERT_EQ(made, stripe[wanted]) << data << "+" << parity << ", piece " << wanted;
    }
  } while (std::ranges::prev_permutation(chosen).found);
}

TEST(ErasureCode, AnyPiecesGiveAllOthers) {
  for (std::size_t data = 1; data <= 8; ++data) {
    for (std::size_t parity = 1; parity <= 4; ++parity) expect_all_made(data, parity);
  }
}

TEST(ErasureCode, OrderOfTheGivenPiecesIsTheirs) {
  const ErasureCode code = ErasureCode::make(3, 2).value();
  const auto stripe = make_stripe(code, 64, 5);
  const std::vector<std::size_t> given = {4, 0, 3};
  const std::vector<const std::byte*> sources = {stripe[4].data(), stripe[0].data(),
                                                 stripe[3].data()};
  Piece made(64);
  code.make_piece(given, 1).value().make(sources, made);
  EXPECT_EQ(made, stripe[1]);
}

TEST(ErasureCode, OneDataPieceIsCopied) {
  const ErasureCode code = ErasureCode::make(1, 1).value();
  const auto stripe = make_stripe(code, 100, 1);
  EXPECT_EQ(stripe[0], stripe[1]);
}

TEST(ErasureCode, LargestCode) {
  const ErasureCode code = ErasureCode::make(kPiecesMax - 4, 4).value();
  const auto stripe = make_stripe(code, 10, 2);
  std::vector<std::size_t> given;
  std::vector<const std::byte*> sources;
  for (std::size_t i = 4; i < stripe.size(); ++i) {
    given.push_back(i);
    sources.push_back(stripe[i].data());
  }
  for (std::size_t wanted = 0; wanted < 4; ++wanted) {
    Piece made(10);
    code.make_piece(given, wanted).value().make(sources, made);
    EXPECT_EQ(made, stripe[wanted]);
  }
}

TEST(ErasureCode, RefusesOtherNumbers) {
  EXPECT_EQ(ErasureCode::make(0, 1).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(ErasureCode::make(1, 0).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(ErasureCode::make(kPiecesMax, 1).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(ErasureCode::make(~std::size_t{0}, 2).error().code(), ErrorCode::kInvalidArgument);
  const ErasureCode code = ErasureCode::make(2, 2).value();
  const auto is_refused = [&](std::vector<std::size_t> given, std::size_t wanted) {
    const auto made = code.make_piece(given, wanted);
    return !made && made.error().code() == ErrorCode::kInvalidArgument;
  };
  EXPECT_TRUE(is_refused({0}, 1));
  EXPECT_TRUE(is_refused({0, 0}, 1));
  EXPECT_TRUE(is_refused({0, 1, 1}, 2));
  EXPECT_TRUE(is_refused({0, 1, 2}, 3));
  EXPECT_TRUE(is_refused({0, 4}, 1));
  EXPECT_TRUE(is_refused({0, 1}, 4));
  EXPECT_TRUE(is_refused({0, 1}, 1));
  EXPECT_FALSE(is_refused({0, 1}, 3));
}

}  // namespace
}  // namespace deepfreeze
