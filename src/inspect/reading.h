// How a long reading is done, and the functions that watch it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace deepfreeze {

inline constexpr std::size_t kReadThreads = 4;

// Is told how many bytes of one reading are done: any thread, never two at once.
using OnProgress = std::function<void(std::uint64_t done)>;
// Begins to watch one reading of that many bytes; the reading is over when the returned function is
// destroyed.
using Watch = std::function<OnProgress(std::string label, std::uint64_t total)>;

}  // namespace deepfreeze
