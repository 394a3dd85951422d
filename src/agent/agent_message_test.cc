#include "agent/agent_message.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace deepfreeze {
namespace {

TEST(AgentMessage, AHelloArrivesAsItWas) {
  AgentRequest request;
  request.hello = {
      .run = "runs/ä \"x\"\n",
      .commits = false,
      .is_on_nodes = true,
      .is_rank0 = false,
      .settles = true,
      .tiers = {
          {.path = "far"},
          {.path = "farther",
           .every = 10,
           .keep = {.last = 2,
                    .every = 100,
                    .best = Keep::Best{.metric = "loss", .better = Keep::Better::kMax, .count = 3}},
           .bytes_per_second = ~std::uint64_t{0},
           .compress = Compress::kAuto,
           .endpoint = "https://store:9000",
           .region = "mars-1"}}};
  const auto decoded = decode_request(encode(request));
  ASSERT_TRUE(decoded) << decoded.error().message();
  EXPECT_EQ(decoded->kind, AgentRequest::Kind::kHello);
  EXPECT_EQ(decoded->hello.run, request.hello.run);
  EXPECT_FALSE(decoded->hello.commits);
  EXPECT_TRUE(decoded->hello.is_on_nodes);
  EXPECT_FALSE(decoded->hello.is_rank0);
  EXPECT_TRUE(decoded->hello.settles);
  EXPECT_EQ(decoded->hello.tiers, request.hello.tiers);
  request.hello.settles = false;
  EXPECT_FALSE(decode_request(encode(request))->hello.settles);
}

TEST(AgentMessage, OtherKindsArriveToo) {
  using Kind = AgentRequest::Kind;
  for (const Kind kind : {Kind::kArena, Kind::kLeader, Kind::kBye, Kind::kStatus, Kind::kDrain}) {
    const AgentRequest request = {
        .kind = kind, .hello = {}, .deadline = std::chrono::milliseconds(77)};
    const auto decoded = decode_request(encode(request));
    ASSERT_TRUE(decoded) << decoded.error().message();
    EXPECT_EQ(decoded->kind, kind);
    EXPECT_EQ(decoded->deadline.count(), kind == Kind::kDrain ? 77 : 0);
  }
}

TEST(AgentMessage, AnAnswerIsItsReason) {
  EXPECT_TRUE(decode_answer(encode_answer({})));
  const Status refused = std::unexpected(Error(ErrorCode::kBusy, "not now"));
  const Status decoded = decode_answer(encode_answer(refused));
  ASSERT_FALSE(decoded);
  EXPECT_NE(decoded.error().message().find("not now"), std::string::npos);
}

TEST(AgentMessage, AStatusArrivesAsItWas) {
  const AgentStatus status = {.version = "1.2.3",
                              .process = 7,
                              .clients = {{.run = "a", .process = 8, .state = "training"},
                                          {.run = "b",
                                           .process = 9,
                                           .state = "done",
                                           .outcome = "committed",
                                           .error = "an error"}}};
  const auto decoded = decode_status(encode(status));
  ASSERT_TRUE(decoded) << decoded.error().message();
  EXPECT_EQ(decoded->version, "1.2.3");
  EXPECT_EQ(decoded->process, 7);
  ASSERT_EQ(decoded->clients.size(), 2U);
  EXPECT_EQ(decoded->clients[0].state, "training");
  EXPECT_EQ(decoded->clients[1].run, "b");
  EXPECT_EQ(decoded->clients[1].process, 9);
  EXPECT_EQ(decoded->clients[1].outcome, "committed");
  EXPECT_EQ(decoded->clients[1].error, "an error");
}

TEST(AgentMessage, AnotherVersionIsToldWhatToDo) {
  const auto refused = decode_request(R"({"protocol":5,"kind":"hello"})");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().message().find("deepfreeze agent --drain"), std::string::npos);
  const Status answer = decode_answer(R"({"protocol":5,"error":"too old"})");
  ASSERT_FALSE(answer);  // also the reason of an agent of another version
  EXPECT_EQ(answer.error().message(), "too old");
  EXPECT_FALSE(decode_status(R"({"protocol":5})"));
}

TEST(AgentMessage, AnyVersionCanTellTheAgentToEnd) {
  const auto drain = decode_request(R"({"protocol":5,"kind":"drain","deadline_ms":5})");
  ASSERT_TRUE(drain) << drain.error().message();
  EXPECT_EQ(drain->deadline.count(), 5);
}

TEST(AgentMessage, WhatIsNoMessageIsRefused) {
  const auto bad = std::to_array<const char*>(
      {"", "hello", "{}", R"({"protocol":4})", R"({"protocol":4,"kind":"other"})",
       R"({"protocol":4,"kind":"hello"})", R"({"protocol":4,"kind":"drain"})",
       R"({"protocol":4,"kind":"hello","run":"a","commits":1,"on_nodes":true,"rank0":true,)"
       R"("settles":true,"tiers":[]})",
       R"({"protocol":4,"kind":"hello","run":"a","commits":true,"settles":true,"tiers":[]})",
       R"({"protocol":4,"kind":"hello","run":"a","commits":true,"on_nodes":true,"rank0":true,)"
       R"("settles":true,"tiers":[{}]})",
       R"({"protocol":4,"kind":"hello","run":"a","commits":true,"on_nodes":true,"rank0":true,)"
       R"("settles":true,"tiers":[{"path":"a","bytes_per_second":"0","endpoint":"","region":"",)"
       R"("keep":{}}]})"});
  for (const char* text : bad) {
    const auto refused = decode_request(text);
    ASSERT_FALSE(refused) << text;
    EXPECT_EQ(refused.error().code(), ErrorCode::kCorrupt) << text;
  }
}

}  // namespace
}  // namespace deepfreeze
