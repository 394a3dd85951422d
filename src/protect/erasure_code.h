// Reed-Solomon codes over GF(2^8): a stripe has `data` pieces of equal length and `parity` pieces
// that are calculated from them, and any `data` of all these pieces give each of the others.
//
// The matrix is a Cauchy matrix, so that every choice of pieces can be solved: Bloemer et al., "An
// XOR-Based Erasure-Resilient Coding Scheme", 1995, section 2. The arithmetic is ISA-L's. With one
// data piece a parity piece is a copy of it. Immutable after make(); any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "deepfreeze/result.h"

namespace deepfreeze {

inline constexpr std::size_t kPiecesMax = 128;  // of one stripe

// Calculates one piece from `data` others of the same stripe.
class PieceMaker {
 public:
  // `given`: as many pieces as there are data pieces, in the order of make_piece()'s, all as long
  // as `piece`, which is overwritten and overlaps none of them.
  void make(std::span<const std::byte* const> given, std::span<std::byte> piece) const;

 private:
  friend class ErasureCode;
  std::vector<unsigned char> tables_;  // of ISA-L, for one row
};

class ErasureCode {
 public:
  // kInvalidArgument unless both are at least 1, and together kPiecesMax at most.
  [[nodiscard]] static Result<ErasureCode> make(std::size_t data, std::size_t parity);

  [[nodiscard]] std::size_t data() const { return data_; }
  [[nodiscard]] std::size_t parity() const { return parity_; }

  // Pieces have numbers: data pieces from 0, then parity pieces. kInvalidArgument unless `given`
  // are data() different pieces and `wanted` is another one.
  [[nodiscard]] Result<PieceMaker> make_piece(std::span<const std::size_t> given,
                                              std::size_t wanted) const;

 private:
  ErasureCode(std::size_t data, std::size_t parity);

  std::size_t data_;
  std::size_t parity_;
  std::vector<unsigned char> matrix_;  // a row of data() coefficients for each piece
};

}  // namespace deepfreeze
