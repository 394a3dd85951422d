// A name whose look-up takes long. Apart: this program has a getaddrinfo() of its own.
#include <dlfcn.h>
#include <netdb.h>

#include <atomic>
#include <string_view>

#include "object/http_fixture.h"
#include "support/code_of.h"

namespace {
std::atomic<bool> is_released = false;  // the look-ups that wait may end
std::atomic<int> look_ups = 0;
std::atomic<int> ended = 0;
}  // namespace

extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  using Function = int(const char*, const char*, const addrinfo*, addrinfo**);
  static auto* const kReal = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  if (std::string_view(name) != "slow.invalid") return kReal(name, service, hints, found);
  ++look_ups;
  while (!is_released) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ++ended;
  return EAI_AGAIN;
}

namespace deepfreeze::http_test {
namespace {

TEST(SlowName, EndsWithTheConnectBound) {
  HttpRequest request = get("http://slow.invalid/a");
  request.silence_max = std::chrono::milliseconds(200);
  {
    const auto http = transport();
    EXPECT_EQ(code_of(http->send(request)), ErrorCode::kTimeout);
    std::atomic<bool> stop = false;
    const std::jthread stopper([&] {
      EXPECT_TRUE(await([&] { return look_ups == 2; }));
      stop = true;
    });
    request.silence_max = kLong;
    request.stop = &stop;
    EXPECT_EQ(code_of(http->send(request)), ErrorCode::kCancelled);
  }
  is_released = true;
  EXPECT_TRUE(await([] { return ended == 2; }));
}

}  // namespace
}  // namespace deepfreeze::http_test
