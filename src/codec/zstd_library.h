// The functions of libzstd that packing needs, found at run time. Names, signatures and numbers are
// those of zstd.h of version 1.4 and later.
#pragma once

#include <cstddef>

#include "deepfreeze/result.h"

namespace deepfreeze::zstd {

using CompressContext = struct CompressContextTag;      // ZSTD_CCtx
using DecompressContext = struct DecompressContextTag;  // ZSTD_DCtx

inline constexpr unsigned kVersionMin = 10'400;  // 1.4.0, the first with ZSTD_compress2()

// Members of ZSTD_cParameter.
inline constexpr int kCompressionLevel = 100;
inline constexpr int kWindowLog = 101;
inline constexpr int kHashLog = 102;
inline constexpr int kContentSizeFlag = 200;
// ZSTD_c_literalCompressionMode, an experimental one; its number is the same in all versions.
inline constexpr int kLiteralCompressionMode = 1'002;

// A context belongs to one thread.
struct Library {
  unsigned (*version)();
  unsigned (*is_error)(std::size_t code);
  CompressContext* (*make_compress)();
  std::size_t (*free_compress)(CompressContext* context);
  std::size_t (*set)(CompressContext* context, int parameter, int value);
  std::size_t (*compress)(CompressContext* context, void* into, std::size_t room, const void* from,
                          std::size_t bytes);
  DecompressContext* (*make_decompress)();
  std::size_t (*free_decompress)(DecompressContext* context);
  std::size_t (*decompress)(DecompressContext* context, void* into, std::size_t room,
                            const void* from, std::size_t bytes);
};

// Looked for once. kUnsupported on a machine without it.
[[nodiscard]] Result<const Library*> library();

}  // namespace deepfreeze::zstd
