// A libzstd that loses the bytes: found at run time, as the real one is.
#include <cstddef>
#include <cstdlib>
#include <cstring>

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
void* ZSTD_createCCtx() { return &context; }
std::size_t ZSTD_freeCCtx(void* /*context*/) { return 0; }
std::size_t ZSTD_CCtx_setParameter(void* /*context*/, int /*parameter*/, int /*value*/) {
  return 0;
}
std::size_t ZSTD_compress2(void* /*context*/, void* into, std::size_t /*room*/,
                           const void* /*from*/, std::size_t /*bytes*/) {
  std::memset(into, 0, kFrameBytes);
  return kFrameBytes;
}
void* ZSTD_createDCtx() { return &context; }
std::size_t ZSTD_freeDCtx(void* /*context*/) { return 0; }
std::size_t ZSTD_decompressDCtx(void* /*context*/, void* into, std::size_t room,
                                const void* /*from*/, std::size_t /*bytes*/) {
  std::memset(into, 0, room);
  return room;
}

}  // extern "C"
