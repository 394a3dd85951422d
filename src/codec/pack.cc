#include "codec/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "base/try.h"
#include "codec/byte_planes.h"
#include "codec/zstd_library.h"

namespace deepfreeze {
namespace {

enum class PlaneKind : std::uint8_t { kRaw = 0, kConstant = 1, kCoded = 2 };

constexpr std::size_t kSizeBytes = 2;
constexpr std::size_t kSampleBytes = 1024;
constexpr std::uint64_t kRepeatsMin = 150;  // two bytes are equal at least once in so many times
// No matches are looked for: the level steps over whole planes. Forced literals leave the codes.
constexpr int kLevelOfNoMatches = -131'072;
constexpr int kLiteralsForced = 1;
constexpr int kWindowLogOfBlock = 16;
constexpr int kHashLogMin = 6;

bool is_constant(std::span<const std::byte> plane) {
  return std::memcmp(plane.data(), plane.data() + 1, plane.size() - 1) == 0;
}

// Whether evenly spaced bytes repeat often enough: of two that are chosen blindly, noise has the
// same value once in 256 times. Codes for bytes that repeat seldom save less than they cost.
bool repeats(std::span<const std::byte> plane) {
  std::array<std::uint32_t, 256> counts{};
  const std::size_t step = std::max<std::size_t>(plane.size() / kSampleBytes, 1);
  std::uint64_t samples = 0;
  for (std::size_t i = 0; i < plane.size(); i += step) {
    ++counts[static_cast<std::size_t>(plane[i])];
    ++samples;
  }
  std::uint64_t pairs = 0;  // of equal ones
  for (const std::uint64_t count : counts) pairs += count * count;
  return (pairs - samples) * kRepeatsMin > samples * (samples - 1);
}

struct FreeCompress {
  const zstd::Library* zstd;
  void operator()(zstd::CompressContext* context) const { zstd->free_compress(context); }
};
struct FreeDecompress {
  const zstd::Library* zstd;
  void operator()(zstd::DecompressContext* context) const { zstd->free_decompress(context); }
};

std::unexpected<Error> corrupt(std::string_view why) {
  return fail(ErrorCode::kCorrupt, fmt::format("packed block: {}", why));
}

}  // namespace

struct Packer::Impl {
  const zstd::Library* zstd;
  std::unique_ptr<zstd::CompressContext, FreeCompress> context;
  std::array<std::byte, kPackBytesMax> planes;
  std::array<std::byte, kPackBytesMax> packed;

  [[nodiscard]] Status set_parameters();
  // Appends the plane at `at`; false if the packed block would not be smaller than `limit`.
  [[nodiscard]] bool put_plane(std::span<const std::byte> plane, std::size_t limit,
                               std::size_t& at);
  [[nodiscard]] bool put(std::span<const std::byte> bytes, std::size_t limit, std::size_t& at);
  // The size of the frame, which lies behind its kind and size at `at`; 0 if it saves nothing.
  [[nodiscard]] std::size_t code(std::span<const std::byte> plane, std::size_t limit,
                                 std::size_t at);
};

Status Packer::Impl::set_parameters() {
  const std::array<std::pair<int, int>, 5> wanted = {
      {{zstd::kCompressionLevel, kLevelOfNoMatches},
       {zstd::kWindowLog, kWindowLogOfBlock},
       {zstd::kHashLog, kHashLogMin},
       {zstd::kContentSizeFlag, 0},
       {zstd::kLiteralCompressionMode, kLiteralsForced}}};
  for (const auto& [parameter, value] : wanted) {
    if (zstd->is_error(zstd->set(context.get(), parameter, value)) == 0) continue;
    return fail(ErrorCode::kUnsupported,
                fmt::format("libzstd {} does not know parameter {}", zstd->version(), parameter));
  }
  return {};
}

bool Packer::Impl::put(std::span<const std::byte> bytes, std::size_t limit, std::size_t& at) {
  if (bytes.size() >= limit - at) return false;
  std::memcpy(packed.data() + at, bytes.data(), bytes.size());
  at += bytes.size();
  return true;
}

std::size_t Packer::Impl::code(std::span<const std::byte> plane, std::size_t limit,
                               std::size_t at) {
  if (!repeats(plane) || limit - at <= 1 + kSizeBytes) return 0;
  const std::size_t begin = at + 1 + kSizeBytes;
  const std::size_t room = std::min(limit - begin, plane.size() - kSizeBytes);
  const std::size_t size =
      zstd->compress(context.get(), packed.data() + begin, room, plane.data(), plane.size());
  return zstd->is_error(size) == 0 ? size : 0;  // an error: there was no room
}

bool Packer::Impl::put_plane(std::span<const std::byte> plane, std::size_t limit, std::size_t& at) {
  if (limit - at < 2) return false;
  if (is_constant(plane)) {
    packed[at] = std::byte{static_cast<std::uint8_t>(PlaneKind::kConstant)};
    packed[at + 1] = plane.front();
    at += 2;
    return at < limit;
  }
  const std::size_t size = plane.size() > kSizeBytes ? code(plane, limit, at) : 0;
  if (size == 0) {
    packed[at++] = std::byte{static_cast<std::uint8_t>(PlaneKind::kRaw)};
    return put(plane, limit, at);
  }
  packed[at] = std::byte{static_cast<std::uint8_t>(PlaneKind::kCoded)};
  packed[at + 1] = static_cast<std::byte>(size);
  packed[at + 2] = static_cast<std::byte>(size >> 8U);
  at += 1 + kSizeBytes + size;
  return at < limit;
}

Result<Packer> Packer::make() {
  DF_TRY(const zstd::Library* const zstd, zstd::library());
  std::unique_ptr<zstd::CompressContext, FreeCompress> context(zstd->make_compress(), {zstd});
  if (context == nullptr) return fail(ErrorCode::kNoSpace, "no memory to pack blocks");
  auto impl = std::make_unique<Impl>(
      Impl{.zstd = zstd, .context = std::move(context), .planes = {}, .packed = {}});
  DF_TRY_VOID(impl->set_parameters());
  return Packer(std::move(impl));
}

std::span<const std::byte> Packer::pack(std::span<const std::byte> plain,
                                        std::size_t element_bytes) {
  if (plain.size() > kPackBytesMax || !std::has_single_bit(element_bytes) ||
      element_bytes > kElementBytesMax || plain.size() < element_bytes) {
    return {};
  }
  const auto log = static_cast<std::size_t>(std::countr_zero(element_bytes));
  const std::size_t limit = plain.size();
  const std::size_t count = plain.size() / element_bytes;
  const auto elements = plain.first(count * element_bytes);
  const auto planes = std::span(impl_->planes).first(elements.size());
  split_planes(log, elements, planes);
  std::size_t at = 0;
  impl_->packed[at++] = static_cast<std::byte>(log);
  for (std::size_t plane = 0; plane < element_bytes; ++plane) {
    if (!impl_->put_plane(planes.subspan(plane * count, count), limit, at)) return {};
  }
  if (!impl_->put(plain.subspan(elements.size()), limit, at)) return {};
  return std::span(impl_->packed).first(at);
}

Packer::Packer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Packer::Packer(Packer&& other) noexcept = default;
Packer& Packer::operator=(Packer&& other) noexcept = default;
Packer::~Packer() = default;

struct Unpacker::Impl {
  const zstd::Library* zstd;
  std::unique_ptr<zstd::DecompressContext, FreeDecompress> context;
  std::array<std::byte, kPackBytesMax> planes;

  // Takes the plane off the front of `packed`.
  [[nodiscard]] Status take_plane(std::span<const std::byte>& packed, std::span<std::byte> plane);
  [[nodiscard]] Status decode(std::span<const std::byte> frame, std::span<std::byte> plane);
};

Status Unpacker::Impl::decode(std::span<const std::byte> frame, std::span<std::byte> plane) {
  const std::size_t count =
      zstd->decompress(context.get(), plane.data(), plane.size(), frame.data(), frame.size());
  if (zstd->is_error(count) != 0 || count != plane.size()) {
    return corrupt("a plane's codes do not decode");
  }
  return {};
}

Status Unpacker::Impl::take_plane(std::span<const std::byte>& packed, std::span<std::byte> plane) {
  const auto take = [&](std::size_t bytes) {
    const auto taken = packed.first(bytes);
    packed = packed.subspan(bytes);
    return taken;
  };
  if (packed.size() < 2) return corrupt("it ends early");
  switch (static_cast<PlaneKind>(take(1).front())) {
    case PlaneKind::kRaw:
      if (packed.size() < plane.size()) return corrupt("it ends inside a plane");
      std::memcpy(plane.data(), take(plane.size()).data(), plane.size());
      return {};
    case PlaneKind::kConstant:
      std::ranges::fill(plane, take(1).front());
      return {};
    case PlaneKind::kCoded: {
      if (packed.size() < kSizeBytes) return corrupt("it ends early");
      const auto size = take(kSizeBytes);
      const std::size_t frame_bytes =
          static_cast<std::size_t>(size[0]) | (static_cast<std::size_t>(size[1]) << 8U);
      if (packed.size() < frame_bytes) return corrupt("it ends inside a plane");
      return decode(take(frame_bytes), plane);
    }
  }
  return corrupt("a plane is of no known kind");
}

Result<Unpacker> Unpacker::make() {
  DF_TRY(const zstd::Library* const zstd, zstd::library());
  std::unique_ptr<zstd::DecompressContext, FreeDecompress> context(zstd->make_decompress(), {zstd});
  if (context == nullptr) return fail(ErrorCode::kNoSpace, "no memory to unpack blocks");
  return Unpacker(
      std::make_unique<Impl>(Impl{.zstd = zstd, .context = std::move(context), .planes = {}}));
}

Status Unpacker::unpack(std::span<const std::byte> packed, std::span<std::byte> plain) {
  if (plain.size() > kPackBytesMax) return corrupt("it would be larger than a block");
  if (packed.empty()) return corrupt("it is empty");
  const auto log = static_cast<std::size_t>(packed.front());
  const std::size_t element_bytes = std::size_t{1} << std::min<std::size_t>(log, 4);
  if (element_bytes > kElementBytesMax || plain.size() < element_bytes) {
    return corrupt("its elements have no known size");
  }
  packed = packed.subspan(1);
  const std::size_t count = plain.size() / element_bytes;
  const auto planes = std::span(impl_->planes).first(count * element_bytes);
  for (std::size_t plane = 0; plane < element_bytes; ++plane) {
    DF_TRY_VOID(impl_->take_plane(packed, planes.subspan(plane * count, count)));
  }
  const auto tail = plain.subspan(planes.size());
  if (packed.size() != tail.size()) return corrupt("it has bytes behind its end");
  join_planes(log, planes, plain.first(planes.size()));
  std::ranges::copy(packed, tail.begin());
  return {};
}

Unpacker::Unpacker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Unpacker::Unpacker(Unpacker&& other) noexcept = default;
Unpacker& Unpacker::operator=(Unpacker&& other) noexcept = default;
Unpacker::~Unpacker() = default;

}  // namespace deepfreeze
