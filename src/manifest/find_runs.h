// The runs below a directory. Read-only; any thread.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "deepfreeze/result.h"

namespace deepfreeze {

inline constexpr std::size_t kRunsFoundMax = 10'000;
inline constexpr int kRunsDepthMax = 32;

// Whether the directory is a run: it has deepfreeze.json, or an attempt with a manifest, since the
// record may be lost. False for a directory that can't be looked at.
[[nodiscard]] bool is_run_directory(const std::filesystem::path& directory);

// The directory itself, if it is a run, and every run below it, runs in the directories of other
// runs included; sorted by path, each as `directory` and a path below it. Follows no symbolic link,
// and looks into no attempt and no directory whose name begins with a dot. A warning names each
// directory that can't be read. kNotFound: it is no directory; kInvalidArgument: more than
// `runs_max`.
[[nodiscard]] Result<std::vector<std::filesystem::path>> find_runs(
    const std::filesystem::path& directory, std::size_t runs_max = kRunsFoundMax);

using OnRun = std::function<void(const std::filesystem::path&)>;
using OnUnread = std::function<void(const std::filesystem::path&, const Error&)>;

// The same, for a caller that begins with the first run while others are looked for. `on_unread`
// gets each directory that can't be read, in the same order: runs may lie below. It counts as a
// run. If there are too many, as many as there may be were given.
[[nodiscard]] Status find_each_run(const std::filesystem::path& directory, const OnRun& on_run,
                                   const OnUnread& on_unread, std::size_t runs_max = kRunsFoundMax);

}  // namespace deepfreeze
