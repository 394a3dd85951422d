#include "agreement/link_round.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/message.h"
#include "base/try.h"
#include "ranks/collective.h"

namespace deepfreeze {
namespace {

// The facts that others need to talk with a rank.
struct Card {
  std::string key;
  std::vector<std::string> addresses;  // of leaders
};

// The secrets of a rank, and its card.
struct Own {
  TlsIdentity identity;
  UniqueFd listener;
  Card card;
};

Result<Own> prepare(bool listens, const std::string& interface) {
  DF_TRY(TlsIdentity identity, TlsIdentity::make());
  Card card{.key = identity.public_key(), .addresses = {}};
  if (!listens) return Own{std::move(identity), UniqueFd(), std::move(card)};
  DF_TRY(UniqueFd listener, listen_everywhere());
  DF_TRY(const LinkAddress bound, LinkAddress::of_socket(listener.get()));
  DF_TRY(const std::vector<LinkAddress> addresses, own_addresses(bound.port(), interface));
  for (const LinkAddress& address : addresses) card.addresses.push_back(address.text());
  if (!addresses.empty()) {
    return Own{std::move(identity), std::move(listener), std::move(card)};
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("link: {} has no address by which other nodes could reach it",
                          interface.empty() ? "this machine" : "interface " + interface));
}

std::string encode(const Card& card) {
  MessageWriter message;
  message.text(card.key).number(static_cast<std::uint64_t>(card.addresses.size()));
  for (const std::string& address : card.addresses) message.text(address);
  return message.take();
}

Result<Card> decode_card(std::string_view bytes) {
  MessageReader message(bytes);
  Card card;
  card.key = message.text();
  card.addresses.resize(message.count(sizeof(std::uint64_t)));
  for (std::string& address : card.addresses) address = message.text();
  DF_TRY_VOID(message.end());
  return card;
}

Result<std::vector<std::string>> hand_round(const std::vector<std::string>& given) {
  MessageWriter all;
  for (std::size_t rank = 0; rank < given.size(); ++rank) {
    MessageReader message(given[rank]);
    const Status prepared = message.status();
    if (!prepared) return std::unexpected(of_rank(prepared.error(), rank));
    all.text(message.text());
    DF_TRY_VOID(message.end());
  }
  return std::vector<std::string>(given.size(), all.take());
}

Result<std::vector<Card>> share(RankGroup& ranks, const Result<Own>& own) {
  MessageWriter message;
  message.status(own ? Status{} : std::unexpected(own.error()));
  if (own) message.text(encode(own->card));
  DF_TRY(const std::string answer, ask_rank0(ranks, "link nodes", message.take(), hand_round));
  MessageReader all(answer);
  std::vector<Card> cards(ranks.world_size());
  for (Card& card : cards) {
    DF_TRY(card, decode_card(all.text()));
  }
  DF_TRY_VOID(all.end());
  return cards;
}

// A leader is found by everybody on other nodes; the others only find leaders.
Result<std::vector<LinkPeer>> peers_of(const RankGroup& ranks, const NodeMap& nodes,
                                       const std::vector<Card>& cards) {
  std::set<std::uint32_t> leaders;
  for (const JobNode& node : nodes.nodes()) leaders.insert(node.ranks.front());
  const std::vector<std::uint32_t>& near = nodes.own().ranks;
  std::vector<LinkPeer> peers;
  for (std::uint32_t rank = 0; rank < cards.size(); ++rank) {
    const bool is_near = std::ranges::find(near, rank) != near.end();
    if (is_near || !(nodes.leads() || leaders.contains(rank))) continue;
    LinkPeer peer{.rank = rank, .key = cards[rank].key};
    for (const std::string& text : cards[rank].addresses) {
      DF_TRY(LinkAddress address, LinkAddress::parse(text));
      peer.addresses.push_back(address);
    }
    peer.is_dialed = rank == 0 && nodes.leads() && ranks.rank() != 0;
    peers.push_back(std::move(peer));
  }
  return peers;
}

Result<Links> start(RankGroup& ranks, const NodeMap& nodes, Own own, const std::vector<Card>& cards,
                    const std::string& run) {
  DF_TRY(std::vector<LinkPeer> peers, peers_of(ranks, nodes, cards));
  DF_TRY(auto endpoint, Endpoint::start(own.identity, {.run = run,
                                                       .rank = ranks.rank(),
                                                       .listener = std::move(own.listener),
                                                       .peers = peers}));
  return Links{std::move(endpoint), std::move(own.identity), std::move(peers)};
}

}  // namespace

Result<Links> open_links(RankGroup& ranks, const NodeMap& nodes, const std::string& run,
                         const std::string& interface) {
  Result<Own> own = prepare(nodes.leads(), interface);
  DF_TRY(const std::vector<Card> cards, share(ranks, own));
  auto links = start(ranks, nodes, *std::move(own), cards, run);
  DF_TRY_VOID(
      agree(&ranks, "link nodes", links ? Status{} : Status(std::unexpected(links.error()))));
  return links;
}

}  // namespace deepfreeze
