#include "codec/zstd_library.h"

#include <fmt/format.h>

#include "base/loaded_library.h"
#include "base/try.h"

namespace deepfreeze::zstd {
namespace {

Result<Library> load() {
  DF_TRY(const auto library,
         LoadedLibrary::open("libzstd.so.1", "DEEPFREEZE_ZSTD_LIBRARY",
                             "packed files of a tier can be neither written nor read without zstd "
                             "(libzstd.so.1)"));
  Library found{};
  DF_TRY_VOID(library.find("ZSTD_versionNumber", found.version));
  DF_TRY_VOID(library.find("ZSTD_isError", found.is_error));
  DF_TRY_VOID(library.find("ZSTD_createCCtx", found.make_compress));
  DF_TRY_VOID(library.find("ZSTD_freeCCtx", found.free_compress));
  DF_TRY_VOID(library.find("ZSTD_CCtx_setParameter", found.set));
  DF_TRY_VOID(library.find("ZSTD_compress2", found.compress));
  DF_TRY_VOID(library.find("ZSTD_createDCtx", found.make_decompress));
  DF_TRY_VOID(library.find("ZSTD_freeDCtx", found.free_decompress));
  DF_TRY_VOID(library.find("ZSTD_decompressDCtx", found.decompress));
  if (found.version() >= kVersionMin) return found;
  return library.unavailable(fmt::format("version {} is too old", found.version()));
}

}  // namespace

Result<const Library*> library() { return loaded_once<load>(); }

}  // namespace deepfreeze::zstd
