// The division of the bytes of a group's members into stripes, so that each member stores equally
// much parity and no member has two pieces of one stripe. Pure.
//
// A group has g members, of which any `parity` may be lost. Each member's bytes are cut into
// g - parity chunks of equal length, the last ones padded with zeros. There are g stripes. Stripe s
// has one parity piece on each of the members s, s+1, ... s+parity-1 (modulo g), and one chunk of
// each of the others: chunk i of member s+parity+i. So every member has a data piece in as many
// stripes as it has chunks, and a parity piece in all the others. It is the layout of SCR's redset:
// Moody et al., "Design, Modeling, and Evaluation of a Scalable Multi-level Checkpointing System",
// SC 2010, for one parity piece.
#pragma once

#include <cstddef>
#include <cstdint>

namespace deepfreeze {

class ParityLayout {
 public:
  // members > parity >= 1.
  ParityLayout(std::size_t members, std::size_t parity) : members_(members), parity_(parity) {}

  [[nodiscard]] std::size_t members() const { return members_; }
  [[nodiscard]] std::size_t parity() const { return parity_; }
  [[nodiscard]] std::size_t data() const { return members_ - parity_; }  // chunks of a member

  // The stripe of a member's chunk. Within it, the chunk is the data piece of the same number.
  [[nodiscard]] std::size_t stripe_of_chunk(std::size_t member, std::size_t chunk) const {
    return (member + 2 * members_ - parity_ - chunk) % members_;
  }
  // The member that has data piece `index` of the stripe: as its chunk of that number.
  [[nodiscard]] std::size_t data_member(std::size_t stripe, std::size_t index) const {
    return (stripe + parity_ + index) % members_;
  }
  // The member that stores parity piece `row` of the stripe: as its own parity of that number.
  [[nodiscard]] std::size_t parity_member(std::size_t stripe, std::size_t row) const {
    return (stripe + row) % members_;
  }
  [[nodiscard]] std::size_t stripe_of_parity(std::size_t member, std::size_t row) const {
    return (member + members_ - row) % members_;
  }

 private:
  std::size_t members_;
  std::size_t parity_;
};

}  // namespace deepfreeze
