// A plate whose heat spreads, in rows over the ranks of MPI_COMM_WORLD. Knows nothing of
// checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

struct Size {
  std::size_t rows = 0;
  std::size_t columns = 0;
};

// Rows [first, first + count) of the plate.
struct Strip {
  std::size_t first = 0;
  std::size_t count = 0;
};

// Each cell is computed by the same operations in the same order on whichever rank has its row, so
// the plate is the same to the bit with any number of ranks. All calls but rows() are collective.
class Plate {
 public:
  // At least one row for each rank. Begins cold, with hot spots.
  Plate(Size size, int rank, int ranks);

  [[nodiscard]] Size size() const { return size_; }
  [[nodiscard]] Strip strip() const { return strip_; }
  // This rank's own, row by row: the values that a checkpoint has to hold.
  [[nodiscard]] std::span<double> rows() { return owned(now_); }

  // From rows() into memory of its own: until show_next(), rows() stays as it is.
  void compute_next();
  // The next compute_next() overwrites the old rows().
  void show_next();

  // The hash of the whole plate, on every rank.
  [[nodiscard]] std::uint64_t hash();

 private:
  [[nodiscard]] std::span<double> owned(std::vector<double>& field) const;
  void exchange_edges();

  Size size_;
  int rank_;
  int ranks_;
  Strip strip_;
  // A row of the neighbour above, the own rows, a row of the neighbour below.
  std::vector<double> now_;
  std::vector<double> next_;
};
