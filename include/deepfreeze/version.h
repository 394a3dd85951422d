// Version numbers. CMake and the Python package read them from here.
#pragma once

#define DEEPFREEZE_VERSION_MAJOR 0
#define DEEPFREEZE_VERSION_MINOR 2
#define DEEPFREEZE_VERSION_PATCH 0

namespace deepfreeze {

// The newest on-disk format. Readers refuse a higher one.
inline constexpr int kFormatVersion = 2;
// The format of a checkpoint that shares no file with another one, which is still written so.
inline constexpr int kPlainFormatVersion = 1;

}  // namespace deepfreeze
