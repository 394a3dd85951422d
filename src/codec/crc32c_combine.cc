// A checksum is a polynomial over GF(2), reflected: its highest bit is the coefficient of x^0.
// Bytes that follow multiply it by x^8 each, modulo the generator; so does zlib combine its CRC-32.
#include <array>

#include "codec/crc32c.h"

namespace deepfreeze {
namespace {

constexpr std::uint32_t kGenerator = 0x82f63b78;
constexpr std::uint32_t kOne = std::uint32_t{1} << 31U;  // x^0
constexpr std::uint32_t kX = kOne >> 1U;                 // x^1
constexpr std::size_t kPowers = 64 + 3;                  // of sizes in bits

constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = kOne; bit != 0; bit >>= 1U) {
    if ((a & bit) != 0) product ^= b;
    b = (b & 1U) != 0 ? (b >> 1U) ^ kGenerator : b >> 1U;
  }
  return product;
}

// x^(2^n) at index n.
constexpr std::array<std::uint32_t, kPowers> kSquares = [] {
  std::array<std::uint32_t, kPowers> squares{};
  squares[0] = kX;
  for (std::size_t n = 1; n < kPowers; ++n) squares[n] = multiply(squares[n - 1], squares[n - 1]);
  return squares;
}();

}  // namespace

std::uint32_t crc32c_combine(std::uint32_t crc_of_a, std::uint32_t crc_of_b,
                             std::uint64_t bytes_of_b) {
  std::size_t n = 3;  // eight bits to a byte
  for (std::uint64_t left = bytes_of_b; left != 0; left >>= 1U, ++n) {
    if ((left & 1U) != 0) crc_of_a = multiply(kSquares[n], crc_of_a);
  }
  return crc_of_a ^ crc_of_b;
}

}  // namespace deepfreeze
