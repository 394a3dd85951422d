// A PartWriter whose threads each write one slab at a time: for files and machines that have no
// io_uring.
#pragma once

#include <cstddef>
#include <memory>

#include "pipeline/part_files.h"

namespace deepfreeze {

inline constexpr std::size_t kWriteThreadsMax = 16;

[[nodiscard]] std::unique_ptr<PartWriter> make_threaded_part_writer(std::unique_ptr<PartFiles> part,
                                                                    std::size_t thread_count);

}  // namespace deepfreeze
