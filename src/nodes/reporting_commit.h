// Steps N2, N3 and N7: the leader of another node than rank 0's. It never aborts the attempt: rank
// 0's directory decides. One thread.
#pragma once

#include "base/clock.h"
#include "manifest/commit.h"
#include "nodes/commit_node.h"

namespace deepfreeze {

class ReportingCommit final : public NodeCommit {
 public:
  ReportingCommit(const Leader& leader, NodeSave save);
  // Without an outcome the attempt stays in doubt.
  ~ReportingCommit() override;

  [[nodiscard]] std::optional<Result<Manifest>> advance() override;
  [[nodiscard]] Result<Manifest> time_out() override;

 private:
  [[nodiscard]] std::optional<Result<Manifest>> outcome_here();
  [[nodiscard]] Result<Manifest> with_own_failure(Result<Manifest> answered) const;
  void find_parts();
  [[nodiscard]] Status prepare(const std::vector<PartName>& parts);
  [[nodiscard]] Status check_may_report();
  [[nodiscard]] Status send_report();
  [[nodiscard]] Status send_part(const ManifestFile& file);

  const Leader leader_;
  const NodeSave save_;
  const LinkAttempt attempt_;
  const std::vector<std::uint32_t> ranks_;  // of this node
  const CommitRequest request_;
  const Monotonic::time_point begun_ = Monotonic::now();
  std::uint64_t renewals_ = 0;       // when sending began
  std::optional<Error> failure_;     // this node can't report
  std::vector<ManifestFile> files_;  // empty until step N2 is done
  std::size_t sent_ = 0;             // messages of the report, or of the failure
  bool has_reported_ = false;        // or may have
};

}  // namespace deepfreeze
