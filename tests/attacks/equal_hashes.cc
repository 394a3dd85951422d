#include "attacks/equal_hashes.h"

#include <array>
#include <bit>
#include <cstdint>
#include <random>

namespace deepfreeze {
namespace {

using Word = std::uint64_t;
using Pair = std::array<Word, 2>;

constexpr Word kFactor = 0xc6a4a7935bd1e995;
constexpr Word kSeed = 0xc70f6907;
constexpr std::size_t kPairs = 3;            // in each name
constexpr std::size_t kChoicesOfAPair = 64;  // of each

Word inverse_of_factor() {
  Word inverse = kFactor;  // right in three bits; each turn doubles them
  for (int i = 0; i < 5; ++i) inverse *= 2 - kFactor * inverse;
  return inverse;
}

Word fold(Word value) { return value ^ value >> 47; }  // its own inverse
Word mix(Word word) { return fold(word * kFactor) * kFactor; }
Word unmix(Word mixed) {
  static const Word inverse = inverse_of_factor();
  return fold(mixed * inverse) * inverse;
}
Word step(Word state, Word word) { return (state ^ mix(word)) * kFactor; }

bool is_plain(Word word) {
  for (const char c : std::bit_cast<std::array<char, sizeof(Word)>>(word)) {
    if (c <= ' ' || c > '~' || c == '"' || c == '\\') return false;
  }
  return true;
}

Word random_plain(std::mt19937_64& random) {
  std::array<char, sizeof(Word)> bytes{};
  for (char& c : bytes) c = static_cast<char>('#' + random() % 50);
  return std::bit_cast<Word>(bytes);
}

// Pairs of words that lead from `state` to one and the same; to that one.
std::vector<Pair> choices_from(Word& state, std::mt19937_64& random) {
  const Pair first = {random_plain(random), random_plain(random)};
  const Word wanted = step(state, first[0]) ^ mix(first[1]);
  std::vector<Pair> choices = {first};
  while (choices.size() < kChoicesOfAPair) {
    const Word word = random_plain(random);
    const Word rest = unmix(wanted ^ step(state, word));
    if (is_plain(rest)) choices.push_back({word, rest});
  }
  state = wanted * kFactor;
  return choices;
}

}  // namespace

std::vector<std::string> names_of_equal_hash(std::size_t count) {
  std::mt19937_64 random(1);
  Word state = kSeed ^ (kPairs * sizeof(Pair) * kFactor);
  std::array<std::vector<Pair>, kPairs> choices;
  for (std::vector<Pair>& own : choices) own = choices_from(state, random);
  std::vector<std::string> names(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t rest = i;
    for (const std::vector<Pair>& own : choices) {
      const auto bytes = std::bit_cast<std::array<char, sizeof(Pair)>>(own[rest % kChoicesOfAPair]);
      names[i].append(bytes.data(), bytes.size());
      rest /= kChoicesOfAPair;
    }
  }
  return names;
}

}  // namespace deepfreeze
