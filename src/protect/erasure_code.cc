#include "protect/erasure_code.h"

#include <fmt/format.h>
#include <isa-l.h>

#include <algorithm>
#include <limits>
#include <set>

#include "base/try.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kTableBytes = 32;  // of ISA-L, for each coefficient

int as_int(std::size_t count) { return static_cast<int>(count); }  // kPiecesMax at most

// A vector times a matrix, both over the field.
std::vector<unsigned char> multiply(std::span<const unsigned char> row,
                                    std::span<const unsigned char> matrix) {
  std::vector<unsigned char> product(row.size());
  for (std::size_t column = 0; column < row.size(); ++column) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      product[column] = static_cast<unsigned char>(product[column] ^
                                                   gf_mul(row[i], matrix[i * row.size() + column]));
    }
  }
  return product;
}

}  // namespace

void PieceMaker::make(std::span<const std::byte* const> given, std::span<std::byte> piece) const {
  std::vector<unsigned char*> sources;
  for (const std::byte* source : given) {
    // ISA-L's interface lacks the const; it only reads them.
    sources.push_back(reinterpret_cast<unsigned char*>(const_cast<std::byte*>(source)));
  }
  constexpr std::size_t kAtOnceMax = std::numeric_limits<int>::max() / 2;
  for (std::size_t done = 0; done < piece.size();) {
    const std::size_t count = std::min(kAtOnceMax, piece.size() - done);
    auto* into = reinterpret_cast<unsigned char*>(piece.data() + done);
    ec_encode_data(as_int(count), as_int(given.size()), 1,
                   const_cast<unsigned char*>(tables_.data()), sources.data(), &into);
    for (unsigned char*& source : sources) source += count;
    done += count;
  }
}

ErasureCode::ErasureCode(std::size_t data, std::size_t parity)
    : data_(data), parity_(parity), matrix_((data + parity) * data) {
  gf_gen_cauchy1_matrix(matrix_.data(), as_int(data + parity), as_int(data));
}

Result<ErasureCode> ErasureCode::make(std::size_t data, std::size_t parity) {
  if (data >= 1 && parity >= 1 && data <= kPiecesMax && parity <= kPiecesMax - data) {
    return ErasureCode(data, parity);
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("a code of {} data and {} parity pieces: each must be 1 at least, and "
                          "their sum {} at most",
                          data, parity, kPiecesMax));
}

Result<PieceMaker> ErasureCode::make_piece(std::span<const std::size_t> given,
                                           std::size_t wanted) const {
  const std::set<std::size_t> distinct(given.begin(), given.end());
  const std::size_t count = data_ + parity_;
  if (distinct.size() != data_ || given.size() != data_ || *distinct.rbegin() >= count ||
      wanted >= count || distinct.contains(wanted)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("piece {} of {}+{} can't be made of {} pieces: it takes {} others",
                            wanted, data_, parity_, distinct.size(), data_));
  }
  std::vector<unsigned char> rows;
  for (const std::size_t piece : given) {
    const auto row = std::span(matrix_).subspan(piece * data_, data_);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  std::vector<unsigned char> inverse(rows.size());
  if (gf_invert_matrix(rows.data(), inverse.data(), as_int(data_)) != 0) {
    return fail(ErrorCode::kInternal, "a Cauchy matrix without inverse");
  }
  std::vector<unsigned char> row =
      multiply(std::span(matrix_).subspan(wanted * data_, data_), inverse);
  PieceMaker maker;
  maker.tables_.resize(kTableBytes * data_);
  ec_init_tables(as_int(data_), 1, row.data(), maker.tables_.data());
  return maker;
}

}  // namespace deepfreeze
