#include "format/file_reference.h"

#include <gtest/gtest.h>

#include <array>

#include "codec/crc32c.h"
#include "format/little_endian.h"

namespace deepfreeze {
namespace {

constexpr std::string_view kFile = "rank-00001-of-00004-1-of-2.safetensors";

Origin origin() {
  return {.run_id = "00000000000000aa",
          .point = {.generation = 1, .step = 7, .save_index = 2, .attempt_id = 0xb1}};
}
std::string name() { return shared_file_name(shared_stem(origin(), kFile), 0x1234); }

std::span<const std::byte> bytes_of(const std::string& page) {
  return std::as_bytes(std::span(page));
}
ErrorCode code_of_page(const std::string& page) {
  const auto decoded = decode_reference(bytes_of(page));
  return decoded ? ErrorCode::kInternal : decoded.error().code();
}
// With the checksum that the bytes have now.
std::string sealed(std::string page) {
  const auto bytes = std::as_writable_bytes(std::span(page));
  put_number(bytes, page.size() - 4, crc32c(bytes.first(page.size() - 4)));
  return page;
}

TEST(FileReference, NamesTellOriginAndFile) {
  EXPECT_EQ(name(),
            "step-000000000007-00000000000000b1.rank-00001-of-00004-1-of-2.0000000000001234"
            ".safetensors");
  EXPECT_EQ(stem_of_shared(name()), shared_stem(origin(), kFile));
  Origin other = origin();
  other.point.attempt_id = 0xb2;
  EXPECT_NE(shared_stem(other, kFile), shared_stem(origin(), kFile));
}

TEST(FileReference, OtherNamesAreNoneOfSharedFiles) {
  for (const std::string& other :
       {std::string("safetensors"), std::string(kFile), name() + ".retired", "x" + name(),
        "../" + name(),
        std::string("step-000000000007-00000000000000b1.x.0000000000001234"
                    ".safetensors")}) {
    EXPECT_FALSE(stem_of_shared(other)) << other;
  }
}

TEST(FileReference, ComesBackFromItsPage) {
  const std::string page = encode_reference(name());
  EXPECT_EQ(page.size(), kReferenceBytes);
  EXPECT_TRUE(has_reference_mark(bytes_of(page)));
  EXPECT_EQ(decode_reference(bytes_of(page)), name());
  EXPECT_EQ(page.substr(0, 16), std::string("DFrefers\x01\0\0\0\x5a\0\0\0", 16))
      << "the layout is that of the documents";
}

TEST(FileReference, EveryFlippedBitIsFound) {
  const std::string good = encode_reference(name());
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string page = good;
    page[bit / 8] = static_cast<char>(page[bit / 8] ^ (1 << bit % 8));
    ASSERT_EQ(code_of_page(page), ErrorCode::kCorrupt) << bit;
  }
  EXPECT_EQ(code_of_page(good.substr(1)), ErrorCode::kCorrupt);
}

TEST(FileReference, AWellSealedPageNamesASharedFileAllTheSame) {
  EXPECT_EQ(code_of_page(sealed(encode_reference("../" + name()))), ErrorCode::kCorrupt);
  EXPECT_EQ(code_of_page(sealed(encode_reference(""))), ErrorCode::kCorrupt);
  std::string page = encode_reference(name());
  put_number(std::as_writable_bytes(std::span(page)), 12, std::uint32_t{4077});
  EXPECT_EQ(code_of_page(sealed(page)), ErrorCode::kCorrupt);
  page = encode_reference(name());
  put_number(std::as_writable_bytes(std::span(page)), 8, kReferenceVersion + 1);
  EXPECT_EQ(code_of_page(sealed(page)), ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace deepfreeze
