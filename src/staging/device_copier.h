// The threads that serve devices: one gives them their copies, others hand on the bytes that
// arrive. A session replaces one that must have ended.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/cores.h"
#include "staging/session_threads.h"

namespace deepfreeze {

// Measured with an H200, whose link brings 55 GB/s: four checksum 31 GB/s of it, eight 50.
inline constexpr std::size_t kArrivalThreads = 12;

class DeviceCopier : public SessionThreads {
 public:
  DeviceCopier()
      : SessionThreads(
            {{.name = "df-device", .work = [](CaptureSession& session) { session.enqueue(); }},
             {.name = "df-arrive",
              .thread_count = std::min(kArrivalThreads, cores_of_this_process()),
              .work = [](CaptureSession& session) {
                while (session.arrive(true)) {
                }
              }}}) {}
};

}  // namespace deepfreeze
