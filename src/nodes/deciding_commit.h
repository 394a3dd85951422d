// Steps N4 to N6: rank 0 commits in its directory, which decides for all nodes. One thread.
#pragma once

#include "base/clock.h"
#include "manifest/commit.h"
#include "nodes/commit_node.h"

namespace deepfreeze {

class DecidingCommit final : public NodeCommit {
 public:
  DecidingCommit(const Leader& leader, NodeSave save);
  // From now on questions about the attempt are answered from the disk.
  ~DecidingCommit() override;

  [[nodiscard]] std::optional<Result<Manifest>> advance() override;
  [[nodiscard]] Result<Manifest> time_out() override;

 private:
  [[nodiscard]] std::optional<Error> failure() const;
  [[nodiscard]] Result<std::vector<PartName>> own_parts();
  [[nodiscard]] Result<CheckedParts> check(const std::vector<PartName>& own);
  [[nodiscard]] Result<Manifest> conclude(Result<CheckedParts> checked);
  void tell_all(const LinkMessage& outcome);

  const Leader leader_;
  const NodeSave save_;
  const LinkAttempt attempt_;
  const std::vector<std::uint32_t> ranks_;  // of this node
  const CommitRequest request_;
  const Monotonic::time_point begun_ = Monotonic::now();
  std::optional<Error> missing_;    // of the last look at the own directory
  std::vector<ManifestFile> here_;  // own files, once checked
};

}  // namespace deepfreeze
