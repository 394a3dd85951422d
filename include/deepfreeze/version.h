// Version numbers. CMake and the Python package read them from here.
#pragma once

#define DEEPFREEZE_VERSION_MAJOR 0
#define DEEPFREEZE_VERSION_MINOR 2
#define DEEPFREEZE_VERSION_PATCH 0

namespace deepfreeze {

// The on-disk format that this library writes. Readers refuse a higher one.
inline constexpr int kFormatVersion = 1;

}  // namespace deepfreeze
