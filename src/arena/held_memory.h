// Memory that stops the first thread that reads it in the middle, until let go: so a copy can be
// looked at while it is half done. Tests only; one at a time.
#pragma once

#include <sched.h>
#include <sys/mman.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <span>

namespace deepfreeze {

class HeldMemory {
 public:
  static constexpr std::size_t kPage = 4096;

  explicit HeldMemory(std::size_t pages) : bytes_(map(pages)) {
    struct sigaction action = {};
    action.sa_handler = [](int) { hold(); };
    ::sigaction(SIGSEGV, &action, &before_);
  }
  HeldMemory(const HeldMemory&) = delete;
  HeldMemory& operator=(const HeldMemory&) = delete;
  ~HeldMemory() {
    ::sigaction(SIGSEGV, &before_, nullptr);
    ::munmap(bytes_.data(), bytes_.size());
  }

  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

  // Holds the thread that touches this page next.
  void arm(std::size_t page) {
    phase_ = Phase::kArmed;
    protect(page, PROT_NONE);
  }
  // Returns when somebody is held. The memory is everybody's again; the held one stays.
  void wait_until_held(std::size_t page) {
    while (phase_ != Phase::kHeld) ::sched_yield();
    protect(page, PROT_READ | PROT_WRITE);
  }
  static void let_go() { phase_ = Phase::kOff; }

 private:
  enum class Phase : unsigned char { kOff, kArmed, kHeld };

  static std::span<std::byte> map(std::size_t pages) {
    void* at =
        ::mmap(nullptr, pages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return {static_cast<std::byte*>(at), at == MAP_FAILED ? 0 : pages * kPage};
  }
  void protect(std::size_t page, int how) const {
    ::mprotect(bytes_.subspan(page * kPage).data(), kPage, how);
  }
  // In the signal handler, which then repeats the read.
  static void hold() {
    Phase expected = Phase::kArmed;
    if (!phase_.compare_exchange_strong(expected, Phase::kHeld)) {
      ::signal(SIGSEGV, SIG_DFL);  // a fault that is none of ours
      return;
    }
    while (phase_ == Phase::kHeld) ::sched_yield();
  }

  inline static std::atomic<Phase> phase_{Phase::kOff};  // the handler finds no object
  std::span<std::byte> bytes_;
  struct sigaction before_ = {};
};

}  // namespace deepfreeze
