// The one thread that copies while training runs.
#pragma once

#include "staging/session_threads.h"

namespace deepfreeze {

class BackgroundCopier : public SessionThreads {
 public:
  BackgroundCopier()
      : SessionThreads({{.name = "df-capture",
                         .work = [](CaptureSession& session) { session.help_in_background(); }}}) {}
};

}  // namespace deepfreeze
