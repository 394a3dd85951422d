#include "ledger.h"

#include <algorithm>
#include <utility>

namespace deepfreeze::simulation {

Ledger::Ledger(LedgerSize size) : saves_(size.saves) {
  for (SaveRecord& save : saves_) {
    save.blocking_seconds.resize(size.ranks);
    for (auto* bytes : {&save.pulled_bytes, &save.sent_bytes, &save.parity_bytes}) {
      bytes->resize(size.nodes);
    }
  }
}

void Ledger::save_begins(std::uint64_t save, double now) {
  if (!saves_[save].start_seconds) saves_[save].start_seconds = now;
}

void Ledger::blocked(std::uint64_t save, std::uint64_t rank, double seconds) {
  saves_[save].blocking_seconds[rank] += seconds;
}

void Ledger::durable(std::uint64_t save, Place place, double now) {
  SaveRecord& record = saves_[save];
  auto& seconds = place == Place::kLocal ? record.local_seconds : record.parallel_seconds;
  seconds = now - record.start_seconds.value_or(0);
}

void Ledger::pulled(std::uint64_t save, const Pull& pull) {
  saves_[save].pulled_bytes[pull.to_node] += pull.bytes;
  saves_[save].sent_bytes[pull.from_node] += pull.bytes;
}

void Ledger::stored_parity(std::uint64_t save, std::uint64_t node, std::uint64_t bytes) {
  saves_[save].parity_bytes[node] += bytes;
}

void Ledger::is_protected(std::uint64_t save, double now) {
  saves_[save].protected_seconds = now - saves_[save].start_seconds.value_or(0);
}

void Ledger::collective(std::uint64_t save, std::vector<double> arrivals) {
  const double slowest = std::ranges::max(arrivals);
  double& seconds = saves_[save].straggler_seconds;
  seconds = std::max(seconds, slowest - median(std::move(arrivals)));
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

std::vector<double> load_of(const std::vector<Transfer>& transfers, double bin_seconds,
                            std::size_t bin_count) {
  std::vector<double> bins(bin_count);
  const auto bin_of = [&](double seconds) {
    const auto bin = static_cast<std::size_t>(std::max(0.0, seconds / bin_seconds));
    return std::min(bin, bin_count - 1);
  };
  for (const Transfer& transfer : transfers) {
    const double seconds = transfer.end_seconds - transfer.start_seconds;
    const auto bytes = static_cast<double>(transfer.bytes);
    const std::size_t last = bin_of(transfer.end_seconds);
    double from = transfer.start_seconds;
    for (std::size_t bin = bin_of(from); bin < last; ++bin) {
      const double to = static_cast<double>(bin + 1) * bin_seconds;
      bins[bin] += bytes * (to - from) / seconds;
      from = to;
    }
    bins[last] += seconds > 0 ? bytes * (transfer.end_seconds - from) / seconds : bytes;
  }
  return bins;
}

double peak_of(const std::vector<Transfer>& transfers) {
  std::vector<std::pair<double, double>> changes;  // moment, bytes a second more
  for (const Transfer& transfer : transfers) {
    const double seconds = transfer.end_seconds - transfer.start_seconds;
    if (seconds <= 0) continue;
    const double rate = static_cast<double>(transfer.bytes) / seconds;
    changes.emplace_back(transfer.start_seconds, rate);
    changes.emplace_back(transfer.end_seconds, -rate);
  }
  std::ranges::sort(changes);  // at one moment, ends come first
  double peak = 0;
  double rate = 0;
  for (const auto& change : changes) {
    rate += change.second;
    peak = std::max(peak, rate);
  }
  return peak;
}

}  // namespace deepfreeze::simulation
