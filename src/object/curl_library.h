// The functions of libcurl that an object store needs, found at run time: the build needs nothing
// of libcurl, and a machine without it can do everything else. Names, signatures and numbers are
// those of libcurl's documentation (curl.se/libcurl/c), which keeps them for good.
#pragma once

#include <sys/socket.h>

#include <memory>

#include "deepfreeze/result.h"

namespace deepfreeze::curl {

using Easy = struct EasyTag;    // CURL: one exchange
using Multi = struct MultiTag;  // CURLM: drives it, and has its connection
using List = struct ListTag;    // curl_slist

inline constexpr unsigned kVersionMin = 0x074400;  // 7.68.0, of 2020

// Options of an exchange (CURLOPT_…). The kind of value is told by the number: below 10,000 a long,
// below 20,000 a pointer, below 30,000 a function, above that a std::int64_t.
inline constexpr int kUpload = 46;
inline constexpr int kNoBody = 44;
inline constexpr int kSslVersion = 32;
inline constexpr int kHttpVersion = 84;
inline constexpr int kReceiveBytes = 98;  // BUFFERSIZE
inline constexpr int kNoSignal = 99;
inline constexpr int kConnectMilliseconds = 156;  // CONNECTTIMEOUT_MS
inline constexpr int kPathAsIs = 234;
inline constexpr int kSendBytes = 280;     // UPLOAD_BUFFERSIZE
inline constexpr int kQuickExit = 322;     // since 7.87
inline constexpr int kAnswerData = 10001;  // WRITEDATA
inline constexpr int kUrl = 10002;
inline constexpr int kProxy = 10004;
inline constexpr int kBodyData = 10009;  // READDATA
inline constexpr int kErrorBuffer = 10010;
inline constexpr int kHeaderFields = 10023;  // HTTPHEADER
inline constexpr int kHeadData = 10029;      // HEADERDATA
inline constexpr int kMethod = 10036;        // CUSTOMREQUEST
inline constexpr int kCaFile = 10065;        // CAINFO
inline constexpr int kOpenSocketData = 10164;
inline constexpr int kCloseSocketData = 10209;
inline constexpr int kTakeAnswer = 20011;  // WRITEFUNCTION
inline constexpr int kGiveBody = 20012;    // READFUNCTION
inline constexpr int kTakeHead = 20079;    // HEADERFUNCTION
inline constexpr int kOpenSocket = 20163;
inline constexpr int kCloseSocket = 20208;
inline constexpr int kBodyBytes = 30115;  // INFILESIZE_LARGE

inline constexpr long kHttp11 = 2;               // CURL_HTTP_VERSION_1_1
inline constexpr long kTls12OrNewer = 6;         // CURL_SSLVERSION_TLSv1_2
inline constexpr std::size_t kErrorBytes = 256;  // CURL_ERROR_SIZE

// Facts that an exchange can be asked for (CURLINFO_…).
inline constexpr int kRequestBytes = 0x20000c;       // REQUEST_SIZE, of the head; a long
inline constexpr int kSentBodyBytes = 0x600007;      // SIZE_UPLOAD_T; a std::int64_t
inline constexpr int kReceivedBodyBytes = 0x600008;  // SIZE_DOWNLOAD_T; the same

// Results (CURLE_…).
inline constexpr int kOk = 0;
inline constexpr int kMalformedUrl = 3;
inline constexpr int kTimedOut = 28;
inline constexpr int kRefusedCertificate = 60;
inline constexpr int kBadCaFile = 77;

struct Message {  // CURLMsg
  int kind;
  Easy* easy;
  union {
    void* pointer;
    int result;
  } data;
};
inline constexpr int kDone = 1;  // the kind of an exchange that has ended

struct SocketAddress {  // curl_sockaddr
  int family;
  int type;
  int protocol;
  unsigned bytes;
  sockaddr address;
};

struct Version {  // the beginning of curl_version_info_data
  int age;
  const char* text;
  unsigned number;
};

// An object belongs to one thread at a time; the library's own state takes any.
struct Library {
  const Version* (*version)(int age);
  int (*init)(long parts);
  const char* (*result_text)(int result);

  List* (*append)(List* list, const char* text);
  void (*free_list)(List* list);

  Easy* (*make_easy)();
  void (*free_easy)(Easy* easy);
  void (*reset_easy)(Easy* easy);
  int (*set)(Easy* easy, int option, ...);
  int (*get)(Easy* easy, int what, ...);

  Multi* (*make_multi)();
  int (*free_multi)(Multi* multi);
  int (*add)(Multi* multi, Easy* easy);
  int (*remove)(Multi* multi, Easy* easy);
  int (*perform)(Multi* multi, int* running);
  int (*poll)(Multi* multi, void* others, unsigned other_count, int milliseconds, int* ready);
  Message* (*next_message)(Multi* multi, int* left);
};

// Loaded at the first call, for the life of the process. kUnsupported says why there is none. The
// library is libcurl.so.4, else libcurl-gnutls.so.4, or the one that DEEPFREEZE_CURL_LIBRARY names.
[[nodiscard]] Result<const Library*> library();

template <class Object, auto kFree>
struct Freeing {
  const Library* library = nullptr;
  void operator()(Object* object) const { (library->*kFree)(object); }
};
using OwnedList = std::unique_ptr<List, Freeing<List, &Library::free_list>>;
using OwnedEasy = std::unique_ptr<Easy, Freeing<Easy, &Library::free_easy>>;
using OwnedMulti = std::unique_ptr<Multi, Freeing<Multi, &Library::free_multi>>;

}  // namespace deepfreeze::curl
