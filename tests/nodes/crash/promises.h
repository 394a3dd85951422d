// The promises to a job over several machines, checked on their disks.
#pragma once

#include <optional>
#include <string>

#include "nodes/crash/job.h"

namespace deepfreeze::nodes_test {

using Machines = std::vector<std::unique_ptr<Machine>>;

// The promise that is broken, or nothing:
//  files     a manifest has all its files, on one machine or the other
//  outcome   an attempt has one outcome, and one record of it, on all machines
//  local     a rank that was told `local` has the manifest on its own machine
[[nodiscard]] std::optional<std::string> broken_promise(const Machines& machines,
                                                        const std::vector<Told>& told);
//  undecided after a claim by all nodes every older attempt has an outcome everywhere
[[nodiscard]] std::optional<std::string> undecided_after_claim(const Machines& machines);

}  // namespace deepfreeze::nodes_test
