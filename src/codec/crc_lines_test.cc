#include "codec/crc_lines.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace deepfreeze {
namespace {

// Whether the kernel lists the instruction among this processor's features, by the names of x86-64
// and of aarch64. Under qemu the list is that of the processor below, which has the instruction,
// too.
bool kernel_lists_the_instruction() {
  std::ifstream list("/proc/cpuinfo");
  for (std::string word; list >> word;) {
    if (word == "sse4_2" || word == "crc32") return true;
  }
  return false;
}

TEST(CrcLines, AreSummedByTheInstructionOfThisProcessor) {
  EXPECT_EQ(crc_lines_by_instruction() != nullptr, kernel_lists_the_instruction());
}

}  // namespace
}  // namespace deepfreeze
