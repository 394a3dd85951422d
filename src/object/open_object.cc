#include "object/open_object.h"

#include <fmt/format.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <ranges>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/try.h"
#include "object/credentials.h"
#include "object/curl_transport.h"
#include "object/object_tier.h"
#include "storage/posix_vfs.h"
#include "storage/vfs_tier_store.h"

namespace deepfreeze {
namespace {

struct ObjectAccess {
  std::shared_ptr<HttpTransport> transport;
  std::shared_ptr<CredentialSource> credentials;
};

// One for each bundle of certificates; they end with the last client that uses them, so that a
// program which has changed its environment is asked again. A forked child has its own.
class SharedAccess {
 public:
  Result<std::shared_ptr<const ObjectAccess>> get(const std::string& ca_bundle) {
    if (auto known = find(ca_bundle)) return known;
    DF_TRY(auto transport, make_curl_transport({.ca_bundle = ca_bundle}));
    auto made = std::make_shared<const ObjectAccess>(
        ObjectAccess{.transport = transport, .credentials = find_credentials(transport)});
    const std::lock_guard lock(mutex_);
    known_[{::getpid(), ca_bundle}] = made;  // if two threads are first, each has its own
    return made;
  }

 private:
  std::shared_ptr<const ObjectAccess> find(const std::string& ca_bundle) {
    const std::lock_guard lock(mutex_);
    return known_[{::getpid(), ca_bundle}].lock();
  }

  std::mutex mutex_;
  std::map<std::pair<pid_t, std::string>, std::weak_ptr<const ObjectAccess>>
      known_;  // guarded by mutex_
};

SharedAccess& shared_access() {
  static SharedAccess shared;
  return shared;
}

// Clients of tiers that brought a server or keys of their own: a checkpoint on such a tier is
// opened by its path alone, from no other server and with no other keys.
class TiersWithTheirOwn {
 public:
  void note(const std::shared_ptr<S3Client>& client) {
    const std::lock_guard lock(mutex_);
    std::erase_if(clients_, [](const auto& known) { return known.expired(); });
    clients_.push_back(client);
  }
  // The newest one; null if there is none of this process that is still in use.
  std::shared_ptr<S3Client> find(const std::string& url) {
    const std::lock_guard lock(mutex_);
    for (const auto& known : clients_ | std::views::reverse) {
      auto client = known.lock();
      if (client && !client->is_stopped() && client->place().url() == url) return client;
    }
    return nullptr;
  }

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<S3Client>> clients_;  // guarded by mutex_
};

TiersWithTheirOwn& tiers_with_their_own() {
  static TiersWithTheirOwn tiers;
  return tiers;
}

Result<Credentials> credentials_of(Result<ObjectKeys> keys) {
  if (!keys) return std::unexpected(keys.error());
  return Credentials{.access_key = std::move(keys->access_key),
                     .secret_key = std::move(keys->secret_key),
                     .session_token = std::move(keys->session_token),
                     .expires = keys->expires};
}

Result<std::unique_ptr<TierStore>> open_directory_store(const std::string& place, bool read_only) {
  if (!read_only) DF_TRY_VOID(make_durable_directories(place));
  DF_TRY(auto vfs, open_posix_vfs(place));
  if (!read_only) DF_TRY_VOID(vfs->check_writable());
  return std::make_unique<VfsTierStore>(std::move(vfs));
}

}  // namespace

Result<std::shared_ptr<S3Client>> open_client(const std::string& url, const ObjectServer& server,
                                              const KeySource& keys) {
  DF_TRY(ObjectPlace place, parse_object_url(url, process_environment(), server));
  DF_TRY(const auto access, shared_access().get(place.ca_bundle));
  // The members live as long as both.
  std::shared_ptr<CredentialSource> credentials(access, access->credentials.get());
  if (keys) credentials = credentials_from([keys] { return credentials_of(keys()); });
  auto client = std::make_shared<S3Client>(S3Client::Settings{
      .place = std::move(place),
      .transport = std::shared_ptr<HttpTransport>(access, access->transport.get()),
      .credentials = std::move(credentials)});
  if (keys || !server.endpoint.empty() || !server.region.empty()) {
    tiers_with_their_own().note(client);
  }
  return client;
}

Result<std::unique_ptr<Vfs>> open_vfs(const std::string& place) {
  if (!is_object_url(place)) return open_posix_vfs(place);
  DF_TRY(const std::string url, absolute_place(place));
  if (auto client = tiers_with_their_own().find(url)) return make_object_view(std::move(client));
  DF_TRY(auto client, open_client(url));
  return make_object_view(std::move(client));
}

Result<std::unique_ptr<TierStore>> open_store(const std::string& place, bool read_only,
                                              const ObjectServer& server, const KeySource& keys) {
  if (!is_object_url(place)) return open_directory_store(place, read_only);
  DF_TRY(auto client, open_client(place, server, keys));
  DF_TRY(const ObjectProbe found, probe(*client, read_only));
  if (!read_only && !found.has_conditional_writes) {
    log_note(
        fmt::format("tier {}: the store ignores conditions of writes, so nothing but you keeps "
                    "two trainings from claiming one run there",
                    place));
  }
  return make_object_tier(std::move(client), kPartBytes, found.has_conditional_writes);
}

Result<std::string> absolute_place(const std::string& place) {
  if (!is_object_url(place)) {
    DF_TRY(const std::filesystem::path path, absolute_path(place));
    return path.string();
  }
  const Environment no_server = [](const std::string&) { return std::nullopt; };
  DF_TRY(const ObjectPlace parsed, parse_object_url(place, no_server));
  return parsed.url();
}

}  // namespace deepfreeze
