// Whether packing pays on the way to one tier. Packing and sending have threads of their own, so it
// pays if packing is faster than the link. Both rates are measured as files go; it begins with
// plain files. Any thread.
#pragma once

#include <cstdint>
#include <mutex>

#include "deepfreeze/result.h"

namespace deepfreeze {

// kUnsupported: files can't be packed on this machine.
[[nodiscard]] Status check_packing();

// Sums of bytes and seconds, in which older ones count less: their half after each kRateBytes.
inline constexpr double kRateBytes = 64.0 * 1024 * 1024;
class Rate {
 public:
  void add(double bytes, double seconds);
  void forget() { *this = {}; }
  // No rate is known before so many bytes.
  [[nodiscard]] bool is_known(double bytes_min) const { return bytes_ >= bytes_min; }
  [[nodiscard]] double bytes_per_second() const;

 private:
  double bytes_ = 0;
  double seconds_ = 0;
};

class PackingJudge {
 public:
  // These bytes were handed to the tier, which took so long, the wait for a limit included; 0 bytes
  // at the end of a file, when it may still wait.
  void note_sent(std::uint64_t bytes, double seconds);
  // Blocks of so many plain bytes were packed, or tried, in so long.
  void note_packed(std::uint64_t plain_bytes, double seconds);

  // This machine can't pack after all: logged once, and from then on nothing pays.
  void give_up(const Error& why);

  // Whether the next blocks of a file with so many bytes are to be packed. In a short file packing
  // and sending overlap little.
  [[nodiscard]] bool pays(std::uint64_t file_bytes) const;
  // Whether the link is known, and packing does not pay: the next file is a plain one.
  [[nodiscard]] bool is_idle(std::uint64_t file_bytes) const;

 private:
  [[nodiscard]] bool pays_now(std::uint64_t file_bytes) const;

  mutable std::mutex mutex_;
  Rate link_;                      // guarded by mutex_
  Rate packing_;                   // guarded by mutex_
  double sent_since_packing_ = 0;  // bytes; guarded by mutex_
  bool has_given_up_ = false;      // guarded by mutex_
};

}  // namespace deepfreeze
