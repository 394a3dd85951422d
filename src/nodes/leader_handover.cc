// The secret: one page with the length of the key as two bytes, then the key. The facts: one
// message (base/message.h).
#include "nodes/leader_handover.h"

#include <string.h>  // explicit_bzero

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/message.h"
#include "base/scope_exit.h"
#include "base/try.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kSecretBytes = 4096;
using KeyBytes = std::uint16_t;

std::unexpected<Error> malformed() {
  return fail(ErrorCode::kCorrupt, "read what a node's leader left: it is no such memory");
}

void write_ranks(MessageWriter& message, const std::vector<std::uint32_t>& ranks) {
  message.number(static_cast<std::uint64_t>(ranks.size()));
  for (const std::uint32_t rank : ranks) message.number(rank);
}

std::string encode(const LeftLeader& left) {
  MessageWriter message;
  message.text(left.run_id).number(left.rank);
  message.number(static_cast<std::uint64_t>(left.nodes.size()));
  for (const auto& ranks : left.nodes) write_ranks(message, ranks);
  message.number(static_cast<std::uint64_t>(left.peers.size()));
  for (const LinkPeer& peer : left.peers) {
    message.number(peer.rank).text(peer.key).flag(peer.is_dialed);
    message.number(static_cast<std::uint64_t>(peer.addresses.size()));
    for (const LinkAddress& address : peer.addresses) message.text(address.text());
  }
  return message.take();
}

Result<LinkPeer> read_peer(MessageReader& message) {
  LinkPeer peer;
  peer.rank = message.number<std::uint32_t>();
  peer.key = message.text();
  peer.is_dialed = message.flag();
  for (std::size_t left = message.count(sizeof(std::uint64_t)); left > 0; --left) {
    DF_TRY(const LinkAddress address, LinkAddress::parse(message.text()));
    peer.addresses.push_back(address);
  }
  return peer;
}

// The ranks from 0 on, each once, and each node has one: JobNodes takes that for granted.
bool are_nodes(const LeftLeader& left) {
  std::vector<std::uint32_t> all;
  bool is_leader = false;
  for (const auto& ranks : left.nodes) {
    if (ranks.empty()) return false;
    is_leader = is_leader || ranks.front() == left.rank;
    all.insert(all.end(), ranks.begin(), ranks.end());
  }
  std::ranges::sort(all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] != i) return false;
  }
  return is_leader;
}

Result<LeftLeader> decode(std::string_view bytes) {
  MessageReader message(bytes);
  LeftLeader left;
  left.run_id = message.text();
  left.rank = message.number<std::uint32_t>();
  left.nodes.resize(message.count(sizeof(std::uint64_t)));
  for (auto& ranks : left.nodes) {
    ranks.resize(message.count(sizeof(std::uint32_t)));
    for (std::uint32_t& rank : ranks) rank = message.number<std::uint32_t>();
  }
  for (std::size_t peers = message.count(sizeof(std::uint64_t)); peers > 0; --peers) {
    DF_TRY(LinkPeer peer, read_peer(message));
    left.peers.push_back(std::move(peer));
  }
  if (!message.end() || !are_nodes(left)) return malformed();
  return left;
}

}  // namespace

Result<LeaderHandover> LeaderHandover::make(const LeftLeader& left, const TlsIdentity& identity) {
  DF_TRY(std::string key, identity.private_key());
  const ScopeExit forget([&] { TlsIdentity::wipe(key); });
  const std::string text = encode(left);
  DF_TRY(SharedMemory secret, SharedMemory::allocate(kSecretBytes));
  DF_TRY_VOID(secret.keep_secret());  // first: then the key is never elsewhere
  if (key.size() > kSecretBytes - sizeof(KeyBytes)) {
    return fail(ErrorCode::kInternal, "a private key is too long");
  }
  const auto bytes = static_cast<KeyBytes>(key.size());
  std::memcpy(secret.bytes().data(), &bytes, sizeof(bytes));
  std::memcpy(secret.bytes().data() + sizeof(bytes), key.data(), key.size());
  DF_TRY(SharedMemory facts, SharedMemory::allocate(text.size()));
  DF_TRY_VOID(facts.populate());
  std::memcpy(facts.bytes().data(), text.data(), text.size());
  return LeaderHandover(std::move(secret), std::move(facts));
}

Result<LeaderHandover> LeaderHandover::take(UniqueFd secret, UniqueFd facts) {
  DF_TRY(SharedMemory key, SharedMemory::map(std::move(secret)));
  if (key.bytes().size() != kSecretBytes) return malformed();
  DF_TRY_VOID(key.keep_secret());
  DF_TRY(SharedMemory rest, SharedMemory::map(std::move(facts)));
  return LeaderHandover(std::move(key), std::move(rest));
}

Result<LeftLeader> LeaderHandover::read() const {
  const auto bytes = facts_.bytes();
  return decode({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

Result<TlsIdentity> LeaderHandover::take_identity() {
  const auto page = secret_.bytes();
  const ScopeExit forget([&] { ::explicit_bzero(page.data(), page.size()); });
  KeyBytes bytes = 0;
  std::memcpy(&bytes, page.data(), sizeof(bytes));
  if (bytes > page.size() - sizeof(bytes)) return malformed();
  return TlsIdentity::take_over(
      {reinterpret_cast<const char*>(page.data()) + sizeof(bytes), bytes});
}

}  // namespace deepfreeze
