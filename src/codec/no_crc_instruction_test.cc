// A processor of aarch64 without its optional instructions: the kernel tells of none. Apart from
// the other tests, since each program asks once.
#include <gtest/gtest.h>
#include <sys/auxv.h>

#include <array>
#include <string_view>

#include "codec/crc32c.h"
#include "codec/crc_lines.h"

// In place of glibc's, for this program and for libisal.
extern "C" unsigned long getauxval(unsigned long /*type*/) noexcept { return 0; }

namespace deepfreeze {
namespace {

TEST(NoCrcInstruction, IsNotUsed) { EXPECT_EQ(crc_lines_by_instruction(), nullptr); }

TEST(NoCrcInstruction, ChecksumsAreTheSame) {
  const std::string_view digits = "123456789";
  EXPECT_EQ(crc32c(std::as_bytes(std::span(digits))), 0xe3069283U);
  const std::array<std::byte, kCrcLineBytes> zeros{};
  const std::array<const std::byte*, 1> line{zeros.data()};
  std::array<std::uint32_t, 1> sum{};
  crc32c_of_lines(line, sum);
  EXPECT_EQ(sum[0], 0x03c8eb67U);
}

}  // namespace
}  // namespace deepfreeze
