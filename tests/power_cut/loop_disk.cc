#include "power_cut/loop_disk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/loop.h>
#include <sched.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/clock.h"
#include "base/try.h"

extern char** environ;

namespace deepfreeze {
namespace {

constexpr off_t kDeviceBytes = 512 * 1024 * 1024;  // XFS takes no less than 300 MB
constexpr std::chrono::seconds kUnmountPatience{30};
constexpr useconds_t kUnmountPauseMicros = 500;
constexpr unsigned long kShutdown = _IOR('X', 125, std::uint32_t);  // FS_IOC_SHUTDOWN

// Errors of a machine that lacks something or does not allow it; any other error is a failure.
bool is_missing(int os_errno) {
  constexpr std::array kMissing = {EPERM, EACCES, ENOENT, ENODEV, ENXIO, ENOSYS};
  return std::ranges::find(kMissing, os_errno) != kMissing.end();
}

std::unexpected<Error> refused(std::string_view operation) {
  const int os_errno = errno;
  return fail(is_missing(os_errno) ? ErrorCode::kUnsupported : ErrorCode::kIo,
              fmt::format("{}: {}", operation, std::strerror(os_errno)), os_errno);
}

Status run(std::array<const char*, 5> words) {
  std::array<char*, 6> arguments{};
  for (std::size_t i = 0; i < words.size(); ++i) arguments[i] = const_cast<char*>(words[i]);
  posix_spawn_file_actions_t quiet;
  ::posix_spawn_file_actions_init(&quiet);
  ::posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addopen(&quiet, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = -1;
  const int error = ::posix_spawnp(&child, words[0], &quiet, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&quiet);
  if (error != 0) return fail(ErrorCode::kUnsupported, fmt::format("{} is missing", words[0]));
  int status = -1;
  if (::waitpid(child, &status, 0) == child && status == 0) return {};
  return fail(ErrorCode::kIo, fmt::format("{} failed", words[0]));
}

Status make_file_system(const FileSystem& file_system, const std::string& device) {
  if (std::string_view(file_system.type) == "xfs") {
    return run({"mkfs.xfs", "-q", "-f", device.c_str(), nullptr});
  }
  if (file_system.features != nullptr) {
    return run({"mkfs.ext4", "-qF", "-O", file_system.features, device.c_str()});
  }
  return run({"mkfs.ext4", "-q", "-F", device.c_str(), nullptr});
}

// A free loop device with `memory` behind it; detached with its last descriptor.
Result<std::pair<UniqueFd, std::string>> attach(int memory) {
  const UniqueFd control(::open("/dev/loop-control", O_RDWR | O_CLOEXEC));
  if (!control.valid()) return refused("open /dev/loop-control");
  constexpr int kTries = 20;  // others look for one too
  for (int i = 0; i < kTries; ++i) {
    const int number = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
    if (number < 0) return refused("find a loop device");
    std::string name = fmt::format("/dev/loop{}", number);
    UniqueFd device(::open(name.c_str(), O_RDWR | O_CLOEXEC));
    if (!device.valid()) return refused("open " + name);
    loop_config config{};
    config.fd = static_cast<std::uint32_t>(memory);
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
    if (::ioctl(device.get(), LOOP_CONFIGURE, &config) == 0) {
      return std::pair(std::move(device), std::move(name));
    }
  }
  return refused("configure a loop device");
}

// They end with this process, however it ends.
Status keep_mounts_to_ourselves() {
  if (::unshare(CLONE_NEWNS) != 0) return refused("have mounts of our own");
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0) return {};
  return refused("keep mounts from others");
}

}  // namespace

Result<std::unique_ptr<LoopDisk>> LoopDisk::make(const FileSystem& file_system) {
  DF_TRY_VOID(keep_mounts_to_ourselves());
  UniqueFd memory(::memfd_create("df-power-cut", MFD_CLOEXEC));
  if (!memory.valid() || ::ftruncate(memory.get(), kDeviceBytes) != 0) {
    return refused("make memory for a disk");
  }
  DF_TRY(auto attached, attach(memory.get()));
  auto& [device, name] = attached;
  DF_TRY_VOID(make_file_system(file_system, name));
  auto disk = std::make_unique<LoopDisk>(file_system, std::move(memory), std::move(device),
                                         std::move(name));
  DF_TRY_VOID(disk->mount());
  DF_TRY_VOID(disk->unmount());
  return disk;
}

LoopDisk::LoopDisk(const FileSystem& file_system, UniqueFd memory, UniqueFd device,
                   std::string name)
    : file_system_(file_system),
      memory_(std::move(memory)),
      device_(std::move(device)),
      name_(std::move(name)) {}

LoopDisk::~LoopDisk() {
  if (mounted_) std::ignore = unmount();
}

Status LoopDisk::mount() {
  if (::mount(name_.c_str(), path().c_str(), file_system_.type, 0, file_system_.options) != 0) {
    return refused(fmt::format("mount {} as {}", name_, file_system_.type));
  }
  mounted_ = true;
  return {};
}

// A killed process's writes in flight keep its files open for a moment.
Status LoopDisk::unmount() {
  const auto until = Monotonic::now() + kUnmountPatience;
  while (::umount(path().c_str()) != 0) {
    if (errno != EBUSY || Monotonic::now() >= until) return refused("unmount " + path().string());
    ::usleep(kUnmountPauseMicros);
  }
  mounted_ = false;
  return {};
}

Status LoopDisk::cut_power(Cut cut) {
  const UniqueFd root(::open(path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  std::uint32_t how = std::to_underlying(cut);
  if (root.valid() && ::ioctl(root.get(), kShutdown, &how) == 0) return {};
  return refused("shut down " + path().string());
}

}  // namespace deepfreeze
