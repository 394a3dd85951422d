// A libzstd that loses the bytes: found at run time, as the real one is.
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "codec/zstd_library.h"

using deepfreeze::zstd::CompressContext;
using deepfreeze::zstd::DecompressContext;

namespace {

constexpr unsigned kVersion = 10'504;
constexpr std::size_t kFrameBytes = 10;
char context;

}  // namespace

extern "C" {

unsigned ZSTD_versionNumber() {
  const char* old = std::getenv("DF_TEST_OLD_ZSTD");
  return old == nullptr ? kVersion : 10'309;
}
unsigned ZSTD_isError(std::size_t /*code*/) { return 0; }
CompressContext* ZSTD_createCCtx() { return reinterpret_cast<CompressContext*>(&context); }
std::size_t ZSTD_freeCCtx(CompressContext* /*context*/) { return 0; }
std::size_t ZSTD_CCtx_setParameter(CompressContext* /*context*/, int /*parameter*/, int /*value*/) {
  return 0;
}
std::size_t ZSTD_compress2(CompressContext* /*context*/, void* into, std::size_t /*room*/,
                           const void* /*from*/, std::size_t /*bytes*/) {
  std::memset(into, 0, kFrameBytes);
  return kFrameBytes;
}
DecompressContext* ZSTD_createDCtx() { return reinterpret_cast<DecompressContext*>(&context); }
std::size_t ZSTD_freeDCtx(DecompressContext* /*context*/) { return 0; }
std::size_t ZSTD_decompressDCtx(DecompressContext* /*context*/, void* into, std::size_t room,
                                const void* /*from*/, std::size_t /*bytes*/) {
  std::memset(into, 0, room);
  return room;
}

}  // extern "C"
