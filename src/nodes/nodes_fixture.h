// Two nodes of a test, ranks 0 and 1 here, ranks 2 and 3 there, and the letters between them.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "crash/attempt_maker.h"
#include "manifest/claims.h"
#include "manifest/run_directory.h"
#include "manifest/several_ranks.h"
#include "nodes/answered.h"
#include "nodes/commit_node.h"
#include "support/code_of.h"
#include "support/sim_disk.h"

namespace deepfreeze::nodes_test {

inline JobNodes two_nodes() { return JobNodes({{0, 1}, {2, 3}}); }

// Letters wait here until the test delivers them.
class TestMail final : public Mail {
 public:
  struct Sent {
    std::uint32_t to = 0;
    LinkMessage message;
  };
  Status send(std::uint32_t rank, const LinkMessage& message) override {
    if (is_down) return fail(ErrorCode::kNotFound, "no link");
    sent.push_back({rank, message});
    return {};
  }
  Result<Letter> take(std::chrono::milliseconds /*timeout*/) override {
    if (inbox.empty()) return fail(ErrorCode::kTimeout, "none");
    Letter letter = std::move(inbox.front());
    inbox.pop_front();
    return letter;
  }

  std::vector<Sent> sent;
  std::deque<Letter> inbox;
  bool is_down = false;
};

struct TestNode {
  explicit TestNode(std::uint32_t rank) : ledger(two_nodes(), rank) {}

  SimDisk disk;
  TestMail mail;
  Ledger ledger;
  GenerationRecord claim;

  [[nodiscard]] Leader leader() {
    return {.vfs = disk, .mail = mail, .ledger = ledger, .claim = claim};
  }
};

class TwoNodes : public testing::Test {
 protected:
  TwoNodes() {
    const RunRecord run = create_or_open_run(near_.disk, {}).value();
    run_id_ = run.run_id;
    far_.disk.plant(kRunFile, encode_run(run));
    GenerationRecord claim{.run_id = run_id_, .generation = 1, .claimant = 5, .node = 0xa0};
    for (TestNode* node : {&near_, &far_}) {
      node->claim = claim;
      node->disk.plant(generation_file_name(1), encode_generation(claim));
    }
  }

  [[nodiscard]] Identity identity(std::uint32_t rank) const {
    return make_identity(run_id_, {1, 5, 5, 9}, {rank, 4, 0, 1});
  }
  [[nodiscard]] std::string file(std::uint32_t rank) const {
    return join_name(directory_, sealed_file_name(identity(rank).part));
  }
  void seal(TestNode& node, std::uint32_t rank) {
    ASSERT_TRUE(join_attempt(node.disk, name_));
    ASSERT_TRUE(write_and_seal(node.disk, identity(rank)));
  }
  void seal_all() {
    for (const std::uint32_t rank : {0U, 1U}) seal(near_, rank);
    for (const std::uint32_t rank : {2U, 3U}) seal(far_, rank);
  }
  [[nodiscard]] std::unique_ptr<NodeCommit> start(TestNode& node,
                                                  std::optional<Error> failure = {}) {
    return NodeCommit::start(node.leader(), {.identity = identity(node.ledger.own()),
                                             .commit_wait_max = std::chrono::milliseconds(30),
                                             .failure = std::move(failure)});
  }
  // The letters that one has sent come to the other.
  void deliver(TestNode& from, TestNode& to) {
    for (const TestMail::Sent& sent : std::exchange(from.mail.sent, {})) {
      to.mail.inbox.push_back({.rank = from.ledger.own(), .message = sent.message});
    }
    EXPECT_TRUE(take_letters(to.leader(), std::chrono::milliseconds(0)));
  }
  void say(TestNode& to, LinkMessage message) {
    to.mail.inbox.push_back(
        {.rank = to.ledger.own() == 0 ? 2U : 0U, .message = std::move(message)});
    EXPECT_TRUE(take_letters(to.leader(), std::chrono::milliseconds(0)));
  }
  [[nodiscard]] std::optional<Outcome> outcome_on(TestNode& node) const {
    const auto manifest = read_manifest(node.disk, name_, run_id_);
    return manifest ? std::optional(manifest->outcome) : std::nullopt;
  }
  [[nodiscard]] std::string record_on(const TestNode& node) const {
    return node.disk.contents(join_name(directory_, kManifestFile)).value_or("");
  }

  const AttemptName name_{5, 9};
  const LinkAttempt attempt_{5, 9};
  const std::string directory_ = attempt_dir_name(name_);
  TestNode near_{0};  // decides
  TestNode far_{2};
  std::string run_id_;
};

}  // namespace deepfreeze::nodes_test
