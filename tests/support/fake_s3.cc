#include "support/fake_s3.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "codec/crc32c.h"
#include "object/s3_text.h"
#include "object/signature.h"
#include "object/xml.h"

namespace deepfreeze {
namespace {

constexpr std::string_view kHost = "http://127.0.0.1:1";
constexpr std::string_view kBucket = "bucket";

std::string http_date(std::chrono::system_clock::time_point when) {
  return fmt::format("{:%a, %d %b %Y %H:%M:%S} GMT",
                     std::chrono::floor<std::chrono::seconds>(when));
}

std::uint32_t crc_of(std::string_view bytes) { return crc32c(std::as_bytes(std::span(bytes))); }

// Of the content, as MD5 in most stores; with a letter that XML has to escape.
std::string etag_of(std::uint32_t crc) { return fmt::format("\"{:08x}&\"", crc); }

HttpResponse answer_xml(std::string body) {
  return {.status = 200, .body = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" + std::move(body)};
}

// A page of texts: its beginning and end, and whether another one follows.
struct Page {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool is_truncated = false;
};

Page page_of(const std::vector<std::string>& names, std::string_view after, std::size_t size) {
  Page page;
  page.begin =
      after.empty()
          ? 0
          : static_cast<std::size_t>(std::ranges::upper_bound(names, after) - names.begin());
  page.end = std::min(names.size(), page.begin + size);
  page.is_truncated = page.end < names.size();
  return page;
}

std::string encoded(std::string_view key) { return uri_encode(key, false); }

}  // namespace

S3Client::Time FakeTime::time() {
  return {.now = [this] { return now(); },
          .sleep =
              [this](std::chrono::milliseconds pause) {
                slept_ += pause.count();
                advance(pause);
              }};
}

std::chrono::system_clock::time_point FakeTime::now() const {
  return std::chrono::system_clock::time_point(std::chrono::milliseconds(millis_));
}

Result<Credentials> FakeKeys::get() {
  Credentials keys;
  keys.access_key = fmt::format("key{}", refusals.load());
  return keys;
}

struct FakeS3::Asked {
  std::string method;
  std::string key;  // in the bucket
  std::map<std::string, std::string> query;
  std::vector<HttpField> fields;
  std::string body;

  explicit Asked(const HttpRequest& request)
      : method(request.method),
        fields(request.fields),
        body(reinterpret_cast<const char*>(request.body.data()), request.body.size()) {
    const std::size_t mark = std::min(request.url.find('?'), request.url.size());
    std::string_view path = std::string_view(request.url).substr(0, mark);
    path.remove_prefix(std::min(path.size(), kHost.size() + kBucket.size() + 2));
    key = url_decoded(path).value_or("");
    std::string_view left = std::string_view(request.url).substr(mark);
    while (!left.empty()) {
      left.remove_prefix(1);
      const std::string_view item = left.substr(0, left.find('&'));
      const std::size_t equals = std::min(item.find('='), item.size());
      query[std::string(item.substr(0, equals))] =
          url_decoded(item.substr(std::min(equals + 1, item.size()))).value_or("");
      left.remove_prefix(item.size());
    }
  }
  [[nodiscard]] std::string field(std::string_view name) const {
    const auto found = std::ranges::find(fields, name, &HttpField::name);
    return found == fields.end() ? "" : found->value;
  }
  [[nodiscard]] bool has(const std::string& name) const { return query.contains(name); }
  [[nodiscard]] std::string of(const std::string& name) const {
    const auto found = query.find(name);
    return found == query.end() ? "" : found->second;
  }
  [[nodiscard]] bool is_complete() const { return method == "POST" && has("uploadId"); }
  [[nodiscard]] bool is_conditional() const { return !field("if-none-match").empty(); }
};

ObjectPlace FakeS3::place() {
  return {.bucket = std::string(kBucket),
          .prefix = "runs/a",
          .endpoint = std::string(kHost),
          .region = "us-east-1",
          .path_style = true,
          .ca_bundle = {}};
}

S3Client::Settings FakeS3::settings(std::shared_ptr<HttpTransport> store, FakeTime& time) {
  return {.place = place(),
          .transport = std::move(store),
          .credentials = std::make_shared<FakeKeys>(),
          .time = time.time()};
}

HttpResponse FakeS3::error(int status, std::string_view code, std::string_view more) {
  return {.status = status,
          .body = fmt::format("<Error><Code>{}</Code><Message>as the test says</Message>"
                              "<RequestId>R1</RequestId>{}</Error>",
                              code, more)};
}

Result<HttpResponse> FakeS3::send(const HttpRequest& request) {
  if (hook_) {
    if (auto answer = hook_(request)) return *std::move(answer);
  }
  const std::lock_guard lock(mutex_);
  Asked asked(request);
  const auto fault = faults_.find(log_.size());
  log_.push_back(fmt::format("{} {}{}", asked.method, asked.key,
                             asked.query.empty() ? "" : "?" + asked.query.begin()->first));
  return answer(request, std::move(asked),
                fault == faults_.end() ? std::nullopt : std::optional(fault->second));
}

Result<HttpResponse> FakeS3::send_unharmed(const HttpRequest& request) {
  const std::lock_guard lock(mutex_);
  return answer(request, Asked(request), std::nullopt);
}

Result<HttpResponse> FakeS3::answer(const HttpRequest& request, Asked asked,
                                    std::optional<S3Fault> fault) {
  const auto late = std::exchange(late_, nullptr);
  auto answer = fault ? act_with(*fault, std::move(asked)) : Result<HttpResponse>(act(asked));
  if (late) std::ignore = act(*late);
  if (!answer) return answer;
  answer->fields.push_back({"date", http_date(clock_.now())});
  answer->fields.push_back({"x-amz-request-id", fmt::format("request{}", log_.size())});
  if (request.method == "HEAD") answer->body.clear();
  if (request.into.empty() || !answer->is_success()) return answer;
  if (answer->body.size() > request.into.size())
    return std::unexpected(Error(ErrorCode::kIo, "big"));
  std::memcpy(request.into.data(), answer->body.data(), answer->body.size());
  answer->into_bytes = answer->body.size();
  answer->body.clear();
  return answer;
}

Result<HttpResponse> FakeS3::act_with(S3Fault fault, Asked asked) {
  constexpr char kBit = 4;
  const auto flip = [](std::string& bytes) {
    if (!bytes.empty()) bytes[bytes.size() / 2] ^= kBit;
  };
  const auto lost = [] { return std::unexpected(Error(ErrorCode::kIo, "connection lost")); };
  switch (fault) {
    case S3Fault::kInternalError:
      return error(500, "InternalError");
    case S3Fault::kSlowDown: {
      HttpResponse slow = error(503, "SlowDown");
      slow.fields.push_back({"retry-after", "2"});
      return slow;
    }
    case S3Fault::kErrorInBody:
      return asked.is_complete() ? error(200, "InternalError") : act(asked);
    case S3Fault::kLostBefore:
      return lost();
    case S3Fault::kLostAfter:
      std::ignore = act(asked);
      return lost();
    case S3Fault::kConflict:
      return asked.is_conditional() ? error(409, "ConditionalRequestConflict") : act(asked);
    case S3Fault::kTaken:
      if (!asked.is_conditional()) return act(asked);
      std::ignore = asked.is_complete() ? complete(asked, true) : put(asked);
      return error(412, "PreconditionFailed");
    case S3Fault::kTimeout:
      late_ = std::make_shared<Asked>(std::move(asked));
      return std::unexpected(Error(ErrorCode::kTimeout, "no answer"));
    case S3Fault::kExpiredToken:
      return error(400, "ExpiredToken");
    case S3Fault::kSkewedClock: {
      HttpResponse skewed = error(403, "RequestTimeTooSkewed");
      skewed.fields.push_back({"date", http_date(clock_.now() + std::chrono::hours(1))});
      return skewed;
    }
    case S3Fault::kFlippedAnswer: {
      HttpResponse answer = act(asked);
      if (asked.method == "GET" && answer.is_success()) flip(answer.body);
      return answer;
    }
    case S3Fault::kFlippedBody:
      flip(asked.body);
      return act(asked);
  }
  return lost();
}

HttpResponse FakeS3::act(const Asked& asked) {
  const std::string authorization = asked.field("authorization");
  if (authorization.empty()) return error(403, "AccessDenied");
  if (!region_.empty() && authorization.find("/" + region_ + "/") == std::string::npos) {
    return error(400, "AuthorizationHeaderMalformed", "<Region>" + region_ + "</Region>");
  }
  if (asked.method == "PUT") return asked.has("uploadId") ? put_part(asked) : put(asked);
  if (asked.method == "POST") return asked.has("uploads") ? begin(asked) : complete(asked, false);
  if (asked.method == "DELETE") return remove(asked);
  if (asked.method == "HEAD") return head(asked);
  if (asked.has("uploads")) return list_uploads(asked);
  return asked.key.empty() ? list(asked) : get(asked);
}

bool FakeS3::is_refused(const Asked& asked) const {
  return takes_conditions_ && asked.is_conditional() && objects_.contains(asked.key);
}

HttpResponse FakeS3::put(const Asked& asked) {
  const std::uint32_t crc = crc_of(asked.body);
  if (parse_checksum(asked.field("x-amz-checksum-crc32c")) != crc) return error(400, "BadDigest");
  if (is_refused(asked)) return error(412, "PreconditionFailed");
  objects_[asked.key] = {.bytes = asked.body, .crc = crc};
  return {.status = 200, .fields = {{"etag", etag_of(crc)}}};
}

HttpResponse FakeS3::begin(const Asked& asked) {
  const bool is_whole = asked.field("x-amz-checksum-type") == "FULL_OBJECT" &&
                        asked.field("x-amz-checksum-algorithm") == "CRC32C";
  if (!is_whole) return error(400, "InvalidRequest");
  const std::string id = fmt::format("upload+{}", ++uploads_begun_);
  uploads_[id] = {.key = asked.key, .initiated = clock_.now(), .parts = {}};
  return answer_xml("<InitiateMultipartUploadResult><UploadId>" + id +
                    "</UploadId></InitiateMultipartUploadResult>");
}

HttpResponse FakeS3::put_part(const Asked& asked) {
  const auto upload = uploads_.find(asked.of("uploadId"));
  if (upload == uploads_.end()) return error(404, "NoSuchUpload");
  const std::uint32_t crc = crc_of(asked.body);
  if (parse_checksum(asked.field("x-amz-checksum-crc32c")) != crc) return error(400, "BadDigest");
  const auto number = parse_number(asked.of("partNumber"));
  if (!number || *number < 1 || *number > 10'000) return error(400, "InvalidArgument");
  upload->second.parts[static_cast<int>(*number)] = {.bytes = asked.body, .crc = crc};
  return {.status = 200, .fields = {{"etag", etag_of(crc)}}};
}

HttpResponse FakeS3::complete(const Asked& asked, bool keeps_open) {
  const auto upload = uploads_.find(asked.of("uploadId"));
  if (upload == uploads_.end()) return error(404, "NoSuchUpload");
  const auto root = parse_xml(asked.body);
  if (!root) return error(400, "MalformedXML");
  std::string bytes;
  int last = 0;
  for (const XmlElement& part : root->children) {
    const auto number = static_cast<int>(parse_number(part.text_of("PartNumber")).value_or(0));
    const auto found = upload->second.parts.find(number);
    if (number <= std::exchange(last, number)) return error(400, "InvalidPartOrder");
    if (found == upload->second.parts.end() || part.text_of("ETag") != etag_of(found->second.crc) ||
        parse_checksum(part.text_of("ChecksumCRC32C")) != found->second.crc) {
      return error(400, "InvalidPart");
    }
    bytes += found->second.bytes;
  }
  const std::uint32_t crc = crc_of(bytes);
  if (asked.field("x-amz-checksum-type") != "FULL_OBJECT" ||
      parse_checksum(asked.field("x-amz-checksum-crc32c")) != crc) {
    return error(400, "BadDigest");
  }
  if (is_refused(asked)) return error(412, "PreconditionFailed");
  objects_[asked.key] = {.bytes = std::move(bytes), .crc = crc};
  if (!keeps_open) uploads_.erase(upload);
  return answer_xml(
      "<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>");
}

HttpResponse FakeS3::get(const Asked& asked) {
  const auto found = objects_.find(asked.key);
  if (found == objects_.end()) return error(404, "NoSuchKey");
  const std::string& bytes = found->second.bytes;
  const std::string range = asked.field("range");  // "bytes=0-99"
  if (range.empty()) {
    HttpResponse whole{.status = 200, .body = bytes};
    if (keeps_checksums_ && asked.field("x-amz-checksum-mode") == "ENABLED") {
      whole.fields.push_back({"x-amz-checksum-crc32c", checksum_text(found->second.crc)});
    }
    return whole;
  }
  const std::size_t dash = std::min(range.find('-'), range.size());
  const std::size_t begin = parse_number(range.substr(6, dash - 6)).value_or(0);
  const std::size_t last = parse_number(range.substr(dash + 1)).value_or(0);
  if (begin >= bytes.size()) return error(416, "InvalidRange");
  const std::size_t end = std::min(bytes.size(), last + 1);
  return {
      .status = 206,
      .fields = {{"content-range", fmt::format("bytes {}-{}/{}", begin, end - 1, bytes.size())}},
      .body = bytes.substr(begin, end - begin)};
}

HttpResponse FakeS3::head(const Asked& asked) {
  const auto found = objects_.find(asked.key);
  if (found == objects_.end()) return error(404, "NoSuchKey");
  HttpResponse answer{.status = 200,
                      .fields = {{"content-length", std::to_string(found->second.bytes.size())}}};
  if (keeps_checksums_ && asked.field("x-amz-checksum-mode") == "ENABLED") {
    answer.fields.push_back({"x-amz-checksum-crc32c", checksum_text(found->second.crc)});
    answer.fields.push_back({"x-amz-checksum-type", "FULL_OBJECT"});
  }
  return answer;
}

HttpResponse FakeS3::remove(const Asked& asked) {
  if (!asked.has("uploadId")) {
    objects_.erase(asked.key);
    return {.status = 204};
  }
  return uploads_.erase(asked.of("uploadId")) == 0 ? error(404, "NoSuchUpload")
                                                   : HttpResponse{.status = 204};
}

HttpResponse FakeS3::list(const Asked& asked) {
  const std::string prefix = asked.of("prefix");
  std::vector<std::string> names;  // a common prefix ends in '/'
  for (const auto& [key, object] : objects_) {
    if (!key.starts_with(prefix)) continue;
    const std::size_t slash =
        asked.has("delimiter") ? key.find('/', prefix.size()) : std::string::npos;
    std::string name = slash == std::string::npos ? key : key.substr(0, slash + 1);
    if (names.empty() || names.back() != name) names.push_back(std::move(name));
  }
  const Page page = page_of(names, asked.of("continuation-token"), page_size_);
  std::string body = fmt::format(
      "<ListBucketResult><IsTruncated>{}</IsTruncated>"
      "<EncodingType>url</EncodingType>",
      page.is_truncated);
  for (std::size_t i = page.begin; i < page.end; ++i) {
    if (!objects_.contains(names[i])) {
      body += "<CommonPrefixes><Prefix>" + encoded(names[i]) + "</Prefix></CommonPrefixes>";
      continue;
    }
    const Object& object = objects_[names[i]];
    body += fmt::format("<Contents><Key>{}</Key><ETag>{}</ETag><Size>{}</Size></Contents>",
                        encoded(names[i]), xml_escaped(etag_of(object.crc)), object.bytes.size());
  }
  if (page.is_truncated) {
    body += "<NextContinuationToken>" + names[page.end - 1] + "</NextContinuationToken>";
  }
  return answer_xml(body + "</ListBucketResult>");
}

HttpResponse FakeS3::list_uploads(const Asked& asked) {
  std::vector<std::string> ids;
  for (const auto& [id, upload] : uploads_) {
    if (upload.key.starts_with(asked.of("prefix"))) ids.push_back(id);
  }
  const Page page = page_of(ids, asked.of("upload-id-marker"), page_size_);
  std::string body = fmt::format(
      "<ListMultipartUploadsResult><IsTruncated>{}</IsTruncated>"
      "<EncodingType>url</EncodingType>",
      page.is_truncated);
  for (std::size_t i = page.begin; i < page.end; ++i) {
    const OpenParts& upload = uploads_[ids[i]];
    body += fmt::format(
        "<Upload><Key>{}</Key><UploadId>{}</UploadId><Initiated>{:%FT%T}.000Z"
        "</Initiated></Upload>",
        encoded(upload.key), ids[i], std::chrono::floor<std::chrono::seconds>(upload.initiated));
  }
  if (page.is_truncated) {
    body += fmt::format(
        "<NextKeyMarker>{}</NextKeyMarker>"
        "<NextUploadIdMarker>{}</NextUploadIdMarker>",
        encoded(uploads_[ids[page.end - 1]].key), ids[page.end - 1]);
  }
  return answer_xml(body + "</ListMultipartUploadsResult>");
}

namespace {

std::string below_place(std::string_view key) {
  return fmt::format("{}/{}", FakeS3::place().prefix, key);
}

}  // namespace

std::optional<std::string> FakeS3::contents(std::string_view key) const {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(below_place(key));
  if (found == objects_.end()) return std::nullopt;
  return found->second.bytes;
}

std::vector<std::string> FakeS3::keys() const {
  const std::lock_guard lock(mutex_);
  const std::string base = below_place("");
  std::vector<std::string> found;
  for (const auto& [key, object] : objects_) {
    found.push_back(key.starts_with(base) ? key.substr(base.size()) : "/" + key);
  }
  return found;
}

void FakeS3::plant(std::string_view key, std::string bytes) {
  const std::lock_guard lock(mutex_);
  const std::uint32_t crc = crc_of(bytes);
  objects_[below_place(key)] = {.bytes = std::move(bytes), .crc = crc};
}

bool FakeS3::flip_bit(std::string_view key, std::uint64_t bit) {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(below_place(key));
  if (found == objects_.end() || bit / 8 >= found->second.bytes.size()) return false;
  found->second.bytes[bit / 8] ^= static_cast<char>(1U << bit % 8);
  return true;
}

std::string FakeS3::plant_upload(std::string_view key) {
  const std::lock_guard lock(mutex_);
  const std::string id = fmt::format("upload+{}", ++uploads_begun_);
  uploads_[id] = {.key = below_place(key), .initiated = clock_.now(), .parts = {}};
  return id;
}

std::size_t FakeS3::open_uploads() const {
  const std::lock_guard lock(mutex_);
  return uploads_.size();
}

std::size_t FakeS3::request_count() const {
  const std::lock_guard lock(mutex_);
  return log_.size();
}

std::vector<std::string> FakeS3::log() const {
  const std::lock_guard lock(mutex_);
  return log_;
}

}  // namespace deepfreeze
